package fence_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

const protectionRows = 10_000

// enterAndUpdate measures enter and a plain UPDATE of one row, in one transaction and one round trip, by eight
// goroutines; each row is a resource of its own, under a claim.
func enterAndUpdate(b *testing.B, protection bool) {
	b.Helper()
	pool := testenv.Pool(b)
	nonce := token.NewNonce()
	setup := []string{
		fencetest.CreateRows,
		`INSERT INTO app.item (id) SELECT generate_series(4, 10000)`,
		`SELECT count(*) FROM generate_series(1, 10000) AS i, fencepost.claim('test:item:' || i, 5, '` + uuidOf(nonce) + `')`,
		`ANALYZE`,
	}
	if protection {
		setup = append(setup, `SELECT fencepost.protect('app.item', 'test', 'item:', '{id}')`)
	}
	for _, sql := range setup {
		if _, err := pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.SetParallelism((8 + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := next.Add(7919) % protectionRows
			if err := enterAndUpdateOnce(b, pool, nonce, 1+id); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func enterAndUpdateOnce(b *testing.B, pool *pgxpool.Pool, nonce token.Nonce, id int64) error {
	b.Helper()
	var batch pgx.Batch
	batch.Queue(`BEGIN`)
	batch.Queue(`SELECT fencepost.enter('test:item:' || $1::bigint, 5, $2::uuid)`, id, nonce.Hex())
	batch.Queue(`UPDATE app.item SET value = $2, last_fencing_token = 5 WHERE id = $1`, id, "v")
	batch.Queue(`COMMIT`)
	return pool.SendBatch(b.Context(), &batch).Close()
}

func BenchmarkEnterAndUpdate(b *testing.B) { enterAndUpdate(b, false) }

func BenchmarkEnterAndUpdateOnProtectedTable(b *testing.B) { enterAndUpdate(b, true) }
