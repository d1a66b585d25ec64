package load

import "time"

// Config is what a worker is told first.
type Config struct {
	Mode        Mode          `json:"mode"`
	Workload    Workload      `json:"workload"`
	Seed        uint64        `json:"seed"`
	Worker      int           `json:"worker"`
	Life        int           `json:"life"` // how often this worker has been killed before
	Threads     int           `json:"threads"`
	Groups      int           `json:"groups"`
	PostgresURL string        `json:"postgres_url"`
	RedisURLs   []string      `json:"redis_urls"`
	TTL         time.Duration `json:"ttl"`
	// Attempt bounds one operation.
	Attempt time.Duration `json:"attempt"`
	// File is where the operations are recorded.
	File string `json:"file"`
}

// Order is a line to a worker.
type Order struct {
	What What          `json:"what"`
	For  time.Duration `json:"for,omitempty"`
}

// What tells orders and events apart.
type What string

// The orders.
const (
	Start  What = "start"  // do operations
	Stop   What = "stop"   // finish those under way, and end
	Starve What = "starve" // keep all connections of the pool in use, For that long
	Jump   What = "jump"   // the wall clock goes forward, or back, by For
)

// The events.
const (
	Ready   What = "ready"   // connections are open; it waits for Start
	Stopped What = "stopped" // the last event of a worker that was told to stop: Left
	Failed  What = "failed"  // the last event of a worker that cannot go on: Error
)

// Event is a line from a worker.
type Event struct {
	What  What     `json:"what"`
	Left  []string `json:"left,omitempty"` // what the worker has not given back
	Error string   `json:"error,omitempty"`
}
