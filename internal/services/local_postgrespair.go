package services

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// startPostgresPair starts a server, and a second one from its base backup.
func (h *host) startPostgresPair(ctx context.Context, r request) (answer, error) {
	l, err := h.localOnce(ctx)
	if err != nil {
		return answer{}, err
	}
	spec := postgresSpec{args: append(postgresSettings(false), r.Args...)}
	server, primaryURL, description, err := l.startPostgres(ctx, h.own, spec)
	if err != nil {
		return answer{}, err
	}
	primary, ok := server.(*localPostgres)
	if !ok {
		return answer{}, fmt.Errorf("the primary is a %T", server)
	}
	standby, err := primary.standby(ctx, h.own)
	if err != nil {
		return answer{}, fmt.Errorf("starting the standby: %w", err)
	}
	h.nodes = []ownedServer{primary, standby}
	urls := []string{primaryURL, postgresURL(standby.port, standby.password)}
	return answer{Postgres: description, NodeURLs: urls}, nil
}

// standby starts a streaming standby of the server.
func (s *localPostgres) standby(ctx context.Context, own func(server)) (*localPostgres, error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	dir, err := s.l.folder("standby")
	if err != nil {
		return nil, err
	}
	t := &localPostgres{
		l: s.l, bin: s.bin, dir: dir, data: filepath.Join(dir, "data"), password: s.password, args: s.args,
	}
	cmd := processSpec{
		path: filepath.Join(s.bin, "pg_basebackup"), dir: dir, user: s.l.user,
		args: []string{
			"-D",
			t.data,
			"-d",
			postgresURL(s.port, s.password),
			"--wal-method=stream",
			"--checkpoint=fast",
			"--no-sync",
			"--write-recovery-conf",
		},
	}.command(ctx)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("running pg_basebackup: %w: %s", err, strings.TrimSpace(string(out)))
	}
	own(t)
	return t, onFreePort(func(port int) (*serverProcess, error) {
		t.port = port
		_, err := t.run(ctx)
		return t.now, err
	})
}

// follow starts a node of a pair as a standby of the other one.
func (h *host) follow(ctx context.Context, node int) error {
	if len(h.nodes) != 2 {
		return errors.New("no pair was started")
	}
	s, ok := h.nodes[node].(*localPostgres)
	other, ok2 := h.nodes[1-node].(*localPostgres)
	if !ok || !ok2 {
		return errors.New("these are not PostgreSQL servers")
	}
	err := errors.Join(
		s.l.file(
			filepath.Join(s.data, "postgresql.auto.conf"),
			"primary_conninfo = '"+postgresURL(other.port, other.password)+"'\n",
		),
		s.l.file(filepath.Join(s.data, "standby.signal"), ""),
	)
	if err != nil {
		return err
	}
	return s.start(ctx, false)
}
