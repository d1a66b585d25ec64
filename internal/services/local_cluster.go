package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// newCluster makes the data of a new server in home, with a password of its own. Dir is the folder of the server's
// user.
//
// initdb takes most of the time that a start takes. If FENCEPOST_CLUSTERS names a folder, its result is kept there, and
// the next servers of the same programs start from a copy. Such servers share their system identifier.
func (l *local) newCluster(ctx context.Context, bin, dir, home, password string) (data string, err error) {
	data = filepath.Join(home, "data")
	if err := l.copyOrInit(ctx, bin, dir, data); err != nil {
		return "", err
	}
	return data, l.setPassword(ctx, bin, dir, data, password)
}

func (l *local) copyOrInit(ctx context.Context, bin, dir, data string) error {
	folder := os.Getenv(envClusters)
	if folder == "" {
		return l.initdb(ctx, bin, dir, data)
	}
	kept := filepath.Join(folder, strings.ReplaceAll(bin, string(filepath.Separator), "_"))
	if found, err := exists(kept); err != nil {
		return err
	} else if found {
		return copyTree(ctx, kept, data)
	}
	if err := l.initdb(ctx, bin, dir, data); err != nil {
		return err
	}
	return keepTree(ctx, data, kept)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// copyTree copies a folder with its owners and modes.
func copyTree(ctx context.Context, from, to string) error {
	// Our own user runs it: the servers' user may not read the folder of clusters.
	cmd := processSpec{path: "/bin/cp", args: []string{"-pR", from, to}}.command(ctx)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", from, err, bytes.TrimSpace(out))
	}
	return nil
}

// keepTree copies a folder to a place that other processes look at. They see it only once it is complete.
func keepTree(ctx context.Context, from, to string) error {
	own, err := os.MkdirTemp(filepath.Dir(to), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(own) }()
	complete := filepath.Join(own, "data")
	if err := copyTree(ctx, from, complete); err != nil {
		return err
	}
	if err := os.Rename(complete, to); err != nil {
		// Another process may have been first.
		if found, _ := exists(to); !found {
			return err
		}
	}
	return nil
}

func (l *local) initdb(ctx context.Context, bin, dir, data string) error {
	// initdb demands a password. Nobody keeps it, because setPassword replaces it.
	secret := filepath.Join(dir, "password")
	if err := l.file(secret, randomPassword()+"\n"); err != nil {
		return err
	}
	cmd := processSpec{
		path: filepath.Join(bin, "initdb"), dir: dir, user: l.user,
		args: []string{
			"-D", data, "-U", postgresUser, "--pwfile", secret, "--auth", "scram-sha-256",
			"--encoding", "UTF8", "--locale", "C", "--no-sync",
		},
	}.command(ctx)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.Remove(secret)
}

// setPassword sets the password before the server starts, so that nobody else's password ever opens it.
func (l *local) setPassword(ctx context.Context, bin, dir, data, password string) error {
	secret, err := scramSecret(password)
	if err != nil {
		return err
	}
	cmd := processSpec{
		path: filepath.Join(bin, "postgres"), dir: dir, user: l.user,
		args: []string{"--single", "-F", "-D", data, "postgres"},
	}.command(ctx)
	cmd.Stdin = strings.NewReader(alterPassword(secret) + "\n")
	out, err := cmd.CombinedOutput()
	// In this mode the program goes on after an error, and ends with the status 0.
	if err == nil && bytes.Contains(out, []byte("ERROR:")) {
		err = errors.New("a statement failed")
	}
	if err != nil {
		return fmt.Errorf("setting the password: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
