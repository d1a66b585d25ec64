package testenv

import (
	"context"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Address is how a database is reached. It leads to one server after another, as a DNS name does when its record
// changes. Existing connections stay where they are.
type Address struct{ host atomic.Pointer[string] }

// NewAddress makes new connections of a configuration go where the address leads, at first to the server that first
// names.
func NewAddress(tb testing.TB, config *pgx.ConnConfig, first string) *Address {
	tb.Helper()
	a := &Address{}
	a.Lead(tb, first)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial(ctx, network, *a.host.Load())
	}
	return a
}

// Lead makes the address lead to the server that address names from now on.
func (a *Address) Lead(tb testing.TB, address string) {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal("the address does not parse") // its text may hold a password
	}
	a.host.Store(&u.Host)
}
