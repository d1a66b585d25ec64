-- Whether exactly the given columns are unique over the whole table and at once: a primary key or a
-- unique index, not partial, not over expressions, not deferrable. The caller adds a WHERE.
-- $1 schema, $2 table, $3 columns
SELECT EXISTS (
    SELECT
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid
     CROSS JOIN LATERAL (
           SELECT pg_catalog.array_agg(a.attname::text) AS names
             FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, place)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            WHERE k.place <= i.indnkeyatts) AS columns
     WHERE n.nspname::text = $1::text AND c.relname::text = $2::text
       AND i.indisunique AND i.indimmediate AND i.indisvalid
       AND i.indpred IS NULL AND i.indexprs IS NULL
       AND columns.names @> $3::text[] AND columns.names <@ $3::text[])
