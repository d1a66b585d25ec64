package services

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func (h *host) startPgBouncer(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	path, err := findPgBouncer()
	if err != nil {
		return answer{}, err
	}
	l, err := newLocal(ctx)
	if err != nil {
		return answer{}, err
	}
	h.own(l)
	var address string
	err = onFreePort(func(port int) (*process, error) {
		args, err := l.bouncerFiles(*r.Bouncer, port)
		if err != nil {
			return nil, err
		}
		p, err := startProcess(processSpec{name: "pgbouncer", path: path, args: args, dir: l.dir, user: l.user})
		if err != nil {
			return nil, err
		}
		h.own(running{p, syscall.SIGKILL})
		address = bouncerURL(*r.Bouncer, port)
		_, err = l.askUntilReady(ctx, p, address)
		return p, err
	})
	return answer{BouncerURL: address}, err
}

// findPgBouncer also looks where Debian puts it, which is not in every user's PATH.
func findPgBouncer() (string, error) {
	path, err := findProgram("pgbouncer")
	if err == nil {
		return path, nil
	}
	if _, elsewhere := findProgram("/usr/sbin/pgbouncer"); elsewhere == nil {
		return "/usr/sbin/pgbouncer", nil
	}
	return "", err
}

// bouncerFiles writes the configuration and returns the arguments that name it.
func (l *local) bouncerFiles(c bouncerConfig, port int) ([]string, error) {
	users := filepath.Join(l.dir, "users")
	auth := "scram-sha-256"
	if c.Password == "" {
		auth = "trust"
	}
	// A password in clear lets PgBouncer log on to the server by any method.
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	if err := l.file(users, quote(c.User)+" "+quote(c.Password)+"\n"); err != nil {
		return nil, err
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
`, c.Host, c.Port, port, auth, users, c.PoolMode, c.PoolSize))
}

func bouncerURL(c bouncerConfig, port int) string {
	u := url.URL{
		Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(port), Path: "/" + c.Database,
		User: url.UserPassword(c.User, c.Password), RawQuery: c.Query,
	}
	return u.String()
}
