package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const postgresUser = "postgres"

// debianPostgres is where Debian and Ubuntu keep servers, out of PATH.
const debianPostgres = "/usr/lib/postgresql/*/bin"

// findPostgres returns the folder that holds postgres and initdb.
func findPostgres() (bin string, err error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH may stand alone; the programs lie where it points.
		if path, err = filepath.EvalSymlinks(path); err == nil && hasPostgres(filepath.Dir(path)) {
			return filepath.Abs(filepath.Dir(path))
		}
	}
	dirs, err := filepath.Glob(debianPostgres)
	if err != nil {
		return "", err
	}
	slices.SortFunc(dirs, func(a, b string) int { return major(b) - major(a) })
	for _, dir := range dirs {
		if hasPostgres(dir) {
			return dir, nil
		}
	}
	return "", errors.New("no postgres and initdb in PATH or " + debianPostgres)
}

// major is the version in a path such as /usr/lib/postgresql/15/bin.
func major(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

func hasPostgres(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// postgresSettings are the server's, in containers and local alike, as -c arguments.
func postgresSettings(durable bool) []string {
	settings := []string{"max_connections=300"}
	if !durable {
		settings = append(settings, "fsync=off")
	}
	var args []string
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

func (l *local) startPostgres(ctx context.Context, own func(server), durable bool) (string, string, error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	bin, err := findPostgres()
	if err != nil {
		return "", "", err
	}
	dir, err := l.folder("postgres")
	if err != nil {
		return "", "", err
	}
	password := randomPassword()
	data, err := l.initdb(ctx, bin, dir, password)
	if err != nil {
		return "", "", err
	}
	var address, version string
	err = onFreePort(func(port int) (*process, error) {
		p, err := startProcess(processSpec{
			name: "postgres", path: filepath.Join(bin, "postgres"), dir: dir, user: l.user,
			args: append([]string{
				"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port),
				"-c", "unix_socket_directories=",
			}, postgresSettings(durable)...),
		})
		if err != nil {
			return nil, err
		}
		// SIGQUIT skips the last checkpoint: the data is thrown away.
		own(running{p, syscall.SIGQUIT})
		address = postgresURL(port, password)
		version, err = l.askUntilReady(ctx, p, address)
		return p, err
	})
	return address, version + ", local binary " + filepath.Join(bin, "postgres"), err
}

func (l *local) askUntilReady(ctx context.Context, p *process, address string) (version string, err error) {
	// Somebody else's server on this port would refuse the random password.
	err = poll(ctx, p.ended, func(ctx context.Context) error {
		version, err = askPostgres(ctx, address)
		return err
	})
	if err != nil {
		return "", p.failure(err)
	}
	return version, nil
}

func (l *local) initdb(ctx context.Context, bin, dir, password string) (data string, err error) {
	secret := filepath.Join(dir, "password")
	if err := l.file(secret, password+"\n"); err != nil {
		return "", err
	}
	data = filepath.Join(dir, "data")
	cmd := processSpec{
		path: filepath.Join(bin, "initdb"), dir: dir, user: l.user,
		args: []string{
			"-D", data, "-U", postgresUser, "--pwfile", secret, "--auth", "scram-sha-256",
			"--encoding", "UTF8", "--locale", "C", "--no-sync",
		},
	}.command(ctx)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return data, os.Remove(secret)
}

func postgresURL(port int, password string) string {
	u := url.URL{
		Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(port), Path: "/postgres",
		User: url.UserPassword(postgresUser, password), RawQuery: "sslmode=disable",
	}
	return u.String()
}
