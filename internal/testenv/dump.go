package testenv

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// Dump returns the output of pg_dump with args for the database that url names. It fails the test if pg_dump fails.
func Dump(tb testing.TB, url string, args ...string) string {
	tb.Helper()
	out, err := TryDump(tb, url, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TryDump is Dump for a dump that may fail. The test is skipped if no pg_dump for this server is available, unless
// FENCEPOST_REQUIRE names a way that could provide one: see [Lacking].
func TryDump(tb testing.TB, url string, args ...string) (string, error) {
	tb.Helper()
	return clientProgram(tb, "pg_dump", url, "", args...)
}

// Restore runs a dump with psql on the database that url names. Like psql by default, it continues after an error. It
// returns psql's error messages.
func Restore(tb testing.TB, url, dump string) string {
	tb.Helper()
	if _, err := clientProgram(tb, "psql", url, dump, "-X", "-q"); err != nil {
		return err.Error()
	}
	return ""
}

// clientProgram runs a PostgreSQL client program on a database. Output on standard error is an error.
func clientProgram(tb testing.TB, name, address, stdin string, args ...string) (string, error) {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal("the address does not parse") // its text may hold a password
	}
	command := programFor(tb, name, u)
	password, _ := u.User.Password()
	host, port := u.Hostname(), u.Port()
	if command[0] == "docker" {
		host, port = "127.0.0.1", "5432"
	}
	command = append(command, "-h", host, "-p", port, "-U", u.User.Username(), "-d", strings.TrimPrefix(u.Path, "/"))
	cmd := exec.CommandContext(tb.Context(), command[0], append(command[1:], args...)...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	said := strings.TrimSpace(errOut.String())
	switch {
	case err != nil:
		return out.String(), fmt.Errorf("%s: %w: %s", name, err, said)
	case said != "":
		return out.String(), fmt.Errorf("%s: %s", name, said)
	}
	return out.String(), nil
}

// programFor returns the command for a client program that is not older than the server: one of this machine, or the
// one in the server's container.
func programFor(tb testing.TB, name string, server *url.URL) []string {
	tb.Helper()
	version := serverMajor(tb, server)
	for _, path := range clientPrograms(name) {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil && n >= version {
			return []string{path}
		}
	}
	out, err := exec.CommandContext(tb.Context(), "docker", "ps", "-q", "--filter", "publish="+server.Port()).Output()
	if id := strings.TrimSpace(string(out)); err == nil && id != "" {
		return []string{"docker", "exec", "-i", "-e", "PGPASSWORD", id, name}
	}
	if path, err := exec.LookPath(name); err == nil {
		return []string{path}
	}
	Lacking(tb, fmt.Errorf("there is no %s for PostgreSQL %d", name, version), services.WayDocker, services.WayLocal)
	return nil
}

// clientPrograms lists where Debian keeps a client program, one per version.
func clientPrograms(name string) []string {
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return nil
	}
	return paths
}

func serverMajor(tb testing.TB, server *url.URL) int {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.String())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var version int
	const ask = `SELECT current_setting('server_version_num')::int / 10000`
	if err := conn.QueryRow(ctx, ask).Scan(&version); err != nil {
		tb.Fatal(err)
	}
	return version
}
