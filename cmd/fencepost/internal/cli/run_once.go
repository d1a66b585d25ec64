package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
)

// onceRequest describes all work of fencepost run, so that a key that a program of the library has used is refused. The
// command line is not part of it: a path or a flag that changed does not make last night's run undone.
const onceRequest = "fencepost run"

// recordWithin bounds how long entering the key may take once the program has ended.
const recordWithin = 30 * time.Second

// ran is what the ledger says about a run.
type ran struct {
	Began time.Time       `json:"began"`
	Ended time.Time       `json:"ended"`
	Token fencepost.Token `json:"token"`
	Label string          `json:"label,omitempty"`
}

// recorded reports whether the ledger has the key. A run without a key has never been recorded.
func (u *underLease) recorded(ctx context.Context) (bool, error) {
	if u.Once == "" {
		return false, nil
	}
	full, err := u.store.FullName(u.Resource)
	if err != nil {
		return false, err
	}
	request, err := json.Marshal(onceRequest)
	if err != nil {
		return false, err
	}
	_, found, err := pgledger.Look(ctx, u.site.pool, pgledger.Entry{
		Namespace: u.Namespace, Key: u.Once, Resource: full, Request: sha256.Sum256(request),
	})
	if u.entered = found; found {
		u.say("was not run: the ledger has the key %q", u.Once)
	}
	return found, err
}

// record enters the key, in a transaction under the lease: an overtaken run enters nothing. A signal that ended the
// program does not stop it.
func (u *underLease) record(ctx context.Context, lease *fencepost.Lease, began time.Time) error {
	if u.Once == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	result := ran{Began: began.UTC(), Ended: time.Now().UTC(), Token: lease.Token(), Label: u.Label}
	done, err := fencepost.Once(ctx, lease, u.Once, onceRequest, func(context.Context, pgx.Tx) (ran, error) {
		return result, nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("the program ended with status 0, but the key %q was not entered, so it may run again: %w",
			u.Once, err)
	case done.Recorded:
		return refused(errors.New("the program ended with status 0, but another run has entered the key meanwhile"))
	}
	u.entered = true
	return nil
}
