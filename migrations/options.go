package migrations

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/pressly/goose/v3"
)

// FirstAlso is the lowest version for [Options.Also]: those below belong to the library.
const FirstAlso = 1000

// Options adjusts [Up], [Down] and [Status]. Nil means the defaults.
type Options struct {
	// Also are the caller's own migrations, recorded in the same version table and run under the
	// same lock; see [TokenColumn]. They are Go migrations that run in a transaction, with versions
	// from [FirstAlso], each once. They run after the library's own on a new database; on an older
	// one a new release's own migration may come after them. Default: none.
	Also []*goose.Migration

	// To is the version that Down stops above: everything applied with a higher version is taken
	// down. Up and Status ignore it. Default 0: everything.
	To int64

	// Force lets Down forget tokens. It empties fencepost.fence, and the ledger of keys, before it drops
	// them, takes the doors of protected tables away, and drops a column of TokenColumn whatever it
	// carries. Any worker still running, however stale, can write afterwards: it is for a database that
	// no worker uses. Up and Status ignore it. Default false: Down refuses with ErrTokensRemain.
	Force bool

	// Logger is told of every migration run. Default: none.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func (o *Options) validate() error {
	if o.To < 0 {
		return fmt.Errorf("%w: version %d to go down to is negative", ErrInvalid, o.To)
	}
	var versions []int64
	for i, m := range o.Also {
		if m == nil {
			return fmt.Errorf("%w: migration %d of Also is nil", ErrInvalid, i)
		}
		if err := validateAlso(m); err != nil {
			return err
		}
		if slices.Contains(versions, m.Version) {
			return fmt.Errorf("%w: version %d stands twice in Also", ErrInvalid, m.Version)
		}
		versions = append(versions, m.Version)
	}
	return nil
}

func validateAlso(m *goose.Migration) error {
	switch {
	case m.Version < FirstAlso:
		return fmt.Errorf("%w: version %d in Also is below %d", ErrInvalid, m.Version, FirstAlso)
	case m.Type != goose.TypeGo:
		return fmt.Errorf("%w: version %d in Also is not a Go migration", ErrInvalid, m.Version)
	case m.UpFnNoTxContext != nil || m.DownFnNoTxContext != nil:
		// The lock lives in the transaction.
		return fmt.Errorf("%w: version %d in Also does not run in a transaction", ErrInvalid, m.Version)
	}
	return nil
}
