-- node-postgres with pg-types, Knex, TypeORM and Prisma: how they look for tables, columns, keys and types.

SELECT typname, oid, typarray FROM pg_type WHERE typname IN ('json', 'hstore') ORDER BY oid;
--@ json|114|199

SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'orders';
--@ orders

SELECT * FROM "information_schema"."columns" WHERE "table_schema" = 'public' AND "table_name" = 'orders';

SELECT * FROM current_schema();

SELECT version();

SELECT "table_schema", "table_name", current_database() FROM "information_schema"."tables"
WHERE "table_schema" = 'public' AND "table_type" = 'BASE TABLE' ORDER BY 2;
--@ public|orders|highwater

SELECT columns.*, pg_catalog.col_description(('"' || table_catalog || '"."' || table_schema || '"."' || table_name || '"')::regclass::oid, ordinal_position) AS description,
  ('"' || "udt_schema" || '"."' || "udt_name" || '"')::"regtype" AS "regtype",
  pg_catalog.format_type("col_attr"."atttypid", "col_attr"."atttypmod") AS "format_type"
FROM "information_schema"."columns"
LEFT JOIN "pg_catalog"."pg_attribute" AS "col_attr"
  ON "col_attr"."attname" = "columns"."column_name"
  AND "col_attr"."attrelid" = (
    SELECT "cls"."oid" FROM "pg_catalog"."pg_class" AS "cls"
    LEFT JOIN "pg_catalog"."pg_namespace" AS "ns" ON "ns"."oid" = "cls"."relnamespace"
    WHERE "cls"."relname" = "columns"."table_name" AND "ns"."nspname" = "columns"."table_schema")
WHERE "table_schema" = 'public' AND "table_name" = 'orders';

SELECT "ns"."nspname" AS "table_schema", "t"."relname" AS "table_name", "cnst"."conname" AS "constraint_name",
  pg_get_constraintdef("cnst"."oid") AS "expression",
  CASE "cnst"."contype" WHEN 'p' THEN 'PRIMARY' WHEN 'u' THEN 'UNIQUE' WHEN 'c' THEN 'CHECK' WHEN 'x' THEN 'EXCLUDE' END AS "constraint_type",
  "a"."attname" AS "column_name"
FROM "pg_constraint" "cnst"
INNER JOIN "pg_class" "t" ON "t"."oid" = "cnst"."conrelid"
INNER JOIN "pg_namespace" "ns" ON "ns"."oid" = "cnst"."connamespace"
LEFT JOIN "pg_attribute" "a" ON "a"."attrelid" = "cnst"."conrelid" AND "a"."attnum" = ANY ("cnst"."conkey")
WHERE "t"."relkind" IN ('r', 'p') AND (("ns"."nspname" = 'public' AND "t"."relname" = 'orders'));
--@ public|orders|orders_pkey|PRIMARY KEY (id)|PRIMARY|id

SELECT n.nspname AS schema, t.typname AS name, string_agg(e.enumlabel, '|' ORDER BY e.enumsortorder) AS value
FROM pg_type t
JOIN pg_enum e ON t.oid = e.enumtypid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = ANY (ARRAY['public'])
GROUP BY schema, name;
--@ none

SELECT tbl.relname AS table_name, namespace.nspname AS namespace,
  (tbl.relhassubclass AND tbl.relkind = 'p') AS is_partition,
  (tbl.relhassubclass AND tbl.relkind = 'r') AS has_subclass,
  tbl.relrowsecurity AS has_row_level_security, reloptions,
  obj_description(tbl.oid, 'pg_class') AS description
FROM pg_class AS tbl
INNER JOIN pg_namespace AS namespace ON namespace.oid = tbl.relnamespace
WHERE ((tbl.relkind = 'r' AND tbl.relispartition = 'f') OR (tbl.relkind = 'p')) AND namespace.nspname = ANY (ARRAY['public'])
ORDER BY namespace, table_name;
--@ orders|public|f|f|f|NULL|NULL

SELECT oid.namespace, info.table_name, info.column_name,
  format_type(att.atttypid, att.atttypmod) AS formatted_type, info.numeric_precision, info.numeric_scale,
  info.data_type, info.udt_schema AS type_schema_name, info.udt_name AS full_data_type,
  pg_get_expr(attdef.adbin, attdef.adrelid) AS column_default, info.is_nullable, info.is_identity
FROM information_schema.columns info
JOIN pg_attribute att ON att.attname = info.column_name
JOIN (
  SELECT pg_class.oid, relname, pg_namespace.nspname AS namespace
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace AND pg_namespace.nspname = ANY (ARRAY['public'])
) AS oid ON oid.oid = att.attrelid AND relname = info.table_name AND namespace = info.table_schema
LEFT OUTER JOIN pg_attrdef attdef ON attdef.adrelid = att.attrelid AND attdef.adnum = att.attnum AND table_schema = namespace
WHERE table_schema = ANY (ARRAY['public']) AND info.table_name = 'orders'
ORDER BY namespace, table_name, ordinal_position;
--@ public|orders|id|bigint|64|0|bigint|pg_catalog|int8|NULL|NO|NO
--@ public|orders|total|numeric(12,2)|12|2|numeric|pg_catalog|numeric|NULL|YES|NO
--@ public|orders|tags|character varying[]|NULL|NULL|ARRAY|pg_catalog|_varchar|NULL|YES|NO
