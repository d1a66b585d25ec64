-- The fence: the row that remembers the highest token claimed for a resource. The functions here are the only way to
-- reach it, also for this library's Go code.
--
-- The caller's search_path has no effect: every name is schema-qualified, and every function either pins its
-- search_path or names schemas throughout (guard, enter, claim_now, bucket, *_marked). The functions run with their
-- owner's rights. An application role needs USAGE on the schema and EXECUTE on the functions, and no right at all on
-- the tables.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(1, true);

-- A resource has 1 to 1024 bytes, and a token is positive. The functions that write the table see to that. PostgreSQL
-- reads the text of a CHECK again for each statement that writes a row, which would cost each claim 6 µs.
--
-- Fences that were made together stand on the same pages, and are often claimed together again. Half of each page stays
-- free for their new versions, so that such claims change no index.
CREATE TABLE fencepost.fence (
    resource   text COLLATE "C" PRIMARY KEY,
    token      bigint NOT NULL,
    nonce      uuid NOT NULL,
    label      text NOT NULL,
    claimed_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What operators see of the fences. The nonce stays out: with it, anybody who may enter can write in the holder's name.
CREATE VIEW fencepost.fences AS
SELECT f.resource, f.token, f.label, f.claimed_at FROM fencepost.fence AS f;

COMMENT ON TABLE fencepost.fence IS
    'the highest token claimed per resource; written by the functions fencepost.claim* alone, deleted by collect alone';

-- What is left of fences that were collected. Each resource belongs to one of 1,024 buckets, and the floor of a bucket
-- is the highest token that a collected fence of the bucket carried. A claim that creates a fence must be above the
-- floor of its bucket, so the tokens of a resource rise on after its fence was collected. A claim that raises a fence
-- ignores the floor, and does not read this table.
--
-- Invariant: a claim that creates a fence holds its bucket FOR SHARE from before the statement that inserts the row
-- until its transaction ends. collect holds the bucket FOR UPDATE before it deletes a fence of it. Under an older
-- snapshot (REPEATABLE READ, SERIALIZABLE) the FOR SHARE fails with 40001 if the floor has risen since.
CREATE TABLE fencepost.floor (
    bucket integer PRIMARY KEY CHECK (bucket BETWEEN 0 AND 1023),
    token  bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO fencepost.floor (bucket, token) SELECT b, 0 FROM pg_catalog.generate_series(0, 1023) AS b;

COMMENT ON TABLE fencepost.floor IS
    'per bucket of resources, the highest token of a collected fence; written by the function fencepost.collect alone';

-- The SQLSTATEs raised here are in class ZF, outside the ranges that the SQL standard reserves (classes that begin with
-- 0-4 or A-H):
--   ZF001  stale: the claim is not, or no longer, the one that the fence carries
--   ZF002  invalid argument
--   ZF006  the table floor is incomplete
-- The DETAIL of ZF001 is a JSON object. It has "resource", "token" and "current", tokens as strings, and what overtaken
-- returns: "label" and "claimed_at" of the fence's claim, or "floor": true if the fence was collected.

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

-- bucket returns the bucket of a resource. It is computed from the name's bytes in UTF-8, so it is the same on every
-- server, after a dump and restore as well. It is inlined, and names schemas as guard does.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bucket(resource text) RETURNS integer
LANGUAGE sql STABLE
AS $body$
    SELECT pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(resource, 'UTF8')), 0)
            OPERATOR(pg_catalog.*) 4
        OPERATOR(pg_catalog.+) (pg_catalog.get_byte(pg_catalog.sha256(pg_catalog.convert_to(resource, 'UTF8')), 1)
            OPERATOR(pg_catalog.&) 3)
$body$;
-- +goose StatementEnd

-- refuse_without_floor raises an error for a bucket that has no row, as after a restore that left the table out. To go
-- on would be to forget the tokens of collected fences.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_without_floor() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'ZF006',
        MESSAGE = 'the table fencepost.floor is incomplete: a fence cannot be created without it',
        HINT = 'Run fencepost''s migrations again.';
END
$body$;
-- +goose StatementEnd

-- claim raises the fence of a resource to a token, if the token is above the one that the fence carries.
--   claimed  whether the fence now carries this token with this nonce. It is also true if the same claim
--            is repeated, so a caller whose reply was lost can repeat the claim to learn its outcome
--   current  the token that the fence now carries. Without a fence it is the floor of the resource's bucket, which is 0
--            if no fence of the bucket was ever collected
--   refusal  if claimed is false, who is in the way: what overtaken returns; otherwise NULL
-- A token more than 2^40 above the fence, or above the floor, is refused (claimed is false, current is below the
-- token), so that one wild number does not use up the range.
-- The claim takes effect when the transaction commits.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim(
    resource text, token bigint, nonce uuid, label text DEFAULT '',
    OUT claimed boolean, OUT current bigint, OUT refusal jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    max_step CONSTANT bigint := 1099511627776; -- 2^40
    carried  fencepost.fence;
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
        SELECT * INTO carried FROM fencepost.fence AS f WHERE f.resource = claim.resource COLLATE "C";
        IF FOUND THEN
            current := carried.token;
            claimed := current = claim.token AND carried.nonce = claim.nonce;
            IF NOT claimed THEN
                refusal := jsonb_build_object('label', carried.label, 'claimed_at', carried.claimed_at);
            END IF;
            IF claimed AND current_setting('synchronous_standby_names') <> '' THEN
                -- The claim was made before, and its wait for a synchronous standby may have been cut short. What is
                -- written here has this transaction wait for the same standby in turn.
                PERFORM pg_logical_emit_message(true, 'fencepost', '');
            END IF;
            RETURN;
        END IF;
        -- A statement of its own, after the fence was not found and before the row is inserted: see fencepost.floor.
        SELECT b.token INTO current FROM fencepost.floor AS b WHERE b.bucket = fencepost.bucket(claim.resource)
           FOR SHARE;
        IF NOT FOUND THEN
            PERFORM fencepost.refuse_without_floor();
        END IF;
        claimed := false;
        IF claim.token <= current OR claim.token - current > max_step THEN
            refusal := CASE WHEN current > 0 THEN '{"floor": true}'::jsonb END;
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

-- claim_now is claim for a statement that commits by itself. It does not wait for other transactions: claimed is NULL
-- if claim would have to wait at the gate, and then nothing has been claimed. The same is true of a statement at another
-- isolation level than READ COMMITTED, which needs a transaction of that level instead. If somebody has locked the row
-- without taking the gate, the call fails after a short time with 55P03. It names schemas as guard does.
-- +goose StatementBegin
CREATE FUNCTION fencepost.claim_now(
    resource text, token bigint, nonce uuid, label text DEFAULT '',
    OUT claimed boolean, OUT current bigint, OUT refusal jsonb)
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
    SELECT c.claimed, c.current, c.refusal INTO claimed, current, refusal FROM fencepost.claim(
        claim_now.resource, claim_now.token, claim_now.nonce, claim_now.label) AS c;
END
$body$;
-- +goose StatementEnd

-- draw claims the token one above the fence's and returns it, for callers that get no token from elsewhere. The same
-- nonce draws the same token, as long as no other claim has followed: a caller whose reply was lost can draw again.
-- NULL means that the fence carries the highest token there is.
-- +goose StatementBegin
CREATE FUNCTION fencepost.draw(resource text, nonce uuid, label text DEFAULT '') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    claimed boolean;
    current bigint;
    drawn   bigint := 1;
BEGIN
    -- Any fence refuses this claim, and so does a floor. It has passed the gate by then, and holds the bucket if there is
    -- no fence, so neither changes before the next claim.
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
                MESSAGE = 'the fence was raised after this transaction''s snapshot, or collected', HINT = 'Draw again.';
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
-- Nobody waits for a gate here with another one in hand (collect, for which fences that are created may wait, waits for
-- nobody), so the order of the resources does not matter, and callers with overlapping
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
    absent   integer[]; -- the buckets of resources without a fence
    held     bigint;    -- how many of these buckets
    raised   bigint;    -- how many
    more     bigint;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF cardinality(resources) > 0 IS NOT TRUE
        OR (cardinality(tokens) = cardinality(resources) AND cardinality(nonces) = cardinality(resources)) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'claim_all needs one resource at least, and for each a token and a nonce';
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true); -- see claim
    END IF;
    -- The usual case: all fences are there, below their tokens, and all gates are free. A resource that passes its gate
    -- here has its fence compared after that, in the newest version. If each was raised, no resource was given twice,
    -- and all claims are valid: a fence has a valid name, and a token above its own is positive.
    UPDATE fencepost.fence AS f
       SET token = c.token, nonce = c.nonce, label = coalesce(claim_all.label, ''), claimed_at = clock_timestamp()
      FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
     WHERE pg_try_advisory_xact_lock(1179534160, hashtext(c.resource COLLATE "C"))
       AND f.resource = c.resource COLLATE "C" AND c.nonce IS NOT NULL
       AND f.token < c.token AND c.token - f.token <= max_step;
    GET DIAGNOSTICS raised = ROW_COUNT;
    IF raised = cardinality(resources) THEN
        claimed := array_fill(true, ARRAY[cardinality(resources)]);
        current := tokens;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM unnest(resources, tokens, nonces) AS c (resource, token, nonce)
                WHERE (octet_length(c.resource) BETWEEN 1 AND 1024 AND c.token > 0) IS NOT TRUE OR c.nonce IS NULL)
        OR EXISTS (SELECT FROM unnest(resources) AS c GROUP BY c COLLATE "C" HAVING count(*) > 1)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'claim_all needs different resources of 1 to 1024 bytes, '
                'and for each a positive token and a nonce';
    END IF;
    -- Statements of their own: they see what was committed before the gates were passed.
    SELECT array_agg(pg_try_advisory_xact_lock(1179534160, hashtext(c.resource COLLATE "C")) ORDER BY c.n) INTO passed
      FROM unnest(resources) WITH ORDINALITY AS c (resource, n);
    UPDATE fencepost.fence AS f
       SET token = c.token, nonce = c.nonce, label = coalesce(claim_all.label, ''), claimed_at = clock_timestamp()
      FROM unnest(resources, tokens, nonces, passed) AS c (resource, token, nonce, passed)
     WHERE c.passed AND f.resource = c.resource COLLATE "C"
       AND f.token < c.token AND c.token - f.token <= max_step;
    GET DIAGNOSTICS more = ROW_COUNT;
    raised := raised + more;
    IF raised < cardinality(resources) THEN
        SELECT array_agg(DISTINCT fencepost.bucket(c.resource)) INTO absent
          FROM unnest(resources, passed) AS c (resource, passed)
         WHERE c.passed AND NOT EXISTS (SELECT FROM fencepost.fence AS f WHERE f.resource = c.resource COLLATE "C");
        -- A statement of its own, before the rows are inserted: see fencepost.floor.
        SELECT count(*) INTO held
          FROM (SELECT FROM fencepost.floor AS b WHERE b.bucket = ANY (absent) ORDER BY b.bucket FOR SHARE) AS b;
        IF held < cardinality(absent) THEN
            PERFORM fencepost.refuse_without_floor();
        END IF;
        INSERT INTO fencepost.fence AS f (resource, token, nonce, label, claimed_at)
        SELECT c.resource, c.token, c.nonce, coalesce(claim_all.label, ''), clock_timestamp()
          FROM unnest(resources, tokens, nonces, passed) AS c (resource, token, nonce, passed)
          JOIN fencepost.floor AS b ON b.bucket = fencepost.bucket(c.resource) AND b.bucket = ANY (absent)
         WHERE c.passed AND c.token > b.token AND c.token - b.token <= max_step
           AND NOT EXISTS (SELECT FROM fencepost.fence AS f WHERE f.resource = c.resource COLLATE "C")
         ORDER BY c.resource COLLATE "C"
            ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
        GET DIAGNOSTICS more = ROW_COUNT;
        raised := raised + more;
    END IF;
    IF raised = cardinality(resources) THEN
        claimed := array_fill(true, ARRAY[cardinality(resources)]);
        current := tokens;
        RETURN;
    END IF;
    SELECT array_agg(CASE WHEN c.passed THEN coalesce(f.token = c.token AND f.nonce = c.nonce, false) END ORDER BY c.n),
           array_agg(CASE WHEN c.passed THEN coalesce(f.token, (SELECT b.token FROM fencepost.floor AS b
               WHERE b.bucket = fencepost.bucket(c.resource)), 0) END ORDER BY c.n)
      INTO claimed, current
      FROM unnest(resources, tokens, nonces, passed) WITH ORDINALITY AS c (resource, token, nonce, passed, n)
      LEFT JOIN fencepost.fence AS f ON f.resource = c.resource COLLATE "C";
    IF current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'fencepost', ''); -- see claim
    END IF;
END
$body$;
-- +goose StatementEnd

-- overtaken says what a resource's fence has in place of a claim of a token.
--   current  the token that the fence carries. Without a fence it is the floor of the resource's bucket if the token is
--            not above the floor: then the fence was collected. Otherwise it is 0, and nobody has claimed the token
--   detail   {"label", "claimed_at"} of the claim that the fence carries; {"floor": true} if it was collected; or {}
-- +goose StatementBegin
CREATE FUNCTION fencepost.overtaken(resource text, token bigint, OUT current bigint, OUT detail jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    SELECT f.token, jsonb_build_object('label', f.label, 'claimed_at', f.claimed_at) INTO current, detail
      FROM fencepost.fence AS f WHERE f.resource = overtaken.resource COLLATE "C";
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT b.token, '{"floor": true}' INTO current, detail
      FROM fencepost.floor AS b WHERE b.bucket = fencepost.bucket(overtaken.resource) AND b.token >= overtaken.token;
    IF NOT FOUND THEN
        current := 0;
        detail := '{}';
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
    seen record;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF resource IS NULL OR octet_length(resource) NOT BETWEEN 1 AND 1024 OR token IS NULL OR token < 1
        OR nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'the guard needs a resource of 1 to 1024 bytes, a positive token and a nonce';
    END IF;
    SELECT * INTO seen FROM fencepost.overtaken(refuse_claim.resource, refuse_claim.token);
    -- Under a snapshot older than the claim the fence still looks lower. That is no stale claim, but
    -- a transaction to be run again.
    IF seen.current < refuse_claim.token AND current_setting('transaction_isolation') <> 'read committed'
        THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
            MESSAGE = 'the fence may have been raised after this transaction''s snapshot was taken';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ZF001',
        MESSAGE = format('stale claim: token %s on a fence at %s', refuse_claim.token, seen.current),
        DETAIL = (jsonb_build_object('resource', refuse_claim.resource, 'token', refuse_claim.token::text,
                                     'current', seen.current::text) || seen.detail)::text;
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

-- collectable lists fences for collect, in the order of their names: those between two names, both excluded (NULL:
-- none), whose claim was made longer ago than older_than, by this server's clock. It only reads. Fences above 2^62 are
-- left out: see collect.
-- +goose StatementBegin
CREATE FUNCTION fencepost.collectable(after text, before text, older_than interval, most integer)
RETURNS TABLE (resource text, bucket integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
BEGIN
    IF older_than IS NULL OR most IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'collectable needs an age and a number of fences';
    END IF;
    RETURN QUERY
        SELECT f.resource, fencepost.bucket(f.resource) FROM fencepost.fence AS f
         WHERE f.resource > coalesce(collectable.after, '') COLLATE "C"
           AND (collectable.before IS NULL OR f.resource < collectable.before COLLATE "C")
           AND f.claimed_at < statement_timestamp() - older_than AND f.token <= 4611686018427387904
         ORDER BY f.resource LIMIT most;
END
$body$;
-- +goose StatementEnd

-- collect deletes fences of one bucket, and raises the floor of the bucket to the highest token that they carried. Of
-- the resources named it takes those whose claim was made longer ago than older_than, an hour at least, and under which
-- no transaction is open.
--   collected  how many fences it has deleted
--   busy       whether it did nothing, because another transaction creates a fence of the bucket, or collects there
-- It waits for nobody. Call it in a transaction of its own: until that ends, nobody creates a fence of the bucket. Each
-- resource takes an advisory lock, so the caller bounds their number.
--
-- It does not know who holds a lease. A holder whose claim is that old, and who still holds its lease, would be refused
-- as stale from then on, so the caller leaves out the resources that are held. Whatever the caller names, the tokens
-- that are claimed for a resource rise.
--
-- A fence above 2^62 stays. Folded into the floor it would take the range away from other resources of the bucket.
-- +goose StatementBegin
CREATE FUNCTION fencepost.collect(
    bucket integer, resources text[], older_than interval, OUT collected bigint, OUT busy boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    old     text[];
    highest bigint;
    until   CONSTANT timestamptz := clock_timestamp() - older_than;
BEGIN
    IF pg_client_encoding() <> 'UTF8' THEN
        PERFORM fencepost.refuse_encoding();
    END IF;
    IF bucket BETWEEN 0 AND 1023 IS NOT TRUE OR resources IS NULL OR older_than IS NULL
        OR older_than < interval '1 hour' THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002',
            MESSAGE = 'collect needs a bucket of 0 to 1023, resources, and an age of one hour or more';
    END IF;
    collected := 0;
    PERFORM FROM fencepost.floor AS b WHERE b.bucket = collect.bucket FOR UPDATE SKIP LOCKED;
    busy := NOT FOUND;
    IF busy THEN
        IF NOT EXISTS (SELECT FROM fencepost.floor AS b WHERE b.bucket = collect.bucket) THEN
            PERFORM fencepost.refuse_without_floor();
        END IF;
        RETURN;
    END IF;
    SELECT array_agg(f.resource) INTO old FROM fencepost.fence AS f
     WHERE f.resource = ANY (collect.resources) AND fencepost.bucket(f.resource) = collect.bucket
       AND f.claimed_at < until AND f.token <= 4611686018427387904;
    SELECT array_agg(o) INTO old FROM unnest(old) AS o
     WHERE pg_try_advisory_xact_lock(1179534160, hashtext(o COLLATE "C")); -- the gate, as in claim
    -- Looked at again, with the gate passed and the row locked. FOR UPDATE: a guarded transaction holds its fence FOR
    -- SHARE.
    SELECT array_agg(f.resource) INTO old
      FROM (SELECT f.resource FROM fencepost.fence AS f
             WHERE f.resource = ANY (old) AND f.claimed_at < until AND f.token <= 4611686018427387904
               FOR UPDATE SKIP LOCKED) AS f;
    WITH gone AS (DELETE FROM fencepost.fence AS f WHERE f.resource = ANY (old) RETURNING f.token)
    SELECT count(*), max(g.token) INTO collected, highest FROM gone AS g;
    UPDATE fencepost.floor AS b SET token = highest WHERE b.bucket = collect.bucket AND b.token < highest;
END
$body$;
-- +goose StatementEnd

REVOKE ALL ON TABLE fencepost.floor FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.bucket(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.refuse_without_floor() FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.overtaken(text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.collectable(text, text, interval, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.collect(integer, text[], interval) FROM PUBLIC;
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
COMMENT ON FUNCTION fencepost.bucket(text) IS 'the bucket, of 1,024, whose floor is the resource''s';
COMMENT ON FUNCTION fencepost.refuse_without_floor() IS 'raises ZF006: fencepost.floor lacks a bucket';
COMMENT ON FUNCTION fencepost.overtaken(text, bigint) IS
    'what a resource has in place of a claim: its fence''s token and holder, or that the fence was collected';
COMMENT ON FUNCTION fencepost.collectable(text, text, interval, integer) IS
    'fences whose claim was made longer ago than the interval, with their buckets';
COMMENT ON FUNCTION fencepost.collect(integer, text[], interval) IS
    'deletes old fences of a bucket, and raises its floor to their tokens';
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

-- fencepost's migrator runs this as a separate statement, here and in the other migrations. Inside a function it would
-- wait with a snapshot, and CREATE INDEX CONCURRENTLY waits for that snapshot.
LOCK TABLE fencepost.fence, fencepost.floor IN ACCESS EXCLUSIVE MODE;

-- Without its fences a database would accept old tokens as new ones.
-- +goose StatementBegin
DO $body$
BEGIN
    IF EXISTS (SELECT FROM fencepost.fence)
        OR EXISTS (SELECT FROM fencepost.floor AS b WHERE b.token OPERATOR(pg_catalog.>) 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'fencepost.fence, or fencepost.floor, still remembers claimed tokens',
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
DROP FUNCTION fencepost.overtaken(text, bigint);
DROP FUNCTION fencepost.collect(integer, text[], interval);
DROP FUNCTION fencepost.collectable(text, text, interval, integer);
DROP FUNCTION fencepost.draw(text, uuid, text);
DROP FUNCTION fencepost.claim_all(text[], bigint[], uuid[], text);
DROP FUNCTION fencepost.claim_now(text, bigint, uuid, text);
DROP FUNCTION fencepost.claim(text, bigint, uuid, text);
DROP FUNCTION fencepost.refuse_without_floor();
DROP FUNCTION fencepost.bucket(text);
DROP FUNCTION fencepost.refuse_encoding();
DROP VIEW fencepost.fences;
DROP TABLE fencepost.floor;
DROP TABLE fencepost.fence;
