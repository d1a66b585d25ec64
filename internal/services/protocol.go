package services

import "time"

// The user process and the host exchange lines of JSON over the host's standard input and output: one request, one
// reply, in turn.

type op string

const (
	opServices  op = "services"  // both servers
	opRedis     op = "redis"     // one Redis, which the ops below act on
	opPostgres  op = "postgres"  // one PostgreSQL, likewise
	opProbe     op = "probe"     // check that opServices would work
	opPgBouncer op = "pgbouncer" // one PgBouncer
	opPgpool    op = "pgpool"    // one Pgpool-II
	opNodes     op = "nodes"     // more servers of installed programs; Node selects one later
	// opPostgresPair is a PostgreSQL and its standby, from installed programs; Node 0 and 1 select them later.
	opPostgresPair op = "postgres pair"

	opKill   op = "kill"   // at once, nothing saved
	opShut   op = "shut"   // in order, everything saved; PostgreSQL only
	opStart  op = "start"  // again after kill or shut, on the same port
	opFollow op = "follow" // opStart of a node of a pair, as the other's standby
	opPause  op = "pause"  // stop answering, keep connections
	opResume op = "resume" // end of pause
)

type request struct {
	Op      op
	Way     Way            `json:",omitempty"`
	Durable bool           `json:",omitempty"`
	Args    []string       `json:",omitempty"` // further arguments for the server
	Empty   bool           `json:",omitempty"` // opStart: without the data it had
	Bouncer *bouncerConfig `json:",omitempty"`
	Pgpool  *pgpoolConfig  `json:",omitempty"`
	Nodes   []nodeSpec     `json:",omitempty"` // opNodes
	Node    int            `json:",omitempty"` // which server, for opKill and the like after opNodes
}

type answer struct {
	Error       string `json:",omitempty"` // empty: done
	PostgresURL string `json:",omitempty"`
	RedisURL    string `json:",omitempty"`
	FrontURL    string `json:",omitempty"` // of opPgBouncer and opPgpool
	Postgres    string `json:",omitempty"` // description
	Redis       string `json:",omitempty"` // description

	NodeURLs []string `json:",omitempty"` // of opNodes
}

const (
	localPatience = 60 * time.Second // a local server from start to first answer
	hurtPatience  = 2 * time.Minute  // one request to a test's own server
	stopPatience  = 30 * time.Second // the host from end of input to exit
)
