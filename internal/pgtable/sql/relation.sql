-- What a name stands for; no row where it stands for nothing. The caller adds to its WHERE.
-- $1 schema, $2 table
--   kind       pg_class.relkind
--   temporary  whether each session has its own
--   inherited  whether ordinary tables inherit from it
--   usable     whether this user may use the schema
SELECT c.relkind::text,
       c.relpersistence = 't',
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = c.oid),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname::text = $1::text AND c.relname::text = $2::text
