// Package work is what `fencepost compare` has done under every way of coordinating: the operations, the tables
// that they write, and the audit that counts afterwards what came of them.
//
// Whoever changes a row writes a line into compare.journal in the same statement. The audit believes rows and
// journal alone, and of the workers only which operations they were told have been carried out.
package work
