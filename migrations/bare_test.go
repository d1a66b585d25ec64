package migrations_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// barePlan is goose by itself, for the control tests: version 1 does nothing, version 2 is what the
// test gives. With a barrier, nobody goes on before all have read which versions are applied.
func barePlan(t *testing.T, db *sql.DB, second string, seen *barrier) *goose.Provider {
	t.Helper()
	store, err := database.NewStore(database.DialectPostgres, "public.bare_version")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"00001_nothing.sql": {Data: []byte("-- +goose Up\n")}}
	if seen != nil {
		store = &meetingStore{Store: store, seen: seen}
		files["00002_second.sql"] = &fstest.MapFile{Data: []byte(second)}
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// meetingStore lists the applied versions, then waits until all others have done so too.
type meetingStore struct {
	database.Store
	seen *barrier
	read int
}

func (s *meetingStore) ListMigrations(
	ctx context.Context, db database.DBTxConn,
) ([]*database.ListMigrationsResult, error) {
	list, err := s.Store.ListMigrations(ctx, db)
	// goose reads once to see whether there is anything to do, and again to do it.
	if s.read++; s.read == 2 {
		s.seen.wait(ctx)
	}
	return list, err
}

// barrier holds up n goroutines until all have come.
type barrier struct {
	missing sync.WaitGroup
	open    chan struct{}
}

func newBarrier(n int) *barrier {
	b := &barrier{open: make(chan struct{})}
	b.missing.Add(n)
	go func() {
		b.missing.Wait()
		close(b.open)
	}()
	return b
}

func (b *barrier) wait(ctx context.Context) {
	b.missing.Done()
	select {
	case <-b.open:
	case <-ctx.Done():
	}
}
