// Package work is what `fencepost compare` does under every way of coordinating: the operations, the tables that they
// write, and the audit that counts the results afterwards.
//
// A statement that changes a row also writes a line into compare.journal. The audit uses only rows, journal, and the
// list of operations that were reported to the workers as carried out.
package work
