-- Who may do what. The names of roles belong to the deployment, so this migration only creates the functions that
-- grant. The owner of the schema fencepost calls them, once per role:
--
--   the schema's owner  runs the migrations; owns fencepost, its tables and functions; no program logs in as it
--   table owner         SELECT fencepost.grant_owner('role'): protect, unprotect and verify, for its own tables
--   application         SELECT fencepost.grant_application('role'): claim, enter, what goes with a transaction, and the
--                       rules of protected tables; of fencepost's tables it reads only the version table
--   operator            SELECT fencepost.grant_operator('role'): reads the views fences and keys, the rules of
--                       protected tables and the version table, and calls verify; writes nothing, sees no nonce
--   collector           SELECT fencepost.grant_collector('role'): lists and collects old fences, and nothing else
--   who may bypass      GRANT EXECUTE ON FUNCTION fencepost.bypass(text, text[]), for tables that are named, or
--                       fencepost.bypass(text), for all tables, and USAGE on the schema, to people by name

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(5, true);

-- rights lists the functions that roles other than the schema's owner may call: for whom they are, and whether they run
-- with the owner's rights (definer). All other functions are the owner's own. The grants, verify and repair all follow
-- this list.
-- +goose StatementBegin
CREATE FUNCTION fencepost.rights() RETURNS TABLE (who text, definer boolean, function text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $body$
    VALUES
        ('application', true, 'fencepost.claim(text, bigint, uuid, text)'),
        ('application', true, 'fencepost.claim_now(text, bigint, uuid, text)'),
        ('application', true, 'fencepost.draw(text, uuid, text)'),
        ('application', true, 'fencepost.claim_all(text[], bigint[], uuid[], text)'),
        ('application', true, 'fencepost.guard(text, bigint, uuid)'),
        ('application', true, 'fencepost.enter(text, bigint, uuid)'),
        ('application', true, 'fencepost.enter_all(text[], bigint[], uuid[])'),
        ('application', true, 'fencepost.begin_incarnation()'),
        ('application', true, 'fencepost.mark()'),
        ('application', true, 'fencepost.enter_marked(text, bigint, uuid, integer)'),
        ('application', true, 'fencepost.claim_marked(text, bigint, uuid, text, integer)'),
        ('application', true, 'fencepost.draw_marked(text, uuid, text, bigint, integer)'),
        ('application', true, 'fencepost.settle(text, uuid)'),
        ('application', true, 'fencepost.once_look(text, text, text, bytea)'),
        ('application', true, 'fencepost.once_begin(text, text, text, bytea)'),
        ('application', true, 'fencepost.once_end(text, text, text)'),
        ('application', true, 'fencepost.once_purge(text, interval, integer)'),
        ('application', true, 'fencepost.protection_rule(text, text)'),
        ('owner', false, 'fencepost.protect(regclass, text, text, name[], name, text, boolean)'),
        ('owner', false, 'fencepost.unprotect(regclass)'),
        ('owner', true, 'fencepost.verify()'),
        ('owner', true, 'fencepost.refuse_truncate()'),
        ('owner', true, 'fencepost.make_protection(regclass, text, text, name[], name, text)'),
        ('owner', true, 'fencepost.drop_unused_protections()'),
        ('owner', false, 'fencepost.row_resource(text, text, name[], text)'),
        ('owner', false, 'fencepost.protection_source(text, text, name[], name, text)'),
        ('owner', false, 'fencepost.protection_name(text)'),
        ('owner', false, 'fencepost.protected_tree(regclass)'),
        ('owner', false, 'fencepost.table_by_name(text, text)'),
        ('owner', false, 'fencepost.is_protected(oid)'),
        ('owner', false, 'fencepost.table_of(fencepost.protected)'),
        ('owner', false, 'fencepost.forget_protection(regclass)'),
        ('owner', false, 'fencepost.record_protection(fencepost.protected)'),
        ('owner', false, 'fencepost.column_problem(regclass, name)'),
        ('owner', false, 'fencepost.table_problem(regclass, name[], name)'),
        ('owner', false, 'fencepost.trigger_problems(oid, fencepost.protected)'),
        ('owner', false, 'fencepost.protection_problems(fencepost.protected)'),
        ('owner', false, 'fencepost.require_owner(regclass)'),
        ('owner', false, 'fencepost.remove_protection(regclass)'),
        ('operator', true, 'fencepost.verify()'),
        ('operator', true, 'fencepost.collectable(text, text, interval, integer)'),
        ('collector', true, 'fencepost.collectable(text, text, interval, integer)'),
        ('collector', true, 'fencepost.collect(integer, text[], interval)'),
        ('bypass', true, 'fencepost.bypass(text)'),
        ('bypass', true, 'fencepost.bypass(text, text[])')
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_application(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', string_agg(r.function, ', '), role)
               FROM fencepost.rights() AS r WHERE r.who = 'application');
    -- So that a program may call migrations.Up at its start: if nothing is pending, Up reads this table and no more.
    EXECUTE format('GRANT SELECT ON TABLE fencepost.goose_version TO %s', role);
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_owner(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    -- The trigger check_rule_owner keeps each to the tables that are its own.
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON TABLE fencepost.protected TO %s', role);
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', string_agg(r.function, ', '), role)
               FROM fencepost.rights() AS r WHERE r.who = 'owner');
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_operator(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    EXECUTE format('GRANT SELECT ON TABLE fencepost.fences, fencepost.keys, fencepost.protected, '
        'fencepost.goose_version TO %s', role);
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', string_agg(r.function, ', '), role)
               FROM fencepost.rights() AS r WHERE r.who = 'operator');
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_collector(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    EXECUTE (SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', string_agg(r.function, ', '), role)
               FROM fencepost.rights() AS r WHERE r.who = 'collector');
END
$body$;
-- +goose StatementEnd

-- revoke_all revokes everything that a role was granted in the schema, by these functions or by hand. Protections that
-- the role has created stay.
-- +goose StatementBegin
CREATE FUNCTION fencepost.revoke_all(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fencepost FROM %s', role);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA fencepost FROM %s', role);
    EXECUTE format('REVOKE ALL ON SCHEMA fencepost FROM %s', role);
END
$body$;
-- +goose StatementEnd

-- grants lists who may do what with everything in the schema. grantee is 0 for PUBLIC, and NULL if nobody may do
-- anything. fence_owner is the owner of the fence, and should own everything. Here and below names are compared as
-- texts, so that the way in which a session quotes them does not matter.
-- +goose StatementBegin
CREATE FUNCTION fencepost.grants() RETURNS TABLE (type text, name text, owner oid, fence_owner oid, grantee oid,
    privilege text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
    SELECT t.type, t.name, t.owner, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'fencepost.fence'::regclass),
        a.grantee, a.privilege_type
      FROM (SELECT 'SCHEMA', 'fencepost', n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
              FROM pg_namespace AS n WHERE n.nspname = 'fencepost'
             UNION ALL
            SELECT 'TABLE', c.oid::regclass::text, c.relowner, coalesce(c.relacl, acldefault('r', c.relowner))
              FROM pg_class AS c WHERE c.relnamespace = 'fencepost'::regnamespace AND c.relkind IN ('r', 'v')
             UNION ALL
            SELECT 'FUNCTION', f.oid::regprocedure::text, f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
              FROM pg_proc AS f WHERE f.pronamespace = 'fencepost'::regnamespace
           ) AS t (type, name, owner, acl)
      LEFT JOIN LATERAL aclexplode(t.acl) AS a ON true
$body$;
-- +goose StatementEnd

-- rights_too_wide returns rights that nobody should have, or that not everybody should have. These may be granted by
-- name: USAGE of the schema, the functions in rights and those of protections, and SELECT on what no protection rests
-- on.
-- +goose StatementBegin
CREATE FUNCTION fencepost.rights_too_wide() RETURNS TABLE (relation text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
    SELECT g.name, format('%s may %s', coalesce(r.oid::regrole::text, 'PUBLIC'), string_agg(g.privilege, ', ')),
           CASE WHEN pg_has_role(current_user, g.owner, 'USAGE') THEN format('REVOKE %s ON %s %s FROM %s CASCADE',
                string_agg(g.privilege, ', '), g.type, g.name, coalesce(r.oid::regrole::text, 'PUBLIC')) END
      FROM fencepost.grants() AS g LEFT JOIN pg_roles AS r ON r.oid = g.grantee
     WHERE g.grantee <> g.owner AND g.grantee <> g.fence_owner AND NOT CASE g.type
           WHEN 'SCHEMA' THEN g.privilege = 'USAGE' AND g.grantee <> 0
           WHEN 'FUNCTION' THEN g.grantee <> 0 AND (g.name ~ '^fencepost[.]protection_[0-9a-f]{32}[(][)]$'
                OR g.name IN (SELECT to_regprocedure(f.function)::text FROM fencepost.rights() AS f))
           ELSE g.name = 'fencepost.goose_version' AND g.privilege = 'SELECT'
                OR g.grantee <> 0 AND (g.name = 'fencepost.protected' AND g.privilege IN ('SELECT', 'INSERT', 'DELETE')
                    OR g.name IN ('fencepost.ledger', 'fencepost.incarnation', 'fencepost.fences', 'fencepost.keys')
                       AND g.privilege = 'SELECT') END
     GROUP BY g.type, g.name, g.owner, r.oid
     UNION ALL
    SELECT a.attrelid::regclass::text, format('%s may %s column %I', coalesce(x.grantee::regrole::text, 'PUBLIC'),
        x.privilege_type, a.attname),
           CASE WHEN pg_has_role(current_user, c.relowner, 'USAGE')
               THEN format('REVOKE %s (%I) ON TABLE %s FROM %s CASCADE',
                x.privilege_type, a.attname, c.oid::regclass, coalesce(x.grantee::regrole::text, 'PUBLIC')) END
      FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
     CROSS JOIN LATERAL (SELECT nullif(e.grantee, 0) AS grantee, e.privilege_type FROM aclexplode(a.attacl) AS e) AS x
     WHERE c.relnamespace = 'fencepost'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0
       AND (x.privilege_type <> 'SELECT' OR a.attname IN ('nonce', 'secret'))
$body$;
-- +goose StatementEnd

-- rights_missing returns what the schema's owner, applications, owners of tables, operators and collectors lack. A role
-- that may enter counts as an application, a role that may protect counts as an owner of tables, a role that may read
-- the view fences counts as an operator, and a role that may collect counts as a collector.
-- +goose StatementBegin
CREATE FUNCTION fencepost.rights_missing() RETURNS TABLE (relation text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off
AS $body$
    WITH things AS (
        SELECT DISTINCT g.type, g.name, g.owner, g.fence_owner FROM fencepost.grants() AS g
    ), needs (role, type, name, privilege) AS (
        SELECT t.fence_owner, t.type, t.name, p.privilege FROM things AS t CROSS JOIN LATERAL unnest(CASE t.type
            WHEN 'SCHEMA' THEN '{USAGE}' WHEN 'FUNCTION' THEN '{EXECUTE}'
                ELSE '{SELECT,INSERT,UPDATE,DELETE}' END::text[]) AS p (privilege)
         UNION ALL
        SELECT g.grantee, n.type, n.name, n.privilege
          FROM (VALUES ('application', to_regprocedure('fencepost.enter(text, bigint, uuid)')::text, 'EXECUTE'),
                       ('owner', to_regprocedure(
                           'fencepost.protect(regclass, text, text, name[], name, text, boolean)')::text, 'EXECUTE'),
                       ('collector', to_regprocedure('fencepost.collect(integer, text[], interval)')::text, 'EXECUTE'),
                       ('operator', 'fencepost.fences', 'SELECT')) AS known (who, name, privilege)
          JOIN fencepost.grants() AS g ON g.name = known.name AND g.privilege = known.privilege
              AND g.grantee NOT IN (0, g.owner, g.fence_owner)
         CROSS JOIN LATERAL (
            SELECT 'SCHEMA', 'fencepost', 'USAGE'
             UNION ALL
            SELECT 'FUNCTION', to_regprocedure(r.function)::text, 'EXECUTE' FROM fencepost.rights() AS r
                WHERE r.who = known.who
             UNION ALL
            SELECT 'TABLE', 'fencepost.protected', p FROM unnest('{SELECT,INSERT,DELETE}'::text[]) AS p
                WHERE known.who = 'owner'
             UNION ALL
            SELECT 'TABLE', 'fencepost.goose_version', 'SELECT' WHERE known.who IN ('application', 'operator')
             UNION ALL
            SELECT 'TABLE', v, 'SELECT' FROM unnest('{fencepost.fences,fencepost.keys,fencepost.protected}'::text[])
                AS v WHERE known.who = 'operator'
           ) AS n (type, name, privilege)
    )
    SELECT n.name, format('%s may not %s', n.role::regrole, string_agg(n.privilege, ', ')),
           CASE WHEN pg_has_role(current_user, t.owner, 'USAGE') THEN format('GRANT %s ON %s %s TO %s',
                string_agg(n.privilege, ', '), n.type, n.name, n.role::regrole) END
      FROM needs AS n JOIN things AS t ON t.type = n.type AND t.name = n.name
     WHERE NOT CASE n.type
           WHEN 'SCHEMA' THEN has_schema_privilege(n.role, n.name, n.privilege)
           WHEN 'FUNCTION' THEN has_function_privilege(n.role, n.name, n.privilege)
           ELSE has_table_privilege(n.role, n.name, n.privilege) END
     GROUP BY n.role, n.type, n.name, t.owner
     UNION ALL
    SELECT DISTINCT r.function, 'it is missing', NULL FROM fencepost.rights() AS r
     WHERE to_regprocedure(r.function) IS NULL
$body$;
-- +goose StatementEnd

-- rights_lost returns what does not have the owner that the fence has, and functions that do not run as they should:
-- with the owner's rights, if rights says so, and under a search_path of their own. Only functions that name schemas
-- throughout need no search_path. A function stays with its role if that role could not act as the fence's owner
-- before: otherwise whatever the role wrote in it would run with the owner's rights.
-- +goose StatementBegin
CREATE FUNCTION fencepost.rights_lost() RETURNS TABLE (relation text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT t.name, format('it is %s''s, and the fence %s''s', t.owner::regrole, t.fence_owner::regrole),
           CASE WHEN pg_has_role(current_user, t.owner, 'USAGE') AND pg_has_role(current_user, t.fence_owner, 'USAGE')
                     AND (t.type <> 'FUNCTION' OR pg_has_role(t.owner, t.fence_owner, 'USAGE'))
                THEN format('ALTER %s %s OWNER TO %s', t.type, t.name, t.fence_owner::regrole) END
      FROM (SELECT DISTINCT g.type, g.name, g.owner, g.fence_owner FROM fencepost.grants() AS g) AS t
     WHERE t.owner <> t.fence_owner AND t.type <> 'SCHEMA'
     UNION ALL
    SELECT f.oid::regprocedure::text, c.problem,
           CASE WHEN pg_has_role(current_user, f.proowner, 'USAGE')
               THEN format('ALTER FUNCTION %s %s', f.oid::regprocedure, c.change) END
      FROM pg_proc AS f
     CROSS JOIN LATERAL (
        SELECT 'it does not run with its owner''s rights', 'SECURITY DEFINER'
         WHERE NOT f.prosecdef AND f.oid IN (SELECT to_regprocedure(r.function) FROM fencepost.rights() AS r
             WHERE r.definer)
         UNION ALL
        SELECT 'it runs under the caller''s search_path', 'SET search_path = pg_catalog, pg_temp'
         WHERE f.proname NOT IN ('begin_migration', 'guard', 'enter', 'entered_text', 'entered_setting', 'enter_marked',
               'claim_now', 'claim_marked', 'draw_marked', 'check_write', 'bucket')
           AND f.proname !~ '^protection_[0-9a-f]{32}$' -- protection_problems looks at these
           -- The second was made under quote_all_identifiers = on.
           AND NOT coalesce(f.proconfig, '{}') && ARRAY['search_path=pg_catalog, pg_temp',
               'search_path="pg_catalog", "pg_temp"']
       ) AS c (problem, change)
     WHERE f.pronamespace = 'fencepost'::regnamespace
$body$;
-- +goose StatementEnd

-- wrong_rights returns each right in the schema that is too wide, missing or lost, with the statement that repairs it.
-- The statement is NULL if the current user may not run it. Every protection rests on these rights, and a dump without
-- privileges, default privileges or a person can change them all.
-- +goose StatementBegin
CREATE FUNCTION fencepost.wrong_rights() RETURNS TABLE (relation text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT l.relation, l.problem, l.remedy FROM fencepost.rights_lost() AS l
     UNION ALL
    SELECT w.relation, w.problem, w.remedy FROM fencepost.rights_too_wide() AS w
     UNION ALL
    SELECT m.relation, m.problem, m.remedy FROM fencepost.rights_missing() AS m
$body$;
-- +goose StatementEnd

-- schema_problems returns what repair repairs, as one line of text per problem, and no row if nothing is wrong. It only
-- reads. migrate up and migrate status call it each time, also if no migration is pending. It finds what a dump of the
-- schema alone leaves out, what a restore brings that belongs to another database, and rights that a dump without
-- privileges drops.
-- +goose StatementBegin
CREATE FUNCTION fencepost.schema_problems() RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN QUERY SELECT format('%s: %s', w.relation, w.problem) FROM fencepost.wrong_rights() AS w
        WHERE w.remedy IS NOT NULL ORDER BY 1;
    IF NOT has_table_privilege('fencepost.secret', 'SELECT') OR NOT has_table_privilege('fencepost.protected',
        'SELECT') THEN
        RETURN; -- among the rights that are missing
    END IF;
    IF NOT EXISTS (SELECT FROM fencepost.secret AS s WHERE s.xmin = s.born) THEN
        RETURN NEXT 'the secret of this database is missing, or came with a dump';
    END IF;
    RETURN QUERY SELECT format('the rule of the protected table %s is not recorded', u.relid)
        FROM fencepost.unrecorded_protections() AS u;
    IF has_table_privilege('fencepost.floor', 'SELECT') AND (SELECT count(*) FROM fencepost.floor) < 1024 THEN
        RETURN NEXT 'the table floor is incomplete: no fence can be created where a bucket is missing';
    END IF;
END
$body$;
-- +goose StatementEnd

-- repair repairs what schema_problems returns. The schema's owner calls it, through migrate up, under the migration
-- lock.
-- +goose StatementBegin
CREATE FUNCTION fencepost.repair() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    remedy text;
BEGIN
    FOR remedy IN SELECT w.remedy FROM fencepost.wrong_rights() AS w WHERE w.remedy IS NOT NULL LOOP
        EXECUTE remedy;
    END LOOP;
    -- No exception handler around this: the row's xmin must be the transaction's own.
    DELETE FROM fencepost.secret AS s WHERE s.xmin <> s.born;
    INSERT INTO fencepost.secret DEFAULT VALUES ON CONFLICT DO NOTHING;
    INSERT INTO fencepost.protected SELECT u.* FROM fencepost.unrecorded_protections() AS u;
    -- What a lost bucket's fences carried is not known. No fence or floor that is left is above this token, except fences
    -- above 2^62, which are not collected. Rows of tables may be.
    INSERT INTO fencepost.floor (bucket, token)
    SELECT b, (SELECT coalesce(max(t.token), 0)
                 FROM (SELECT f.token FROM fencepost.fence AS f UNION ALL SELECT o.token FROM fencepost.floor AS o) AS t
                WHERE t.token <= 4611686018427387904)
      FROM generate_series(0, 1023) AS b
        ON CONFLICT DO NOTHING;
END
$body$;
-- +goose StatementEnd

-- No role has been granted anything here so far. What others have, PUBLIC or by name, comes from default privileges.
-- +goose StatementBegin
DO $body$
DECLARE
    remedy text;
BEGIN
    FOR remedy IN
        SELECT pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', g.type, g.name,
            coalesce(r.oid::regrole::text, 'PUBLIC'))
          FROM fencepost.grants() AS g LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) g.grantee
         WHERE g.grantee OPERATOR(pg_catalog.<>) g.owner AND g.type OPERATOR(pg_catalog.<>) 'SCHEMA'
           AND g.name OPERATOR(pg_catalog.<>) 'fencepost.goose_version'
         GROUP BY g.type, g.name, r.oid
    LOOP
        EXECUTE remedy;
    END LOOP;
END
$body$;
-- +goose StatementEnd

COMMENT ON FUNCTION fencepost.rights() IS 'the functions that are for others than the schema''s owner, and for whom';
COMMENT ON FUNCTION fencepost.grant_application(regrole) IS
    'grants a role what a program needs that writes under claims';
COMMENT ON FUNCTION fencepost.grant_owner(regrole) IS 'grants a role what it needs to protect its own tables';
COMMENT ON FUNCTION fencepost.grant_operator(regrole) IS
    'grants a role what it needs to look at fences, keys, migrations and problems';
COMMENT ON FUNCTION fencepost.grant_collector(regrole) IS 'grants a role what it needs to collect old fences';
COMMENT ON FUNCTION fencepost.revoke_all(regrole) IS 'takes back all that a role was granted in this schema';
COMMENT ON FUNCTION fencepost.grants() IS 'who may do what with all that this schema has';
COMMENT ON FUNCTION fencepost.rights_too_wide() IS 'rights in this schema that nobody should have, or not everybody';
COMMENT ON FUNCTION fencepost.rights_missing() IS
    'rights that the schema''s owner, applications and owners of tables lack';
COMMENT ON FUNCTION fencepost.rights_lost() IS 'what has another owner than the fence, or does not run as it should';
COMMENT ON FUNCTION fencepost.wrong_rights() IS
    'each right that is too wide, missing or lost, with the statement that puts it right';
COMMENT ON FUNCTION fencepost.schema_problems() IS 'what repair would put right, one line each; no row if all is well';
COMMENT ON FUNCTION fencepost.repair() IS 'puts right what schema_problems returns';

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(5, false);

DROP FUNCTION fencepost.repair();
DROP FUNCTION fencepost.schema_problems();
DROP FUNCTION fencepost.wrong_rights();
DROP FUNCTION fencepost.rights_lost();
DROP FUNCTION fencepost.rights_missing();
DROP FUNCTION fencepost.rights_too_wide();
DROP FUNCTION fencepost.grants();
DROP FUNCTION fencepost.revoke_all(regrole);
DROP FUNCTION fencepost.grant_collector(regrole);
DROP FUNCTION fencepost.grant_operator(regrole);
DROP FUNCTION fencepost.grant_owner(regrole);
DROP FUNCTION fencepost.grant_application(regrole);
DROP FUNCTION fencepost.rights();
