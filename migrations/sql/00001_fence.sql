-- The fence: the row that remembers the highest token claimed for a resource, and the
-- functions through which everybody, this library's Go code included, reaches it.
--
-- Every name is schema-qualified and every function pins its search_path, so that the caller's
-- search_path cannot matter, or names schemas throughout (guard, enter). The functions run with their owner's
-- rights: an application role needs USAGE on the schema and EXECUTE on the functions, and no right at all on the table.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(1, true);

CREATE TABLE fencepost.fence (
    resource   text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
    token      bigint NOT NULL CHECK (token > 0),
    nonce      uuid NOT NULL,
    label      text NOT NULL,
    claimed_at timestamptz NOT NULL
) WITH (fillfactor = 80);

COMMENT ON TABLE fencepost.fence IS
    'the highest token claimed per resource; written by fencepost.claim alone, never deleted';

-- The SQLSTATEs raised here stand in class ZF, outside the ranges that the SQL standard
-- reserves (classes that begin with 0-4 or A-H):
--   ZF001  stale: the claim is not, or no longer, the one that the fence carries
--   ZF002  invalid argument
-- The DETAIL of ZF001 is a JSON object {"resource", "token", "current"}, tokens as strings.

-- claim raises the fence of a resource to a token, if that is above what the fence carries.
--   claimed  whether the fence now carries this token with this nonce; true again when the same
--            claim is repeated, so that a lost reply can be settled by asking once more
--   current  the token that the fence carries now; 0 where there is no fence yet
-- A token more than 2^40 above the fence is refused (claimed false, current below the token):
-- one wild number must not use up the range.
-- It takes effect when the transaction commits.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim(
    resource text, token bigint, nonce uuid, label text DEFAULT '',
    OUT claimed boolean, OUT current bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    max_step CONSTANT bigint := 1099511627776; -- 2^40
    holder   uuid;
BEGIN
    IF resource IS NULL OR resource = '' OR token IS NULL OR token < 1 OR nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'claim needs a resource, a positive token and a nonce';
    END IF;
    -- A claim that a crash can undo would let a token be claimed twice. A SET clause on this
    -- function would be undone before COMMIT reads the setting; this lasts to the end of the
    -- transaction.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- COLLATE, here and below: a resource is compared byte by byte, whatever collation the caller's
    -- expression carries.
    -- The gate: a fair queue, so that overlapping guards cannot starve a claim. Two resources
    -- that share a hash wait for each other and are safe all the same: the row lock is the proof.
    PERFORM pg_advisory_xact_lock(1179534160, hashtext(claim.resource COLLATE "C"));
    LOOP
        UPDATE fencepost.fence AS f
           SET token = claim.token, nonce = claim.nonce, label = coalesce(claim.label, ''),
               claimed_at = clock_timestamp()
         WHERE f.resource = claim.resource COLLATE "C"
           AND f.token < claim.token AND claim.token - f.token <= max_step;
        IF FOUND THEN
            claimed := true;
            current := claim.token;
            RETURN;
        END IF;
        SELECT f.token, f.nonce INTO current, holder
          FROM fencepost.fence AS f WHERE f.resource = claim.resource COLLATE "C";
        IF FOUND THEN
            claimed := current = claim.token AND holder = claim.nonce;
            RETURN;
        END IF;
        current := 0;
        claimed := false;
        IF claim.token > max_step THEN
            RETURN;
        END IF;
        INSERT INTO fencepost.fence AS f (resource, token, nonce, label, claimed_at)
        VALUES (claim.resource, claim.token, claim.nonce, coalesce(claim.label, ''), clock_timestamp())
            ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
        IF FOUND THEN
            claimed := true;
            current := claim.token;
            RETURN;
        END IF;
        -- A rival that did not pass the gate inserted the row meanwhile: look again.
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- refuse_claim says why guard refuses a claim that the fence does not carry. No fence carries one that is invalid.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_claim(resource text, token bigint, nonce uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    fence_token bigint;
BEGIN
    IF resource IS NULL OR resource = '' OR token IS NULL OR token < 1 OR nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'the guard needs a resource, a positive token and a nonce';
    END IF;
    SELECT f.token INTO fence_token FROM fencepost.fence AS f WHERE f.resource = refuse_claim.resource COLLATE "C";
    -- Under a snapshot older than the claim the fence still looks lower. That is no stale claim, but
    -- a transaction to be run again.
    IF coalesce(fence_token, 0) < refuse_claim.token AND current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
            MESSAGE = 'the fence may have been raised after this transaction''s snapshot was taken';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ZF001',
        MESSAGE = format('stale claim: token %s on a fence at %s', refuse_claim.token, coalesce(fence_token, 0)),
        DETAIL = jsonb_build_object('resource', refuse_claim.resource, 'token', refuse_claim.token::text,
                                    'current', coalesce(fence_token, 0)::text)::text;
END
$body$;
-- +goose StatementEnd

-- guard raises ZF001 unless the fence carries exactly this claim, and keeps it so until the transaction ends: no
-- other claim of the resource can commit before. It stands before the writes it guards, and not inside a savepoint,
-- whose rollback would drop its locks. What it returns is true, always, so that it can stand in the WHERE of a
-- statement that changes a row. It leaves nothing for triggers to see: a table with a door wants enter.
--
-- Every guarded write passes here, and a SET clause would be a tenth of its cost. Instead whatever is looked up by
-- name in this body names its schema, types and operators too: the caller's search_path decides nothing.
-- +goose StatementBegin
CREATE FUNCTION fencepost.guard(resource text, token bigint, nonce uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
AS $body$
BEGIN
    -- FOR SHARE, no less: a plain read, or FOR KEY SHARE, would let a claim pass beside it. The gate is the last of
    -- the comparisons: the fence's row has been found by then and is locked only afterwards, as it is by then.
    PERFORM FROM fencepost.fence AS f
      WHERE f.resource OPERATOR(pg_catalog.=) guard.resource COLLATE pg_catalog."C"
        AND f.token OPERATOR(pg_catalog.=) guard.token AND f.nonce OPERATOR(pg_catalog.=) guard.nonce
        AND pg_catalog.pg_advisory_xact_lock_shared(
                1179534160, pg_catalog.hashtext(guard.resource COLLATE pg_catalog."C")) IS NOT NULL
        FOR SHARE;
    IF NOT FOUND THEN
        PERFORM fencepost.refuse_claim(guard.resource, guard.token, guard.nonce);
    END IF;
    RETURN true;
END
$body$;
-- +goose StatementEnd

-- enter is the guard, and leaves word of it to the end of the transaction, for the triggers of protected tables to
-- compare with the fence. It adds up: call it once per resource, in sorted order, at the top of a transaction.
-- Names as in guard.
-- +goose StatementBegin
CREATE FUNCTION fencepost.enter(resource text, token bigint, nonce uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
AS $body$
DECLARE
    entered pg_catalog.text;
BEGIN
    PERFORM fencepost.guard(enter.resource, enter.token, enter.nonce);
    -- {"resource": ["token", "nonce"]}, spelt as jsonb spells it. The first entry is written without the detour, since
    -- most transactions have one.
    entered := pg_catalog.current_setting('fencepost.entered', true);
    IF entered OPERATOR(pg_catalog.<>) '' THEN
        entered := (entered::pg_catalog.jsonb OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(
            enter.resource, pg_catalog.jsonb_build_array(enter.token::pg_catalog.text, enter.nonce)))::pg_catalog.text;
    ELSE
        entered := pg_catalog.concat(
            '{', pg_catalog.to_json(enter.resource), ': ["', enter.token, '", "', enter.nonce, '"]}');
    END IF;
    PERFORM pg_catalog.set_config('fencepost.entered', entered, true);
    RETURN true;
END
$body$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION fencepost.refuse_claim(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.claim(text, bigint, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.guard(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.enter(text, bigint, uuid) FROM PUBLIC;

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(1, false);

-- Without its fences a database takes old tokens for new ones.
-- +goose StatementBegin
DO $body$
BEGIN
    LOCK TABLE fencepost.fence IN ACCESS EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM fencepost.fence) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'fencepost.fence still remembers claimed tokens',
            HINT = 'Dropping it would let overtaken workers write again. Force it only when no worker is left.';
    END IF;
END
$body$;
-- +goose StatementEnd

DROP FUNCTION fencepost.enter(text, bigint, uuid);
DROP FUNCTION fencepost.guard(text, bigint, uuid);
DROP FUNCTION fencepost.refuse_claim(text, bigint, uuid);
DROP FUNCTION fencepost.claim(text, bigint, uuid, text);
DROP TABLE fencepost.fence;
