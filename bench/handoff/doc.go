// Package handoff measures how a lock passes from one waiting client to the next.
//
// Several clients want one lock. Each acquires it, holds it, releases it and pauses, over and over. A hand-off lasts
// from just before the holder releases the lock to the moment when the next holder has it: in between nobody can work.
// The release is part of it for every library, because some wake the next holder before the release returns. Only
// hand-offs to a client that was already waiting count.
//
// Like package measure it lets the candidates alternate, round by round.
package handoff
