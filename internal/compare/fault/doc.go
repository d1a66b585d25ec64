// Package fault makes things go wrong in a cell of `fencepost compare`: for real, at a point that a worker has
// announced, and with a proof.
//
// All faults but one single out one worker, the victim, while it is between reading and writing: that is where
// coordination matters. A fault that did not strike as meant is an error that matches [ErrMissed], since a cell that
// looks good for want of its fault would be worse than none.
package fault
