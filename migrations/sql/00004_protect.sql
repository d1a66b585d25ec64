-- The database's own protection: triggers that refuse every write to a table without a valid claim, from any program.
-- The table's owner protects it, with the rule that says which resource each row belongs to.
--
-- The triggers rest on the fence, which they read under lock at every row. The setting fencepost.entered, which
-- fencepost.enter writes, only says where to look. It can be set by hand, and proves nothing.
--
-- Two kinds of rights meet here. What is created in the schema fencepost is created with the rights of the schema's
-- owner (make_protection). What is done to the table is done with the caller's rights, so PostgreSQL itself ensures
-- that only the table's owner changes its triggers.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(4, true);

-- What protect was told. verify compares it with what exists, and programs compare it with their own rule. It decides
-- no write. relid alone does not identify a table: after a restore, the number of a dropped table may belong to another
-- one. A name may also come to lead to another table. table_of combines the two.
CREATE TABLE fencepost.protected (
    relid        regclass NOT NULL,
    schema_name  name NOT NULL,
    table_name   name NOT NULL,
    namespace    text NOT NULL CHECK (namespace OPERATOR(pg_catalog.~) '^[A-Za-z0-9._-]{1,64}$'),
    prefix       text NOT NULL CHECK (pg_catalog.octet_length(prefix) <= 1024),
    columns      name[] NOT NULL CHECK (pg_catalog.array_position(columns, NULL) IS NULL
        AND pg_catalog.cardinality(columns) <= 100),
    token_column name NOT NULL,
    mode         text NOT NULL CHECK (mode IN ('enforce', 'observe')),
    replicated   boolean NOT NULL,
    PRIMARY KEY (schema_name, table_name, relid)
);

COMMENT ON TABLE fencepost.protected IS
    'protected tables, as fencepost.protect was told; read by fencepost.verify and fencepost.protection_rule alone';

-- check_rule_owner limits the owner of a table to the rules of its own tables. protect writes here with its caller's
-- rights, so a role that may protect may also write here by hand; the checks limit that to what protect would write. It
-- is not a row-level policy: under one, pg_dump fails, or silently leaves out the rules of others. It runs with the
-- rights of the role that writes, so current_user is that role.
-- +goose StatementBegin
CREATE FUNCTION fencepost.check_rule_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    -- A new row speaks of a table by its name and its number. An old one may speak of one that is gone: then the owner
    -- of the one that bears its name may forget it.
    IF NOT pg_has_role(current_user, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = TG_RELID), 'USAGE')
        AND ((SELECT bool_and(pg_has_role(current_user, c.relowner, 'USAGE')) FROM pg_class AS c WHERE c.oid IN (
                NEW.relid, coalesce(fencepost.table_of(OLD), fencepost.table_by_name(OLD.schema_name,
                    OLD.table_name)))) IS NOT TRUE
            OR TG_OP <> 'DELETE' AND NEW.relid IS DISTINCT FROM fencepost.table_by_name(NEW.schema_name,
                NEW.table_name))
    THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('only the owner of %s changes its rule', coalesce(OLD.relid, NEW.relid));
    END IF;
    RETURN coalesce(NEW, OLD);
END
$body$;
-- +goose StatementEnd

CREATE TRIGGER check_rule_owner BEFORE INSERT OR UPDATE OR DELETE ON fencepost.protected
    FOR EACH ROW EXECUTE FUNCTION fencepost.check_rule_owner();

-- The SQLSTATEs raised here, besides ZF001 (stale) and ZF002 (invalid argument):
--   ZF004  not entered: a write to a protected table without a claim of the row's resource
-- The DETAIL of ZF004 is a JSON object {"resource", "table", "operation"}. That of ZF001 is the one of enter, with
-- "table" and, if the row is ahead of the claim rather than the fence, "row": true.

-- A value that only the schema's owner, and roles that may read all tables, can know. born is the row's own xmin. A row
-- with another xmin came from a dump, and is known to everybody who has that dump. repair then makes another.
CREATE TABLE fencepost.secret (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret uuid NOT NULL DEFAULT gen_random_uuid(),
    born   xid NOT NULL DEFAULT pg_current_xact_id()::xid
);
INSERT INTO fencepost.secret DEFAULT VALUES;

COMMENT ON TABLE fencepost.secret IS
    'one row, made by the migration; read by fencepost.log_proof alone';

-- log_proof returns the text by which the setting fencepost.logged says how many lines the current transaction has
-- logged. Anybody can set a setting, but only those who know the secret can make this text, and it is valid for one
-- transaction. It is NULL if the secret is missing, for example after a restore of the schema alone.
-- +goose StatementBegin
CREATE FUNCTION fencepost.log_proof(lines integer) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT concat(lines, ' ', encode(sha256(convert_to(concat(s.secret, ' ', pg_current_xact_id(), ' ', lines),
        'UTF8')), 'hex'))
      FROM fencepost.secret AS s
$body$;
-- +goose StatementEnd

-- log_line writes a line to the server's log. Each transaction gets a hundred lines, so that a protection in mode
-- observe does not fill the disk. Setting fencepost.logged by hand restarts the count, and silences nothing. If the
-- secret is missing, nothing is counted: too many lines are better than none.
-- +goose StatementBegin
CREATE FUNCTION fencepost.log_line(line text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    most  CONSTANT integer := 100;
    said  text := current_setting('fencepost.logged', true);
    lines integer := 0;
BEGIN
    IF said ~ '^[0-9]{1,3} ' THEN
        lines := split_part(said, ' ', 1)::integer;
        IF said IS DISTINCT FROM fencepost.log_proof(lines) THEN
            lines := 0;
        END IF;
    END IF;
    IF lines >= most THEN
        RETURN;
    END IF;
    RAISE LOG '%', line;
    PERFORM set_config('fencepost.logged', fencepost.log_proof(lines + 1), true);
    IF lines + 1 = most THEN
        RAISE LOG 'fencepost: what else this transaction would have logged is left out';
    END IF;
END
$body$;
-- +goose StatementEnd

-- bypass lets the rest of the transaction pass protections without a claim, and says so in the server's log. It applies
-- to the protections of the tables named, or to all. It is for operators, to whom EXECUTE is granted by name. It holds
-- off no claim meanwhile: a holder at work does not notice the write. If there is time, use claim and enter instead.
--
-- Its authority cannot be borrowed by the author of other code. An index's expression, a trigger, a policy or a default
-- runs in the session of any user who runs ANALYZE or writes, so what that user may call proves nothing. A call counts
-- only if it is the whole of a statement that the client sent (begin_bypass). It leaves a proof that cannot be made
-- without the secret and is valid for this transaction (bypass_proof). Setting fencepost.bypass by hand opens nothing.
--
-- Everything else that runs in the transaction also passes these protections, if it may write the tables. Name few
-- tables, and do nothing else in the transaction.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bypass(reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.begin_bypass(reason, 'all');
END
$body$;
-- +goose StatementEnd

-- The tables are named with their schemas. A partitioned table includes its partitions. A second call adds its tables.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bypass(reason text, VARIADIC tables text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    scope oid[] := '{}';
    name  text;
BEGIN
    FOREACH name IN ARRAY tables LOOP
        IF to_regclass(name) IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('bypass: there is no table %s',
                coalesce(name, 'NULL')),
                HINT = 'A table is named with its schema.';
        END IF;
        scope := scope || to_regclass(name)::oid;
    END LOOP;
    PERFORM fencepost.begin_bypass(reason, array_to_string(scope, ','));
END
$body$;
-- +goose StatementEnd

-- may_bypass reports whether the user who logged in may call bypass for such a scope, by a grant to a named role. A
-- grant to PUBLIC, as after a dump without privileges, does not count: it allows nobody. Each write asks, so that a
-- revoked right ends at once. By itself the answer authorises nothing.
-- +goose StatementBegin
CREATE FUNCTION fencepost.may_bypass(scope text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT has_function_privilege(session_user, f.oid, 'EXECUTE') AND f.proacl IS NOT NULL
           AND NOT EXISTS (SELECT FROM aclexplode(f.proacl) AS a WHERE a.grantee = 0)
      FROM pg_proc AS f
     WHERE f.oid = CASE scope WHEN 'all' THEN 'fencepost.bypass(text)'
         ELSE 'fencepost.bypass(text, text[])' END::regprocedure
$body$;
-- +goose StatementEnd

-- bypass_proof returns the text by which the setting fencepost.bypass says that bypass was called: for which tables,
-- why, and by this session's user in this transaction. It is NULL if the secret is missing or came from a dump. It
-- includes the start of the transaction, because after a crash the transaction's id can be assigned again. The secret
-- is hashed together with a hash, whose length is fixed, so nobody can extend the text of a proof.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bypass_proof(scope text, reason text) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT concat_ws(' ', encode(sha256(convert_to(concat('bypass ', s.secret, ' ',
        encode(sha256(convert_to(json_build_array(
               pg_current_xact_id()::text, (extract(epoch FROM now()) * 1000000)::bigint, session_user, scope,
                   reason)::text,
               'UTF8')), 'hex')), 'UTF8')), 'hex'), scope, reason)
      FROM fencepost.secret AS s WHERE s.xmin = s.born
$body$;
-- +goose StatementEnd

-- bypass_reason returns why this transaction may pass the protection of a table. It is NULL if it may not.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bypass_reason(target oid) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    said   text := current_setting('fencepost.bypass', true);
    scope  text := split_part(said, ' ', 2);
    reason text := substr(said, 67 + length(scope)); -- after the proof of 64 characters, the scope, and a space each
BEGIN
    -- Never equal to NULL: without a secret nothing is proved.
    IF said = fencepost.bypass_proof(scope, reason) AND fencepost.may_bypass(scope) THEN
        IF scope = 'all' OR target::text = ANY (string_to_array(scope, ','))
            OR EXISTS (SELECT FROM pg_partition_ancestors(target) AS a
                WHERE a.relid::oid::text = ANY (string_to_array(scope, ',')))
        THEN
            RETURN reason;
        END IF;
    END IF;
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- begin_bypass does the work of bypass. It refuses a call that is not the whole of the client's own statement. A call
-- by other code is part of another statement. The stack cannot tell: a function in SQL leaves no trace there once it
-- has been inlined, nor does a default or a view. So the statement's text decides. Deferred triggers run in the
-- statement that commits.
-- +goose StatementBegin
CREATE FUNCTION fencepost.begin_bypass(reason text, scope text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    gap    CONSTANT text := $re$(?:\s|--[^\n\r]*[\n\r]|/\*[^*/]*\*/)*$re$;
    value  CONSTANT text := $re$\s*(?:'(?:[^'\\]|'')*'|\$[0-9]+)(?:\s*::\s*text)?\s*$re$;
    called CONSTANT text := (regexp_match(current_query(), concat(
        '^', gap, $re$SELECT\s+(?:\*\s+FROM\s+)?((?:"fencepost"|fencepost)\s*\.\s*(?:"bypass"|bypass))\s*\($re$,
        value, '(?:,', value, $re$)*\)\s*;?$re$, gap, '$'), 'i'))[1];
    said   CONSTANT text := current_setting('fencepost.bypass', true);
    so_far text := split_part(said, ' ', 2);
BEGIN
    IF reason IS NULL OR btrim(reason) = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'bypass needs a reason';
    END IF;
    -- PostgreSQL has asked whether the current user may; SET ROLE does not make an operator.
    IF fencepost.may_bypass(scope) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('the session''s user %I may not bypass',
            session_user),
            HINT = 'EXECUTE on fencepost.bypass is granted to people by name, and not to PUBLIC.';
    END IF;
    -- What is quoted is another name if it is not in small letters.
    IF pg_trigger_depth() > 0 OR called IS NULL OR called ~ '"' AND called <> lower(called) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'bypass is not called by the client itself',
            HINT = 'It is a statement of its own, with literals or parameters: '
                'SELECT fencepost.bypass(''reason'', ''schema.table'').';
    END IF;
    IF said = fencepost.bypass_proof(so_far, substr(said, 67 + length(so_far))) AND fencepost.may_bypass(so_far) THEN
        scope := CASE WHEN so_far = 'all' OR scope = 'all' THEN 'all' ELSE concat(so_far, ',', scope) END;
    END IF;
    IF fencepost.bypass_proof(scope, reason) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'bypass: fencepost has no secret of this database',
            HINT = 'Run fencepost''s migrations again.';
    END IF;
    PERFORM set_config('fencepost.bypass', fencepost.bypass_proof(scope, reason), true);
    RAISE LOG 'fencepost bypass: opened by session user % for %: %', session_user,
        CASE scope WHEN 'all' THEN 'all tables' ELSE (
            SELECT string_agg(t::oid::regclass::text, ', ') FROM unnest(string_to_array(scope, ',')) AS t) END, reason;
END
$body$;
-- +goose StatementEnd

-- holds_gate reports whether this transaction holds the gate of a resource, as it does after guard. Only the fence is
-- proof, so this serves the log alone. A statement that carries its own guard writes nothing to fencepost.entered until
-- a protection refuses it, and a protection in mode observe does not refuse it.
-- +goose StatementBegin
CREATE FUNCTION fencepost.holds_gate(resource text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT EXISTS (
        SELECT FROM pg_locks AS l
         WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 2
           AND l.classid = 1179534160::oid AND l.objid::bigint = hashtext(resource COLLATE "C")::bigint & 4294967295
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$body$;
-- +goose StatementEnd

-- refuse_write finds out why a write may not pass, and raises an error that says so. If the protection is in mode
-- observe, or the transaction has called bypass, it logs the reason instead, and the write passes.
--   entry  what fencepost.entered has after the resource's name, if it has the name
--   held   the token that the transaction holds on the resource, if it holds one
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_write(
    resource text, stored bigint, target oid, operation text, mode text, entry text, held bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    relation text := target::regclass::text;
    token    text := split_part(entry, ':', 1);
    seen     record;
    code     text := 'ZF004';
    reason   text;
    excuse   text;
    detail   jsonb := jsonb_build_object('resource', resource, 'table', relation);
BEGIN
    IF operation = 'TRUNCATE' THEN
        reason := 'no claim covers a TRUNCATE';
    ELSIF resource IS NULL THEN
        reason := 'a column that its resource is made of is NULL';
    ELSIF held IS NOT NULL THEN
        code := 'ZF001';
        reason := format('the row carries token %s, above the claim''s %s', stored, held);
        detail := detail || jsonb_build_object('token', held::text, 'current', stored::text, 'row', true);
    ELSIF coalesce(token, '') !~ '^[1-9][0-9]{0,18}$' THEN
        reason := format('this transaction has not entered %L', resource);
    ELSE
        -- The setting may have been made by hand, with a number that is no bigint.
        SELECT * INTO seen FROM fencepost.overtaken(resource, least(token::numeric, 9223372036854775807)::bigint);
        code := 'ZF001';
        reason := format('stale claim: token %s on a fence at %s', token, seen.current);
        detail := detail || jsonb_build_object('token', token, 'current', seen.current::text) || seen.detail;
        -- As in enter: a snapshot from before the claim calls nobody stale.
        IF seen.current < token::numeric AND current_setting('transaction_isolation') <> 'read committed' THEN
            code := '40001';
            reason := 'the fence may have been raised after this transaction''s snapshot was taken';
        END IF;
    END IF;
    IF current_setting('fencepost.bypass', true) <> '' THEN
        excuse := fencepost.bypass_reason(target);
        IF excuse IS NOT NULL THEN
            -- Not log_line, which stops after a while.
            RAISE LOG '%', format('fencepost bypass: %s on %s (resource %L) by session user %s: %s',
                operation, relation, resource, session_user, excuse);
            RETURN;
        END IF;
    END IF;
    IF mode = 'observe' THEN
        IF code = 'ZF004' AND resource IS NOT NULL AND fencepost.holds_gate(resource) THEN
            RETURN; -- under mode enforce it would come again, by way of enter
        END IF;
        PERFORM fencepost.log_line(
            format('fencepost observe: %s on %s (resource %L) by session user %s would be refused (%s): %s',
            operation, relation, resource, session_user, code, reason));
        RETURN;
    END IF;
    IF code = 'ZF004' THEN
        RAISE EXCEPTION USING ERRCODE = code,
            MESSAGE = format('%s on %s refused: %s', operation, relation, reason),
            DETAIL = (detail || jsonb_build_object('operation', operation))::text,
            HINT = CASE operation WHEN 'TRUNCATE' THEN 'DELETE the rows under a claim, or see fencepost.bypass.'
                ELSE 'A transaction writes here after SELECT fencepost.enter(resource, token, nonce).' END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code,
        MESSAGE = format('%s on %s refused: %s', operation, relation, reason), DETAIL = detail::text;
END
$body$;
-- +goose StatementEnd

-- check_write is what every protection calls at every row. It returns the token to stamp, if the transaction holds a
-- claim of the resource that the fence carries and that is not below the token stored in the row. Otherwise
-- refuse_write decides. If refuse_write lets the write pass, check_write returns NULL.
--
-- It runs within a protection, with the rights and the search_path of that protection.
-- +goose StatementBegin
CREATE FUNCTION fencepost.check_write(resource text, stored bigint, target oid, operation text, mode text)
    RETURNS bigint
LANGUAGE plpgsql
AS $body$
DECLARE
    entered text := current_setting('fencepost.entered', true);
    entry   text;
    latest  text;
    held    bigint;
    many    boolean := false; -- whether this is the setting of resources that were entered with many others
BEGIN
    LOOP
        -- What comes after the resource's name in its latest entry, and goes on with older ones: see
        -- fencepost.entered_text.
        latest := split_part(entered, concat(' ', to_json(resource), ':'), 2);
        IF latest <> '' THEN
            entry := latest;
            -- FOR SHARE: from here on no claim of the resource commits before this transaction has ended, even
            -- where the setting was made by hand and enter never ran. Where it ran, the lock is there already.
            SELECT f.token INTO held FROM fencepost.fence AS f
             WHERE f.resource = check_write.resource COLLATE "C"
               AND f.token::text = split_part(entry, ':', 1)
               AND strpos(entered, fencepost.entered_text(f.resource, f.token, f.nonce)) > 0
               FOR SHARE;
            IF held >= coalesce(stored, 0) THEN
                RETURN held;
            END IF;
        END IF;
        EXIT WHEN many OR held IS NOT NULL OR resource IS NULL;
        many := true;
        entered := current_setting(fencepost.entered_setting(resource), true);
    END LOOP;
    PERFORM fencepost.refuse_write(resource, stored, target, operation, mode, entry, held);
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- refuse_truncate is the trigger function for TRUNCATE, which fires no row trigger. Its argument is the mode.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.refuse_write(NULL, NULL, TG_RELID, TG_OP, TG_ARGV[0], NULL, NULL);
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- row_resource returns the expression that computes a row's resource within a protection. The argument row is OLD or
-- NEW.
--
-- concat prints a value by its type's own output function. A cast would be unsafe: it may be a function of the table's
-- owner, and a protection runs with the rights of another role.
-- +goose StatementBegin
CREATE FUNCTION fencepost.row_resource(namespace text, prefix text, columns name[], "row" text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
DECLARE
    begins text := quote_literal(namespace || ':' || prefix);
    nulls  text;
    parts  text;
BEGIN
    IF cardinality(columns) = 0 THEN
        RETURN begins;
    END IF;
    SELECT string_agg(format('%s.%I IS NULL', "row", c.name), ' OR ' ORDER BY c.place),
           string_agg(CASE WHEN cardinality(columns) = 1 THEN format('%s.%I', "row", c.name)
                ELSE format($part$replace(replace(concat(%s.%I), '%%', '%%25'), '/', '%%2F')$part$, "row", c.name) END,
                $sep$, '/', $sep$ ORDER BY c.place)
      INTO nulls, parts
      FROM unnest(columns) WITH ORDINALITY AS c (name, place);
    RETURN format('CASE WHEN %s THEN NULL ELSE concat(%s, %s) END', nulls, begins, parts);
END
$body$;
-- +goose StatementEnd

-- protection_source returns the body of the trigger function for a rule. The body contains the column names, so that a
-- row is read and stamped at the speed of plain PL/pgSQL. Its first line is the rule, which unrecorded_protections
-- reads.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protection_source(namespace text, prefix text, columns name[], token_column name, mode text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
BEGIN
    -- The column's type is looked at before anything is assigned to it: a domain's CHECK may be a function of
    -- the table's owner's.
    RETURN format($protection$
-- %5$s
DECLARE
    was   text;
    now   text;
    stamp bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF pg_typeof(NEW.%1$I) <> 20::oid THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'the token column is no longer bigint';
        END IF;
        stamp := fencepost.check_write(%3$s, NULL, TG_RELID, TG_OP, %4$L);
        IF stamp IS NOT NULL THEN
            NEW.%1$I := stamp;
        END IF;
        RETURN NEW;
    END IF;
    IF pg_typeof(OLD.%1$I) <> 20::oid THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'the token column is no longer bigint';
    END IF;
    was := %2$s;
    IF TG_OP = 'DELETE' THEN
        stamp := fencepost.check_write(was, OLD.%1$I, TG_RELID, TG_OP, %4$L);
        RETURN OLD;
    END IF;
    now := %3$s;
    IF was IS DISTINCT FROM now COLLATE "C" THEN
        stamp := fencepost.check_write(was, OLD.%1$I, TG_RELID, TG_OP, %4$L);
    END IF;
    stamp := fencepost.check_write(now, OLD.%1$I, TG_RELID, TG_OP, %4$L);
    NEW.%1$I := coalesce(stamp, greatest(OLD.%1$I, NEW.%1$I));
    RETURN NEW;
END
$protection$, token_column,
        fencepost.row_resource(namespace, prefix, columns, 'OLD'),
        fencepost.row_resource(namespace, prefix, columns, 'NEW'), mode,
        jsonb_build_object('namespace', namespace, 'prefix', prefix, 'columns', columns::text[],
                           'token_column', token_column::text, 'mode', mode));
END
$body$;
-- +goose StatementEnd

-- protection_name returns the name of the trigger function with the given source. It does not use md5, which some
-- servers lack.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protection_name(source text) RETURNS name
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT ('protection_' || left(encode(sha256(convert_to(source, 'UTF8')), 'hex'), 32))::name
$body$;
-- +goose StatementEnd

-- make_protection creates the trigger function for a rule, unless it exists as it should, lets the table's owner use
-- it, and returns its name. The name is computed from the body, so nobody can change another owner's protection:
-- another rule is another function.
-- +goose StatementBegin
CREATE FUNCTION fencepost.make_protection(
    target regclass, namespace text, prefix text, columns name[], token_column name, mode text) RETURNS name
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    source     text := fencepost.protection_source(namespace, prefix, columns, token_column, mode);
    protection name := fencepost.protection_name(source);
BEGIN
    -- Two at once that make the same one would meet in the catalog, and drop_unused_protections must not drop it before
    -- it is used. Whoever comes here has locked the table already, and does not wait for one with this in hand.
    PERFORM pg_advisory_xact_lock(1179534162, hashtext(protection::text));
    EXECUTE format('CREATE OR REPLACE FUNCTION fencepost.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', protection, source);
    EXECUTE format('REVOKE ALL ON FUNCTION fencepost.%I() FROM PUBLIC', protection);
    EXECUTE format('COMMENT ON FUNCTION fencepost.%I() IS %L', protection, 'trigger function of a protection''s rule');
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION fencepost.%I() TO %I', protection, r.rolname)
               FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.oid = target);
    RETURN protection;
END
$body$;
-- +goose StatementEnd

-- drop_unused_protections drops the trigger functions that no trigger uses: those of rules that were changed, and of
-- tables that were unprotected or dropped.
-- +goose StatementBegin
CREATE FUNCTION fencepost.drop_unused_protections() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    protection name;
BEGIN
    FOR protection IN SELECT f.proname FROM pg_proc AS f
                 WHERE f.pronamespace = 'fencepost'::regnamespace AND f.proname ~ '^protection_[0-9a-f]{32}$'
                   AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgfoid = f.oid)
                 ORDER BY f.proname
    LOOP
        -- Somebody is about to use it.
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(1179534162, hashtext(protection::text));
        BEGIN
            EXECUTE format('DROP FUNCTION fencepost.%I()', protection);
        EXCEPTION WHEN dependent_objects_still_exist OR undefined_function THEN
            NULL; -- used, or dropped, since it was looked at
        END;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- protected_tree returns a table and, if it is partitioned, all of its partitions, from the top down.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protected_tree(target regclass) RETURNS TABLE (relid oid, name text, kind "char")
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT c.oid, format('%I.%I', n.nspname, c.relname), c.relkind
      FROM (SELECT target::oid AS oid, 0 AS level
             UNION
            SELECT p.relid, p.level FROM pg_partition_tree(target) AS p WHERE p.level > 0) AS t
      JOIN pg_class AS c ON c.oid = t.oid
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     ORDER BY t.level, c.oid
$body$;
-- +goose StatementEnd

-- table_by_name returns the table that a name leads to. It is NULL if there is no such table.
-- +goose StatementBegin
CREATE FUNCTION fencepost.table_by_name(schema_name text, table_name text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE n.nspname::text = table_by_name.schema_name AND c.relname::text = table_by_name.table_name
$body$;
-- +goose StatementEnd

-- is_protected reports whether a table has a protection of any rule. A table gets one by protect, as a partition, or
-- from a restored dump.
-- +goose StatementBegin
CREATE FUNCTION fencepost.is_protected(target oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT EXISTS (SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid
                    WHERE g.tgrelid = target AND g.tgname = '~fencepost' AND f.pronamespace = 'fencepost'::regnamespace)
$body$;
-- +goose StatementEnd

-- table_of returns the table that a row of protected describes. It is NULL if the table does not exist. It is the table
-- whose name and number are both unchanged; else the table of that number, if it was renamed and has a protection; else
-- the table of that name, if it has a protection and came from a dump.
-- +goose StatementBegin
CREATE FUNCTION fencepost.table_of(p fencepost.protected) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    named oid := fencepost.table_by_name(p.schema_name, p.table_name);
BEGIN
    IF named = p.relid THEN
        RETURN named;
    ELSIF fencepost.is_protected(p.relid) AND NOT EXISTS (
        SELECT FROM fencepost.protected AS q WHERE q.relid = p.relid
            AND fencepost.table_by_name(q.schema_name, q.table_name) = q.relid)
    THEN
        RETURN p.relid;
    ELSIF fencepost.is_protected(named) AND NOT EXISTS (SELECT FROM fencepost.protected AS q WHERE q.relid = named) THEN
        RETURN named;
    END IF;
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- column_problem says why a resource's name cannot be made from a column. It is NULL if it can.
-- +goose StatementBegin
CREATE FUNCTION fencepost.column_problem(target regclass, wanted name) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    col record;
BEGIN
    WITH RECURSIVE base (oid) AS (
        SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = target AND a.attname = wanted AND a.attnum > 0
         UNION ALL
        SELECT t.typbasetype FROM base JOIN pg_type AS t ON t.oid = base.oid AND t.typtype = 'd')
    SELECT a.attnotnull, a.attgenerated <> '' AS computed, format_type(a.atttypid, a.atttypmod) AS type,
           EXISTS (SELECT FROM base WHERE base.oid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype,
                   'text'::regtype, 'varchar'::regtype, 'uuid'::regtype)) AS allowed,
           coalesce(o.collisdeterministic, true) AS exact INTO col
      FROM pg_attribute AS a LEFT JOIN pg_collation AS o ON o.oid = a.attcollation
     WHERE a.attrelid = target AND a.attname = wanted AND a.attnum > 0;
    RETURN CASE
        WHEN NOT FOUND THEN format('it has no column %I for the resource', wanted)
        WHEN NOT col.allowed
            THEN format('column %I of the resource is %s: it must be smallint, integer, bigint, text, varchar or uuid',
            wanted, col.type)
        WHEN NOT col.exact THEN format('column %I of the resource has a collation that takes unequal texts for equal',
            wanted)
        WHEN NOT col.attnotnull THEN format('column %I of the resource may be NULL', wanted)
        WHEN col.computed THEN format('column %I of the resource is generated: a trigger sees no value in it', wanted)
        END;
END
$body$;
-- +goose StatementEnd

-- table_problem says why a table cannot be protected by such a rule. It is NULL if it can.
-- +goose StatementBegin
CREATE FUNCTION fencepost.table_problem(target regclass, columns name[], token_column name) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    class  record;
    col    record;
    wanted name;
    wrong  text;
    found_name text;
BEGIN
    SELECT c.relkind, c.relpersistence, c.relispartition, n.nspname INTO class
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = target;
    IF NOT FOUND THEN
        RETURN 'there is no such table';
    ELSIF class.relkind NOT IN ('r', 'p') THEN
        RETURN CASE class.relkind WHEN 'v' THEN 'it is a view' WHEN 'm' THEN 'it is a materialized view'
            WHEN 'f' THEN 'it is a foreign table' ELSE 'it is no table' END;
    ELSIF class.relpersistence = 't' THEN
        RETURN 'it is temporary';
    ELSIF class.nspname IN ('fencepost', 'pg_catalog', 'information_schema') THEN
        RETURN 'it is not an application''s table';
    ELSIF class.relispartition THEN
        RETURN 'it is a partition: protect the table that it belongs to';
    END IF;
    SELECT t.name INTO found_name FROM fencepost.protected_tree(target) AS t WHERE t.kind = 'f' LIMIT 1;
    IF FOUND THEN
        RETURN format('its partition %s is a foreign table', found_name);
    END IF;
    SELECT i.inhrelid::regclass::text INTO found_name
      FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = target AND NOT c.relispartition
       AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = c.oid AND g.tgname = '~fencepost')
     LIMIT 1;
    IF FOUND THEN
        RETURN format('%s inherits from it and has no protection of its own: protect that first', found_name);
    END IF;
    SELECT a.attnotnull, a.atttypid, a.attgenerated <> '' OR a.attidentity <> '' AS computed,
           format_type(a.atttypid, a.atttypmod) AS type INTO col
      FROM pg_attribute AS a WHERE a.attrelid = target AND a.attname = token_column AND a.attnum > 0;
    IF NOT FOUND THEN
        RETURN format('it has no token column %I', token_column);
    ELSIF col.atttypid <> 'int8'::regtype THEN
        RETURN format('its token column %I is %s, not bigint', token_column, col.type);
    ELSIF NOT col.attnotnull THEN
        RETURN format('its token column %I may be NULL', token_column);
    ELSIF col.computed THEN
        RETURN format('its token column %I is generated', token_column);
    ELSIF EXISTS (SELECT FROM fencepost.protected_tree(target) AS t
        JOIN pg_partitioned_table AS p ON p.partrelid = t.relid
                   JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = ANY (p.partattrs::int2[])
                  WHERE a.attname = token_column) THEN
        RETURN format('it is partitioned by its token column %I', token_column);
    END IF;
    FOREACH wanted IN ARRAY columns LOOP
        wrong := CASE wanted WHEN token_column THEN format('column %I cannot be token and resource', wanted)
            ELSE fencepost.column_problem(target, wanted) END;
        IF wrong IS NOT NULL THEN
            RETURN wrong;
        END IF;
    END LOOP;
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- trigger_problems returns what is wrong with the triggers of a protected table, or of one of its partitions.
-- +goose StatementBegin
CREATE FUNCTION fencepost.trigger_problems(part oid, p fencepost.protected) RETURNS TABLE (kind text, problem text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    source   text := fencepost.protection_source(p.namespace, p.prefix, p.columns, p.token_column, p.mode);
    fires    "char" := CASE WHEN p.replicated THEN 'A' ELSE 'O' END;
    want     record;
    is_there record;
BEGIN
    -- tgtype: 31 is BEFORE ROW INSERT DELETE UPDATE, 34 is BEFORE STATEMENT TRUNCATE.
    FOR want IN
        SELECT v.name, v.type, v.args, v.protection, v.source FROM (VALUES
            ('~fencepost'::name, 31, ''::bytea, fencepost.protection_name(source), source),
            ('~fencepost_truncate', 34, convert_to(p.mode, 'UTF8') || decode('00', 'hex'), 'refuse_truncate', NULL)
        ) AS v (name, type, args, protection, source)
    LOOP
        SELECT g.tgenabled, g.tgtype, g.tgargs, g.tgqual IS NULL AND g.tgattr::text = '' AS whole,
               f.proname, f.prosrc, f.prosecdef, f.proconfig, f.proowner, f.pronamespace, l.lanname INTO is_there
          FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid JOIN pg_language AS l ON l.oid = f.prolang
         WHERE g.tgrelid = part AND g.tgname = want.name;
        IF NOT FOUND THEN
            kind := 'missing';
            problem := format('it has no trigger %I', want.name);
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF is_there.tgenabled <> fires THEN
            kind := 'disabled';
            problem := format('its trigger %I is %s', want.name, CASE is_there.tgenabled
                WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'enabled for replication alone'
                WHEN 'A' THEN 'enabled for replication too' ELSE 'not enabled for replication' END);
            RETURN NEXT;
        END IF;
        IF is_there.tgtype <> want.type OR NOT is_there.whole OR is_there.tgargs <> want.args
            OR is_there.proname <> want.protection OR is_there.pronamespace <> 'fencepost'::regnamespace
        THEN
            kind := 'altered';
            problem := format('its trigger %I is not the one that protect made', want.name);
            RETURN NEXT;
        ELSIF is_there.prosrc <> coalesce(want.source, is_there.prosrc) OR NOT is_there.prosecdef
            OR is_there.lanname <> 'plpgsql'
            -- The second was made under quote_all_identifiers = on.
            OR coalesce(is_there.proconfig, '{}') NOT IN (
                ARRAY['search_path=pg_catalog, pg_temp'], ARRAY['search_path="pg_catalog", "pg_temp"'])
            OR is_there.proowner <> (
                SELECT f.proowner FROM pg_proc AS f
                 WHERE f.oid = 'fencepost.check_write(text, bigint, oid, text, text)'::regprocedure)
        THEN
            kind := 'altered';
            problem := format('the function of its trigger %I has been replaced', want.name);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- protection_problems returns what is wrong with the protection of one protected table. kind is for programs:
--   table     the table no longer fits its rule
--   missing   a table or partition lacks a trigger
--   disabled  a trigger does not fire, or not when it should
--   altered   a trigger or its function is not the one that protect made
--   order     another trigger can change the row after the check
-- +goose StatementBegin
CREATE FUNCTION fencepost.protection_problems(p fencepost.protected)
RETURNS TABLE (relation text, kind text, problem text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    part  record;
    other name;
BEGIN
    problem := fencepost.table_problem(p.relid, p.columns, p.token_column);
    IF problem IS NOT NULL THEN
        relation := (SELECT t.name FROM fencepost.protected_tree(p.relid) AS t LIMIT 1);
        kind := 'table';
        RETURN NEXT;
    END IF;
    FOR part IN SELECT t.relid, t.name FROM fencepost.protected_tree(p.relid) AS t LOOP
        relation := part.name;
        RETURN QUERY SELECT part.name, t.kind, t.problem FROM fencepost.trigger_problems(part.relid, p) AS t;
        -- Triggers fire in the order of their names, byte by byte.
        SELECT min(g.tgname::text) INTO other FROM pg_trigger AS g
         WHERE g.tgrelid = part.relid AND g.tgtype & 67 = 3 AND g.tgname > '~fencepost'
           AND g.tgtype & 20 <> 0;
        IF other IS NOT NULL THEN
            kind := 'order';
            problem := format('its trigger %I fires after the protection and may change the row', other);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- require_owner raises 42501 unless the caller owns the table, before any lock is requested. PostgreSQL checks again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.require_owner(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM FROM pg_class AS c WHERE c.oid = target AND pg_has_role(current_user, c.relowner, 'USAGE');
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('only the owner of %s does this', target);
    END IF;
END
$body$;
-- +goose StatementEnd

-- remove_protection drops every trigger of fencepost from a table and its partitions.
-- +goose StatementBegin
CREATE FUNCTION fencepost.remove_protection(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    part record;
BEGIN
    -- From the top down, with a look each time: a partition's copies go with the trigger that they are copies of.
    FOR part IN
        SELECT t.relid, t.name, v.trigger FROM fencepost.protected_tree(target) AS t
         CROSS JOIN (VALUES ('~fencepost'::name), ('~fencepost_truncate')) AS v (trigger)
    LOOP
        PERFORM FROM pg_trigger AS g WHERE g.tgrelid = part.relid AND g.tgname = part.trigger;
        IF FOUND THEN
            EXECUTE format('DROP TRIGGER %I ON %s', part.trigger, part.name);
        END IF;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- forget_protection deletes what protected records of a table, and of tables that no longer exist and had the table's
-- present name.
-- +goose StatementBegin
CREATE FUNCTION fencepost.forget_protection(target regclass) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $body$
    DELETE FROM fencepost.protected AS p
     WHERE fencepost.table_of(p) = target
        OR fencepost.table_of(p) IS NULL AND fencepost.table_by_name(p.schema_name, p.table_name) = target
$body$;
-- +goose StatementEnd

-- record_protection records what protect was told of a table.
-- +goose StatementBegin
CREATE FUNCTION fencepost.record_protection(p fencepost.protected) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.forget_protection(p.relid);
    INSERT INTO fencepost.protected SELECT p.*;
END
$body$;
-- +goose StatementEnd

-- protect gives a table its protection. From its commit on, no row is inserted, updated or deleted unless the
-- transaction has entered the row's resource (both resources, if an update moves the row from one to another), and
-- nothing truncates the table. The trigger stamps the row's token, whatever the writer sets.
--
--   namespace, prefix, columns
--       the rule: a row's resource is namespace || ':' || prefix and then the columns' values as text; several
--       are joined by "/", with "%" as "%25" and "/" as "%2F" in each. No columns: one resource for all rows.
--       The columns are NOT NULL, of type smallint, integer, bigint, text, varchar or uuid, or a domain over one.
--   token_column
--       bigint NOT NULL. Under a protection, in either mode, it never falls.
--   mode
--       'enforce' refuses; 'observe' lets pass and logs what it would refuse.
--   replicated
--       whether the protection also applies to logical replication, and under session_replication_role = replica.
--       Replicated rows carry no claim, so the protection then refuses them all.
--
-- Calling it again changes the rule or the mode, and repairs what is missing, such as the TRUNCATE trigger of a new
-- partition. It also records the new name of a table that was renamed. If everything is as told, it does nothing. If
-- the protection is whole, it takes no lock. It raises ZF002 for a table or rule that does not fit, and 42501 for a
-- caller who does not own the table.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protect(
    target regclass, namespace text, prefix text, columns name[] DEFAULT '{}',
    token_column name DEFAULT 'last_fencing_token', mode text DEFAULT 'enforce', replicated boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    wanted     fencepost.protected;
    wrong      text;
    protection name;
    part       record;
    trigger    name;
BEGIN
    IF target IS NULL OR namespace IS NULL OR prefix IS NULL OR columns IS NULL OR token_column IS NULL
        OR mode IS NULL OR replicated IS NULL
    THEN
        wrong := 'an argument is NULL';
    ELSIF pg_client_encoding() <> 'UTF8' THEN -- with the caller's rights, so not by refuse_encoding
        wrong := format('the session''s client_encoding is %s: fencepost takes names in UTF8 alone',
            pg_client_encoding());
    ELSIF namespace !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        wrong := format('namespace %L is not 1 to 64 of the characters A-Z a-z 0-9 . _ -', namespace);
    ELSIF mode NOT IN ('enforce', 'observe') THEN
        wrong := format('mode %L is neither enforce nor observe', mode);
    ELSIF octet_length(prefix) > 1024 THEN
        wrong := 'the prefix is longer than a resource';
    ELSIF prefix = '' AND cardinality(columns) = 0 THEN
        wrong := 'one resource for all rows needs a name';
    ELSIF cardinality(columns) > 100 THEN
        wrong := 'the rule has more than 100 columns';
    ELSIF cardinality(columns) > (SELECT count(DISTINCT c) FROM unnest(columns) AS c) THEN
        wrong := 'a column stands twice in the rule, or is NULL';
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('protect: %s', wrong);
    END IF;
    wrong := fencepost.table_problem(target, columns, token_column);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('%s cannot be protected: %s', target, wrong);
    END IF;
    PERFORM fencepost.require_owner(target);

    SELECT c.oid, n.nspname, c.relname, protect.namespace, protect.prefix, protect.columns, protect.token_column,
           protect.mode, protect.replicated
      INTO wanted
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = target;
    IF NOT EXISTS (SELECT FROM fencepost.protection_problems(wanted)) THEN
        IF NOT EXISTS (SELECT FROM fencepost.protected AS p WHERE p = wanted) THEN
            PERFORM fencepost.record_protection(wanted); -- it was renamed, or came with its protection out of a dump
        END IF;
        RETURN;
    END IF;

    -- Whoever is writing ends first. Where there are triggers to drop, nobody may read meanwhile either: asking for
    -- that later, with a weaker lock in hand, could deadlock.
    EXECUTE format('LOCK TABLE %I.%I IN %s MODE', wanted.schema_name, wanted.table_name, CASE WHEN EXISTS (
        SELECT FROM fencepost.protected_tree(target) AS t JOIN pg_trigger AS g ON g.tgrelid = t.relid
         WHERE g.tgname IN ('~fencepost', '~fencepost_truncate'))
        THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    protection := fencepost.make_protection(target, namespace, prefix, columns, token_column, mode);
    PERFORM fencepost.remove_protection(target);
    EXECUTE format('CREATE TRIGGER "~fencepost" BEFORE INSERT OR UPDATE OR DELETE ON %I.%I '
        'FOR EACH ROW EXECUTE FUNCTION fencepost.%I()', wanted.schema_name, wanted.table_name, protection);
    FOR part IN SELECT t.name FROM fencepost.protected_tree(target) AS t LOOP
        EXECUTE format('CREATE TRIGGER "~fencepost_truncate" BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse_truncate(%L)', part.name, mode);
        FOREACH trigger IN ARRAY CASE WHEN replicated THEN '{~fencepost,~fencepost_truncate}' ELSE '{}' END::name[] LOOP
            EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', part.name, trigger);
        END LOOP;
    END LOOP;
    -- What has changed while the lock was awaited, and triggers that would fire after ours, show here.
    SELECT format('%s: %s', d.relation, d.problem) INTO wrong FROM fencepost.protection_problems(wanted) AS d LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('%s cannot be protected: %s', target, wrong);
    END IF;
    PERFORM fencepost.record_protection(wanted);
    PERFORM fencepost.drop_unused_protections();
END
$body$;
-- +goose StatementEnd

-- unprotect removes the protection. From its commit on, every role that may write the table can write it without a
-- claim.
-- +goose StatementBegin
CREATE FUNCTION fencepost.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.require_owner(target);
    EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', t.name)
        FROM fencepost.protected_tree(target) AS t LIMIT 1);
    -- before the protection goes, by which a table that was renamed is known
    PERFORM fencepost.forget_protection(target);
    PERFORM fencepost.remove_protection(target);
    PERFORM fencepost.drop_unused_protections();
END
$body$;
-- +goose StatementEnd

-- verify returns one row per problem of any protected table. No row means that every protection is as protect made it.
-- Besides the kinds of protection_problems there are:
--   renamed    a protected table has another name than when it was protected: protect it again, to say that this is
--              right
--   swapped    in addition, a table without a protection has the old name, so writes by that name pass: protect that
--              table, or give the name back
--   recreated  a protected table was dropped, and there is a table of its name without a protection
--   stray      a table has a trigger of fencepost, but protect has no record of it: a detached partition, or
--              a restored dump
--   right      a right in the schema fencepost is too wide, missing or lost: migrate up repairs it
--   unknown    a table could not be checked: the problem is the error, for example a lock on a partition that was not
--              granted within a second. One owner's table must not keep the others from being checked.
-- +goose StatementBegin
CREATE FUNCTION fencepost.verify() RETURNS TABLE (protected text, relation text, kind text, problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    p     fencepost.protected;
    known oid[] := '{}';
BEGIN
    FOR p IN SELECT * FROM fencepost.protected AS t ORDER BY t.schema_name, t.table_name LOOP
        protected := format('%I.%I', p.schema_name, p.table_name);
        relation := protected;
        kind := NULL;
        SELECT m.kind, m.problem INTO kind, problem FROM fencepost.name_problem(p) AS m;
        IF kind = 'renamed' THEN
            relation := fencepost.table_of(p)::regclass;
        END IF;
        IF kind IS NOT NULL THEN
            RETURN NEXT;
        END IF;
        p.relid := fencepost.table_of(p);
        CONTINUE WHEN p.relid IS NULL;
        known := known || p.relid::oid;
        protected := p.relid::text;
        BEGIN
            FOR relation, kind, problem IN SELECT d.relation, d.kind, d.problem
                FROM fencepost.protection_problems(p) AS d LOOP
                RETURN NEXT;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            relation := protected;
            kind := 'unknown';
            problem := format('it could not be looked at: %s (%s)', SQLERRM, SQLSTATE);
            RETURN NEXT;
        END;
    END LOOP;
    FOR relation IN
        SELECT format('%I.%I', n.nspname, c.relname)
          FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE EXISTS (SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid
                        WHERE g.tgrelid = c.oid AND f.pronamespace = 'fencepost'::regnamespace
                          AND g.tgname IN ('~fencepost', '~fencepost_truncate'))
           AND c.oid <> ALL (known)
           AND NOT EXISTS (SELECT FROM pg_partition_ancestors(c.oid) AS a WHERE a.relid = ANY (known))
         ORDER BY 1
    LOOP
        protected := relation;
        kind := 'stray';
        problem := 'it has a trigger of fencepost, and protect does not know of it';
        RETURN NEXT;
    END LOOP;
    IF to_regprocedure('fencepost.wrong_rights()') IS NOT NULL THEN
        protected := 'fencepost';
        kind := 'right';
        FOR relation, problem IN SELECT w.relation, w.problem FROM fencepost.wrong_rights() AS w ORDER BY 1, 2 LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$body$;
-- +goose StatementEnd

-- name_problem says where the name of a protected table leads, if not to that table. It returns one row.
-- +goose StatementBegin
CREATE FUNCTION fencepost.name_problem(p fencepost.protected, OUT kind text, OUT problem text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    living oid := fencepost.table_of(p);
    named  oid := fencepost.table_by_name(p.schema_name, p.table_name);
    writes boolean; -- whether the name leads to a table by which one writes past the protection
BEGIN
    writes := EXISTS (SELECT FROM pg_class AS c WHERE c.oid = named AND c.relkind IN ('r', 'p', 'f'))
        AND NOT fencepost.is_protected(named) AND NOT EXISTS (SELECT FROM fencepost.protected AS q
            WHERE q.relid = named);
    IF living = named THEN
        RETURN;
    ELSIF living IS NULL AND writes THEN
        kind := 'recreated';
        problem := 'it was dropped and created again, without its protection';
    ELSIF writes THEN
        kind := 'swapped';
        problem := format(
            'this is another table, without a protection: the one that was protected by this name is %s now',
                living::regclass);
    ELSIF living IS NOT NULL THEN
        kind := 'renamed';
        problem := format(
            'it was %I.%I when it was protected, and has its protection still: protect it again, by its new name',
            p.schema_name, p.table_name);
    END IF;
END
$body$;
-- +goose StatementEnd

-- protection_rule returns the rule by which a table, or the partitioned table to which it belongs, is protected. It
-- returns no row if there is none. It is for programs that have a rule of their own for the table's rows and have no
-- right on protected. If wrong is not NULL, it says why a table that has a protected table's name, or part of a
-- protection, is not protected.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protection_rule(schema_name text, table_name text)
RETURNS TABLE (namespace text, prefix text, columns text[], token_column text, wrong text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    target oid := fencepost.table_by_name(protection_rule.schema_name, protection_rule.table_name);
    whole  oid := coalesce((SELECT pg_partition_root(c.oid) FROM pg_class AS c WHERE c.oid = target
        AND c.relispartition), target);
BEGIN
    RETURN QUERY
        SELECT p.namespace, p.prefix, p.columns::text[], p.token_column::text, NULL::text
          FROM fencepost.protected AS p WHERE fencepost.table_of(p) = whole LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT p.namespace, p.prefix, p.columns::text[], p.token_column::text, format('%s (%s)', m.problem, m.kind)
          FROM fencepost.protected AS p, fencepost.name_problem(p) AS m
         WHERE p.schema_name::text = protection_rule.schema_name AND p.table_name::text = protection_rule.table_name
           AND m.kind IN ('swapped', 'recreated') LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT u.namespace, u.prefix, u.columns::text[], u.token_column::text, NULL::text
          FROM fencepost.unrecorded_protections() AS u WHERE u.relid = whole;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL, NULL, NULL::text[], NULL,
            'it was part of a protected table, and has what is left of its protection'
         WHERE NOT fencepost.is_protected(target) AND EXISTS (
            SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid
             WHERE g.tgrelid = target AND g.tgname = '~fencepost_truncate'
                 AND f.pronamespace = 'fencepost'::regnamespace);
END
$body$;
-- +goose StatementEnd

-- unrecorded_protections returns the rules of protections that exist although protected has no row for them. A restore
-- of the schema alone brings the triggers but not the rows of that table. It reads the rule from the protection's
-- function, if that function is as make_protection makes it.
-- +goose StatementBegin
CREATE FUNCTION fencepost.unrecorded_protections() RETURNS SETOF fencepost.protected
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT g.relid, g.nspname, g.relname, r.namespace, r.prefix, r.columns, r.token_column, r.mode, g.tgenabled = 'A'
      FROM (SELECT c.oid::regclass AS relid, n.nspname, c.relname, t.tgenabled, f.prosrc,
                   CASE WHEN f.proname = fencepost.protection_name(f.prosrc)
                        THEN substring(f.prosrc FROM $re$^\n-- (\{[^\n]*\})\n$re$)::jsonb END AS rule
              FROM pg_trigger AS t
              JOIN pg_proc AS f ON f.oid = t.tgfoid AND f.pronamespace = 'fencepost'::regnamespace
              JOIN pg_class AS c ON c.oid = t.tgrelid
              JOIN pg_namespace AS n ON n.oid = c.relnamespace
             WHERE t.tgname = '~fencepost' AND t.tgparentid = 0 AND NOT c.relispartition
               AND NOT EXISTS (SELECT FROM fencepost.protected AS p WHERE fencepost.table_of(p) = c.oid)) AS g
     CROSS JOIN LATERAL (SELECT g.rule ->> 'namespace', g.rule ->> 'prefix',
                   ARRAY(SELECT jsonb_array_elements_text(g.rule -> 'columns'))::name[],
                   (g.rule ->> 'token_column')::name, g.rule ->> 'mode') AS r (namespace, prefix, columns,
                       token_column, mode)
     WHERE g.prosrc = fencepost.protection_source(r.namespace, r.prefix, r.columns, r.token_column, r.mode)
$body$;
-- +goose StatementEnd

REVOKE ALL ON TABLE fencepost.protected FROM PUBLIC;
REVOKE ALL ON TABLE fencepost.secret FROM PUBLIC;
REVOKE ALL ON FUNCTION
    fencepost.check_rule_owner(),
    fencepost.unrecorded_protections(),
    fencepost.protection_name(text),
    fencepost.protection_rule(text, text),
    fencepost.drop_unused_protections(),
    fencepost.log_proof(integer),
    fencepost.log_line(text),
    fencepost.bypass(text),
    fencepost.bypass(text, text[]),
    fencepost.may_bypass(text),
    fencepost.bypass_proof(text, text),
    fencepost.bypass_reason(oid),
    fencepost.begin_bypass(text, text),
    fencepost.holds_gate(text),
    fencepost.refuse_write(text, bigint, oid, text, text, text, bigint),
    fencepost.check_write(text, bigint, oid, text, text),
    fencepost.refuse_truncate(),
    fencepost.row_resource(text, text, name[], text),
    fencepost.protection_source(text, text, name[], name, text),
    fencepost.make_protection(regclass, text, text, name[], name, text),
    fencepost.protected_tree(regclass),
    fencepost.table_by_name(text, text),
    fencepost.is_protected(oid),
    fencepost.table_of(fencepost.protected),
    fencepost.name_problem(fencepost.protected),
    fencepost.forget_protection(regclass),
    fencepost.record_protection(fencepost.protected),
    fencepost.column_problem(regclass, name),
    fencepost.table_problem(regclass, name[], name),
    fencepost.trigger_problems(oid, fencepost.protected),
    fencepost.protection_problems(fencepost.protected),
    fencepost.require_owner(regclass),
    fencepost.remove_protection(regclass),
    fencepost.protect(regclass, text, text, name[], name, text, boolean),
    fencepost.unprotect(regclass),
    fencepost.verify()
FROM PUBLIC;

COMMENT ON FUNCTION fencepost.check_rule_owner() IS
    'trigger function: keeps the owner of a table to the rules of its own tables';
COMMENT ON FUNCTION fencepost.log_proof(integer) IS
    'the setting fencepost.logged for so many lines logged by this transaction, which nobody can make by hand';
COMMENT ON FUNCTION fencepost.log_line(text) IS
    'writes a line to the server''s log, up to a hundred for each transaction';
COMMENT ON FUNCTION fencepost.bypass(text) IS
    'lets the rest of the transaction through the protections of all tables, and logs that';
COMMENT ON FUNCTION fencepost.bypass(text, text[]) IS
    'lets the rest of the transaction through the protections of the tables named, and logs that';
COMMENT ON FUNCTION fencepost.may_bypass(text) IS
    'whether the user who logged in may bypass protections of such a scope, by a grant to somebody';
COMMENT ON FUNCTION fencepost.bypass_proof(text, text) IS
    'the setting fencepost.bypass for a scope and a reason, good for this session and transaction';
COMMENT ON FUNCTION fencepost.bypass_reason(oid) IS
    'why this transaction was let through the protection of a table; NULL if it was not';
COMMENT ON FUNCTION fencepost.begin_bypass(text, text) IS
    'the work of bypass: refuses a call that is not the client''s own statement';
COMMENT ON FUNCTION fencepost.holds_gate(text) IS
    'whether this transaction holds the advisory lock that guard takes for a resource';
COMMENT ON FUNCTION fencepost.refuse_write(text, bigint, oid, text, text, text, bigint) IS
    'raises why a write to a protected table may not pass, or logs it in mode observe and under bypass';
COMMENT ON FUNCTION fencepost.check_write(text, bigint, oid, text, text) IS
    'what a protection asks at every row: the token to stamp; NULL if the write passes without a claim';
COMMENT ON FUNCTION fencepost.refuse_truncate() IS 'trigger function: refuses TRUNCATE of a protected table';
COMMENT ON FUNCTION fencepost.row_resource(text, text, name[], text) IS
    'the expression that makes a row''s resource in a protection''s trigger function';
COMMENT ON FUNCTION fencepost.protection_source(text, text, name[], name, text) IS
    'the body of the trigger function of a protection''s rule';
COMMENT ON FUNCTION fencepost.protection_name(text) IS 'the name of the trigger function with a body';
COMMENT ON FUNCTION fencepost.make_protection(regclass, text, text, name[], name, text) IS
    'makes the trigger function of a rule, and returns its name';
COMMENT ON FUNCTION fencepost.drop_unused_protections() IS 'drops the trigger functions that no trigger uses any more';
COMMENT ON FUNCTION fencepost.protected_tree(regclass) IS 'a table and all of its partitions, from the top down';
COMMENT ON FUNCTION fencepost.table_by_name(text, text) IS 'the table that bears a name; NULL if there is none';
COMMENT ON FUNCTION fencepost.is_protected(oid) IS 'whether a table has a protection''s trigger';
COMMENT ON FUNCTION fencepost.table_of(fencepost.protected) IS
    'the table that a row of protected is about, renamed or restored; NULL if it is gone';
COMMENT ON FUNCTION fencepost.column_problem(regclass, name) IS
    'why a resource cannot be made of a column; NULL if it can';
COMMENT ON FUNCTION fencepost.table_problem(regclass, name[], name) IS
    'why a table cannot be protected by a rule; NULL if it can';
COMMENT ON FUNCTION fencepost.trigger_problems(oid, fencepost.protected) IS
    'what is wrong with the triggers of a protected table or partition';
COMMENT ON FUNCTION fencepost.protection_problems(fencepost.protected) IS
    'what is wrong with the protection of one table';
COMMENT ON FUNCTION fencepost.require_owner(regclass) IS 'raises 42501 unless the caller owns the table';
COMMENT ON FUNCTION fencepost.remove_protection(regclass) IS
    'drops the protection''s triggers of a table and its partitions';
COMMENT ON FUNCTION fencepost.forget_protection(regclass) IS 'takes back what protected has of a table';
COMMENT ON FUNCTION fencepost.record_protection(fencepost.protected) IS 'remembers what protect was told of a table';
COMMENT ON FUNCTION fencepost.protect(regclass, text, text, name[], name, text, boolean) IS
    'protects a table: from its commit on no row is written without a claim of the row''s resource';
COMMENT ON FUNCTION fencepost.unprotect(regclass) IS 'takes the protection of a table away';
COMMENT ON FUNCTION fencepost.verify() IS
    'returns one row for each problem of a protected table or of a right in this schema; none if all stands';
COMMENT ON FUNCTION fencepost.name_problem(fencepost.protected) IS
    'where the name of a protected table leads, if not to that table';
COMMENT ON FUNCTION fencepost.protection_rule(text, text) IS
    'returns the rule by which a table is protected; no row if it is not';
COMMENT ON FUNCTION fencepost.unrecorded_protections() IS
    'the rules of protections that stand though protected lacks them, after a restore of the schema alone';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(4, false);

LOCK TABLE fencepost.secret, fencepost.protected IN ACCESS EXCLUSIVE MODE;

-- Without its protection every overtaken worker can write a table.
-- +goose StatementBegin
DO $body$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) g.tgfoid
                WHERE f.pronamespace OPERATOR(pg_catalog.=) 'fencepost'::regnamespace::oid
                  AND g.tgrelid OPERATOR(pg_catalog.<>) 'fencepost.protected'::regclass::oid)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'tables are protected by fencepost still',
            HINT = 'Take their protections away with fencepost.unprotect first.';
    END IF;
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $body$
DECLARE
    protection text;
BEGIN
    FOR protection IN SELECT f.oid::regprocedure::text FROM pg_proc AS f
                 WHERE f.pronamespace OPERATOR(pg_catalog.=) 'fencepost'::regnamespace::oid
                   AND f.proname::text OPERATOR(pg_catalog.~) '^protection_[0-9a-f]{32}$'
    LOOP
        EXECUTE pg_catalog.concat('DROP FUNCTION ', protection);
    END LOOP;
END
$body$;
-- +goose StatementEnd

DROP FUNCTION fencepost.unrecorded_protections();
DROP FUNCTION fencepost.protection_rule(text, text);
DROP FUNCTION fencepost.verify();
DROP FUNCTION fencepost.name_problem(fencepost.protected);
DROP FUNCTION fencepost.unprotect(regclass);
DROP FUNCTION fencepost.protect(regclass, text, text, name[], name, text, boolean);
DROP FUNCTION fencepost.record_protection(fencepost.protected);
DROP FUNCTION fencepost.forget_protection(regclass);
DROP FUNCTION fencepost.remove_protection(regclass);
DROP FUNCTION fencepost.require_owner(regclass);
DROP FUNCTION fencepost.protection_problems(fencepost.protected);
DROP FUNCTION fencepost.trigger_problems(oid, fencepost.protected);
DROP FUNCTION fencepost.table_problem(regclass, name[], name);
DROP FUNCTION fencepost.column_problem(regclass, name);
DROP FUNCTION fencepost.table_of(fencepost.protected);
DROP FUNCTION fencepost.is_protected(oid);
DROP FUNCTION fencepost.table_by_name(text, text);
DROP FUNCTION fencepost.protected_tree(regclass);
DROP FUNCTION fencepost.drop_unused_protections();
DROP FUNCTION fencepost.make_protection(regclass, text, text, name[], name, text);
DROP FUNCTION fencepost.protection_name(text);
DROP FUNCTION fencepost.protection_source(text, text, name[], name, text);
DROP FUNCTION fencepost.row_resource(text, text, name[], text);
DROP FUNCTION fencepost.refuse_truncate();
DROP FUNCTION fencepost.check_write(text, bigint, oid, text, text);
DROP FUNCTION fencepost.refuse_write(text, bigint, oid, text, text, text, bigint);
DROP FUNCTION fencepost.holds_gate(text);
DROP FUNCTION fencepost.bypass(text);
DROP FUNCTION fencepost.bypass(text, text[]);
DROP FUNCTION fencepost.begin_bypass(text, text);
DROP FUNCTION fencepost.bypass_reason(oid);
DROP FUNCTION fencepost.bypass_proof(text, text);
DROP FUNCTION fencepost.may_bypass(text);
DROP FUNCTION fencepost.log_line(text);
DROP FUNCTION fencepost.log_proof(integer);
DROP TABLE fencepost.secret;
DROP TABLE fencepost.protected;
DROP FUNCTION fencepost.check_rule_owner();
