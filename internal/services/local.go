package services

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// local is the way of installed programs.
type local struct {
	dir  string   // temporary folder; stop removes it
	ram  string   // another, in memory; "" for none
	user *account // nil: as ourselves
}

// account is an operating-system user that runs servers.
type account struct {
	name     string
	uid, gid uint32
}

func newLocal(ctx context.Context) (*local, error) {
	user, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := tempFolder(ctx, user)
	if err != nil {
		return nil, err
	}
	return &local{dir: dir, user: user}, nil
}

func (l *local) ready(context.Context) error {
	_, pgErr := findPostgres()
	_, redisErr := findRedis()
	return errors.Join(pgErr, redisErr)
}

func (l *local) stop(context.Context) error {
	return errors.Join(os.RemoveAll(l.dir), os.RemoveAll(l.ram))
}

// serverAccount picks the user that runs servers: PostgreSQL refuses to run as root.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("run by root, and there is no user postgres or nobody to run servers as")
}

// tempFolder makes a folder that the servers' user owns and can reach. Root's TMPDIR may be inaccessible to others, so
// other places are tried next.
func tempFolder(ctx context.Context, user *account) (string, error) {
	var errs []error
	for _, root := range slices.Compact([]string{os.TempDir(), "/tmp", "/var/tmp"}) {
		dir, err := os.MkdirTemp(root, "fencepost-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err = handOver(ctx, dir, user); err == nil {
			return dir, nil
		}
		errs = append(errs, err, os.RemoveAll(dir))
	}
	return "", fmt.Errorf("making a temporary folder: %w", errors.Join(errs...))
}

// handOver gives the folder to user and verifies that user can work in it.
func handOver(ctx context.Context, dir string, user *account) error {
	if user == nil {
		return nil
	}
	if err := os.Chown(dir, int(user.uid), int(user.gid)); err != nil {
		return err
	}
	err := processSpec{path: "/bin/sh", args: []string{"-c", ":"}, dir: dir, user: user}.command(ctx).Run()
	if err != nil {
		return fmt.Errorf("user %s cannot work in %s: %w", user.name, dir, err)
	}
	return nil
}

// The place of Linux's in-memory file system, and how much of it must be free. A server needs a tenth of that.
const (
	memoryPlace  = "/dev/shm"
	enoughMemory = 1 << 30
)

// memory returns a folder in memory with the same name as dir; if there is too little room, it returns dir, on disk.
func (l *local) memory(ctx context.Context, disk string) string {
	if room(memoryPlace) < enoughMemory {
		return disk
	}
	dir := filepath.Join(memoryPlace, filepath.Base(l.dir))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return disk
	}
	l.ram = dir
	if err := handOver(ctx, dir, l.user); err != nil {
		return disk
	}
	return dir
}

// folder makes a folder for one server.
func (l *local) folder(name string) (string, error) {
	dir := filepath.Join(l.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, l.giveAway(dir)
}

// file writes a file that only the servers' user can read.
func (l *local) file(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return l.giveAway(path)
}

func (l *local) giveAway(path string) error {
	if l.user == nil {
		return nil
	}
	return os.Chown(path, int(l.user.uid), int(l.user.gid))
}

// findProgram returns the first of names in PATH.
func findProgram(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no %s in PATH", names[0])
}

// portTries is how often a start is repeated with another port. Between our choosing a free port and the server's
// taking it, another process may take it.
const portTries = 3

// onFreePort calls start with free loopback ports until it succeeds. It repeats only if the server ended by itself, as
// it does when its port is taken.
func onFreePort(start func(port int) (*serverProcess, error)) error {
	var err error
	for range portTries {
		var port int
		port, err = freePort()
		if err != nil {
			return err
		}
		var p *serverProcess
		p, err = start(port)
		if err == nil || p == nil || !p.ended() {
			return err
		}
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// randomPassword returns 128 random bits as text that needs no quoting.
func randomPassword() string { return rand.Text() }

// running adapts a process to server.
type running struct {
	*serverProcess
	signal syscall.Signal // the one that ends it fastest with nothing left behind
}

func (r running) stop(ctx context.Context) error { return r.end(ctx, r.signal) }
