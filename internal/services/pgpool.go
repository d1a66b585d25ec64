package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"syscall"
)

// Pgpool is a Pgpool-II that balances reads over a primary and its standby.
type Pgpool struct{ front }

// pgpoolConfig is the configuration for the host.
type pgpoolConfig struct {
	login
	Primary, Standby string // ports
}

// StartPgpool starts the installed pgpool in front of a pair, in streaming replication mode. It sends every statement
// that it takes for a read to the standby. Ctx bounds the start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] if the program is not installed.
func StartPgpool(ctx context.Context, pair *PostgresPair, database string) (*Pgpool, error) {
	if _, err := findServer("pgpool"); err != nil {
		return nil, errors.Join(ErrNotInstalled, err)
	}
	primary, err := url.Parse(pair.Primary.URL())
	if err != nil {
		return nil, errors.New("not a postgres:// address")
	}
	standby, err := url.Parse(pair.Standby.URL())
	if err != nil {
		return nil, errors.New("not a postgres:// address")
	}
	password, _ := primary.User.Password()
	f, err := startFront(ctx, request{Op: opPgpool, Pgpool: &pgpoolConfig{
		login:   login{User: primary.User.Username(), Password: password, Database: database, Query: primary.RawQuery},
		Primary: primary.Port(), Standby: standby.Port(),
	}})
	if err != nil {
		return nil, err
	}
	return &Pgpool{f}, nil
}

func (h *host) startPgpool(ctx context.Context, r request) (answer, error) {
	c := *r.Pgpool
	return h.startFront(ctx, frontSpec{
		name: "pgpool", login: c.login, signal: syscall.SIGINT,
		files: func(l *local, port int) ([]string, error) { return l.pgpoolFiles(c, port) },
	})
}

// pgpoolFiles writes the configuration and returns the arguments that name it. Settings that begin with master or black
// are for versions before 4.2, which do not check whether a function is volatile.
func (l *local) pgpoolFiles(c pgpoolConfig, port int) ([]string, error) {
	hba, pcp, conf := filepath.Join(
		l.dir,
		"pool_hba.conf",
	), filepath.Join(
		l.dir,
		"pcp.conf",
	), filepath.Join(
		l.dir,
		"pgpool.conf",
	)
	pcpPort, err := freePort()
	if err != nil {
		return nil, err
	}
	err = errors.Join(l.file(hba, ""), l.file(pcp, ""), l.file(conf, fmt.Sprintf(`
backend_clustering_mode = 'streaming_replication'
master_slave_mode = on
master_slave_sub_mode = 'stream'
black_function_list = '.*'
listen_addresses = '127.0.0.1'
port = %d
pcp_listen_addresses = '127.0.0.1'
pcp_port = %d
socket_dir = '%[3]s'
pcp_socket_dir = '%[3]s'
pid_file_name = '%[3]s/pgpool.pid'
logdir = '%[3]s'
work_dir = '%[3]s'
backend_hostname0 = '127.0.0.1'
backend_port0 = %[4]s
backend_weight0 = 0
backend_hostname1 = '127.0.0.1'
backend_port1 = %[5]s
backend_weight1 = 1
backend_flag0 = 'DISALLOW_TO_FAILOVER'
backend_flag1 = 'DISALLOW_TO_FAILOVER'
enable_pool_hba = off
allow_clear_text_frontend_auth = on
num_init_children = 16
load_balance_mode = on
statement_level_load_balance = off
memory_cache_enabled = off
sr_check_period = 1
sr_check_user = '%[6]s'
sr_check_password = '%[7]s'
sr_check_database = 'postgres'
health_check_period = 0
failover_on_backend_error = off
`, port, pcpPort, l.dir, c.Primary, c.Standby, c.User, c.Password)))
	return []string{"-n", "-f", conf, "-a", hba, "-F", pcp}, err
}
