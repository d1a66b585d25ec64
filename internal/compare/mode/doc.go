// Package mode has the ways of coordinating work that `fencepost compare` compares: each does an operation of package
// work from its reading to its commit.
package mode
