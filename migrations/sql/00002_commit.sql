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
REVOKE ALL ON FUNCTION fencepost.settle(text, uuid) FROM PUBLIC;

COMMENT ON FUNCTION fencepost.begin_incarnation() IS
    'gives the server an incarnation if it has none, after the first migration and after a crash';
COMMENT ON FUNCTION fencepost.mark() IS 'returns the transaction''s id and the server''s incarnation, for settle';
COMMENT ON FUNCTION fencepost.settle(text, uuid) IS
    'tells what became of a marked transaction: committed, aborted, in progress or unknown';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(2, false);

LOCK TABLE fencepost.incarnation IN ACCESS EXCLUSIVE MODE;
DROP FUNCTION fencepost.settle(text, uuid);
DROP FUNCTION fencepost.mark();
DROP FUNCTION fencepost.begin_incarnation();
DROP TABLE fencepost.incarnation;
