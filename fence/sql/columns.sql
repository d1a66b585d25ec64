-- The columns of one table: name, type as PostgreSQL prints it, whether it is bigint, and whether
-- NULL is refused. No rows where there is no such table.
-- $1 schema, $2 table
SELECT a.attname::text,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       a.atttypid = 'pg_catalog.int8'::pg_catalog.regtype,
       a.attnotnull
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
 WHERE n.nspname::text = $1::text AND c.relname::text = $2::text
   AND c.relkind IN ('r', 'p')
   AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
