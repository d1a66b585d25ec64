-- The ledger: which pieces of work, each named by a key of the caller's, have been done, and with
-- what result. A key's entry is written in the transaction that does its work, so neither is ever
-- there without the other.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(3, true);

CREATE TABLE fencepost.ledger (
    namespace text COLLATE "C" NOT NULL CHECK (octet_length(namespace) BETWEEN 1 AND 64),
    key       text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 512),
    resource  text COLLATE "C" NOT NULL,
    request   bytea NOT NULL CHECK (octet_length(request) = 32),
    result    json CHECK (octet_length(result::text) <= 65536),
    done_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX ledger_done_at ON fencepost.ledger (namespace, done_at);

COMMENT ON TABLE fencepost.ledger IS
    'idempotency keys, each with the result of its work; written by the functions fencepost.once_* alone';

-- The SQLSTATEs raised here, besides those of the fence (ZF002: invalid argument):
--   ZF005  the key has been used with another request, or for another resource
--
-- request is the SHA-256 of what the work was asked to do; resource is the full name that the work's
-- transaction has entered. Both must be the same at every use of a key.

-- once_look returns the result of a key's work, as JSON text, or NULL where none has been committed.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_look(namespace text, key text, resource text, request bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    entry fencepost.ledger;
BEGIN
    SELECT * INTO entry FROM fencepost.ledger AS l
     WHERE l.namespace = once_look.namespace COLLATE "C" AND l.key = once_look.key COLLATE "C";
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF entry.resource <> once_look.resource COLLATE "C" OR entry.request <> once_look.request THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF005',
            MESSAGE = format('the key %L has been used with another request', once_look.key);
    END IF;
    RETURN entry.result::text;
END
$body$;
-- +goose StatementEnd

-- once_begin enters a key before its work is done, and returns NULL; the work follows, then once_end. Where
-- the work has been done already it returns the result, and nothing is to be done. It waits for another
-- transaction that is at the same work. It stands after the guard.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_begin(namespace text, key text, resource text, request bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    result text;
BEGIN
    IF namespace IS NULL OR key IS NULL OR resource IS NULL OR request IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'once_begin needs a namespace, a key, a resource and a request';
    END IF;
    LOOP
        INSERT INTO fencepost.ledger (namespace, key, resource, request, done_at)
        VALUES (once_begin.namespace, once_begin.key, once_begin.resource, once_begin.request, clock_timestamp())
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        result := fencepost.once_look(once_begin.namespace, once_begin.key, once_begin.resource, once_begin.request);
        IF result IS NOT NULL THEN
            RETURN result;
        END IF;
        PERFORM FROM fencepost.ledger AS l
          WHERE l.namespace = once_begin.namespace COLLATE "C" AND l.key = once_begin.key COLLATE "C";
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF002',
                MESSAGE = format('the work of key %L was begun in this transaction, or never ended', once_begin.key);
        END IF;
        -- Purged meanwhile: enter it again.
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- once_end records the result of the work that once_begin began in this transaction.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_end(namespace text, key text, result text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF result IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'once_end needs a result';
    END IF;
    -- The window of a key begins when its work ends.
    UPDATE fencepost.ledger AS l
       SET result = once_end.result::json, done_at = clock_timestamp()
     WHERE l.namespace = once_end.namespace COLLATE "C" AND l.key = once_end.key COLLATE "C"
       AND l.result IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = format('no work of key %L was begun in this transaction', once_end.key);
    END IF;
END
$body$;
-- +goose StatementEnd

-- once_purge forgets up to most keys of a namespace whose work ended longer ago than older_than, by this
-- server's clock, the oldest first, and returns how many. It refuses to forget within 24 hours: a retry
-- would do the work again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_purge(namespace text, older_than interval, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    purged bigint;
BEGIN
    IF namespace IS NULL OR most IS NULL OR older_than IS NULL OR older_than < interval '24 hours' THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'once_purge needs a namespace, an age of 24 hours or more, and a number of keys';
    END IF;
    DELETE FROM fencepost.ledger AS l USING (
        SELECT o.namespace, o.key FROM fencepost.ledger AS o
         WHERE o.namespace = once_purge.namespace COLLATE "C" AND o.done_at < clock_timestamp() - older_than
         ORDER BY o.done_at LIMIT most FOR UPDATE SKIP LOCKED) AS old
     WHERE l.namespace = old.namespace AND l.key = old.key;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$body$;
-- +goose StatementEnd

REVOKE ALL ON TABLE fencepost.ledger FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.once_look(text, text, text, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.once_begin(text, text, text, bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.once_end(text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.once_purge(text, interval, integer) FROM PUBLIC;

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(3, false);

-- Without its ledger a database does again what it has done.
-- +goose StatementBegin
DO $body$
BEGIN
    LOCK TABLE fencepost.ledger IN ACCESS EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM fencepost.ledger WHERE done_at > clock_timestamp() - interval '24 hours')
        AND coalesce(current_setting('fencepost.force_down', true), '') <> 'on'
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'fencepost.ledger still remembers work of the last 24 hours',
            HINT = 'Dropping it would let a retry do that work again.';
    END IF;
END
$body$;
-- +goose StatementEnd

DROP FUNCTION fencepost.once_purge(text, interval, integer);
DROP FUNCTION fencepost.once_end(text, text, text);
DROP FUNCTION fencepost.once_begin(text, text, text, bytea);
DROP FUNCTION fencepost.once_look(text, text, text, bytea);
DROP TABLE fencepost.ledger;
