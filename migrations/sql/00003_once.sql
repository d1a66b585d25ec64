-- The ledger: which pieces of work have been done, each under a key of the caller's, and with what result. A key's
-- entry is written in the transaction that does its work, so neither exists without the other.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(3, true);

CREATE TABLE fencepost.ledger (
    namespace text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(namespace) BETWEEN 1 AND 64),
    key       text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(key) BETWEEN 1 AND 512),
    resource  text COLLATE "C" NOT NULL,
    request   bytea NOT NULL CHECK (pg_catalog.octet_length(request) = 32),
    result    json CHECK (pg_catalog.octet_length(result::text) <= 65536),
    done_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX ledger_done_at ON fencepost.ledger (namespace, done_at);

-- What operators see of the ledger. Requests and results stay out, because they are the application's data.
CREATE VIEW fencepost.keys AS
SELECT l.namespace, l.key, l.resource, l.done_at FROM fencepost.ledger AS l;

COMMENT ON TABLE fencepost.ledger IS
    'idempotency keys, each with the result of its work; written by the functions fencepost.once_* alone';

-- The SQLSTATEs raised here, besides those of the fence (ZF002: invalid argument):
--   ZF005  the key has been used with another request, or for another resource
--
-- request is the SHA-256 of the description of the work. resource is the full name that the work's transaction has
-- entered. Both must be the same at every use of a key.

-- once_look returns the result of a key's work, as JSON text, or NULL if no such work has been committed.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_look(namespace text, key text, resource text, request bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    entry fencepost.ledger;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
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

-- once_begin enters a key before its work is done, and returns NULL. The work follows, then once_end. If the work has
-- been done already, once_begin returns its result, and the caller has nothing to do. It waits for another transaction
-- that does the same work. Call it after guard.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_begin(namespace text, key text, resource text, request bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    result text;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF octet_length(namespace) BETWEEN 1 AND 64 IS NOT TRUE OR octet_length(key) BETWEEN 1 AND 512 IS NOT TRUE
        OR octet_length(resource) BETWEEN 1 AND 1024 IS NOT TRUE OR octet_length(request) = 32 IS NOT TRUE
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'once_begin needs a namespace of 1 to 64 bytes, a key of 1 to 512, '
            'a resource of 1 to 1024 and a request of 32';
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
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF octet_length(result) <= 65536 IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'once_end needs a result of up to 65536 bytes';
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

-- once_purge deletes keys of a namespace whose work ended longer ago than older_than, by this server's clock. It
-- deletes at most as many as most says, the oldest first, and returns how many it deleted. It refuses to delete within
-- 24 hours, because a retry would then do the work again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.once_purge(namespace text, older_than interval, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    purged bigint;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
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

COMMENT ON VIEW fencepost.keys IS 'for operators: which idempotency keys have been used, and when';
COMMENT ON FUNCTION fencepost.once_look(text, text, text, bytea) IS
    'returns the result of a key''s work as JSON text; NULL if none has been committed';
COMMENT ON FUNCTION fencepost.once_begin(text, text, text, bytea) IS
    'enters a key before its work, and returns NULL; the result if the work has been done';
COMMENT ON FUNCTION fencepost.once_end(text, text, text) IS
    'records the result of the work that once_begin began in this transaction';
COMMENT ON FUNCTION fencepost.once_purge(text, interval, integer) IS
    'forgets keys whose work ended longer ago than the interval, 24 hours or more, and returns how many';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(3, false);

LOCK TABLE fencepost.ledger IN ACCESS EXCLUSIVE MODE;

-- Without its ledger a database would do work again that it has done.
-- +goose StatementBegin
DO $body$
BEGIN
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
DROP VIEW fencepost.keys;
DROP TABLE fencepost.ledger;
