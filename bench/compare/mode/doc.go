// Package mode contains the ways of coordinating work that `fencepost compare` compares. Each does an operation of
// package work, from its read to its commit.
package mode
