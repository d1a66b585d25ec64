-- The columns of one table; no rows where there is no such table. The caller adds WHERE and ORDER BY.
-- $1 schema, $2 table
--   name          as it stands
--   type          as PostgreSQL prints it
--   base          OID of its type, domains looked through
--   length        n of varchar(n), 0 where there is no bound
--   loose         whether its collation takes unequal texts for equal
--   not_null      whether NULL is refused
--   generated     whether PostgreSQL computes it
--   always        whether it is an identity column that takes no given value
--   identity      whether it is an identity column
--   readable      whether this user may SELECT it
--   writable      whether this user may UPDATE it
--   base_name     name of the type, domains looked through, quoted and with its schema, without a modifier
--   rounded       base type with its modifier, of a type that rounds values to its modifier; empty otherwise
--   collation     name of its collation, quoted and with its schema; empty where there is none
WITH RECURSIVE attribute AS (
    SELECT a.*
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
     WHERE n.nspname::text = $1::text AND c.relname::text = $2::text
       AND a.attnum > 0 AND NOT a.attisdropped
), base (attnum, type, modifier) AS (
    SELECT attnum, atttypid, atttypmod FROM attribute
     UNION ALL
    SELECT b.attnum, t.typbasetype, CASE WHEN b.modifier = -1 THEN t.typtypmod ELSE b.modifier END
      FROM base AS b
      JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype = 'd'
)
SELECT a.attname::text,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       b.type,
       CASE WHEN b.type = 'pg_catalog.varchar'::pg_catalog.regtype AND b.modifier > 4 THEN b.modifier - 4 ELSE 0 END,
       NOT coalesce(o.collisdeterministic, true),
       a.attnotnull,
       a.attgenerated <> '',
       a.attidentity = 'a',
       a.attidentity <> '',
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
       pg_catalog.quote_ident(tn.nspname) || '.' || pg_catalog.quote_ident(t.typname),
       CASE WHEN b.modifier <> -1 AND b.type = ANY (ARRAY['pg_catalog.numeric', 'pg_catalog.time', 'pg_catalog.timetz',
               'pg_catalog.timestamp', 'pg_catalog.timestamptz', 'pg_catalog.interval']::pg_catalog.regtype[])
           THEN pg_catalog.format_type(b.type, b.modifier) ELSE '' END,
       coalesce(pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(o.collname), '')
  FROM attribute AS a
  JOIN base AS b ON b.attnum = a.attnum
  JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype <> 'd'
  JOIN pg_catalog.pg_namespace AS tn ON tn.oid = t.typnamespace
  LEFT JOIN pg_catalog.pg_collation AS o ON o.oid = a.attcollation
  LEFT JOIN pg_catalog.pg_namespace AS cn ON cn.oid = o.collnamespace
