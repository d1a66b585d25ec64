package services

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

const postgresUser = "postgres"

// debianPostgres is where Debian and Ubuntu install servers, outside PATH.
const debianPostgres = "/usr/lib/postgresql/*/bin"

// findPostgres returns the folder that contains postgres and initdb.
func findPostgres() (bin string, err error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH may stand alone; the programs are in the folder that it points to.
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

// postgresSettings are the server's settings as -c arguments, for containers and local servers alike.
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

// postgresSpec says how to run a server.
type postgresSpec struct {
	args []string
	// inMemory keeps the data in memory, if there is enough, for a server that is started only once. Each test creates
	// and removes a database of about 300 files, which costs a file system on disk more than PostgreSQL itself does.
	inMemory bool
}

// sharedPostgres is for a server that is started once and whose data is then discarded.
func sharedPostgres(durable bool) postgresSpec {
	spec := postgresSpec{args: postgresSettings(durable), inMemory: !durable}
	if spec.inMemory {
		// A new server takes 39 MB: most of the rest would be its log, and without fsync a checkpoint is cheap.
		spec.args = append(spec.args, "-c", "min_wal_size=32MB", "-c", "max_wal_size=64MB")
	}
	return spec
}

// localPostgres is a postgres child process that is started and ended many times.
type localPostgres struct {
	l         *local
	bin       string
	dir, data string
	password  string
	port      int
	args      []string
	now       *serverProcess
}

func (l *local) startPostgres(
	ctx context.Context,
	own func(server),
	spec postgresSpec,
) (ownedServer, string, string, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, "", "", err
	}
	dir, err := l.folder("postgres")
	if err != nil {
		return nil, "", "", err
	}
	home := dir
	if spec.inMemory {
		home = l.memory(ctx, dir)
	}
	s := &localPostgres{l: l, bin: bin, dir: dir, password: randomPassword(), args: spec.args}
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	if s.data, err = l.newCluster(ctx, bin, dir, home, s.password); err != nil {
		return nil, "", "", err
	}
	own(s)
	var version string
	err = onFreePort(func(port int) (*serverProcess, error) {
		s.port = port
		version, err = s.run(ctx)
		return s.now, err
	})
	return s, postgresURL(s.port, s.password), version + ", local binary " + filepath.Join(bin, "postgres"), err
}

func (s *localPostgres) run(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	// The caller's arguments come last and win.
	args := append([]string{
		"-D", s.data, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-c", "unix_socket_directories=",
	}, s.args...)
	s.now, err = startProcess(processSpec{
		name: "postgres", path: filepath.Join(s.bin, "postgres"), args: args, dir: s.dir, user: s.l.user,
	})
	if err != nil {
		return "", err
	}
	return s.l.askUntilReady(ctx, s.now, postgresURL(s.port, s.password))
}

// stop skips the last checkpoint: the data is discarded.
func (s *localPostgres) stop(ctx context.Context) error {
	if s.now == nil {
		return nil
	}
	return s.now.end(ctx, syscall.SIGQUIT)
}

// kill is PostgreSQL's immediate shutdown: data that had not reached the disk is lost, as in a crash. SIGKILL would
// leave the postmaster's children behind, and with them the shared memory that a new postmaster refuses to share.
func (s *localPostgres) kill(ctx context.Context) error { return s.end(ctx, syscall.SIGQUIT) }

func (s *localPostgres) shut(ctx context.Context) error { return s.end(ctx, syscall.SIGINT) }

func (s *localPostgres) end(ctx context.Context, signal syscall.Signal) error {
	if s.now == nil || s.now.ended() {
		return errors.New("postgres is not running")
	}
	return s.now.end(ctx, signal)
}

func (s *localPostgres) start(ctx context.Context, empty bool) error {
	if empty {
		return errors.New("postgres cannot be started without its data")
	}
	if !s.now.ended() {
		return errors.New("postgres is running")
	}
	_, err := s.run(ctx)
	return err
}

func (s *localPostgres) pause(context.Context) error  { return signalGroup(s.now.pid, sigStop) }
func (s *localPostgres) resume(context.Context) error { return signalGroup(s.now.pid, sigCont) }

func (l *local) askUntilReady(ctx context.Context, p *serverProcess, address string) (version string, err error) {
	// Another server on this port would refuse the random password.
	err = poll(ctx, p.ended, func(ctx context.Context) error {
		version, err = askPostgres(ctx, address)
		return err
	})
	if err != nil {
		return "", p.failure(err)
	}
	return version, nil
}

func postgresURL(port int, password string) string {
	u := url.URL{
		Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(port), Path: "/postgres",
		User: url.UserPassword(postgresUser, password), RawQuery: "sslmode=disable",
	}
	return u.String()
}
