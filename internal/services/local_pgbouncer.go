package services

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
)

func (h *host) startPgBouncer(ctx context.Context, r request) (answer, error) {
	c := *r.Bouncer
	return h.startFront(ctx, frontSpec{
		name: "pgbouncer", login: c.login, signal: syscall.SIGKILL,
		files: func(l *local, port int) ([]string, error) { return l.bouncerFiles(c, port) },
	})
}

// bouncerFiles writes the configuration and returns the arguments that name it.
func (l *local) bouncerFiles(c bouncerConfig, port int) ([]string, error) {
	users := filepath.Join(l.dir, "users")
	auth := "scram-sha-256"
	if c.Password == "" {
		auth = "trust"
	}
	// A cleartext password lets PgBouncer log in to the server by any method.
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	if err := l.file(users, quote(c.User)+" "+quote(c.Password)+"\n"); err != nil {
		return nil, err
	}
	statements := ""
	if c.Keeps {
		statements = fmt.Sprintf("max_prepared_statements = %d\n", c.Statements)
	}
	ini := filepath.Join(l.dir, "pgbouncer.ini")
	return []string{ini}, l.file(ini, fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = %s
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
%s`, c.Host, c.Port, port, auth, users, c.PoolMode, c.PoolSize, statements))
}
