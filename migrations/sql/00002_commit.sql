-- What became of a transaction whose COMMIT was never answered.
--
-- A transaction id alone does not tell. After a crash, ids that had not reached the disk are handed
-- out again, and pg_xact_status then speaks of somebody else's transaction; the server that is asked
-- may be another one altogether. So a transaction is marked by its id together with the life of
-- the server that gave it: an id is unique within one life.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(2, true);

-- Unlogged on purpose: recovery from a crash, a promoted standby and a restored base backup empty it,
-- and a life ends there. A clean restart keeps it, and the ids with it.
-- born is the row's own xmin. A row whose xmin is another came out of a dump: it is of no life here.
CREATE UNLOGGED TABLE fencepost.life (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    life uuid NOT NULL DEFAULT gen_random_uuid(),
    born xid NOT NULL DEFAULT pg_current_xact_id()::xid
);

COMMENT ON TABLE fencepost.life IS
    'one row: the life of this server, from recovery to the next; written by fencepost.begin_life alone';

-- begin_life gives the server a life where it has none. It is called in a transaction of its own: within
-- a long one it would hold up everybody else's first transaction.
-- +goose StatementBegin
CREATE FUNCTION fencepost.begin_life() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    DELETE FROM fencepost.life AS l WHERE l.xmin <> l.born;
    INSERT INTO fencepost.life DEFAULT VALUES ON CONFLICT DO NOTHING;
END
$body$;
-- +goose StatementEnd

-- mark returns what settle needs in order to tell the current transaction's outcome later on. The life is
-- NULL where the server has none yet: begin_life, then begin again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.mark(OUT xid text, OUT life uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    SELECT l.life INTO life FROM fencepost.life AS l WHERE l.xmin = l.born;
    xid := pg_current_xact_id()::text;
END
$body$;
-- +goose StatementEnd

-- unbroken raises ZF006 unless the transaction that was marked with xid is still the current one. It travels with
-- COMMIT: whoever sent COMMIT and BEGIN as SQL in between has left the guard behind.
-- +goose StatementBegin
CREATE FUNCTION fencepost.unbroken(xid text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF pg_current_xact_id_if_assigned()::text IS DISTINCT FROM unbroken.xid THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF006', MESSAGE = 'the guarded transaction ended before its commit';
    END IF;
END
$body$;
-- +goose StatementEnd

-- settle tells what became of a marked transaction: 'committed', 'aborted', 'in progress', or 'unknown'
-- where this server cannot know: it lives another life, is a standby, or has forgotten the id.
-- +goose StatementBegin
CREATE FUNCTION fencepost.settle(xid text, life uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    status text;
BEGIN
    -- A statement of its own: on a standby an unlogged table cannot even be named in a plan.
    IF pg_is_in_recovery() THEN
        RETURN 'unknown';
    END IF;
    PERFORM FROM fencepost.life AS l WHERE l.xmin = l.born AND l.life = settle.life;
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

REVOKE ALL ON TABLE fencepost.life FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.begin_life() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.mark() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.unbroken(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.settle(text, uuid) FROM PUBLIC;

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(2, false);

DROP FUNCTION fencepost.settle(text, uuid);
DROP FUNCTION fencepost.unbroken(text);
DROP FUNCTION fencepost.mark();
DROP FUNCTION fencepost.begin_life();
DROP TABLE fencepost.life;
