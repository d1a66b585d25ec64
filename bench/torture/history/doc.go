// Package history records what the workers of a torture run did, and reads it back.
//
// Each worker process writes one file with two JSON lines for each operation: one before it is sent, and one when its
// outcome is known. A process that is killed leaves the first line alone, so what it was doing counts as unknown. Times
// are those of one clock that all processes of the machine share.
//
// The database keeps a second record. A trigger writes each change of a row into a journal, in the transaction of the
// change and under the row's lock. So the journal has the changes that were committed, and for each row their order.
package history
