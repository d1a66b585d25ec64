package migrations

import (
	"context"
	"database/sql"
	"fmt"
)

// mayAskSQL reports whether fencepost.schema_problems exists and the current role may act as its owner. A program that
// only finds everything applied need not ask, and cannot repair anything. EXECUTE on that function proves nothing:
// after a dump without privileges every role has it.
const mayAskSQL = `SELECT coalesce((SELECT pg_catalog.pg_has_role(f.proowner, 'USAGE') FROM pg_catalog.pg_proc AS f
	WHERE f.oid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure('fencepost.schema_problems()')), false)`

// problems returns what the database says needs repair although no migration is pending.
func problems(ctx context.Context, db querier) ([]string, error) {
	var may bool
	if err := db.QueryRowContext(ctx, mayAskSQL).Scan(&may); err != nil || !may {
		return nil, err
	}
	return texts(ctx, db, `SELECT fencepost.schema_problems()`)
}

// problemsNow is problems outside of any transaction.
func problemsNow(ctx context.Context, db *sql.DB) (list []string, err error) {
	err = whileTakenDown(func() (err error) {
		list, err = problems(ctx, db)
		return err
	})
	return list, err
}

// whileTakenDown runs fn, which asks for problems. It runs fn again if fn failed because a migrator dropped the
// functions meanwhile, which can happen to a statement that has already begun. The second time fn finds that there is
// nothing to ask. If fn uses a transaction, it must begin its own, because such an error ends the transaction.
func whileTakenDown(fn func() error) error {
	const most = 5
	for attempt := 1; ; attempt++ {
		err := fn()
		switch sqlState(err) {
		case stateCacheLookup, stateNoSuchFunction, stateNoSuchTable:
			if attempt < most {
				continue
			}
		}
		return err
	}
}

// repair has the database repair the problems of its schema. If there are none, it takes no lock and writes nothing. If
// the first look fails, for example because another process is taking the functions down, only the look under the lock
// counts.
func (r *runner) repair(ctx context.Context) error {
	list, err := problemsNow(ctx, r.db)
	if err == nil && len(list) == 0 {
		return nil
	}
	return whileTakenDown(func() error { return r.lockedTx(ctx, r.repairIn(ctx)) })
}

// repairIn looks again, in a transaction that has the migration lock, and repairs what it finds.
func (r *runner) repairIn(ctx context.Context) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		list, err := problems(ctx, tx)
		if err != nil {
			return fmt.Errorf("look for problems: %w", err)
		}
		if len(list) == 0 {
			return nil
		}
		r.opts.Logger.InfoContext(ctx, "schema is repaired", "problems", list)
		if err := execAll(ctx, tx, `SELECT fencepost.repair()`); err != nil {
			return fmt.Errorf("repair the schema: %w", err)
		}
		return nil
	}
}
