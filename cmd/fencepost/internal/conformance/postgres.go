package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/internal/encoding"
)

// checks are the checks of PostgreSQL, in the order in which they need each other.
func (s *scratch) checks() []check {
	server := []check{
		{name: "connect", claim: "it answers, and is PostgreSQL 13 or later", try: s.connect},
		{name: "primary", claim: "it is a primary, and takes writes", needs: []string{"connect"}, try: s.try(s.primary)},
		{
			name:  "encoding",
			claim: "names arrive as the UTF-8 that they are",
			needs: []string{"connect"},
			try:   s.try(s.encoding),
		},
		{
			name: "settings", claim: "what is set for a transaction ends with it", needs: []string{"connect"},
			try: s.try(s.settings),
		},
		{
			name: "notices", claim: "warnings arrive, with their SQLSTATE and where they come from", needs: []string{"connect"},
			try: s.try(s.notices),
		},
		{
			name: "gate", claim: "advisory locks of transactions exclude each other, and nobody overtakes who waits",
			needs: []string{"primary"}, try: holds(s.gate),
		},
		{name: "table", claim: "this role may make schemas and tables", needs: []string{"primary"}, try: s.try(s.makeTable)},
		{
			name: "update", claim: "an UPDATE that waited for a row compares its WHERE with the row as it was committed",
			needs: []string{"table", "encoding"}, try: s.try(s.update),
		},
		{
			name:  "catalog",
			claim: "the catalog tells of tables, keys and rights",
			needs: []string{"table", "encoding"},
			try:   s.try(s.catalog),
		},
		{
			name: "pipeline", claim: "what travels from BEGIN to COMMIT in one go is one transaction", needs: []string{"table"},
			try: s.try(s.pipeline),
		},
		{
			name:  "limits",
			claim: "statement_timeout ends a wait, and idle_in_transaction_session_timeout a holder that was stopped",
			needs: []string{"table"},
			try:   s.try(s.limits),
		},
	}
	return append(append(server, s.functionChecks()...), s.partChecks()...)
}

// functionChecks need the library's own functions.
func (s *scratch) functionChecks() []check {
	return []check{
		{
			name: "functions", claim: "the library's migrations run", needs: []string{"table"},
			try: s.try(s.install),
		},
		{
			name:  "claim",
			claim: "of two claims one waits, and the lower one is refused",
			needs: []string{"functions", "encoding"},
			try:   s.try(s.claim),
		},
		{
			name:  "durable",
			claim: "a claim makes its commit wait for the disk, whatever the session says",
			needs: []string{"claim"},
			try:   s.try(s.durable),
		},
		{
			name:  "now",
			claim: "a claim that need not wait is made at once, and one that would have to is not made",
			needs: []string{"claim"},
			try:   s.try(s.now),
		},
		{
			name:  "guard",
			claim: "a claim waits for guarded transactions, which do not wait for each other",
			needs: []string{"claim"},
			try:   s.try(s.guard),
		},
		{
			name:  "overtaken",
			claim: "a guard that waited for a claim is refused, and its transaction is aborted",
			needs: []string{"claim"},
			try:   s.try(s.overtaken),
		},
		{
			name: "snapshot", claim: "under an older snapshot a guard fails with 40001", needs: []string{"claim"},
			try: s.try(s.snapshot),
		},
		{
			name:  "marked",
			claim: "a transaction that makes its own claim holds it alone, and claims nothing if it is rolled back",
			needs: []string{"claim"},
			try: s.try(func(ctx context.Context, t *trial) error {
				return s.marks(ctx, t, "claim-marked", s.claimMarked)
			}),
		},
		{
			name:  "lost-update",
			claim: "nobody writes between a read under a claim and the write that follows it",
			needs: []string{"claim"},
			try:   s.try(s.lostUpdate),
		},
		{
			name: "commit", claim: "a transaction's id tells what became of it", needs: []string{"functions"},
			try: s.try(s.commit),
		},
		{
			name:  "once",
			claim: "an idempotency key waits for the transaction that entered it",
			needs: []string{"functions", "encoding"},
			try:   s.try(s.once),
		},
		{
			name: "protection", claim: "triggers on every row refuse writes without a claim", needs: []string{"claim"},
			try: s.try(s.protection),
		},
	}
}

// partChecks are checks that only one part of the library needs.
func (s *scratch) partChecks() []check {
	return []check{
		{
			name: "copy", part: "Table.Load", claim: "rows can be copied into a temporary table of the transaction's own",
			needs: []string{"catalog"}, try: s.try(s.copyIn),
		},
		{
			name:  "drawn",
			part:  "NewAdvisoryTx",
			claim: "a transaction that draws its token excludes others, and draws it again if it was rolled back",
			needs: []string{"claim"},
			try: s.try(func(ctx context.Context, t *trial) error {
				return s.marks(ctx, t, "draw-marked", s.drawMarked)
			}),
		},
		{
			name:  "session",
			part:  "NewAdvisory",
			claim: "advisory locks of sessions exclude each other, and messages tell of their release",
			needs: []string{"primary", "encoding"},
			try:   s.try(s.session),
		},
	}
}

// connect finds out which server answers, and how far away it is.
func (s *scratch) connect(ctx context.Context) (string, error) {
	t := newTrial(s.config)
	defer t.end()
	conn, err := t.conn(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	var name string
	var number int
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.version(), pg_catalog.current_setting('server_version_num')::int`).
		Scan(&name, &number); err != nil {
		return "", err
	}
	s.watch = max(s.watch, 5*time.Since(began))
	const oldest = 130000
	if number < oldest {
		return "", fmt.Errorf("it is of version %d: %s", number/10000, name)
	}
	return name, nil
}

func (s *scratch) primary(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	var standby bool
	var readOnly string
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only')`).
		Scan(&standby, &readOnly)
	switch {
	case err != nil:
		return err
	case standby:
		return errors.New("a standby answered")
	case readOnly != "off":
		return errors.New("transactions are read-only here (default_transaction_read_only)")
	}
	return nil
}

// encoding sends a name and has the server measure it.
func (s *scratch) encoding(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	if problem := encoding.Problem(conn.PgConn()); problem != "" {
		return errors.New(problem)
	}
	const name = "größer"
	var bytes int
	var client, back string
	err = conn.QueryRow(ctx,
		`SELECT pg_catalog.pg_client_encoding(), pg_catalog.octet_length(pg_catalog.convert_to($1::text, 'UTF8')), $1::text`,
		name).
		Scan(&client, &bytes, &back)
	switch {
	case err != nil:
		return err
	case client != "UTF8":
		return fmt.Errorf("the session's client_encoding is %s: connect with client_encoding=UTF8", client)
	case bytes != len(name) || back != name:
		return fmt.Errorf("%q of %d bytes came back as %q of %d", name, len(name), back, bytes)
	}
	return nil
}
