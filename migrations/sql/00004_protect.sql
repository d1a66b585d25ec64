-- The database's own door: triggers that let no writer into a table without a claim that holds, whatever
-- program it is. A table is protected by its owner, with the rule by which its rows belong to resources.
--
-- What the triggers rest on is the fence, read under lock at every row. The setting fencepost.entered, which
-- fencepost.enter leaves, only says where to look: it can be set by hand, and proves nothing.
--
-- Two kinds of rights meet here. What is made in the schema fencepost is made with its owner's rights
-- (make_door); what is done to the table, with the caller's: PostgreSQL itself sees to it that nobody but the
-- table's owner changes its triggers.

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(4, true);

-- What protect was told, for verify to compare with what is there, and for programs to compare with their own rule. No
-- write is decided by it. schema_name and table_name find a table that was dropped and made anew, which comes without its door.
CREATE TABLE fencepost.protected (
    relid        regclass PRIMARY KEY,
    schema_name  name NOT NULL,
    table_name   name NOT NULL,
    namespace    text NOT NULL CHECK (namespace ~ '^[A-Za-z0-9._-]{1,64}$'),
    prefix       text NOT NULL CHECK (octet_length(prefix) <= 1024),
    columns      name[] NOT NULL CHECK (array_position(columns, NULL) IS NULL AND cardinality(columns) <= 100),
    token_column name NOT NULL,
    mode         text NOT NULL CHECK (mode IN ('enforce', 'observe')),
    replicated   boolean NOT NULL
);

COMMENT ON TABLE fencepost.protected IS
    'tables with a door, as fencepost.protect was told; read by fencepost.verify and fencepost.door_rule alone';

-- protect writes here with its caller's rights, and whoever may protect may write here by hand: the checks keep that
-- within what protect would say.
ALTER TABLE fencepost.protected ENABLE ROW LEVEL SECURITY;
CREATE POLICY owners_of_the_table ON fencepost.protected USING (
    pg_has_role(current_user, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relid), 'USAGE'));

-- The SQLSTATEs raised here, besides ZF001 (stale) and ZF002 (invalid argument):
--   ZF004  not entered: a write to a protected table without a claim of the row's resource
-- The DETAIL of ZF004 is a JSON object {"resource", "table", "operation"}. That of ZF001 is the one of
-- enter, with "table" and, where the row is ahead of the claim rather than the fence, "row": true.

-- Something that nobody but the schema's owner can know.
CREATE TABLE fencepost.secret (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO fencepost.secret DEFAULT VALUES;

COMMENT ON TABLE fencepost.secret IS
    'one row, made by the migration; read by fencepost.noted alone';

-- noted is how the setting fencepost.noted says that the current transaction has logged so many lines. A setting can be
-- made by anybody; this text by those alone who know the secret, and it is good for one transaction.
-- +goose StatementBegin
CREATE FUNCTION fencepost.noted(lines integer) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT concat(lines, ' ', encode(sha256(convert_to(concat(s.secret, ' ', pg_current_xact_id(), ' ', lines), 'UTF8')), 'hex'))
      FROM fencepost.secret AS s
$body$;
-- +goose StatementEnd

-- note writes a line to the server's log. A transaction gets a hundred: a door in mode observe must not fill
-- the disk. Whoever sets fencepost.noted by hand begins to count again, and silences nothing.
-- +goose StatementBegin
CREATE FUNCTION fencepost.note(line text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    most  CONSTANT integer := 100;
    said  text := current_setting('fencepost.noted', true);
    lines integer := 0;
BEGIN
    IF said ~ '^[0-9]{1,3} ' THEN
        lines := split_part(said, ' ', 1)::integer;
        IF said <> fencepost.noted(lines) THEN
            lines := 0;
        END IF;
    END IF;
    IF lines >= most THEN
        RETURN;
    END IF;
    RAISE LOG '%', line;
    PERFORM set_config('fencepost.noted', fencepost.noted(lines + 1), true);
    IF lines + 1 = most THEN
        RAISE LOG 'fencepost: what else this transaction would have logged is left out';
    END IF;
END
$body$;
-- +goose StatementEnd

-- bypass opens every door to the rest of the transaction, and says so in the server's log. It is for
-- operators: each write asks again whether the user who logged in may execute this function, so the setting
-- alone, or SET ROLE, gives nothing. No claim is held off meanwhile: a holder at work does not see the write
-- coming. Where there is time, claim and enter instead.
-- +goose StatementBegin
CREATE FUNCTION fencepost.bypass(reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF reason IS NULL OR btrim(reason) = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'bypass needs a reason';
    END IF;
    IF NOT has_function_privilege(session_user, 'fencepost.bypass(text)', 'EXECUTE') THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('the session''s user %I may not bypass', session_user);
    END IF;
    PERFORM set_config('fencepost.bypass', reason, true);
    RAISE LOG 'fencepost bypass: opened by session user %: %', session_user, reason;
END
$body$;
-- +goose StatementEnd

-- at_gate tells whether this transaction stands in the gate of a resource: whoever has passed the guard does. Proof is
-- the fence alone, so this is for the log's sake: a statement that carries its guard leaves no word in
-- fencepost.entered until a door refuses it, and a door in mode observe does not.
-- +goose StatementBegin
CREATE FUNCTION fencepost.at_gate(resource text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT EXISTS (
        SELECT FROM pg_locks AS l
         WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_backend_pid() AND l.objsubid = 2
           AND l.classid = 1179534160::oid AND l.objid::bigint = hashtext(resource COLLATE "C")::bigint & 4294967295
           AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$body$;
-- +goose StatementEnd

-- refuse finds out why a write may not pass, and raises that, unless the door is in mode observe or the
-- transaction is an operator's way through: then it is logged, and the write passes.
--   entry  what fencepost.entered has after the resource's name, if it has the name
--   held   the token that the transaction holds on the resource, if it does
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse(
    resource text, stored bigint, target oid, operation text, mode text, entry text, held bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    relation text := target::regclass::text;
    token    text := split_part(entry, '"', 1);
    fence    bigint;
    code     text := 'ZF004';
    reason   text;
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
        SELECT f.token INTO fence FROM fencepost.fence AS f WHERE f.resource = refuse.resource COLLATE "C";
        code := 'ZF001';
        reason := format('stale claim: token %s on a fence at %s', token, coalesce(fence, 0));
        detail := detail || jsonb_build_object('token', token, 'current', coalesce(fence, 0)::text);
        -- As in enter: a snapshot from before the claim calls nobody stale.
        IF coalesce(fence, 0) < token::numeric AND current_setting('transaction_isolation') <> 'read committed' THEN
            code := '40001';
            reason := 'the fence may have been raised after this transaction''s snapshot was taken';
        END IF;
    END IF;
    IF coalesce(current_setting('fencepost.bypass', true), '') <> ''
        AND has_function_privilege(session_user, 'fencepost.bypass(text)', 'EXECUTE')
    THEN
        -- Not note, which stops after a while.
        RAISE LOG '%', format('fencepost bypass: %s on %s (resource %L) by session user %s: %s',
            operation, relation, resource, session_user, current_setting('fencepost.bypass', true));
        RETURN;
    END IF;
    IF mode = 'observe' THEN
        IF code = 'ZF004' AND resource IS NOT NULL AND fencepost.at_gate(resource) THEN
            RETURN; -- under mode enforce it would come again, by way of enter
        END IF;
        PERFORM fencepost.note(format('fencepost observe: %s on %s (resource %L) by session user %s would be refused (%s): %s',
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

-- admit is what every door asks at every row: it returns the token to stamp if the transaction holds a claim
-- of the resource that the fence carries, and is not below the token stored in the row. Otherwise refuse has
-- the word; where that lets the write pass, admit returns NULL.
--
-- It runs within a door, with the rights and the search_path of that.
-- +goose StatementBegin
CREATE FUNCTION fencepost.admit(resource text, stored bigint, target oid, operation text, mode text) RETURNS bigint
LANGUAGE plpgsql
AS $body$
DECLARE
    entry text;
    held  bigint;
BEGIN
    -- {"a": ["7", "nonce"], "b": …} is looked through as text: a setting made by hand need not be JSON.
    -- In JSON a quote after a space begins a string, and nothing else does.
    entry := split_part(' ' || substr(current_setting('fencepost.entered', true), 2),
                        ' ' || to_json(resource)::text || ': ["', 2);
    IF entry <> '' THEN
        -- FOR SHARE: from here on no claim of the resource commits before this transaction has ended, even
        -- where the setting was made by hand and enter never ran. Where it ran, the lock is there already.
        SELECT f.token INTO held FROM fencepost.fence AS f
         WHERE f.resource = admit.resource COLLATE "C"
           AND f.token::text = split_part(entry, '"', 1) AND f.nonce::text = split_part(entry, '"', 3)
           FOR SHARE;
        IF held >= coalesce(stored, 0) THEN
            RETURN held;
        END IF;
    END IF;
    PERFORM fencepost.refuse(resource, stored, target, operation, mode, entry, held);
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- refuse_truncate is the trigger function against TRUNCATE, which fires no row trigger. Its argument is the mode.
-- +goose StatementBegin
CREATE FUNCTION fencepost.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.refuse(NULL, NULL, TG_RELID, TG_OP, TG_ARGV[0], NULL, NULL);
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- row_resource returns the expression that computes a row's resource within a door; row is OLD or NEW.
--
-- concat prints a value by its type's own output function. A cast would not do: it may be a function of the
-- table's owner's, and a door runs with another's rights.
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

-- door_source returns the body of the trigger function for a rule: the column names stand in it, so that a
-- row is read and stamped at the speed of plain PL/pgSQL.
-- +goose StatementBegin
CREATE FUNCTION fencepost.door_source(namespace text, prefix text, columns name[], token_column name, mode text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
BEGIN
    -- The column's type is looked at before anything is assigned to it: a domain's CHECK may be a function of
    -- the table's owner's.
    RETURN format($door$
DECLARE
    was   text;
    now   text;
    stamp bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF pg_typeof(NEW.%1$I) <> 20::oid THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = 'the token column is no longer bigint';
        END IF;
        stamp := fencepost.admit(%3$s, NULL, TG_RELID, TG_OP, %4$L);
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
        stamp := fencepost.admit(was, OLD.%1$I, TG_RELID, TG_OP, %4$L);
        RETURN OLD;
    END IF;
    now := %3$s;
    IF was IS DISTINCT FROM now COLLATE "C" THEN
        stamp := fencepost.admit(was, OLD.%1$I, TG_RELID, TG_OP, %4$L);
    END IF;
    stamp := fencepost.admit(now, OLD.%1$I, TG_RELID, TG_OP, %4$L);
    NEW.%1$I := coalesce(stamp, greatest(OLD.%1$I, NEW.%1$I));
    RETURN NEW;
END
$door$, token_column,
        fencepost.row_resource(namespace, prefix, columns, 'OLD'),
        fencepost.row_resource(namespace, prefix, columns, 'NEW'), mode);
END
$body$;
-- +goose StatementEnd

-- door_name is what the trigger function with the given source is called. Not md5, which some servers do without.
-- +goose StatementBegin
CREATE FUNCTION fencepost.door_name(source text) RETURNS name
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT ('door_' || left(encode(sha256(convert_to(source, 'UTF8')), 'hex'), 32))::name
$body$;
-- +goose StatementEnd

-- make_door makes the trigger function for a rule, where it is not there as it should be, lets the table's
-- owner use it, and returns its name. The name is made from the body, so nobody can have another's door
-- changed: another rule is another function.
-- +goose StatementBegin
CREATE FUNCTION fencepost.make_door(
    target regclass, namespace text, prefix text, columns name[], token_column name, mode text) RETURNS name
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    source text := fencepost.door_source(namespace, prefix, columns, token_column, mode);
    door   name := fencepost.door_name(source);
BEGIN
    -- Two at once that make the same one would meet in the catalog, and sweep_doors must not drop it before it is used.
    -- Whoever comes here has locked the table already, and does not wait for one with this in hand.
    PERFORM pg_advisory_xact_lock(1179534162, hashtext(door::text));
    EXECUTE format('CREATE OR REPLACE FUNCTION fencepost.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', door, source);
    EXECUTE format('REVOKE ALL ON FUNCTION fencepost.%I() FROM PUBLIC', door);
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION fencepost.%I() TO %I', door, r.rolname)
               FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.oid = target);
    RETURN door;
END
$body$;
-- +goose StatementEnd

-- sweep_doors drops the trigger functions that no trigger uses any more: of rules that were changed, of tables that
-- were unprotected or dropped.
-- +goose StatementBegin
CREATE FUNCTION fencepost.sweep_doors() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    door name;
BEGIN
    FOR door IN SELECT f.proname FROM pg_proc AS f
                 WHERE f.pronamespace = 'fencepost'::regnamespace AND f.proname ~ '^door_[0-9a-f]{32}$'
                   AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgfoid = f.oid)
                 ORDER BY f.proname
    LOOP
        -- Somebody is about to use it.
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(1179534162, hashtext(door::text));
        BEGIN
            EXECUTE format('DROP FUNCTION fencepost.%I()', door);
        EXCEPTION WHEN dependent_objects_still_exist OR undefined_function THEN
            NULL; -- used, or dropped, since it was looked at
        END;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- door_tree returns a table and, where it is partitioned, all that it consists of, from the top down.
-- +goose StatementBegin
CREATE FUNCTION fencepost.door_tree(target regclass) RETURNS TABLE (relid oid, name text, kind "char")
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

-- unfit says why a table cannot be protected by such a rule; NULL where it can.
-- +goose StatementBegin
CREATE FUNCTION fencepost.unfit(target regclass, columns name[], token_column name) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    class  record;
    col    record;
    wanted name;
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
    SELECT t.name INTO found_name FROM fencepost.door_tree(target) AS t WHERE t.kind = 'f' LIMIT 1;
    IF FOUND THEN
        RETURN format('its partition %s is a foreign table', found_name);
    END IF;
    SELECT i.inhrelid::regclass::text INTO found_name
      FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = target AND NOT c.relispartition
       AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = c.oid AND g.tgname = '~fencepost')
     LIMIT 1;
    IF FOUND THEN
        RETURN format('%s inherits from it and has no door of its own: protect that first', found_name);
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
    ELSIF EXISTS (SELECT FROM fencepost.door_tree(target) AS t JOIN pg_partitioned_table AS p ON p.partrelid = t.relid
                   JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = ANY (p.partattrs::int2[])
                  WHERE a.attname = token_column) THEN
        RETURN format('it is partitioned by its token column %I', token_column);
    END IF;
    FOREACH wanted IN ARRAY columns LOOP
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
        IF NOT FOUND THEN
            RETURN format('it has no column %I for the resource', wanted);
        ELSIF NOT col.allowed THEN
            RETURN format('column %I of the resource is %s: it must be smallint, integer, bigint, text, varchar or uuid',
                wanted, col.type);
        ELSIF NOT col.exact THEN
            RETURN format('column %I of the resource has a collation that takes unequal texts for equal', wanted);
        ELSIF NOT col.attnotnull THEN
            RETURN format('column %I of the resource may be NULL', wanted);
        ELSIF col.computed THEN
            RETURN format('column %I of the resource is generated: a trigger sees no value in it', wanted);
        ELSIF wanted = token_column THEN
            RETURN format('column %I cannot be token and resource', wanted);
        END IF;
    END LOOP;
    RETURN NULL;
END
$body$;
-- +goose StatementEnd

-- door_problems returns what is wrong with the door of one protected table: kind is for programs.
--   table     the table no longer fits its rule
--   missing   a table or partition lacks a trigger
--   disabled  a trigger does not fire, or not when it should
--   altered   a trigger or its function is not the one that protect made
--   order     another trigger can change the row after the check
-- +goose StatementBegin
CREATE FUNCTION fencepost.door_problems(p fencepost.protected)
RETURNS TABLE (relation text, kind text, problem text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    source   text := fencepost.door_source(p.namespace, p.prefix, p.columns, p.token_column, p.mode);
    fires    "char" := CASE WHEN p.replicated THEN 'A' ELSE 'O' END;
    part     record;
    want     record;
    is_there record;
    other    name;
BEGIN
    problem := fencepost.unfit(p.relid, p.columns, p.token_column);
    IF problem IS NOT NULL THEN
        relation := (SELECT t.name FROM fencepost.door_tree(p.relid) AS t LIMIT 1);
        kind := 'table';
        RETURN NEXT;
    END IF;
    FOR part IN SELECT t.relid, t.name FROM fencepost.door_tree(p.relid) AS t LOOP
        relation := part.name;
        -- tgtype: 31 is BEFORE ROW INSERT DELETE UPDATE, 34 is BEFORE STATEMENT TRUNCATE.
        FOR want IN
            SELECT v.name, v.type, v.args, v.door, v.source FROM (VALUES
                ('~fencepost'::name, 31, ''::bytea, fencepost.door_name(source), source),
                ('~fencepost_truncate', 34, convert_to(p.mode, 'UTF8') || '\x00', 'refuse_truncate', NULL)
            ) AS v (name, type, args, door, source)
        LOOP
            SELECT g.tgenabled, g.tgtype, g.tgargs, g.tgqual IS NULL AND g.tgattr::text = '' AS whole,
                   f.proname, f.prosrc, f.prosecdef, f.proconfig, f.proowner, f.pronamespace, l.lanname INTO is_there
              FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid JOIN pg_language AS l ON l.oid = f.prolang
             WHERE g.tgrelid = part.relid AND g.tgname = want.name;
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
                OR is_there.proname <> want.door OR is_there.pronamespace <> 'fencepost'::regnamespace
            THEN
                kind := 'altered';
                problem := format('its trigger %I is not the one that protect made', want.name);
                RETURN NEXT;
            ELSIF is_there.prosrc <> coalesce(want.source, is_there.prosrc) OR NOT is_there.prosecdef
                OR is_there.lanname <> 'plpgsql'
                OR is_there.proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']
                OR is_there.proowner <> (SELECT f.proowner FROM pg_proc AS f
                                          WHERE f.oid = 'fencepost.admit(text, bigint, oid, text, text)'::regprocedure)
            THEN
                kind := 'altered';
                problem := format('the function of its trigger %I has been replaced', want.name);
                RETURN NEXT;
            END IF;
        END LOOP;
        -- Triggers fire in the order of their names, byte by byte.
        SELECT min(g.tgname::text) INTO other FROM pg_trigger AS g
         WHERE g.tgrelid = part.relid AND g.tgtype & 67 = 3 AND g.tgname > '~fencepost'
           AND g.tgtype & 20 <> 0;
        IF other IS NOT NULL THEN
            kind := 'order';
            problem := format('its trigger %I fires after the door and may change the row', other);
            RETURN NEXT;
        END IF;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- owned_by_caller raises 42501 unless the caller owns the table, before any lock is asked for. PostgreSQL asks again.
-- +goose StatementBegin
CREATE FUNCTION fencepost.owned_by_caller(target regclass) RETURNS void
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

-- remove_doors drops every trigger of ours from a table and its partitions.
-- +goose StatementBegin
CREATE FUNCTION fencepost.remove_doors(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    part record;
BEGIN
    -- From the top down, asked anew each time: a partition's copies go with the trigger that they are copies of.
    FOR part IN
        SELECT t.relid, t.name, v.trigger FROM fencepost.door_tree(target) AS t
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

-- protect gives a table its door. From its commit on, no row is inserted, updated or deleted unless the
-- transaction has entered the row's resource (both, where an update moves the row to another), and nothing
-- truncates the table. The row's token is stamped by the trigger, whatever the writer says.
--
--   namespace, prefix, columns
--       the rule: a row's resource is namespace || ':' || prefix and then the columns' values as text; several
--       are joined by "/", with "%" as "%25" and "/" as "%2F" in each. No columns: one resource for all rows.
--       The columns are NOT NULL, of type smallint, integer, bigint, text, varchar or uuid, or a domain over one.
--   token_column
--       bigint NOT NULL. Under a door, in either mode, it never falls.
--   mode
--       'enforce' refuses; 'observe' lets pass and logs what it would refuse.
--   replicated
--       whether the door stands for logical replication, and for session_replication_role = replica, as well.
--       Rows that replication applies come without a claim, so it then refuses them all.
--
-- Calling it again changes rule or mode, and repairs what is missing, such as the TRUNCATE trigger of a new partition.
-- Where all is as told, it does nothing and takes no lock. It raises ZF002 for a table or rule that does not
-- fit, and 42501 for one who does not own the table.
-- +goose StatementBegin
CREATE FUNCTION fencepost.protect(
    target regclass, namespace text, prefix text, columns name[] DEFAULT '{}',
    token_column name DEFAULT 'last_fencing_token', mode text DEFAULT 'enforce', replicated boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    wanted  fencepost.protected;
    wrong   text;
    door    name;
    part    record;
    trigger name;
BEGIN
    IF target IS NULL OR namespace IS NULL OR prefix IS NULL OR columns IS NULL OR token_column IS NULL
        OR mode IS NULL OR replicated IS NULL
    THEN
        wrong := 'an argument is NULL';
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
    wrong := fencepost.unfit(target, columns, token_column);
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('%s cannot be protected: %s', target, wrong);
    END IF;
    PERFORM fencepost.owned_by_caller(target);

    SELECT c.oid, n.nspname, c.relname, protect.namespace, protect.prefix, protect.columns, protect.token_column,
           protect.mode, protect.replicated
      INTO wanted
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = target;
    IF EXISTS (SELECT FROM fencepost.protected AS p WHERE p = wanted)
        AND NOT EXISTS (SELECT FROM fencepost.door_problems(wanted))
    THEN
        RETURN;
    END IF;

    -- Whoever is writing ends first. Where there are triggers to drop, nobody may read meanwhile either: asking for
    -- that later, with a weaker lock in hand, could deadlock.
    EXECUTE format('LOCK TABLE %I.%I IN %s MODE', wanted.schema_name, wanted.table_name, CASE WHEN EXISTS (
        SELECT FROM fencepost.door_tree(target) AS t JOIN pg_trigger AS g ON g.tgrelid = t.relid
         WHERE g.tgname IN ('~fencepost', '~fencepost_truncate'))
        THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    door := fencepost.make_door(target, namespace, prefix, columns, token_column, mode);
    PERFORM fencepost.remove_doors(target);
    EXECUTE format('CREATE TRIGGER "~fencepost" BEFORE INSERT OR UPDATE OR DELETE ON %I.%I '
        'FOR EACH ROW EXECUTE FUNCTION fencepost.%I()', wanted.schema_name, wanted.table_name, door);
    FOR part IN SELECT t.name FROM fencepost.door_tree(target) AS t LOOP
        EXECUTE format('CREATE TRIGGER "~fencepost_truncate" BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse_truncate(%L)', part.name, mode);
        FOREACH trigger IN ARRAY CASE WHEN replicated THEN '{~fencepost,~fencepost_truncate}' ELSE '{}' END::name[] LOOP
            EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %I', part.name, trigger);
        END LOOP;
    END LOOP;
    -- What has changed while the lock was awaited, and triggers that would fire after ours, show here.
    SELECT format('%s: %s', d.relation, d.problem) INTO wrong FROM fencepost.door_problems(wanted) AS d LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format('%s cannot be protected: %s', target, wrong);
    END IF;
    DELETE FROM fencepost.protected AS p WHERE p.relid = target;
    INSERT INTO fencepost.protected SELECT wanted.*;
    PERFORM fencepost.sweep_doors();
END
$body$;
-- +goose StatementEnd

-- unprotect takes the door away. From its commit on, anything that may write the table writes it.
-- +goose StatementBegin
CREATE FUNCTION fencepost.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM fencepost.owned_by_caller(target);
    EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', t.name) FROM fencepost.door_tree(target) AS t LIMIT 1);
    PERFORM fencepost.remove_doors(target);
    DELETE FROM fencepost.protected AS p WHERE p.relid = target;
    PERFORM fencepost.sweep_doors();
END
$body$;
-- +goose StatementEnd

-- verify returns one row per problem of any protected table; none means that every door stands as protect made it.
-- Besides the kinds of door_problems there are:
--   recreated  a protected table was dropped, and there is one of its name, without a door
--   stray      a table has a trigger of ours, and protect does not know of it: a detached partition, a restored dump
--   unknown    a table could not be looked at: the problem is the error, such as a lock on a partition that was not to
--              be had within a second. What one table's owner does must not keep the others from being looked at.
-- +goose StatementBegin
CREATE FUNCTION fencepost.verify() RETURNS TABLE (protected text, relation text, kind text, problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    p fencepost.protected;
BEGIN
    FOR p IN SELECT * FROM fencepost.protected AS t ORDER BY t.schema_name, t.table_name LOOP
        IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = p.relid) THEN
            protected := (SELECT format('%I.%I', n.nspname, c.relname)
                            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = p.relid);
            BEGIN
                FOR relation, kind, problem IN SELECT d.relation, d.kind, d.problem FROM fencepost.door_problems(p) AS d LOOP
                    RETURN NEXT;
                END LOOP;
            EXCEPTION WHEN OTHERS THEN
                relation := protected;
                kind := 'unknown';
                problem := format('it could not be looked at: %s (%s)', SQLERRM, SQLSTATE);
                RETURN NEXT;
            END;
            CONTINUE;
        END IF;
        PERFORM FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
          WHERE n.nspname = p.schema_name AND c.relname = p.table_name AND c.relkind IN ('r', 'p')
            AND NOT EXISTS (SELECT FROM fencepost.protected AS q WHERE q.relid = c.oid);
        IF FOUND THEN
            protected := format('%I.%I', p.schema_name, p.table_name);
            relation := protected;
            kind := 'recreated';
            problem := 'it was dropped and made anew, without its door';
            RETURN NEXT;
        END IF;
    END LOOP;
    FOR relation IN
        SELECT format('%I.%I', n.nspname, c.relname)
          FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE EXISTS (SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid
                        WHERE g.tgrelid = c.oid AND f.pronamespace = 'fencepost'::regnamespace
                          AND g.tgname IN ('~fencepost', '~fencepost_truncate'))
           AND NOT EXISTS (SELECT FROM fencepost.protected AS q WHERE q.relid = c.oid
                            OR q.relid IN (SELECT a.relid FROM pg_partition_ancestors(c.oid) AS a))
         ORDER BY 1
    LOOP
        protected := relation;
        kind := 'stray';
        problem := 'it has a trigger of fencepost, and protect does not know of it';
        RETURN NEXT;
    END LOOP;
END
$body$;
-- +goose StatementEnd

-- door_rule returns the rule by which a table is protected, or the partitioned table that it is a part of; no row where
-- none is. It is for programs that have a rule of their own for the table's rows, and have no right on protected.
-- +goose StatementBegin
CREATE FUNCTION fencepost.door_rule(schema_name text, table_name text)
RETURNS TABLE (namespace text, prefix text, columns text[], token_column text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT p.namespace, p.prefix, p.columns::text[], p.token_column::text
      FROM pg_class AS c
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
      JOIN fencepost.protected AS p ON p.relid = c.oid
           OR c.relispartition AND p.relid IN (SELECT a.relid FROM pg_partition_ancestors(c.oid) AS a)
     WHERE n.nspname::text = door_rule.schema_name AND c.relname::text = door_rule.table_name
     LIMIT 1
$body$;
-- +goose StatementEnd

REVOKE ALL ON TABLE fencepost.protected FROM PUBLIC;
REVOKE ALL ON TABLE fencepost.secret FROM PUBLIC;
REVOKE ALL ON FUNCTION
    fencepost.door_name(text),
    fencepost.door_rule(text, text),
    fencepost.sweep_doors(),
    fencepost.noted(integer),
    fencepost.note(text),
    fencepost.bypass(text),
    fencepost.at_gate(text),
    fencepost.refuse(text, bigint, oid, text, text, text, bigint),
    fencepost.admit(text, bigint, oid, text, text),
    fencepost.refuse_truncate(),
    fencepost.row_resource(text, text, name[], text),
    fencepost.door_source(text, text, name[], name, text),
    fencepost.make_door(regclass, text, text, name[], name, text),
    fencepost.door_tree(regclass),
    fencepost.unfit(regclass, name[], name),
    fencepost.door_problems(fencepost.protected),
    fencepost.owned_by_caller(regclass),
    fencepost.remove_doors(regclass),
    fencepost.protect(regclass, text, text, name[], name, text, boolean),
    fencepost.unprotect(regclass),
    fencepost.verify()
FROM PUBLIC;

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(4, false);

-- Without its door a table is open to every overtaken worker.
-- +goose StatementBegin
DO $body$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger AS g JOIN pg_proc AS f ON f.oid = g.tgfoid
                WHERE f.pronamespace = 'fencepost'::regnamespace)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF003',
            MESSAGE = 'tables are protected by fencepost still',
            HINT = 'Take their doors away with fencepost.unprotect first.';
    END IF;
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $body$
DECLARE
    door text;
BEGIN
    FOR door IN SELECT f.oid::regprocedure::text FROM pg_proc AS f
                 WHERE f.pronamespace = 'fencepost'::regnamespace AND f.proname ~ '^door_[0-9a-f]{32}$'
    LOOP
        EXECUTE 'DROP FUNCTION ' || door;
    END LOOP;
END
$body$;
-- +goose StatementEnd

DROP FUNCTION fencepost.door_rule(text, text);
DROP FUNCTION fencepost.verify();
DROP FUNCTION fencepost.unprotect(regclass);
DROP FUNCTION fencepost.protect(regclass, text, text, name[], name, text, boolean);
DROP FUNCTION fencepost.remove_doors(regclass);
DROP FUNCTION fencepost.owned_by_caller(regclass);
DROP FUNCTION fencepost.door_problems(fencepost.protected);
DROP FUNCTION fencepost.unfit(regclass, name[], name);
DROP FUNCTION fencepost.door_tree(regclass);
DROP FUNCTION fencepost.sweep_doors();
DROP FUNCTION fencepost.make_door(regclass, text, text, name[], name, text);
DROP FUNCTION fencepost.door_name(text);
DROP FUNCTION fencepost.door_source(text, text, name[], name, text);
DROP FUNCTION fencepost.row_resource(text, text, name[], text);
DROP FUNCTION fencepost.refuse_truncate();
DROP FUNCTION fencepost.admit(text, bigint, oid, text, text);
DROP FUNCTION fencepost.refuse(text, bigint, oid, text, text, text, bigint);
DROP FUNCTION fencepost.at_gate(text);
DROP FUNCTION fencepost.bypass(text);
DROP FUNCTION fencepost.note(text);
DROP FUNCTION fencepost.noted(integer);
DROP TABLE fencepost.secret;
DROP TABLE fencepost.protected;
