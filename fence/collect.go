package fence

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgcollect"
)

// MinCollectAge is the lowest bound of age for [Collect].
const MinCollectAge = pgcollect.MinAge

// CollectOptions are the settings of [Collect].
type CollectOptions struct {
	// OlderThan is the age from which on fences are collected: the time since their last claim, by PostgreSQL's clock.
	// It must be MinCollectAge or more.
	OlderThan time.Duration
	// Namespace limits the collection to one namespace. Default "": all fences.
	Namespace string
	// Held reports which of these resources are held, by their full names ("<namespace>:<resource>"). It is required: a
	// holder whose fence is collected is refused as stale at its next write. Ask the leases in Redis with
	// lease.Inspector.Look, and do not count a resource as free because a server did not answer.
	Held func(ctx context.Context, resources []string) (held []bool, err error)
	// Limit is how many fences are collected at most. Default 0: no limit.
	Limit int
	// DryRun counts and collects nothing.
	DryRun bool
	// Progress, if not nil, is called from time to time, by the goroutine that called Collect.
	Progress func(Collected)
}

// Collected says what [Collect] did.
type Collected struct {
	Old       int // fences that were looked at: those older than the bound
	Held      int // of them: left, because their resources are held
	Left      int // of them: left, because a transaction was open under them, or they were claimed in the meantime
	Collected int // of them: deleted
}

// Collect deletes the fences of resources that nobody has claimed for a long time, and that nobody holds. Their highest
// token remains, in the table fencepost.floor, as the floor of 1,024 groups of resources (buckets). A later claim of
// such a resource must be above the floor, so its tokens go on rising, and the tokens of earlier holders stay refused.
//
// It works in small transactions, and waits for nobody: it may run beside workers, several times at once, and be
// repeated after any error. The result counts what was done, also along with an error. The fences of a resource that is
// used again are created again: the first grant after that costs one more round trip to each server, which is reported
// as a reseed.
//
// conn must not be in a transaction. The role needs fencepost.grant_collector. Errors: ErrInvalid, ErrUnavailable,
// ErrOutcomeUnknown, and what Held returned. ctx bounds the call.
func Collect(ctx context.Context, conn *pgx.Conn, opts *CollectOptions) (Collected, error) {
	if opts == nil {
		opts = &CollectOptions{}
	}
	done, err := pgcollect.Collect(ctx, conn, &pgcollect.Options{
		OlderThan: opts.OlderThan, Namespace: opts.Namespace, Held: opts.Held, Limit: opts.Limit, DryRun: opts.DryRun,
		Progress: opts.progress(),
	})
	return Collected(done), err
}

func (o *CollectOptions) progress() func(pgcollect.Collected) {
	if o.Progress == nil {
		return nil
	}
	return func(c pgcollect.Collected) { o.Progress(Collected(c)) }
}
