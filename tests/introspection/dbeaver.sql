-- DBeaver: its start, and what it reads as the tree of a database unfolds.

SELECT version();

SET application_name = 'DBeaver 24 - Main <postgres>';

SELECT current_schema(), session_user;
--@ public|tester

SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datname = 'highwater';

SHOW search_path;

SELECT * FROM pg_catalog.pg_settings WHERE name = 'standard_conforming_strings';

SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
ORDER BY nspname;

SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');

SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c');

SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.oid = 'orders'::regclass
ORDER BY a.attnum;

SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description,
  CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) ELSE NULL END consrc_copy
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
WHERE c.conrelid = 'orders'::regclass
ORDER BY c.oid;

SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
  pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE i.indrelid = 'orders'::regclass
ORDER BY tabrelname, c.relname;

SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhrelid = 'orders'::regclass AND c.oid = i.inhparent ORDER BY i.inhseqno;
--@ none

SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description FROM pg_catalog.pg_trigger x
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid AND d.objsubid = 0 AND d.classoid = 'pg_trigger'::regclass
WHERE x.tgrelid = 'orders'::regclass AND NOT x.tgisinternal;
--@ none

SELECT r.*, pg_get_ruledef(r.oid) AS definition FROM pg_catalog.pg_rewrite r WHERE r.ev_class = 'big_orders'::regclass ORDER BY rulename;

SELECT p.oid AS poid, p.*, pg_catalog.pg_get_expr(p.proargdefaults, 0) AS arg_defaults, l.lanname, d.description
FROM pg_catalog.pg_proc p
LEFT OUTER JOIN pg_catalog.pg_language l ON l.oid = p.prolang
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid
WHERE p.pronamespace = 2200
ORDER BY p.proname;

SELECT pg_catalog.pg_get_viewdef('big_orders'::regclass, true);

SELECT s.*, pg_catalog.pg_size_pretty(pg_catalog.pg_database_size(s.datname)) FROM pg_catalog.pg_stat_database s;

SELECT a.oid, a.*, pd.description FROM pg_catalog.pg_roles a LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid ORDER BY a.rolname;

SELECT sa.* FROM pg_catalog.pg_stat_activity sa;

SELECT e.oid, cfg.tbls, n.nspname AS schema_name, e.* FROM pg_catalog.pg_extension e
JOIN pg_namespace n ON n.oid = e.extnamespace
LEFT JOIN (SELECT ARRAY_AGG(ns.nspname || '.' || cls.relname) tbls, oid_ext
  FROM (SELECT unnest(e1.extconfig) oid, e1.oid oid_ext FROM pg_catalog.pg_extension e1) c
  JOIN pg_catalog.pg_class cls ON cls.oid = c.oid
  JOIN pg_catalog.pg_namespace ns ON ns.oid = cls.relnamespace
  GROUP BY oid_ext) cfg ON cfg.oid_ext = e.oid
ORDER BY e.oid;
--@ none
