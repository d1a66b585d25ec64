package testenv

import (
	"context"
	"testing"
)

// Sweep drops the databases of dead runs, as the first test of a run does.
func Sweep(ctx context.Context, t *testing.T) error {
	t.Helper()
	_, server := shared.get(t)
	other, err := openServer(ctx, shared.services)
	if err != nil {
		return err
	}
	if server.run == other.run {
		t.Error("two runs have one name")
	}
	return other.close()
}

// AdminURL is the address of the server's first database.
func AdminURL(t *testing.T) string {
	t.Helper()
	s, _ := shared.get(t)
	return s.PostgresURL
}
