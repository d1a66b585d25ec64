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
	dir  string   // temporary folder, removed by stop
	ram  string   // another, in memory; "" for none
	user *account // nil: as ourselves
}

// account is an operating-system user to run servers as.
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

// serverAccount picks whom to run servers as: PostgreSQL refuses to run as root.
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

// tempFolder makes a folder that the servers' user owns and can reach. Root's
// TMPDIR may lie where nobody else may look, so other places follow.
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

// handOver gives the folder to user and sees that user can work in it, by trying.
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

// Where Linux has a file system in memory, and how much of it a server must find free. It needs a tenth of that.
const (
	memoryPlace  = "/dev/shm"
	enoughMemory = 1 << 30
)

// memory returns a folder in memory that has the name of ours; the one given, on disk, where there is too little room.
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

// folder makes a folder of a server's own.
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

// portTries is how often a start is repeated with another port. Between our
// choosing a free port and the server's taking it, somebody else may.
const portTries = 3

// onFreePort calls start with free loopback ports until it succeeds, but repeats
// only where the server ended by itself, as it does when its port is taken.
func onFreePort(start func(port int) (*process, error)) error {
	var err error
	for range portTries {
		var port int
		port, err = freePort()
		if err != nil {
			return err
		}
		var p *process
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
	*process
	signal syscall.Signal // the one that ends it quickest without leaving anything
}

func (r running) stop(ctx context.Context) error { return r.end(ctx, r.signal) }
