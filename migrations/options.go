package migrations

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/pressly/goose/v3"
)

// FirstAlso is the lowest version for [Options.Also]. The versions below it belong to the library.
const FirstAlso = 1000

// Options adjusts [Up], [Down] and [Status]. Nil means the defaults.
type Options struct {
	// Also are the caller's own migrations. They are recorded in the same version table and run under the same lock;
	// see [TokenColumn]. They are Go migrations that run in a transaction. Their versions start at [FirstAlso], and
	// each version is used once. On a new database they run after the library's own migrations. On an older one a new
	// migration of the library may run after them.
	//
	// As in goose, only the version identifies a migration. Once a version is applied, another migration under the same
	// version is skipped without an error. Give each new migration a new version.
	//
	// They run as the role that runs Up. So one role has to own both the schema fencepost, whose version table it
	// writes, and the tables that they change. If a table has another owner, that owner runs its migrations in a goose
	// provider of its own: see the example of [Protect] with a table owner. Default: none.
	Also []*goose.Migration

	// To is the version at which Down stops: Down takes down every applied migration with a higher version. Up and
	// Status ignore it. Default 0: Down takes down everything.
	To int64

	// Force lets Down forget tokens. Down then empties fencepost.fence and the ledger of keys before it drops them,
	// removes the protections of protected tables, and drops a column of TokenColumn even if rows carry tokens. Any
	// worker that still runs, however stale, can write afterwards. So Force is for a database that no worker uses. Up
	// and Status ignore it. Default false: Down returns ErrTokensRemain.
	Force bool

	// Logger gets a record of every migration that runs. Default: none.
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
