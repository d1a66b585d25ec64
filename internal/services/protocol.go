package services

import "time"

// The user process and the host talk in lines of JSON over the host's standard
// input and output: one request, one answer, in turn.

type op string

const (
	opServices  op = "services"  // both servers
	opRedis     op = "redis"     // one Redis, which the ops below act on
	opPostgres  op = "postgres"  // one PostgreSQL, likewise
	opProbe     op = "probe"     // see that opServices would work
	opPgBouncer op = "pgbouncer" // one PgBouncer
	opNodes     op = "nodes"     // servers of installed programs, beside those there are; Node names one later

	opKill   op = "kill"   // at once, nothing saved
	opShut   op = "shut"   // in order, everything saved; PostgreSQL alone
	opStart  op = "start"  // again after kill or shut, on the same port
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
	Nodes   []nodeSpec     `json:",omitempty"` // opNodes
	Node    int            `json:",omitempty"` // opKill and the like, after opNodes: which of them
}

type answer struct {
	Error       string `json:",omitempty"` // empty: done
	PostgresURL string `json:",omitempty"`
	RedisURL    string `json:",omitempty"`
	BouncerURL  string `json:",omitempty"`
	Postgres    string `json:",omitempty"` // description
	Redis       string `json:",omitempty"` // description

	NodeURLs []string `json:",omitempty"` // of opNodes
}

const (
	localPatience = 60 * time.Second // a local server from start to first answer
	hurtPatience  = 2 * time.Minute  // one request to a server of one's own
	stopPatience  = 30 * time.Second // the host from end of input to exit
)
