// Package services finds a PostgreSQL and a Redis server, or starts both, for
// the demo command and for tests.
//
// # Where the servers come from
//
// Three ways are tried in this order, and the first that serves both is taken:
//
//   - url: the addresses in FENCEPOST_POSTGRES_URL and FENCEPOST_REDIS_URL. One
//     without the other is an error.
//   - docker: a Docker engine that answers, through testcontainers-go. The images
//     are FENCEPOST_POSTGRES_IMAGE and FENCEPOST_REDIS_IMAGE.
//   - local: installed programs, started as child processes on free loopback
//     ports in a temporary folder.
//
// PostgreSQL's data lies in memory (/dev/shm, or a tmpfs of the container) where it
// need not be durable and a gigabyte is free.
//
// FENCEPOST_SERVICES set to url, docker or local forces one. If none serves, the
// error is an [*UnavailableError] that names each way and why it did not.
//
// # Nothing is left behind
//
// A process that is killed cannot clean up after itself, so started servers
// belong to another process, the host: this program executed again, in a session
// of its own, with a pipe from the user process as its standard input. The end of
// that pipe is the one signal that reaches the host however the user process ends
// (return, panic, os.Exit, Ctrl-C, SIGKILL). The host then stops every server,
// removes containers and temporary folders, and exits. Where the host itself is
// killed, its folders stay, those in /dev/shm until the machine is started again.
//
// The price is one rule: [RunHostIfAsked] must be the first call in main, and in
// TestMain of a test binary that starts servers.
package services
