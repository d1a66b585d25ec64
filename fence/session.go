package fence

import (
	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// Notices adds a notice handler to the configuration of a connection, or of a pool
// (`fence.Notices(poolConfig.ConnConfig)`). It runs before the handler that is already there. With it, [Raise], [Draw]
// and [Commit] notice if the server acknowledged a commit without making it as durable as requested: a cancelled wait
// for a synchronous standby is only a warning, in the server's language. Without it such a commit counts as made. The
// handler ignores any other warning, of a trigger or of auto_explain for instance. Call Notices before the
// configuration is used.
func Notices(config *pgx.ConnConfig) { pgsession.Notices(config) }

// Discard closes a connection that err has shown to be useless, so that its pool replaces it. After a failover, or a
// change of an address, a pool's connections may otherwise lead to a server that refuses writes, for as long as they
// are open. A connection is useless if
//   - it leads to a standby, or to a server that refuses to write (25006), unless that is a primary;
//   - PostgreSQL, or a pooler, has ended it (57P01 and similar, class 08).
//
// It does nothing for any other error, or for nil. The functions of this package call it themselves for a connection
// that they take from a pool. A connection that is passed to them, or that belongs to a transaction, is left to its
// owner.
func Discard(conn *pgx.Conn, err error) { pgsession.Discard(conn, err) }
