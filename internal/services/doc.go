// Package services finds a PostgreSQL and a Redis server, or starts both, for
// the demo command and for tests.
//
// # Where the servers come from
//
// Start tries three ways in this order and takes the first that provides both:
//
//   - url: the addresses in FENCEPOST_POSTGRES_URL and FENCEPOST_REDIS_URL. One
//     without the other is an error.
//   - docker: a Docker engine that answers, through testcontainers-go. The images
//     are FENCEPOST_POSTGRES_IMAGE and FENCEPOST_REDIS_IMAGE.
//   - local: installed programs, started as child processes on free loopback
//     ports in a temporary folder. FENCEPOST_REDIS_PROGRAM names the one to take for
//     Redis; default redis-server, else valkey-server.
//
// PostgreSQL's data is kept in memory (/dev/shm, or a tmpfs of the container) if it need not be durable and a gigabyte
// is free. If FENCEPOST_CLUSTERS names an empty folder, installed programs make their first data only once: the result
// of initdb is kept there and copied. The caller removes the folder.
//
// FENCEPOST_SERVICES set to url, docker or local forces that way. If no way works, the error is an [*UnavailableError]
// that names each way and why it did not work.
//
// # Nothing is left behind
//
// A process that is killed cannot clean up after itself. So started servers belong to another process, the host: this
// program executed again, in its own session, with a pipe from the user process as its standard input. The end of that
// pipe is the one signal that reaches the host however the user process ends (return, panic, os.Exit, Ctrl-C, SIGKILL).
// The host then stops every server, removes containers and temporary folders, and exits. If the host itself is killed,
// its folders stay; those in /dev/shm stay until the machine restarts.
//
// This needs one rule: [RunHostIfAsked] must be the first call in main, and in TestMain of a test binary that starts
// servers.
package services
