package fence_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// refusals are the isolation levels, and the error of a write under an overtaken claim at each level.
var refusals = map[pgx.TxIsoLevel]string{
	pgx.ReadCommitted:  "ZF001",
	pgx.RepeatableRead: "40001",
	pgx.Serializable:   "40001",
}

// game is one interleaving of a claim of token 2 with a write under token 1.
type game struct {
	*testing.T
	pool   *pgxpool.Pool
	claim  pgx.Tx // holds the claim of 2 open
	writer pgx.Tx
	old    fence.Claim
}

// begin opens both transactions. The writer has its claim in the setting alone, so only the trigger stands between it
// and the row.
func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) *game {
	t.Helper()
	g := &game{T: t, pool: pool, old: fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 1))}
	for tx, options := range map[*pgx.Tx]pgx.TxOptions{
		&g.claim:  {IsoLevel: pgx.ReadCommitted},
		&g.writer: {IsoLevel: level},
	} {
		var err error
		if *tx, err = pool.BeginTx(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*tx).Rollback(context.Background()) })
	}
	return g
}

// enters puts the claim into the writer's setting. At the stricter levels this takes the snapshot.
func (g *game) enters(c fence.Claim) {
	entersByHand(g.T, g.writer, c)
}

func (g *game) claims() fence.Claim {
	g.Helper()
	c := fencetest.ClaimOf(g.old.Resource, 2)
	fencetest.Exec(
		g.T,
		g.claim,
		`SELECT fencepost.claim($1, $2, $3::text::uuid)`,
		c.Resource,
		int64(c.Token),
		uuidOf(c.Nonce),
	)
	return c
}

func (g *game) writes() error {
	return sends(g.Context(), `UPDATE app.item SET value = 'late' WHERE id = 1`)(g.writer)
}

// writesAside writes in a goroutine.
func (g *game) writesAside() <-chan error {
	done := make(chan error, 1)
	go func() { done <- g.writes() }()
	return done
}

func (g *game) commits(tx pgx.Tx) {
	g.Helper()
	if err := tx.Commit(g.Context()); err != nil {
		g.Fatal(err)
	}
}

func (g *game) wantValue(want string) {
	g.Helper()
	if got := fencetest.Read(g.T, g.pool, 1).Value; got != want {
		g.Errorf("the row has %q, want %q", got, want)
	}
}

// eachLevel runs a game on a fresh database at every isolation level.
func eachLevel(t *testing.T, play func(g *game, refusal string)) {
	t.Helper()
	for level, refusal := range refusals {
		t.Run(strings.ReplaceAll(string(level), " ", "_"), func(t *testing.T) {
			t.Parallel()
			play(begin(t, protected(t), level), refusal)
		})
	}
}

// Order: write, claim. The claim waits for the writer's transaction.
func TestInvariant3_AClaimWaitsForATriggeredWrite(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, _ string) {
		g.enters(g.old)
		if err := g.writes(); err != nil {
			g.Fatal(err)
		}
		claimed := make(chan error, 1)
		go func() { claimed <- fencetest.Raise(g.Context(), g.pool, fencetest.ClaimOf(g.old.Resource, 2)) }()
		fencetest.UntilBlockedBy(g.T, g.pool, g.writer)
		g.commits(g.writer)
		if err := <-claimed; err != nil {
			g.Error(err)
		}
		g.wantValue("late")
	})
}

// Order: claim, write, the claim commits. The write waits in the trigger and is refused.
func TestInvariant3_ATriggeredWriteWaitsForAClaim(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, refusal string) {
		g.enters(g.old)
		g.claims()
		written := g.writesAside()
		fencetest.UntilBlockedBy(g.T, g.pool, g.claim)
		g.commits(g.claim)
		wantState(g.T, <-written, refusal)
	})
}

// Order: claim, write, the claim is rolled back. The write goes on.
func TestATriggeredWriteGoesOnAfterAClaimRolledBack(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, _ string) {
		g.enters(g.old)
		g.claims()
		written := g.writesAside()
		fencetest.UntilBlockedBy(g.T, g.pool, g.claim)
		if err := g.claim.Rollback(g.Context()); err != nil {
			g.Fatal(err)
		}
		if err := <-written; err != nil {
			g.Fatal(err)
		}
		g.commits(g.writer)
		g.wantValue("late")
	})
}

// Order: snapshot, claim commits, write under the old claim.
func TestInvariant3_ASnapshotOlderThanTheClaimDoesNotHelp(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, refusal string) {
		g.enters(g.old)
		g.claims()
		g.commits(g.claim)
		wantState(g.T, g.writes(), refusal)
	})
}

// Order: snapshot, claim commits, write under the new claim. Nobody is stale here. If the transaction's snapshot cannot
// show the claim, the transaction has to be run again.
func TestAWriteUnderASnapshotOlderThanItsOwnClaimIsNotStale(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, refusal string) {
		fencetest.Exec(g.T, g.writer, `SELECT`)
		c := g.claims()
		g.commits(g.claim)
		g.enters(c)
		err := g.writes()
		if refusal == "ZF001" {
			if err != nil {
				g.Error(err)
			}
			return
		}
		wantState(g.T, err, "40001")
		if !fence.SafeToRetry(fence.GuardError(g.Context(), err)) {
			g.Errorf("not safe to retry: %v", err)
		}
	})
}

// Order: the writer enters properly; a claim waits; both writes of the old holder pass; the new holder finds them.
func TestAClaimCannotSlipBetweenEnterAndTheTrigger(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(g *game, _ string) {
		if err := fence.Enter(g.Context(), g.writer, g.old); err != nil {
			g.Fatal(err)
		}
		claimed := make(chan error, 1)
		go func() { claimed <- fencetest.Raise(g.Context(), g.pool, fencetest.ClaimOf(g.old.Resource, 2)) }()
		fencetest.UntilBlockedBy(g.T, g.pool, g.writer)
		for range 2 {
			if err := g.writes(); err != nil {
				g.Fatal(err)
			}
		}
		g.commits(g.writer)
		if err := <-claimed; err != nil {
			g.Error(err)
		}
		g.wantValue("late")
	})
}

// The control: with the lock taken out of the trigger, a write under the old claim commits after the new claim has.
func TestInvariant3Control_WithoutTheTriggersLock(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	replaceFunction(t, pool, "check_write(text, bigint, oid, text, text)", "FOR SHARE;", ";")
	g := begin(t, pool, pgx.ReadCommitted)
	g.enters(g.old)
	g.claims()
	if err := g.writes(); err != nil {
		t.Fatal(err)
	}
	g.commits(g.claim)
	g.commits(g.writer)
	g.wantValue("late")
	var current int64
	if err := pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence WHERE resource = $1`, g.old.Resource).
		Scan(&current); err != nil {
		t.Fatal(err)
	}
	if current != 2 {
		t.Errorf("the fence is at %d: the control shows nothing", current)
	}
}

// replaceFunction changes a function of the schema fencepost, for controls.
func replaceFunction(t *testing.T, pool *pgxpool.Pool, signature, old, with string) {
	t.Helper()
	var definition string
	err := pool.QueryRow(t.Context(), `SELECT pg_get_functiondef($1::text::regprocedure)`, "fencepost."+signature).
		Scan(&definition)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(definition, old) != 1 {
		t.Fatalf("%s has %d times %q", signature, strings.Count(definition, old), old)
	}
	fencetest.Exec(t, pool, strings.Replace(definition, old, with, 1))
}

// The trigger compares the claim with the fence, not with the setting. The control leaves the comparison out.
func TestInvariant3Control_WithTheSettingTrusted(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	forged := fence.Claim{Resource: "test:item:1", Token: 3, Nonce: fencetest.ClaimOf("x", 1).Nonce}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 3))
	write := func() error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			entersByHand(t, tx, forged)
			return sends(t.Context(), `UPDATE app.item SET value = 'forged' WHERE id = 1`)(tx)
		})
	}
	wantState(t, write(), "ZF001")
	replaceFunction(
		t,
		pool,
		"check_write(text, bigint, oid, text, text)",
		`AND strpos(entered, fencepost.entered_text(f.resource, f.token, f.nonce)) > 0`,
		"",
	)
	if err := write(); err != nil || fencetest.Read(t, pool, 1).Value != "forged" {
		t.Errorf("the control: %v, %s", err, fmt.Sprint(fencetest.Read(t, pool, 1)))
	}
}
