-- The outcome of a transaction whose COMMIT got no reply.
--
-- A transaction id alone is not enough. After a crash, ids that had not reached the disk are handed out again, and
-- pg_xact_status then speaks of another session's transaction. The server that is asked may also be a different server.
-- So a mark has two parts: the transaction's id, and the incarnation of the server that assigned it. An id is unique
-- within one incarnation.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(2, true);

-- The table is unlogged on purpose. Recovery from a crash, the promotion of a standby and the restore of a base backup
-- empty it, and so end the incarnation. A clean restart keeps it, and the ids with it. born is the row's own xmin. A
-- row with another xmin came from a dump, and belongs to no incarnation of this server.
CREATE UNLOGGED TABLE fencepost.incarnation (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
    born        xid NOT NULL DEFAULT pg_current_xact_id()::xid
);

COMMENT ON TABLE fencepost.incarnation IS
    'one row: the incarnation of this server, from recovery to the next; written by fencepost.begin_incarnation alone';

-- begin_incarnation gives the server an incarnation if it has none. Call it in a transaction of its own: inside a long
-- one it would block the first transaction of every other session.
-- +goose StatementBegin
CREATE FUNCTION fencepost.begin_incarnation() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    DELETE FROM fencepost.incarnation AS l WHERE l.xmin <> l.born;
    INSERT INTO fencepost.incarnation DEFAULT VALUES ON CONFLICT DO NOTHING;
END
$body$;
-- +goose StatementEnd

-- mark returns what settle needs to find the current transaction's outcome later. The incarnation is NULL if the server
-- has none: then call begin_incarnation, and begin the transaction again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.mark(OUT xid text, OUT incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    SELECT l.incarnation INTO incarnation FROM fencepost.incarnation AS l WHERE l.xmin = l.born;
    xid := pg_current_xact_id()::text;
END
$body$;
-- +goose StatementEnd

-- enter_marked opens a guarded transaction in one call: it enters a resource, marks the transaction, and bounds how
-- long it may be idle, in milliseconds. A holder that is stopped while it reads a result is not idle; tcp_user_timeout
-- ends its transaction. Calls of functions by functions cost as much as their work here, so the bodies of guard and
-- enter stand here once more. It names schemas as guard does.
-- +goose StatementBegin
CREATE FUNCTION fencepost.enter_marked(
    resource text, token bigint, nonce uuid, max_idle integer, OUT xid text, OUT incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER
AS $body$
DECLARE
    set pg_catalog.text; -- an assignment costs less than a statement
BEGIN
    SELECT (SELECT l.incarnation FROM fencepost.incarnation AS l WHERE l.xmin OPERATOR(pg_catalog.=) l.born)
      INTO incarnation FROM fencepost.fence AS f
      WHERE f.resource OPERATOR(pg_catalog.=) enter_marked.resource COLLATE pg_catalog."C"
        AND f.token OPERATOR(pg_catalog.=) enter_marked.token AND f.nonce OPERATOR(pg_catalog.=) enter_marked.nonce
        AND pg_catalog.pg_advisory_xact_lock_shared(
                1179534160, pg_catalog.hashtext(enter_marked.resource COLLATE pg_catalog."C")) IS NOT NULL
        FOR SHARE;
    IF NOT FOUND THEN
        PERFORM fencepost.refuse_claim(enter_marked.resource, enter_marked.token, enter_marked.nonce);
    END IF;
    set := pg_catalog.concat(
        pg_catalog.set_config('idle_in_transaction_session_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('tcp_user_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('fencepost.entered', pg_catalog.concat(
            fencepost.entered_text(enter_marked.resource, enter_marked.token, enter_marked.nonce),
            pg_catalog.current_setting('fencepost.entered', true)), true));
    xid := pg_catalog.pg_current_xact_id();
END
$body$;
-- +goose StatementEnd

-- claim_marked opens a guarded transaction that makes its own claim: it is claim and enter_marked in one call. The
-- claim takes effect with everything else when the transaction commits. It does not wait for other transactions:
-- claimed is NULL if claim would have to wait at the gate, and then nothing has been claimed. A lock that somebody has
-- taken beside the gate ends it after a short time with 55P03. xid is NULL unless claimed is true.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim_marked(
    resource text, token bigint, nonce uuid, label text, max_idle integer,
    OUT claimed boolean, OUT current bigint, OUT xid text, OUT incarnation uuid, OUT refusal jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms'
AS $body$
DECLARE
    set pg_catalog.text; -- an assignment costs less than a statement
BEGIN
    IF NOT pg_catalog.pg_try_advisory_xact_lock(
        1179534160, pg_catalog.hashtext(claim_marked.resource COLLATE pg_catalog."C")) THEN
        RETURN;
    END IF;
    IF pg_catalog.current_setting('synchronous_commit')
        OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local', 'remote_write']) THEN
        set := pg_catalog.set_config('synchronous_commit', 'on', true); -- see claim
    END IF;
    -- The usual case of claim: the fence is there, and below the token.
    UPDATE fencepost.fence AS f
       SET token = claim_marked.token, nonce = claim_marked.nonce, label = coalesce(claim_marked.label, ''),
           claimed_at = pg_catalog.clock_timestamp()
     WHERE f.resource OPERATOR(pg_catalog.=) claim_marked.resource COLLATE pg_catalog."C"
       AND f.token OPERATOR(pg_catalog.<) claim_marked.token
       AND claim_marked.token OPERATOR(pg_catalog.-) f.token OPERATOR(pg_catalog.<=) 1099511627776
       AND claim_marked.nonce IS NOT NULL -- claim refuses that
       RETURNING (SELECT l.incarnation FROM fencepost.incarnation AS l WHERE l.xmin OPERATOR(pg_catalog.=) l.born)
       INTO incarnation;
    IF FOUND THEN
        claimed := true;
        current := claim_marked.token;
    ELSE
        SELECT c.claimed, c.current, c.refusal INTO claimed, current, refusal FROM fencepost.claim(
            claim_marked.resource, claim_marked.token, claim_marked.nonce, claim_marked.label) AS c;
        IF NOT claimed THEN
            RETURN;
        END IF;
        -- A claim that had been made before has not locked the row.
        PERFORM fencepost.guard(claim_marked.resource, claim_marked.token, claim_marked.nonce);
        SELECT l.incarnation INTO incarnation
          FROM fencepost.incarnation AS l WHERE l.xmin OPERATOR(pg_catalog.=) l.born;
    END IF;
    set := pg_catalog.concat(
        pg_catalog.set_config('idle_in_transaction_session_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('tcp_user_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('fencepost.entered', pg_catalog.concat(
            fencepost.entered_text(claim_marked.resource, claim_marked.token, claim_marked.nonce),
            pg_catalog.current_setting('fencepost.entered', true)), true));
    xid := pg_catalog.pg_current_xact_id();
END
$body$;
-- +goose StatementEnd

-- draw_marked opens a guarded transaction that excludes others by an advisory lock, and draws its token by itself: it
-- takes the lock, claims the token one above the fence's, and does what enter_marked does, in one call. The claim takes
-- effect with everything else when the transaction commits. It does not wait for other transactions: token is NULL if
-- the lock or the gate is taken, and also if the fence carries the highest token. Nothing has been claimed then. A lock
-- that somebody has taken beside the gate ends it after a short time with 55P03.
-- +goose StatementBegin
CREATE FUNCTION fencepost.draw_marked(
    resource text, nonce uuid, label text, key bigint, max_idle integer,
    OUT token bigint, OUT xid text, OUT incarnation uuid)
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms'
AS $body$
DECLARE
    set pg_catalog.text; -- an assignment costs less than a statement
BEGIN
    IF NOT pg_catalog.pg_try_advisory_xact_lock(draw_marked.key)
        OR NOT pg_catalog.pg_try_advisory_xact_lock(
            1179534160, pg_catalog.hashtext(draw_marked.resource COLLATE pg_catalog."C")) THEN
        RETURN;
    END IF;
    IF pg_catalog.current_setting('synchronous_commit')
        OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local', 'remote_write']) THEN
        set := pg_catalog.set_config('synchronous_commit', 'on', true); -- see claim
    END IF;
    -- A statement of its own: it sees what was committed before the lock and the gate were passed.
    UPDATE fencepost.fence AS f
       SET token = f.token OPERATOR(pg_catalog.+) 1, nonce = draw_marked.nonce, label = coalesce(draw_marked.label, ''),
           claimed_at = pg_catalog.clock_timestamp()
     WHERE f.resource OPERATOR(pg_catalog.=) draw_marked.resource COLLATE pg_catalog."C"
       AND f.token OPERATOR(pg_catalog.<) 9223372036854775807
       AND draw_marked.nonce IS NOT NULL -- claim refuses that
       RETURNING f.token,
           (SELECT l.incarnation FROM fencepost.incarnation AS l WHERE l.xmin OPERATOR(pg_catalog.=) l.born)
       INTO token, incarnation;
    IF token IS NULL THEN
        SELECT c.current, l.incarnation INTO token, incarnation
          FROM fencepost.claim(draw_marked.resource, 1, draw_marked.nonce, draw_marked.label) AS c
          LEFT JOIN fencepost.incarnation AS l ON l.xmin OPERATOR(pg_catalog.=) l.born
         WHERE c.claimed;
        IF token IS NULL THEN
            RETURN;
        END IF;
    END IF;
    set := pg_catalog.concat(
        pg_catalog.set_config('idle_in_transaction_session_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('tcp_user_timeout', max_idle::pg_catalog.text, true),
        pg_catalog.set_config('fencepost.entered', pg_catalog.concat(
            fencepost.entered_text(draw_marked.resource, draw_marked.token, draw_marked.nonce),
            pg_catalog.current_setting('fencepost.entered', true)), true));
    xid := pg_catalog.pg_current_xact_id();
END
$body$;
-- +goose StatementEnd

-- settle returns the outcome of a marked transaction: 'committed', 'aborted', 'in progress' or 'unknown'. It is
-- 'unknown' if this server cannot know: it is another incarnation, is a standby, or has forgotten the id.
-- +goose StatementBegin
CREATE FUNCTION fencepost.settle(xid text, incarnation uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    status text;
BEGIN
    -- A statement of its own: on a standby an unlogged table cannot even be named in a plan.
    IF pg_is_in_recovery() THEN
        RETURN 'unknown';
    END IF;
    PERFORM FROM fencepost.incarnation AS l WHERE l.xmin = l.born AND l.incarnation = settle.incarnation;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    BEGIN
        status := pg_xact_status(settle.xid::xid8);
    EXCEPTION WHEN invalid_parameter_value THEN
        RETURN 'unknown'; -- an id that has not been given yet
    END;
    IF status = 'committed' AND current_setting('synchronous_standby_names') <> '' THEN
        -- Its wait for a synchronous standby may have been cut short. Whoever asks writes something and so
        -- waits for the same standby in turn.
        PERFORM pg_logical_emit_message(true, 'fencepost', '');
    END IF;
    RETURN coalesce(status, 'unknown'); -- NULL: too old
END
$body$;
-- +goose StatementEnd

REVOKE ALL ON TABLE fencepost.incarnation FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.begin_incarnation() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.mark() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.enter_marked(text, bigint, uuid, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.claim_marked(text, bigint, uuid, text, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.draw_marked(text, uuid, text, bigint, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.settle(text, uuid) FROM PUBLIC;

COMMENT ON FUNCTION fencepost.begin_incarnation() IS
    'gives the server an incarnation if it has none, after the first migration and after a crash';
COMMENT ON FUNCTION fencepost.mark() IS 'returns the transaction''s id and the server''s incarnation, for settle';
COMMENT ON FUNCTION fencepost.enter_marked(text, bigint, uuid, integer) IS
    'opens a guarded transaction: enter, mark, and the longest that it may be idle, in milliseconds';
COMMENT ON FUNCTION fencepost.claim_marked(text, bigint, uuid, text, integer) IS
    'opens a guarded transaction that makes its own claim, if that need not wait: claim and enter_marked';
COMMENT ON FUNCTION fencepost.draw_marked(text, uuid, text, bigint, integer) IS
    'opens a guarded transaction under an advisory lock, if that need not wait: the next token, and enter_marked';
COMMENT ON FUNCTION fencepost.settle(text, uuid) IS
    'tells what became of a marked transaction: committed, aborted, in progress or unknown';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(2, false);

LOCK TABLE fencepost.incarnation IN ACCESS EXCLUSIVE MODE;
DROP FUNCTION fencepost.draw_marked(text, uuid, text, bigint, integer);
DROP FUNCTION fencepost.claim_marked(text, bigint, uuid, text, integer);
DROP FUNCTION fencepost.enter_marked(text, bigint, uuid, integer);
DROP FUNCTION fencepost.settle(text, uuid);
DROP FUNCTION fencepost.mark();
DROP FUNCTION fencepost.begin_incarnation();
DROP TABLE fencepost.incarnation;
