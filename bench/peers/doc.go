// Package peers puts several lock libraries behind one interface, each in the way its own
// documentation recommends, so that they can be measured side by side.
//
// If a library polls, the pause between two attempts is [PollEvery]. The library's own choice would make it look worse:
// redislock's example waits 100 ms, and redsync waits 50 to 250 ms by default and gives up after 32 attempts. A shorter
// pause hands on sooner and costs the server more. If a TTL can be set, it is [TTL].
package peers
