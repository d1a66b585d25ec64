package fence

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// warningsKey is where a connection keeps its count of warnings.
const warningsKey = "fencepost.warnings"

// Notices wires the count of server warnings into the configuration of a connection, or of a pool
// (`fence.Notices(poolConfig.ConnConfig)`), in front of the handler that is there. With it, [Raise]
// notices when the server acknowledged a claim without having made it as durable as asked: a
// cancelled wait for a synchronous standby is only a warning, in the server's language. Without it
// such a claim counts as made. Call it before the configuration is used.
func Notices(config *pgx.ConnConfig) {
	next := config.OnNotice
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.SeverityUnlocalized == "WARNING" {
			data := conn.CustomData()
			count, _ := data[warningsKey].(int)
			data[warningsKey] = count + 1
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// warnings returns how many warnings the connection has seen, 0 without Notices.
func warnings(conn *pgx.Conn) int {
	count, _ := conn.PgConn().CustomData()[warningsKey].(int)
	return count
}
