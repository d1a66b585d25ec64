-- Who may do what. Names of roles belong to the deployment, so this only makes the functions that grant; the
-- owner of the schema fencepost calls them, once per role:
--
--   the schema's owner  runs the migrations; owns fencepost, its tables and functions; no program logs in as it
--   table owner         SELECT fencepost.grant_owner('role'): protect, unprotect and verify, for its own tables
--   application         SELECT fencepost.grant_application('role'): claim, enter, what goes with a transaction, and the
--                       rules of protected tables; no right on any table of fencepost
--   operator            GRANT EXECUTE ON FUNCTION fencepost.bypass(text), and USAGE on the schema, to people by name

-- +goose Up
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(5, true);

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_application(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION
        fencepost.claim(text, bigint, uuid, text),
        fencepost.guard(text, bigint, uuid),
        fencepost.enter(text, bigint, uuid),
        fencepost.begin_life(),
        fencepost.mark(),
        fencepost.unbroken(text),
        fencepost.settle(text, uuid),
        fencepost.once_look(text, text, text, bytea),
        fencepost.once_begin(text, text, text, bytea),
        fencepost.once_end(text, text, text),
        fencepost.once_purge(text, interval, integer),
        fencepost.door_rule(text, text)
        TO %s', role);
END
$body$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencepost.grant_owner(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA fencepost TO %s', role);
    -- A policy keeps each to the tables that are its own.
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON TABLE fencepost.protected TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION
        fencepost.protect(regclass, text, text, name[], name, text, boolean),
        fencepost.unprotect(regclass),
        fencepost.verify(),
        fencepost.refuse_truncate(),
        fencepost.row_resource(text, text, name[], text),
        fencepost.door_source(text, text, name[], name, text),
        fencepost.door_name(text),
        fencepost.make_door(regclass, text, text, name[], name, text),
        fencepost.sweep_doors(),
        fencepost.door_tree(regclass),
        fencepost.unfit(regclass, name[], name),
        fencepost.door_problems(fencepost.protected),
        fencepost.owned_by_caller(regclass),
        fencepost.remove_doors(regclass)
        TO %s', role);
END
$body$;
-- +goose StatementEnd

-- revoke_all takes back what a role was granted in the schema, by these functions or by hand. Doors that it has
-- put in place stand.
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

REVOKE ALL ON FUNCTION fencepost.grant_application(regrole) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.grant_owner(regrole) FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.revoke_all(regrole) FROM PUBLIC;

-- +goose Down
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT fencepost.begin_migration(5, false);

DROP FUNCTION fencepost.revoke_all(regrole);
DROP FUNCTION fencepost.grant_owner(regrole);
DROP FUNCTION fencepost.grant_application(regrole);
