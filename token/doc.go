// Package token holds the types that the lease layer and the fence share: the fencing [Token] of a grant, the [Nonce]
// that proves whose grant it is, and the outcomes that both sides can meet.
//
// A token orders the grants of one resource. A later grant carries a higher token, and a resource that has seen a token
// refuses every lower one. A random lock id cannot do that.
//
// The package imports only the standard library. Everything else in fencepost imports it.
package token
