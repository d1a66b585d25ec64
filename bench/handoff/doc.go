// Package handoff measures how a lock passes from one waiting client to the next.
//
// Several clients want one lock. Each takes it, holds it, gives it back and pauses, over and over. A
// hand-off is timed from just before the holder gives the lock back to the moment the next holder has it: what
// lies between the two is time in which nobody could work. Giving back is part of it for everybody, since
// some wake the next holder before they return to the last one. Only those hand-offs count in which
// the next holder was waiting already.
//
// Like package measure it lets the candidates alternate, round by round.
package handoff
