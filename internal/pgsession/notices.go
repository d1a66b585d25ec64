package pgsession

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// unsyncedKey is the key under which a connection counts its commits that did not wait for their synchronous standby.
const unsyncedKey = "fencepost.unsynced"

// Notices is fence.Notices.
func Notices(config *pgx.ConnConfig) {
	next := config.OnNotice
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if endsSyncWait(notice) {
			conn.CustomData()[unsyncedKey] = counted(conn) + 1
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// endsSyncWait recognises the warnings with which PostgreSQL stops waiting for a synchronous standby after the local
// commit: because of a cancel (SQLSTATE 01000, which any warning may have) or because the session is being terminated
// (57P01). The place in the server's source distinguishes them from other warnings of the same SQLSTATE, because the
// texts are localised. 57P01 counts from any place: a server that terminates a session with only a warning is about to
// disconnect.
func endsSyncWait(notice *pgconn.Notice) bool {
	return notice.SeverityUnlocalized == "WARNING" && (notice.Routine == "SyncRepWaitForLSN" || notice.Code == "57P01")
}

// Unsynced returns how many of a connection's commits did not wait for their synchronous standby, 0 without Notices.
func Unsynced(conn *pgx.Conn) int { return counted(conn.PgConn()) }

func counted(conn *pgconn.PgConn) int {
	count, _ := conn.CustomData()[unsyncedKey].(int)
	return count
}
