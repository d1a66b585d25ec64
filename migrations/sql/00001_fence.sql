-- The fence: the row that remembers the highest token claimed for a resource. The functions here are the only way to
-- reach it, also for this library's Go code.
--
-- The caller's search_path has no effect: every name is schema-qualified, and every function either pins its
-- search_path or names schemas throughout (guard, enter, claim_now, *_marked). The functions run with their owner's rights. An
-- application role needs USAGE on the schema and EXECUTE on the functions, and no right at all on the table.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(1, true);

-- A resource has 1 to 1024 bytes, and a token is positive. The functions that write the table see to that. PostgreSQL
-- reads the text of a CHECK again for each statement that writes a row, which would cost each claim 6 µs.
CREATE TABLE fencepost.fence (
    resource   text COLLATE "C" PRIMARY KEY,
    token      bigint NOT NULL,
    nonce      uuid NOT NULL,
    label      text NOT NULL,
    claimed_at timestamptz NOT NULL
) WITH (fillfactor = 80);

-- What operators see of the fences. The nonce stays out: with it, anybody who may enter can write in the holder's name.
CREATE VIEW fencepost.fences AS
SELECT f.resource, f.token, f.label, f.claimed_at FROM fencepost.fence AS f;

COMMENT ON TABLE fencepost.fence IS
    'the highest token claimed per resource; written by the functions fencepost.claim* alone, never deleted';

-- The SQLSTATEs raised here are in class ZF, outside the ranges that the SQL standard reserves (classes that begin with
-- 0-4 or A-H):
--   ZF001  stale: the claim is not, or no longer, the one that the fence carries
--   ZF002  invalid argument
-- The DETAIL of ZF001 is a JSON object {"resource", "token", "current"}, tokens as strings.

-- refuse_encoding raises ZF002 for a session whose client_encoding is not UTF8. A client that sends UTF-8 under another
-- client_encoding, or another encoding under UTF8, would give one resource a second name, and so a second fence.
-- PostgreSQL cannot tell such a client from one that sends what it declares. Every function that creates a name calls
-- refuse_encoding. guard and enter only compare a name with existing ones; they call it after they have found no fence
-- of that name.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_encoding() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'ZF002',
        MESSAGE = format('the session''s client_encoding is %s: fencepost takes names in UTF8 alone',
            pg_client_encoding()),
        HINT = 'Connect with client_encoding=UTF8, and send UTF-8.';
END
$body$;
-- +goose StatementEnd

-- claim raises the fence of a resource to a token, if the token is above the one that the fence carries.
--   claimed  whether the fence now carries this token with this nonce. It is also true if the same claim
--            is repeated, so a caller whose reply was lost can repeat the claim to learn its outcome
--   current  the token that the fence now carries; 0 if there is no fence
-- A token more than 2^40 above the fence is refused (claimed is false, current is below the token), so that
-- one wild number does not use up the range.
-- The claim takes effect when the transaction commits.
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
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF resource IS NULL OR octet_length(resource) NOT BETWEEN 1 AND 1024 OR token IS NULL OR token < 1
        OR nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'claim needs a resource of 1 to 1024 bytes, a positive token and a nonce';
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
            IF claimed AND current_setting('synchronous_standby_names') <> '' THEN
                -- The claim was made before, and its wait for a synchronous standby may have been cut short. What is
                -- written here has this transaction wait for the same standby in turn.
                PERFORM pg_logical_emit_message(true, 'fencepost', '');
            END IF;
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

-- claim_now is claim for a statement that commits by itself. It does not wait for other transactions: claimed is NULL if
-- claim would have to wait at the gate, and then nothing has been claimed. The same goes for a statement that is not
-- READ COMMITTED: it takes a transaction that says so. A lock that somebody has taken beside the gate ends it after a
-- short time with 55P03. It names schemas as guard does.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim_now(
    resource text, token bigint, nonce uuid, label text DEFAULT '',
    OUT claimed boolean, OUT current bigint)
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms'
AS $body$
DECLARE
    set pg_catalog.text; -- an assignment costs less than a statement
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed'
        OR NOT pg_catalog.pg_try_advisory_xact_lock(
            1179534160, pg_catalog.hashtext(claim_now.resource COLLATE pg_catalog."C")) THEN
        RETURN;
    END IF;
    IF pg_catalog.current_setting('synchronous_commit')
        OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local', 'remote_write']) THEN
        set := pg_catalog.set_config('synchronous_commit', 'on', true); -- see claim
    END IF;
    -- The usual case of claim: the fence is there, and below the token.
    UPDATE fencepost.fence AS f
       SET token = claim_now.token, nonce = claim_now.nonce, label = coalesce(claim_now.label, ''),
           claimed_at = pg_catalog.clock_timestamp()
     WHERE f.resource OPERATOR(pg_catalog.=) claim_now.resource COLLATE pg_catalog."C"
       AND f.token OPERATOR(pg_catalog.<) claim_now.token
       AND claim_now.token OPERATOR(pg_catalog.-) f.token OPERATOR(pg_catalog.<=) 1099511627776
       AND claim_now.nonce IS NOT NULL; -- claim refuses that
    IF FOUND THEN
        claimed := true;
        current := claim_now.token;
        RETURN;
    END IF;
    SELECT c.claimed, c.current INTO claimed, current FROM fencepost.claim(
        claim_now.resource, claim_now.token, claim_now.nonce, claim_now.label) AS c;
END
$body$;
-- +goose StatementEnd

-- draw claims the token one above the fence's and returns it, for callers that get no token from elsewhere. The same
-- nonce draws the same token, as long as no other claim has followed: a caller whose reply was lost can draw again. NULL
-- means that the fence carries the highest token there is.
-- +goose StatementBegin
CREATE FUNCTION fencepost.draw(resource text, nonce uuid, label text DEFAULT '') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    claimed boolean;
    current bigint;
    drawn   bigint := 1;
BEGIN
    -- Any fence refuses this claim. It has passed the gate by then, so nobody changes the fence before the next one.
    SELECT c.claimed, c.current INTO claimed, current
      FROM fencepost.claim(draw.resource, 1, draw.nonce, draw.label) AS c;
    IF NOT claimed THEN
        IF EXISTS (SELECT FROM fencepost.fence AS f
                    WHERE f.resource = draw.resource COLLATE "C" AND f.nonce = draw.nonce) THEN
            drawn := current;
        ELSIF current < 9223372036854775807 THEN
            drawn := current + 1;
        ELSE
            RETURN NULL;
        END IF;
        SELECT c.claimed INTO claimed FROM fencepost.claim(draw.resource, drawn, draw.nonce, draw.label) AS c;
        IF NOT claimed THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'the fence was raised after this transaction''s snapshot', HINT = 'Draw again.';
        END IF;
    END IF;
    RETURN drawn;
END
$body$;
-- +goose StatementEnd

-- claim_all makes the claims of several resources, each with the token and the nonce at the same place in the other
-- arrays, without waiting for anybody: a resource whose gate another transaction has is left out.
--   claimed  for each resource, what claim returns; NULL if its gate was taken, and then claim has to wait for it
--   current  for each resource, what claim returns; NULL beside a claimed that is NULL
-- Nobody waits here with a gate in hand, so the order of the resources does not matter, and callers with overlapping
-- sets do not deadlock. Each claim holds one advisory lock until the transaction ends, so the callers bound the number.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim_all(
    resources text[], tokens bigint[], nonces uuid[], label text DEFAULT '',
    OUT claimed boolean[], OUT current bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    max_step CONSTANT bigint := 1099511627776; -- 2^40
    passed   boolean[]; -- the gate, as in claim
    raised   bigint;    -- how many
    made     bigint;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF cardinality(resources) > 0 IS NOT TRUE
        OR (cardinality(tokens) = cardinality(resources) AND cardinality(nonces) = cardinality(resources)) IS NOT TRUE
        OR EXISTS (SELECT FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
                    WHERE (octet_length(c.resource) BETWEEN 1 AND 1024 AND c.token > 0) IS NOT TRUE OR c.nonce IS NULL)
        OR (SELECT count(DISTINCT c COLLATE "C") FROM unnest(resources) AS c) <> cardinality(resources)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'claim_all needs different resources of 1 to 1024 bytes, and for each a positive token and a nonce';
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- see claim
    END IF;
    -- A statement of its own: the others see what was committed before the gates were passed.
    SELECT array_agg(pg_try_advisory_xact_lock(1179534160, hashtext(c.resource COLLATE "C")) ORDER BY c.n) INTO passed
      FROM unnest(resources) WITH ORDINALITY AS c (resource, n);
    UPDATE fencepost.fence AS f
       SET token = c.token, nonce = c.nonce, label = coalesce(claim_all.label, ''), claimed_at = clock_timestamp()
      FROM unnest(resources, tokens, nonces, passed) AS c (resource, token, nonce, passed)
     WHERE c.passed AND f.resource = c.resource COLLATE "C"
       AND f.token < c.token AND c.token - f.token <= max_step;
    GET DIAGNOSTICS raised = ROW_COUNT;
    IF raised < cardinality(resources) THEN
        INSERT INTO fencepost.fence AS f (resource, token, nonce, label, claimed_at)
        SELECT c.resource, c.token, c.nonce, coalesce(claim_all.label, ''), clock_timestamp()
          FROM unnest(resources, tokens, nonces, passed) AS c (resource, token, nonce, passed)
         WHERE c.passed AND c.token <= max_step
           AND NOT EXISTS (SELECT FROM fencepost.fence AS f WHERE f.resource = c.resource COLLATE "C")
         ORDER BY c.resource COLLATE "C"
            ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
        GET DIAGNOSTICS made = ROW_COUNT;
        raised := raised + made;
    END IF;
    IF raised = cardinality(resources) THEN
        claimed := array_fill(true, ARRAY[cardinality(resources)]);
        current := tokens;
        RETURN;
    END IF;
    SELECT array_agg(CASE WHEN c.passed THEN coalesce(f.token = c.token AND f.nonce = c.nonce, false) END ORDER BY c.n),
           array_agg(CASE WHEN c.passed THEN coalesce(f.token, 0) END ORDER BY c.n)
      INTO claimed, current
      FROM unnest(resources, tokens, nonces, passed) WITH ORDINALITY AS c (resource, token, nonce, passed, n)
      LEFT JOIN fencepost.fence AS f ON f.resource = c.resource COLLATE "C";
    IF current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'fencepost', ''); -- see claim
    END IF;
END
$body$;
-- +goose StatementEnd

-- refuse_claim says why guard refuses a claim that the fence does not carry. No fence carries an invalid claim.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_claim(resource text, token bigint, nonce uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    fence_token bigint;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF resource IS NULL OR octet_length(resource) NOT BETWEEN 1 AND 1024 OR token IS NULL OR token < 1
        OR nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'the guard needs a resource of 1 to 1024 bytes, a positive token and a nonce';
    END IF;
    SELECT f.token INTO fence_token FROM fencepost.fence AS f WHERE f.resource = refuse_claim.resource COLLATE "C";
    -- Under a snapshot older than the claim the fence still looks lower. That is no stale claim, but
    -- a transaction to be run again.
    IF coalesce(fence_token, 0) < refuse_claim.token AND current_setting('transaction_isolation') <> 'read committed'
        THEN
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

-- guard raises ZF001 unless the fence carries exactly this claim. It keeps the fence so until the transaction ends: no
-- other claim of the resource can commit before that. Call it before the writes that it guards, and not inside a
-- savepoint, whose rollback would drop its locks. It always returns true, so that it can stand in the WHERE clause of a
-- statement that changes a row. Triggers cannot see that it was called: a protected table needs enter.
--
-- Every guarded write calls guard, and a SET clause would add a tenth to its cost. Instead the body names the schema of
-- everything that it looks up by name, types and operators included. So the caller's search_path has no effect.
-- +goose StatementBegin
CREATE FUNCTION fencepost.guard(resource text, token bigint, nonce uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
AS $body$
DECLARE
    stands pg_catalog.bool; -- returned without an expression, which PL/pgSQL would set up in each transaction
BEGIN
    -- FOR SHARE, no less: a plain read, or FOR KEY SHARE, would let a claim pass beside it. The gate is the last of
    -- the comparisons: the fence's row has been found by then and is locked only afterwards, as it is by then.
    SELECT true INTO stands FROM fencepost.fence AS f
      WHERE f.resource OPERATOR(pg_catalog.=) guard.resource COLLATE pg_catalog."C"
        AND f.token OPERATOR(pg_catalog.=) guard.token AND f.nonce OPERATOR(pg_catalog.=) guard.nonce
        AND pg_catalog.pg_advisory_xact_lock_shared(
                1179534160, pg_catalog.hashtext(guard.resource COLLATE pg_catalog."C")) IS NOT NULL
        FOR SHARE;
    IF stands IS NULL THEN
        PERFORM fencepost.refuse_claim(guard.resource, guard.token, guard.nonce);
    END IF;
    RETURN stands;
END
$body$;
-- +goose StatementEnd

-- entered_text returns the text by which the setting fencepost.entered says that this transaction has entered a
-- resource:
--
--   "resource":token:proof
--
-- A space precedes it. The resource is spelt as a JSON string, so only an entry begins with a quote after a space.
-- The proof is a SHA-256, in hexadecimal, over what the fence carries and the transaction's id. Any function or trigger
-- that runs in the transaction can read the setting, but cannot make a claim from it, here or in another
-- transaction.
--
-- It has no SET clause, so that PostgreSQL inlines the call. It names schemas as guard does. SQL_ASCII takes the bytes
-- of the text as they are.
-- +goose StatementBegin
CREATE FUNCTION fencepost.entered_text(resource text, token bigint, nonce uuid) RETURNS text
LANGUAGE sql STABLE
AS $body$
    SELECT pg_catalog.concat(' ', pg_catalog.to_json(resource), ':', token, ':', pg_catalog.encode(pg_catalog.sha256(
        pg_catalog.convert_to(pg_catalog.concat(nonce, ' ', pg_catalog.pg_current_xact_id(), ' ', token, ' ',
            resource), 'SQL_ASCII')),
        'hex'))
$body$;
-- +goose StatementEnd

-- enter is guard, and also records the claim in a setting until the end of the transaction. The triggers of protected
-- tables compare that setting with the fence. The entries add up: call enter once per resource, in sorted order, at the
-- top of a transaction. For many resources there is enter_all. A value that was set by hand in the session stays behind
-- the new entry, and does not count as an entry. It names schemas as guard does.
-- +goose StatementBegin
CREATE FUNCTION fencepost.enter(resource text, token bigint, nonce uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
AS $body$
DECLARE
    stands  pg_catalog.bool;
    entered pg_catalog.text;
BEGIN
    -- Assignments: PL/pgSQL evaluates them itself, and would run a query for PERFORM.
    stands := fencepost.guard(enter.resource, enter.token, enter.nonce);
    -- In front: of two entries of one resource the later one counts.
    entered := pg_catalog.set_config('fencepost.entered', pg_catalog.concat(
        fencepost.entered_text(enter.resource, enter.token, enter.nonce),
            pg_catalog.current_setting('fencepost.entered', true)), true);
    RETURN stands;
END
$body$;
-- +goose StatementEnd

-- entered_setting returns the setting that has the entry of a resource that was entered together with many others. A
-- protection reads the whole of a setting at each row, so the entries of many resources are spread over 256 settings.
-- It is inlined, and names schemas, as entered_text is.
-- +goose StatementBegin
CREATE FUNCTION fencepost.entered_setting(resource text) RETURNS text
LANGUAGE sql STABLE
AS $body$
    SELECT pg_catalog.concat('fencepost.entered_',
        pg_catalog.hashtext(resource COLLATE pg_catalog."C") OPERATOR(pg_catalog.&) 255)
$body$;
-- +goose StatementEnd

-- enter_all enters several resources, each under the claim at the same place in the other arrays, in the order of their
-- names, which is the same for every caller. Its time grows linearly with their number; that of as many calls of enter
-- grows with the square. If the fence does not carry a claim, the error names the first such claim in that order.
-- +goose StatementBegin
CREATE FUNCTION fencepost.enter_all(resources text[], tokens bigint[], nonces uuid[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    few CONSTANT integer := 64; -- as many entries have room in one setting
    one     record;
    guarded bigint;
BEGIN
    IF cardinality(resources) > 0 IS NOT TRUE
        OR (cardinality(tokens) = cardinality(resources) AND cardinality(nonces) = cardinality(resources)) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'enter_all needs one resource at least, and for each a token and a nonce';
    END IF;
    -- The body of guard, for one resource after the other: a subquery that locks rows is not merged with the one around
    -- it, and that one is sorted.
    SELECT count(*) INTO guarded
      FROM (SELECT * FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
             ORDER BY c.resource COLLATE "C" NULLS FIRST) AS c
     CROSS JOIN LATERAL (
        SELECT FROM fencepost.fence AS f
         WHERE f.resource = c.resource COLLATE "C" AND f.token = c.token AND f.nonce = c.nonce
           AND pg_advisory_xact_lock_shared(1179534160, hashtext(c.resource COLLATE "C")) IS NOT NULL
           FOR SHARE) AS f;
    IF guarded < cardinality(resources) THEN -- guard says which, and why
        FOR one IN SELECT * FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
                    ORDER BY c.resource COLLATE "C" NULLS FIRST
        LOOP
            PERFORM fencepost.guard(one.resource, one.token, one.nonce);
        END LOOP;
    END IF;
    FOR one IN
        SELECT s.setting, string_agg(fencepost.entered_text(c.resource, c.token, c.nonce), '') AS entered
          FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
         CROSS JOIN LATERAL (SELECT CASE WHEN cardinality(resources) > few THEN fencepost.entered_setting(c.resource)
                ELSE 'fencepost.entered' END) AS s (setting)
         GROUP BY s.setting
    LOOP
        PERFORM set_config(one.setting, concat(one.entered, current_setting(one.setting, true)), true);
    END LOOP;
    RETURN true;
END
$body$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION fencepost.refuse_encoding() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.refuse_claim(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.claim(text, bigint, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.claim_now(text, bigint, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.draw(text, uuid, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.claim_all(text[], bigint[], uuid[], text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.guard(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.entered_text(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.entered_setting(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.enter(text, bigint, uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.enter_all(text[], bigint[], uuid[]) FROM PUBLIC;

COMMENT ON VIEW fencepost.fences IS 'for operators: who claimed each resource last, and when';
COMMENT ON FUNCTION fencepost.refuse_encoding() IS 'raises ZF002: the session''s client_encoding is not UTF8';
COMMENT ON FUNCTION fencepost.claim(text, bigint, uuid, text) IS
    'raises the fence of a resource to a token above it; the same claim again is claimed again';
COMMENT ON FUNCTION fencepost.claim_now(text, bigint, uuid, text) IS
    'claim in a statement that commits by itself, if that need not wait';
COMMENT ON FUNCTION fencepost.draw(text, uuid, text) IS
    'claims the token one above the fence, and returns it; the same nonce draws the same token';
COMMENT ON FUNCTION fencepost.claim_all(text[], bigint[], uuid[], text) IS
    'claim for several resources, without waiting: a resource whose gate another transaction has is left out';
COMMENT ON FUNCTION fencepost.refuse_claim(text, bigint, uuid) IS
    'raises what guard has to say of a claim that the fence does not carry';
COMMENT ON FUNCTION fencepost.guard(text, bigint, uuid) IS
    'returns true if the fence carries this claim, and holds it until the transaction ends; raises ZF001 otherwise';
COMMENT ON FUNCTION fencepost.entered_text(text, bigint, uuid) IS
    'one entry of the setting fencepost.entered: resource, token and a proof for this transaction';
COMMENT ON FUNCTION fencepost.entered_setting(text) IS
    'the setting with the entry of a resource that was entered together with many others';
COMMENT ON FUNCTION fencepost.enter(text, bigint, uuid) IS
    'guard, and the setting by which protected tables know the transaction''s claims';
COMMENT ON FUNCTION fencepost.enter_all(text[], bigint[], uuid[]) IS
    'enter for several resources, in the order of their names';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(1, false);

-- fencepost's migrator runs this as a statement of its own, here and in the other migrations. Inside a function it would
-- wait with a snapshot, and CREATE INDEX CONCURRENTLY waits for that snapshot.
LOCK TABLE fencepost.fence IN ACCESS EXCLUSIVE MODE;

-- Without its fences a database would accept old tokens as new ones.
-- +goose StatementBegin
DO $body$
BEGIN
    IF EXISTS (SELECT FROM fencepost.fence) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'fencepost.fence still remembers claimed tokens',
            HINT = 'Dropping it would let overtaken workers write again. Force it only when no worker is left.';
    END IF;
END
$body$;
-- +goose StatementEnd

DROP FUNCTION fencepost.enter_all(text[], bigint[], uuid[]);
DROP FUNCTION fencepost.enter(text, bigint, uuid);
DROP FUNCTION fencepost.entered_setting(text);
DROP FUNCTION fencepost.entered_text(text, bigint, uuid);
DROP FUNCTION fencepost.guard(text, bigint, uuid);
DROP FUNCTION fencepost.refuse_claim(text, bigint, uuid);
DROP FUNCTION fencepost.draw(text, uuid, text);
DROP FUNCTION fencepost.claim_all(text[], bigint[], uuid[], text);
DROP FUNCTION fencepost.claim_now(text, bigint, uuid, text);
DROP FUNCTION fencepost.claim(text, bigint, uuid, text);
DROP FUNCTION fencepost.refuse_encoding();
DROP VIEW fencepost.fences;
DROP TABLE fencepost.fence;
