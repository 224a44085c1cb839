-- Superset: what its engine for PostgreSQL adds to SQLAlchemy.

SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg_%' ORDER BY nspname;
--@ public

SELECT datname FROM pg_database WHERE datistemplate = false;
--@ highwater

SELECT relname FROM pg_catalog.pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE relkind IN ('v', 'm') AND nspname = 'public' ORDER BY 1;
--@ big_orders
--@ urls

SHOW search_path;

SET search_path = "public";

SET statement_timeout = 30000;

SELECT pg_backend_pid();

SELECT count(*) FROM orders LIMIT 1001;
--@ 0

SELECT DATE_TRUNC('day', placed) AS __timestamp, count(*) AS count FROM orders GROUP BY DATE_TRUNC('day', placed) ORDER BY count DESC LIMIT 1000;
--@ none
