// Package peers puts several lock libraries behind one interface, each in the way its own
// documentation recommends, so that they can be measured side by side.
//
// Where a library polls, the
// pause between two tries is [PollEvery]; its own
// choice would make it look worse: redislock's example waits 100 ms, redsync by default 50 to 250 ms, and
// gives up after 32 tries. A shorter pause hands on sooner and costs the server more. Where a TTL can be
// set, it is [TTL].
package peers
