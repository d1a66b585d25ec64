package fence

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Where a connection keeps its counts.
const (
	warningsKey = "fencepost.warnings" // of warnings
	unsyncedKey = "fencepost.unsynced" // of commits that did not wait for their synchronous standby
)

// Notices wires the count of server warnings into the configuration of a connection, or of a pool
// (`fence.Notices(poolConfig.ConnConfig)`), in front of the handler that is there. With it, [Raise]
// and [Commit] notice when the server acknowledged a commit without having made it as durable as
// asked: a cancelled wait for a synchronous standby is only a warning, in the server's language. Without
// it such a commit counts as made. Call it before the configuration is used.
func Notices(config *pgx.ConnConfig) {
	next := config.OnNotice
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.SeverityUnlocalized == "WARNING" {
			data := conn.CustomData()
			data[warningsKey] = counted(conn, warningsKey) + 1
			if notice.Routine == syncRepWait {
				data[unsyncedKey] = counted(conn, unsyncedKey) + 1
			}
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// syncRepWait is where in the server the warning of a cancelled wait comes from. A deferred trigger may warn
// during a COMMIT too, and that means nothing.
const syncRepWait = "SyncRepWaitForLSN"

// warnings returns how many warnings the connection has seen, 0 without Notices.
func warnings(conn *pgx.Conn) int { return counted(conn.PgConn(), warningsKey) }

// unsynced returns how many of its commits did not wait for their synchronous standby, 0 without Notices.
func unsynced(conn *pgx.Conn) int { return counted(conn.PgConn(), unsyncedKey) }

func counted(conn *pgconn.PgConn, key string) int {
	count, _ := conn.CustomData()[key].(int)
	return count
}
