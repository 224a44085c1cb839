-- Grafana's PostgreSQL data source: the test of a connection, the query builder's lists, TimescaleDB.

SELECT 1;

SELECT current_setting('server_version_num')::int/100 AS version;
--@ 1500

SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';
--@ none

SELECT
  CASE WHEN quote_ident(table_schema) IN (
      SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
      FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
        string_to_array(current_setting('search_path'), ',') s)
    THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
FROM information_schema.tables
WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information', 'timescaledb_experimental')
ORDER BY CASE WHEN quote_ident(table_schema) IN (
      SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
      FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
        string_to_array(current_setting('search_path'), ',') s) THEN 0 ELSE 1 END, 1;
--@ orders
--@ hw.queries

SELECT quote_ident(column_name) AS "column", data_type AS "type"
FROM information_schema.columns
WHERE table_schema IN ('public') AND quote_ident(table_name) = 'orders';
--@ placed|timestamp with time zone

SELECT quote_ident(column_name) FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('orders'), 1) = 2
  THEN quote_ident(table_schema) = (parse_ident('orders'))[1] AND quote_ident(table_name) = (parse_ident('orders'))[2]
  ELSE quote_ident(table_name) = 'orders' END
  AND data_type IN ('timestamptz', 'timestamp with time zone', 'timestamp without time zone', 'bigint', 'integer', 'double precision', 'real');
--@ placed
