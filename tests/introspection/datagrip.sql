-- DataGrip and the other IDEs of JetBrains: the start, and the introspection of a database and its schema, level by level.

SELECT version();

SELECT current_database() AS a, current_schemas(false) AS b;
--@ highwater|{public}

SELECT round(extract(epoch FROM pg_postmaster_start_time() AT TIME ZONE 'UTC')) AS startup_time;

SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE (pg_catalog.txid_current() % 4294967296)::varchar::bigint END AS current_txid;

SELECT N.oid::bigint AS id, datname AS name, D.description, datistemplate AS is_template, datallowconn AS allow_connections,
  pg_catalog.pg_get_userbyid(N.datdba) AS "owner"
FROM pg_catalog.pg_database N
LEFT JOIN pg_catalog.pg_shdescription D ON N.oid = D.objoid
ORDER BY CASE WHEN datname = pg_catalog.current_database() THEN -1::bigint ELSE N.oid::bigint END;
--@ 5|highwater|NULL|f|t|highwater

SELECT N.oid::bigint AS id, N.xmin AS state_number, nspname AS name, D.description, pg_catalog.pg_get_userbyid(N.nspowner) AS "owner"
FROM pg_catalog.pg_namespace N
LEFT JOIN pg_catalog.pg_description D ON N.oid = D.objoid
ORDER BY CASE WHEN nspname = pg_catalog.current_schema() THEN -1::bigint ELSE N.oid::bigint END;
--@ 2200|1|public|NULL|highwater

SHOW DateStyle;

SELECT name, is_dst FROM pg_catalog.pg_timezone_names
UNION DISTINCT
SELECT abbrev AS name, is_dst FROM pg_catalog.pg_timezone_abbrevs;
--@ UTC|f

SELECT R.oid::bigint AS role_id, rolname AS role_name, rolsuper AS is_super, rolinherit AS is_inherit, rolcreaterole AS can_createrole,
  rolcreatedb AS can_createdb, rolcanlogin AS can_login, rolreplication AS is_replication, rolconnlimit AS conn_limit,
  rolvaliduntil AS valid_until, rolbypassrls AS bypass_rls, rolconfig AS config, D.description
FROM pg_catalog.pg_roles R
LEFT JOIN pg_catalog.pg_shdescription D ON D.objoid = R.oid;

SELECT member id, roleid role_id, admin_option FROM pg_catalog.pg_auth_members ORDER BY id, roleid::text;
--@ none

SELECT T.relkind AS table_kind, T.relname AS table_name, T.oid AS table_id, T.xmin AS table_state_number,
  FALSE AS table_with_oids, T.reltablespace AS tablespace_id, T.reloptions AS options, T.relpersistence AS persistence,
  (SELECT pg_catalog.array_agg(inhparent::bigint ORDER BY inhseqno)::varchar FROM pg_catalog.pg_inherits WHERE T.oid = inhrelid) AS ancestors,
  (SELECT pg_catalog.array_agg(inhrelid::bigint ORDER BY inhrelid)::varchar FROM pg_catalog.pg_inherits WHERE T.oid = inhparent) AS successors,
  T.relispartition AS is_partition, pg_catalog.pg_get_partkeydef(T.oid) AS partition_key,
  pg_catalog.pg_get_expr(T.relpartbound, T.oid) AS partition_expression, T.relam am_id,
  pg_catalog.pg_get_userbyid(T.relowner) AS "owner"
FROM pg_catalog.pg_class T
WHERE relnamespace = 2200::oid AND relkind IN ('r', 'm', 'v', 'f', 'p')
ORDER BY table_kind, table_id;

WITH T AS (
  SELECT T.oid AS table_id, T.relname AS table_name FROM pg_catalog.pg_class T
  WHERE T.relnamespace = 2200::oid AND T.relkind IN ('r', 'm', 'v', 'f', 'p')
)
SELECT T.table_id, C.attnum AS column_position, C.attname AS column_name, C.xmin AS column_state_number,
  C.atttypmod AS type_mod, C.attndims AS dimensions_number,
  pg_catalog.format_type(C.atttypid, C.atttypmod) AS type_spec, C.atttypid AS type_id,
  C.attnotnull AS mandatory, D.adbin AS column_default_expression,
  NOT C.attislocal AS column_is_inherited, C.attfdwoptions AS options, C.attisdropped AS column_is_dropped,
  C.attidentity AS identity_kind, C.attgenerated AS generated
FROM T
JOIN pg_catalog.pg_attribute C ON T.table_id = C.attrelid
LEFT JOIN pg_catalog.pg_attrdef D ON (C.attrelid, C.attnum) = (D.adrelid, D.adnum)
WHERE attnum > 0
ORDER BY table_id, attnum;

SELECT tab.oid table_id, tab.relkind table_kind, ind_stor.relname index_name, ind_head.indexrelid index_id,
  ind_stor.xmin state_number, ind_head.indisunique is_unique, ind_head.indisprimary is_primary, ind_head.indnullsnotdistinct nulls_not_distinct,
  pg_catalog.pg_get_expr(ind_head.indpred, ind_head.indrelid) AS condition,
  (SELECT pg_catalog.array_agg(inhparent::bigint ORDER BY inhseqno)::varchar FROM pg_catalog.pg_inherits WHERE ind_stor.oid = inhrelid) AS ancestors,
  ind_stor.reltablespace tablespace_id, opcmethod AS access_method_id
FROM pg_catalog.pg_class tab
JOIN pg_catalog.pg_index ind_head ON ind_head.indrelid = tab.oid
JOIN pg_catalog.pg_class ind_stor ON tab.relnamespace = ind_stor.relnamespace AND ind_stor.oid = ind_head.indexrelid
LEFT JOIN pg_catalog.pg_opclass ON pg_opclass.oid = ANY(indclass)
WHERE tab.relnamespace = 2200::oid AND tab.relkind IN ('r', 'm', 'v', 'p') AND ind_stor.relkind IN ('i', 'I');

SELECT ind_head.indexrelid index_id, k AS col_idx, k <= indnkeyatts AS in_key, ind_head.indkey[k - 1] AS column_position,
  ind_head.indoption[k - 1] AS column_options, ind_head.indcollation[k - 1] AS collation, colln.nspname AS collation_schema, collname AS collation_str,
  ind_head.indclass[k - 1] AS opclass, CASE WHEN opcdefault THEN NULL ELSE opcn.nspname END AS opclass_schema
FROM pg_catalog.pg_index ind_head
JOIN pg_catalog.pg_class ind_stor ON ind_stor.oid = ind_head.indexrelid
CROSS JOIN unnest(ind_head.indkey) WITH ORDINALITY u(u, k)
LEFT JOIN pg_catalog.pg_collation ON pg_collation.oid = ind_head.indcollation[k - 1]
LEFT JOIN pg_catalog.pg_namespace colln ON collnamespace = colln.oid
LEFT JOIN pg_catalog.pg_opclass ON pg_opclass.oid = ind_head.indclass[k - 1]
LEFT JOIN pg_catalog.pg_namespace opcn ON opcnamespace = opcn.oid
WHERE ind_stor.relnamespace = 2200::oid AND ind_stor.relkind IN ('i', 'I')
ORDER BY index_id, k;

SELECT T.oid table_id, relkind table_kind, C.oid::bigint con_id, C.xmin::varchar::bigint con_state_id, conname con_name, contype con_kind,
  conkey con_columns, conindid index_id, confrelid ref_table_id, condeferrable is_deferrable, condeferred is_init_deferred,
  confupdtype on_update, confdeltype on_delete, connoinherit no_inherit,
  pg_catalog.pg_get_expr(conbin, T.oid) con_expression, confkey ref_columns, conexclop::int[] excl_operators
FROM pg_catalog.pg_constraint C
JOIN pg_catalog.pg_class T ON C.conrelid = T.oid
WHERE relkind IN ('r', 'v', 'f', 'p') AND relnamespace = 2200::oid AND contype IN ('p', 'u', 'f', 'c', 'x') AND connamespace = 2200::oid;

WITH languages AS (SELECT oid AS lang_oid, lanname AS lang FROM pg_catalog.pg_language),
routines AS (
  SELECT proname AS r_name, prolang AS lang_oid, oid AS r_id, xmin AS r_state_number, proargnames AS arg_names, proargmodes AS arg_modes,
    proargtypes::int[] AS in_arg_types, proallargtypes::int[] AS all_arg_types, pg_catalog.pg_get_expr(proargdefaults, 0) AS arg_defaults,
    provariadic AS arg_variadic_id, prorettype AS ret_type_id, proretset AS ret_set, prokind AS kind, provolatile AS volatile_kind,
    proisstrict AS is_strict, prosecdef AS is_security_definer, proconfig AS configuration_parameters, procost AS cost,
    pg_catalog.pg_get_userbyid(proowner) AS "owner", prorows AS rows, proleakproof AS is_leakproof, proparallel AS concurrency_kind
  FROM pg_catalog.pg_proc
  WHERE pronamespace = 2200::oid AND NOT (prokind = 'a')
)
SELECT * FROM routines NATURAL JOIN languages;

SELECT D.objoid id, CASE WHEN 'pg_catalog.pg_class'::regclass = classoid THEN 'class' ELSE 'other' END AS kind, D.objsubid sub_id, D.description
FROM pg_catalog.pg_description D
JOIN pg_catalog.pg_class C ON D.objoid = C.oid
WHERE C.relnamespace = 2200::oid AND D.classoid = 'pg_catalog.pg_class'::regclass;

SELECT T.relkind AS view_kind, T.oid AS view_id, pg_catalog.pg_get_viewdef(T.oid, true) AS source_text
FROM pg_catalog.pg_class T
JOIN pg_catalog.pg_namespace N ON T.relnamespace = N.oid
WHERE N.oid = 2200::oid AND T.relkind IN ('m', 'v');

SELECT DISTINCT dependent.oid AS dependent_id, owner.oid AS owner_id
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
JOIN pg_catalog.pg_class dependent ON dependent.oid = r.ev_class
JOIN pg_catalog.pg_class owner ON owner.oid = d.refobjid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND dependent.oid <> owner.oid;

SELECT lwlocks.* FROM (SELECT L.pid, L.locktype, L.mode, L.granted FROM pg_catalog.pg_locks L) lwlocks;
--@ none
