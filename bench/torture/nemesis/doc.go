// Package nemesis breaks things while workers work: processes, servers, what servers know, and the network.
//
// What is broken, when and for how long is drawn from the run's seed, so the same seed gives the same schedule. When
// exactly a worker is struck depends on the machine.
package nemesis
