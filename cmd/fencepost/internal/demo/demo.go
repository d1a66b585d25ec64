package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// Kind tells the two plays apart.
type Kind string

// The plays, in their order.
const (
	Unfenced Kind = "unfenced" // the write is a plain UPDATE
	Fenced   Kind = "fenced"   // the write goes through package fence
)

// ErrNotAsTold means that a play ended differently from the story.
var ErrNotAsTold = errors.New("the end is not as told")

// Options are the settings of [Run]. Those without a default are required.
type Options struct {
	// PostgresURL and RedisURL name the servers. The PostgreSQL user may create databases.
	PostgresURL, RedisURL string
	// Worker is a command, with the path of a program, that calls RunWorker.
	Worker []string
	// Name makes the names of databases and namespaces unique: 1 to 40 of a-z and 0-9. Default: random.
	Name string
	// TTL is how long a lease lasts without renewal. Default 1.5 s.
	TTL time.Duration
	// Patience bounds each step of a play, including the wait for A's lease to run out. Default 20 s.
	Patience time.Duration
	// Watch is called with each event while the play runs. Calls do not overlap. Default: none.
	Watch func(Kind, Event)
}

func (o *Options) withDefaults() Options {
	v := *o
	if v.Name == "" {
		v.Name = strings.ToLower(rand.Text()[:12])
	}
	if v.TTL == 0 {
		v.TTL = 1500 * time.Millisecond
	}
	if v.Patience == 0 {
		v.Patience = 20 * time.Second
	}
	if v.Watch == nil {
		v.Watch = func(Kind, Event) {}
	}
	return v
}

func (o *Options) validate() error {
	// The parsers' own errors quote what they could not parse, including the password.
	if _, err := pgx.ParseConfig(o.PostgresURL); err != nil || o.PostgresURL == "" {
		return errors.New("the PostgreSQL address is not valid")
	}
	if _, err := redis.ParseURL(o.RedisURL); err != nil {
		return errors.New("the Redis address is not valid")
	}
	if len(o.Worker) == 0 {
		return errors.New("no command for workers")
	}
	if !regexp.MustCompile(`^[a-z0-9]{1,40}$`).MatchString(o.Name) {
		return fmt.Errorf("name %q is not 1 to 40 of a-z and 0-9", o.Name)
	}
	if o.TTL < 0 || o.Patience <= o.TTL {
		return fmt.Errorf("a patience of %v does not fit a TTL of %v", o.Patience, o.TTL)
	}
	return nil
}

// Supported returns nil if the demo can run here, and otherwise an error that says what is missing.
func Supported() error { return process.Supported() }

// Run plays both plays and returns how they ended; a play that did not end is nil. The error matches ErrNotAsTold if a
// play ended differently from the story. ctx bounds the whole call. When Run returns, with or without an error, no
// worker, database or key of a play is left, unless the error says so.
func Run(ctx context.Context, opts *Options) (*Result, error) {
	return run(ctx, opts, writers{Unfenced: plain, Fenced: guarded})
}

// writers says how the workers of each play write.
type writers map[Kind]writer

func run(ctx context.Context, opts *Options, how writers) (*Result, error) {
	result := &Result{}
	o := opts.withDefaults()
	if err := errors.Join(process.Supported(), o.validate()); err != nil {
		return result, err
	}
	if os.Getenv(workerEnv) != "" {
		// This is a worker whose main did not stop at RunWorker: it would start workers without end.
		return result, errors.New("the command for workers does not call RunWorker")
	}
	for _, kind := range []Kind{Unfenced, Fenced} {
		end, err := perform(ctx, o, kind, how[kind])
		result.set(kind, end)
		if err != nil {
			return result, fmt.Errorf("play the %s demo: %w", kind, err)
		}
	}
	return result, result.Check()
}
