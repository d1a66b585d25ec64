package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// leaveStandby closes the idle connections of a pool that lead to a standby, if err says that the server accepts no
// writes. After a failover, or after a change of an address, the pool would otherwise hand out those connections for as
// long as they live, and another call would not help.
func leaveStandby(db *sql.DB, err error) {
	if sqlState(err) != stateReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range db.Stats().Idle {
		conn, err := db.Conn(ctx)
		if err != nil {
			return
		}
		var standby bool
		err = conn.QueryRowContext(ctx, `SELECT pg_catalog.pg_is_in_recovery()`).Scan(&standby)
		if standby || err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // makes database/sql close it
		}
		_ = conn.Close() // returns the connection to the pool otherwise
	}
}
