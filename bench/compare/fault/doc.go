// Package fault makes things go wrong in a cell of `fencepost compare`. The faults are real, strike at a point that a
// worker has announced, and come with a proof.
//
// All faults but one single out one worker, the victim, while it is between reading and writing, where coordination
// matters. If a fault did not strike as meant, the error matches [ErrMissed]: a cell that looks good because its fault
// missed would be worse than no cell.
package fault
