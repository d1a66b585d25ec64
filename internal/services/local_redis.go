package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// localRedis is a redis-server child process that is started and killed many times.
type localRedis struct {
	l    *local
	path string
	dir  string
	port int
	args []string
	now  *serverProcess
}

func findRedis() (string, error) {
	if name := os.Getenv(envRedisProgram); name != "" {
		return findProgram(name)
	}
	path, err := findProgram("redis-server", "valkey-server")
	if err != nil {
		return "", errors.New("no redis-server or valkey-server in PATH")
	}
	return path, nil
}

func (l *local) startRedis(ctx context.Context, own func(server), args []string) (ownedServer, string, string, error) {
	path, err := findRedis()
	if err != nil {
		return nil, "", "", err
	}
	dir, err := l.folder("redis")
	if err != nil {
		return nil, "", "", err
	}
	r := &localRedis{l: l, path: path, dir: dir, args: args}
	own(r)
	var version string
	err = onFreePort(func(port int) (*serverProcess, error) {
		r.port = port
		version, err = r.run(ctx)
		return r.now, err
	})
	if err != nil {
		return nil, "", "", err
	}
	return r, redisURL(r.port), version + ", local binary " + path, nil
}

func redisURL(port int) string { return "redis://127.0.0.1:" + strconv.Itoa(port) + "/0" }

func (r *localRedis) run(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	// The caller's arguments come last and win.
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.dir, "--save", "",
	}, r.args...)
	r.now, err = startProcess(processSpec{name: "redis", path: r.path, args: args, dir: r.dir, user: r.l.user})
	if err != nil {
		return "", err
	}
	err = poll(ctx, r.now.ended, func(ctx context.Context) error {
		info, err := askRedis(ctx, redisURL(r.port))
		if err == nil && info.pid != r.now.pid {
			// No password identifies it, but our own server will find the port taken.
			return errors.New("another server answers on the port")
		}
		version = info.version
		return err
	})
	if err != nil {
		return "", r.now.failure(err)
	}
	return version, nil
}

func (r *localRedis) kill(ctx context.Context) error {
	if r.now == nil || r.now.ended() {
		return errors.New("redis is not running")
	}
	return r.now.end(ctx, syscall.SIGKILL)
}

func (r *localRedis) stop(ctx context.Context) error {
	if r.now == nil {
		return nil
	}
	return r.now.end(ctx, syscall.SIGKILL)
}

func (r *localRedis) start(ctx context.Context, empty bool) error {
	if !r.now.ended() {
		return errors.New("redis is running")
	}
	if empty {
		if err := removeContents(r.dir); err != nil {
			return fmt.Errorf("emptying the data folder: %w", err)
		}
	}
	_, err := r.run(ctx)
	return err
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func (r *localRedis) pause(context.Context) error  { return signalGroup(r.now.pid, sigStop) }
func (r *localRedis) resume(context.Context) error { return signalGroup(r.now.pid, sigCont) }
