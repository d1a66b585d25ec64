package checks

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// postgres is the PostgreSQL that is looked at.
type postgres struct {
	*run
	pool   *pgxpool.Pool // nil if there is none
	passed map[string]bool
}

// openPostgres connects, and carries out the checks that need PostgreSQL alone.
func (r *run) openPostgres(ctx context.Context) *postgres {
	p := &postgres{run: r}
	if !r.opts.HasDatabase {
		r.add(Postgres, "connect", finding{level: Skipped, found: "no database is named", do: "give it --database"})
		return p
	}
	p.passed = r.all(ctx, Postgres, p.checks())
	return p
}

func (p *postgres) close() {
	if p.pool != nil {
		p.pool.Close()
	}
}

// checks are the checks of PostgreSQL. Those of the library's own schema come last.
func (p *postgres) checks() []check {
	server := []string{"connect"}
	list := []check{
		{name: "connect", look: p.connect},
		{name: "version", needs: server, look: p.version},
		{name: "primary", needs: server, look: p.primary},
		{name: "pooler", needs: server, look: p.pooler},
		{name: "encoding", needs: server, look: p.encoding},
		{name: "fsync", needs: server, look: p.fsync},
		{name: "full_page_writes", needs: server, look: p.fullPageWrites},
		{name: "synchronous_commit", needs: server, look: p.synchronousCommit},
		{name: "standbys", needs: server, look: p.standbys},
		{name: "isolation", needs: server, look: p.isolation},
		{name: "time_limits", needs: server, look: p.timeLimits},
	}
	if p.opts.Advisory {
		list = append(list, check{name: "lock_table", needs: server, look: p.lockTable})
	}
	schema := []string{"connect", "migrations"}
	return append(
		list,
		check{name: "migrations", needs: server, look: p.migrations},
		check{name: "role", needs: server, look: p.role},
		check{name: "functions", needs: schema, look: p.functions},
		check{name: "grants", needs: schema, look: p.grants},
		check{name: "tables", needs: schema, look: p.tables},
		check{name: "transactions", needs: server, look: p.transactions},
		check{name: "prepared", needs: server, look: p.prepared},
		check{name: "dead_tuples", needs: schema, look: p.deadTuples},
		check{name: "ids", needs: server, look: p.ids},
	)
}

// connect opens the pool.
func (p *postgres) connect(ctx context.Context) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	pool, err := servers.OpenPostgres(ctx, p.opts.Database)
	if err != nil {
		return fault("mend the address, the network or the server", "it does not answer: %v", err)
	}
	p.pool = pool
	return fine("it answers")
}

// version compares the version with those that the library supports.
func (p *postgres) version(ctx context.Context) ([]finding, error) {
	var name string
	var number int
	err := p.pool.QueryRow(ctx, `SELECT pg_catalog.version(), pg_catalog.current_setting('server_version_num')::int`).
		Scan(&name, &number)
	if err != nil {
		return nil, err
	}
	return postgresVersion(name, number)
}

// postgresVersion judges what a server says about itself.
func postgresVersion(name string, number int) ([]finding, error) {
	const oldest = 130000
	short, _, _ := strings.Cut(name, " on ")
	short, _, _ = strings.Cut(short, ",")
	switch {
	case number < oldest:
		return fault("upgrade to PostgreSQL 13 or later", "%s is older than PostgreSQL 13", short)
	case !strings.HasPrefix(name, "PostgreSQL ") || strings.Contains(name, "YugabyteDB") || strings.Contains(name, "-YB-"):
		return warning(conformanceHint, "%s speaks PostgreSQL's protocol, and the library has not been tried on it", short)
	}
	return fine("%s", short)
}

const conformanceHint = `run "fencepost doctor --conformance --against URL"`

// askers and asks are how many connections are asked which server they lead to, and how often each.
const (
	askers = 4
	asks   = 4
)

// primary asks over several connections whether a primary answers. A router may send some statements to a standby.
func (p *postgres) primary(ctx context.Context) ([]finding, error) {
	config, err := servers.PostgresConfig(p.opts.Database)
	if err != nil {
		return nil, err
	}
	var standby, primary int
	for range askers {
		err := p.askRole(ctx, config, func(recovering bool) {
			if recovering {
				standby++
			} else {
				primary++
			}
		})
		if err != nil {
			return nil, err
		}
	}
	switch {
	case primary == 0:
		return fault("name the primary: its own address, or target_session_attrs=read-write with the addresses of all",
			"a standby answers, and fences are raised on the primary alone")
	case standby > 0:
		return fault("lead the store's pool to the primary: the router's other address, or no load balancing for this role",
			"of %d reads a standby answered %d: a router is in between, and what a standby reads under a lease may be old",
			askers*asks, standby)
	}
	var readOnly string
	if readOnly, err = p.setting(ctx, "transaction_read_only"); err != nil {
		return nil, err
	}
	if readOnly != "off" {
		return fault("take default_transaction_read_only off this role, database or server",
			"transactions are read-only by default, so every claim and write is refused")
	}
	return fine("a primary answers, and takes writes")
}

// questions ask whether a standby answers, in two ways: a router may send the one to the primary, because it knows the
// function, and the other one not.
var questions = [...]string{
	`SELECT pg_catalog.pg_is_in_recovery()`,
	`SELECT pg_catalog.current_setting('transaction_read_only') = 'on'
	        AND pg_catalog.current_setting('default_transaction_read_only') = 'off'`,
}

// askRole asks over a connection of its own.
func (p *postgres) askRole(ctx context.Context, config *pgx.ConnConfig, heard func(recovering bool)) error {
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is open on it
	for i := range asks {
		var recovering bool
		if err := conn.QueryRow(ctx, questions[i%len(questions)]).Scan(&recovering); err != nil {
			return err
		}
		heard(recovering)
	}
	return nil
}

// pooler compares the process that answers with the one that the connection was given: a pooler gives numbers of its
// own.
func (p *postgres) pooler(ctx context.Context) ([]finding, error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	var pid uint32
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid); err != nil {
		return nil, err
	}
	if pid == conn.Conn().PgConn().PID() {
		return fine("no pooler is in between")
	}
	config, err := pgx.ParseConfig(p.opts.Database)
	switch {
	case err != nil:
		return nil, errors.New("the address does not parse") // the cause quotes it
	case p.opts.Advisory:
		return fault("give the store a pool with the server's own address, or use NewAdvisoryTx",
			"a pooler is in between, and NewAdvisory refuses it")
	case config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement ||
		config.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec:
		return warning(
			"add default_query_exec_mode=exec to the address, unless this is PgBouncer 1.21 or later with "+
				"max_prepared_statements above 0",
			"a pooler is in between, and the address has pgx name statements on the server: in transaction mode they get lost")
	}
	return fine("a pooler is in between, and the address suits one in transaction mode")
}

// encoding looks at both ends of the conversion of names.
func (p *postgres) encoding(ctx context.Context) ([]finding, error) {
	var client, server string
	err := p.pool.QueryRow(ctx, `SELECT pg_catalog.pg_client_encoding(), pg_catalog.current_setting('server_encoding')`).
		Scan(&client, &server)
	switch {
	case err != nil:
		return nil, err
	case client != "UTF8":
		return fault("add client_encoding=UTF8 to the address, or set it for the role or the database",
			"the session's client_encoding is %s: every name is refused", client)
	case server == "SQL_ASCII":
		return warning("make a database with ENCODING 'UTF8'",
			"the database is SQL_ASCII, and checks nothing: another client may store names in another encoding")
	case server != "UTF8":
		return warning("make a database with ENCODING 'UTF8'",
			"the database is %s: names and labels with other characters are refused", server)
	}
	return fine("the database and the session are UTF8")
}

// setting returns one of the server's settings, as this session has it.
func (p *postgres) setting(ctx context.Context, name string) (value string, err error) {
	err = p.pool.QueryRow(ctx, `SELECT pg_catalog.current_setting($1)`, name).Scan(&value)
	return value, err
}

// mayNotLook reports whether a role lacks the right to look.
func mayNotLook(err error) bool {
	server, ok := pgerr.ServerError(err)
	return ok && server.Code == pgerr.CodeInsufficientPrivilege
}
