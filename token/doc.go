// Package token holds the words that the lease layer and the fence share: the fencing [Token] of a
// grant, the [Nonce] that proves whose grant it is, and the outcomes that both sides can meet.
//
// A token orders the grants of one resource: the later grant carries the higher token, and a
// resource that has seen a token refuses every lower one. It is what a random lock id is not.
//
// The package is a leaf. It imports nothing beyond the standard library, and everything else in
// fencepost imports it.
package token
