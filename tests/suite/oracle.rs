//! The batch oracle (INV-9): for every query shape, random rows, random cuts into steps and random restarts, a view
//! equals DataFusion's answer over the same rows. The seed of a failure is printed; `HIGHWATER_ORACLE_SEEDS` sets how
//! many seeds each shape gets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use arrow::array::{
    BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use highwater::connectors::registry::Registry;
use highwater::{Database, DatabaseBuilder};
use tokio::task::{JoinError, JoinSet};

use crate::batch::{Random, Relation, answer};
use crate::support::{rows, until};

const SECOND_US: i64 = 1_000_000;
const PARTITIONS: i32 = 2;

/// No partition is idle, however slow the machine is: the watermark follows the rows alone.
const SOURCE: &str =
    "CREATE SOURCE s (k BIGINT, g VARCHAR, v BIGINT, w INT, f DOUBLE PRECISION, b BOOLEAN, at TIMESTAMP,
    WATERMARK FOR at AS at - INTERVAL '3' SECOND)
  WITH (connector = 'memory', topic = 's', partitions = '2', idle.timeout = '1 h')";

/// A view, and how it is compared.
struct Shape {
    /// Statements before, in order, each a view that the last may read: name and query.
    before: &'static [(&'static str, &'static str)],
    query: &'static str,
    /// Only windows that are closed are there: the column that holds their end.
    closes: bool,
}

const fn shape(query: &'static str) -> Shape {
    Shape {
        before: &[],
        query,
        closes: false,
    }
}

const fn closing(query: &'static str) -> Shape {
    Shape {
        before: &[],
        query,
        closes: true,
    }
}

const SHAPES: &[Shape] = &[
    shape("SELECT k, g, v FROM s"),
    shape("SELECT k + v AS kv, upper(g) AS u FROM s WHERE v > 3 OR b"),
    shape(
        "SELECT k, CASE WHEN v > 0 THEN 'pos' WHEN v < 0 THEN 'neg' END AS sign, coalesce(g, '?') AS g FROM s",
    ),
    shape("SELECT count(*) AS n FROM s"),
    shape(
        "SELECT count(*) AS n, count(v) AS nv, sum(v) AS sv, avg(v) AS av, min(v) AS lo, max(v) AS hi FROM s",
    ),
    shape("SELECT k, count(*) AS n FROM s GROUP BY k"),
    shape("SELECT g, count(v) AS n, sum(v) AS s, min(v) AS lo, max(v) AS hi FROM s GROUP BY g"),
    shape("SELECT g, b, count(*) AS n, avg(w) AS a, sum(w) AS sw FROM s GROUP BY g, b"),
    shape("SELECT k, min(g) AS first, max(g) AS last FROM s GROUP BY k"),
    shape("SELECT k, max(at) AS last, min(f) AS lo FROM s GROUP BY k"),
    shape("SELECT k, count(*) FILTER (WHERE b) AS t, sum(v) FILTER (WHERE v > 0) AS p FROM s GROUP BY k"),
    shape("SELECT k, count(DISTINCT v) AS d, sum(DISTINCT w) AS s FROM s GROUP BY k"),
    shape("SELECT count(DISTINCT g) AS d, count(DISTINCT k) FILTER (WHERE b) AS e FROM s"),
    shape("SELECT k, count(*) AS n FROM s GROUP BY k HAVING count(*) > 2"),
    shape("SELECT k % 3 AS m, sum(v * 2) AS s FROM s WHERE k IS NOT NULL GROUP BY k % 3"),
    shape("SELECT DISTINCT g, b FROM s"),
    shape("SELECT ARRAY[k, v] AS a, count(*) AS n, sum(w) AS s FROM s GROUP BY ARRAY[k, v]"),
    shape("SELECT DISTINCT ARRAY[g, NULL] || g AS a FROM s"),
    shape("SELECT ROW(k, g) AS r, count(*) AS n, max(v) AS hi FROM s GROUP BY ROW(k, g)"),
    shape(
        "SELECT k, array_agg(v ORDER BY v) AS vs, array_agg(DISTINCT g ORDER BY g) AS gs FROM s GROUP BY k",
    ),
    shape("SELECT x, count(*) AS n FROM s, unnest(ARRAY[k, v, NULL]) AS x GROUP BY x"),
    shape(
        "SELECT b, min(ARRAY[k, v]) AS lo, max(ARRAY[g]) AS hi, count(DISTINCT ARRAY[v]) AS d FROM s GROUP BY b",
    ),
    shape("SELECT k, v FROM s WHERE v = ANY(ARRAY[1, k, 3]) OR k <> ALL(ARRAY[v])"),
    shape(
        "SELECT g, sum(at - TIMESTAMP '2020-01-01') AS s, avg(v * INTERVAL '1 hour') AS a, min(w * INTERVAL '11 hours') AS lo, max(v * INTERVAL '1 mon') AS hi, count(DISTINCT w * INTERVAL '1 day') AS d FROM s GROUP BY g",
    ),
    shape(
        "SELECT i, count(*) AS n, sum(i) AS s FROM (SELECT CASE WHEN b THEN INTERVAL '1 mon' * v ELSE INTERVAL '30 days' * v END AS i FROM s) t GROUP BY i",
    ),
    shape(
        "SELECT DISTINCT b, i FROM (SELECT b, CASE WHEN k > 2 THEN INTERVAL '1 day' * w ELSE INTERVAL '24 hours' * w END AS i FROM s) t WHERE i <> INTERVAL '2 days'",
    ),
    Shape {
        before: &[("a", "SELECT k, max(v) AS m, max(w) AS w FROM s GROUP BY k")],
        query: "SELECT w, sum(CASE WHEN m = 3 THEN 'Infinity'::float8 WHEN m = 4 THEN 'NaN'::float8 WHEN m IS NULL THEN 1e300 ELSE m::float8 END) AS s, array_agg(DISTINCT m) AS ms, sum(m * INTERVAL '1 day') AS i FROM a GROUP BY w",
        closes: false,
    },
    shape(
        "SELECT v, k, other FROM (SELECT v, k FROM s WHERE b) x FULL JOIN (SELECT v, g AS other FROM s WHERE NOT b) y USING (v)",
    ),
    Shape {
        before: &[
            ("a", "SELECT k, count(*) AS n FROM s GROUP BY k"),
            ("c", "SELECT v AS k, max(w) AS w FROM s GROUP BY v"),
        ],
        query: "SELECT k, n, w FROM a NATURAL FULL JOIN c",
        closes: false,
    },
    shape("SELECT k::varchar(1) AS c, g::varchar(3) AS g FROM s"),
    // Orders and window functions; what has to be the same in both answers has an order of its own.
    shape("SELECT v, g, k, w, b FROM s ORDER BY v DESC, g, k, w, b LIMIT 5"),
    shape("SELECT v, g, k, w, b, f FROM s ORDER BY v NULLS FIRST, g, k DESC, w, b, f LIMIT 4 OFFSET 3"),
    shape(
        "SELECT k, v, g, w, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, g, w, b, f, at) AS n FROM s) t WHERE n <= 2",
    ),
    shape(
        "SELECT k, v, r FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s) t WHERE r < 3",
    ),
    shape(
        "SELECT g, v, d FROM (SELECT g, v, dense_rank() OVER (PARTITION BY g ORDER BY v) AS d FROM s) t WHERE d <= 2",
    ),
    shape(
        "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v) AS s, count(*) OVER (PARTITION BY g) AS c FROM s",
    ),
    shape(
        "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY v, g, w, f, b, at) AS p, max(w) OVER (PARTITION BY k ORDER BY v, g, w, f, b, at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS m FROM s",
    ),
    shape("SELECT k FROM s WHERE b INTERSECT SELECT v FROM s"),
    shape("SELECT k FROM s EXCEPT SELECT v FROM s WHERE b"),
    Shape {
        before: &[("a", "SELECT k, count(*) AS n, max(v) AS m FROM s GROUP BY k")],
        query: "SELECT k, n, m FROM a ORDER BY n DESC, m, k LIMIT 2",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT g, count(*) AS n, sum(w) AS sw FROM s GROUP BY g")],
        query: "SELECT g, n, rank() OVER (ORDER BY n) AS r, sum(sw) OVER (ORDER BY g ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS around FROM a",
        closes: false,
    },
    Shape {
        before: &[
            ("a", "SELECT k, g, count(*) AS n FROM s GROUP BY k, g"),
            (
                "t",
                "SELECT k, g, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC, g) AS r FROM a) x WHERE r = 1",
            ),
        ],
        query: "SELECT n, count(*) AS keys, min(g) AS first FROM t GROUP BY n",
        closes: false,
    },
    // Subqueries in any place, with NULLs and without rows.
    shape(
        "SELECT g, sum(v) * 100 / nullif((SELECT sum(v) FROM s), 0) AS p, (SELECT max(w) FROM s WHERE b) IS NULL AS n FROM s GROUP BY g",
    ),
    shape("SELECT k, v, (k, v) IN (SELECT v, k FROM s WHERE b) AS i FROM s"),
    shape("SELECT k, v, w FROM s WHERE (k, v) NOT IN (SELECT v, w FROM s WHERE b)"),
    shape(
        "SELECT k, v > ANY (SELECT w FROM s WHERE b) AS p, v <= ALL (SELECT w FROM s WHERE NOT b) AS q, w <> ANY (SELECT v FROM s WHERE b) AS r FROM s",
    ),
    Shape {
        before: &[("a", "SELECT k, count(*) AS n, max(v) AS m FROM s GROUP BY k")],
        query: "SELECT k, n, (SELECT m FROM a c WHERE c.k = a.n) IS NULL AS none, coalesce((SELECT c.m FROM a c WHERE c.k = a.n), -1) AS m FROM a",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT k, count(*) AS n FROM s GROUP BY k")],
        query: "SELECT a.k, a.n, t.v, t.g FROM a, LATERAL (SELECT v, g FROM s WHERE s.k = a.k ORDER BY v DESC, g, w, f, b, at LIMIT 2) t",
        closes: false,
    },
    shape(
        "SELECT * FROM (SELECT k, v FROM s WHERE b) x JOIN (SELECT k, g FROM s WHERE NOT b) y USING (k) WHERE k > 1",
    ),
    shape("SELECT x, count(*) AS n, count(x) AS m FROM (SELECT k, v FROM s) x GROUP BY x"),
    // Functions, and rows that they give.
    shape(
        "SELECT format('%s of %L', k, g) AS t, regexp_replace(g, '[aeiou]', '<\\&>', 'g') AS r, to_char(v, 'FM9990') AS c, coalesce(v, 0) / 3.0 AS q FROM s",
    ),
    shape(
        "SELECT date_trunc('minute', at) AS m, sum(extract(second FROM at)) AS secs, min(extract(epoch FROM age(at, TIMESTAMP '1960-01-01'))) AS lo, count(DISTINCT at::date - DATE '2020-01-01') AS d FROM s GROUP BY 1",
    ),
    shape("SELECT k, v, generate_series(1, abs(w) % 4) AS n FROM s"),
    shape("SELECT k, g.x, count(*) AS n FROM s, generate_series(k, k + abs(w) % 3) AS g(x) GROUP BY k, g.x"),
    shape("SELECT k, x FROM s LEFT JOIN LATERAL generate_series(1, w) AS g(x) ON true"),
    // Aggregates from all rows of a group, and grouping sets.
    shape(
        "SELECT k, string_agg(g, ',' ORDER BY g, v) AS gs, bool_and(b) AS all_b, bool_or(b) AS any_b FROM s GROUP BY k",
    ),
    shape(
        "SELECT k, first_value(v ORDER BY v, g) AS lo, last_value(g ORDER BY g, v) AS hi FROM s GROUP BY k",
    ),
    shape("SELECT b, bit_or(v) AS o, bit_and(w) AS a, bit_xor(w) AS x FROM s GROUP BY b"),
    shape("SELECT k, g, count(*) AS n, sum(v) AS sv FROM s GROUP BY ROLLUP (k, g)"),
    shape("SELECT g, b, max(v) AS hi, grouping(g) AS gg FROM s GROUP BY CUBE (g, b)"),
    shape("SELECT k, b, count(DISTINCT v) AS d FROM s GROUP BY GROUPING SETS ((k), (k, b), ())"),
    Shape {
        before: &[("a", "SELECT k, g, count(*) AS n FROM s GROUP BY k, g")],
        query: "SELECT n, string_agg(g, '+' ORDER BY g, k) AS gs, bool_or(k > 2) AS any_k FROM a GROUP BY n",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT k, max(v) AS m FROM s GROUP BY k")],
        query: "SELECT m, array_to_string(array_agg(k ORDER BY k DESC), ',') AS ks, string_agg(DISTINCT k::varchar, ',' ORDER BY k::varchar) AS ds FROM a GROUP BY m",
        closes: false,
    },
    // Documents.
    shape(
        "SELECT jsonb_build_object('g', g, 'v', v, 'at', at, 'of', jsonb_build_array(w, f, b)) AS j FROM s",
    ),
    shape(
        "SELECT j -> 'g' AS g, count(*) AS n, sum((j ->> 'v')::bigint) AS sv, count(DISTINCT j -> 'v') AS d FROM (SELECT jsonb_build_object('g', g, 'v', v) AS j FROM s) t GROUP BY j -> 'g'",
    ),
    shape(
        "SELECT k, jsonb_agg(jsonb_build_array(v, g) ORDER BY v, g) AS a, jsonb_object_agg(coalesce(g, '?'), v ORDER BY v NULLS FIRST) FILTER (WHERE b) AS o FROM s GROUP BY k",
    ),
    shape(
        "SELECT DISTINCT j FROM (SELECT to_jsonb(v) AS j FROM s UNION ALL SELECT to_jsonb(w::numeric(12, 2)) FROM s) t",
    ),
    shape(
        "SELECT a.k, b.w FROM (SELECT k, g, to_jsonb(v) AS j FROM s) a JOIN (SELECT w, g, to_jsonb(w::numeric(12, 1)) AS j FROM s) b ON a.j = b.j AND a.g < b.g",
    ),
    shape(
        "SELECT e.value AS x, count(*) AS n FROM (SELECT jsonb_build_array(v, w, g) AS j FROM s) t, jsonb_array_elements(t.j) AS e GROUP BY e.value",
    ),
    shape(
        "SELECT k, e.key, e.value FROM (SELECT k, jsonb_build_object('v', v, 'g', g) AS j FROM s) t, jsonb_each_text(t.j) AS e",
    ),
    shape(
        "SELECT to_jsonb(v) AS j, g, k, w, b, f FROM s ORDER BY to_jsonb(v) DESC NULLS LAST, g, k, w, b, f LIMIT 5",
    ),
    Shape {
        before: &[("a", "SELECT k, count(*) AS n, max(g) AS m FROM s GROUP BY k")],
        query: "SELECT to_jsonb(n) AS n, jsonb_object_agg(coalesce(k, -1), m) AS ms, jsonb_agg(DISTINCT m ORDER BY m) AS different FROM a GROUP BY to_jsonb(n)",
        closes: false,
    },
    shape("SELECT k, v FROM s WHERE b UNION ALL SELECT v, k FROM s WHERE v < 2"),
    shape("SELECT k, count(*) AS n FROM (SELECT k FROM s UNION ALL SELECT v FROM s) u GROUP BY k"),
    shape(
        "SELECT window_start, window_end, count(*) AS n FROM TUMBLE(s, at, INTERVAL '5' SECOND) GROUP BY window_start, window_end",
    ),
    shape(
        "SELECT window_end, g, sum(v) AS s, max(v) AS m FROM TUMBLE(s, at, INTERVAL '7' SECOND) GROUP BY window_end, g",
    ),
    shape(
        "SELECT window_start, k, count(*) AS n FROM HOP(s, at, INTERVAL '2' SECOND, INTERVAL '5' SECOND) GROUP BY window_start, k",
    ),
    shape("SELECT k, window_start FROM HOP(s, at, INTERVAL '3' SECOND, INTERVAL '6' SECOND) WHERE b"),
    closing("SELECT window_end, count(*) AS n FROM TUMBLE(s, at, INTERVAL '5' SECOND) GROUP BY window_end"),
    closing(
        "SELECT window_end, g, sum(v) AS s, avg(v) AS a FROM TUMBLE(s, at, INTERVAL '4' SECOND) GROUP BY window_end, g",
    ),
    closing(
        "SELECT window_end, k, count(DISTINCT v) AS d FROM HOP(s, at, INTERVAL '2' SECOND, INTERVAL '6' SECOND) GROUP BY window_end, k",
    ),
    closing(
        "SELECT window_end, k, v, n FROM (SELECT *, row_number() OVER (PARTITION BY window_end, k ORDER BY v, g, w, b, f, at) AS n FROM TUMBLE(s, at, INTERVAL '3' SECOND)) t WHERE n <= 2",
    ),
    // Other windows.
    shape(
        "SELECT window_start, window_end, count(*) AS n FROM HOP(s, at, INTERVAL '3' SECOND, INTERVAL '7' SECOND, INTERVAL '1' SECOND) GROUP BY window_start, window_end",
    ),
    shape(
        "SELECT k, window_end FROM HOP(s, at, INTERVAL '5' SECOND, INTERVAL '2' SECOND, INTERVAL '-1' SECOND)",
    ),
    shape(
        "SELECT window_start, window_end, count(*) AS n, max(v) AS m FROM CUMULATE(s, at, INTERVAL '2' SECOND, INTERVAL '6' SECOND) GROUP BY window_start, window_end",
    ),
    shape(
        "SELECT k, v, window_start, window_end FROM CUMULATE(s, at, INTERVAL '1' SECOND, INTERVAL '3' SECOND, INTERVAL '2' SECOND) WHERE b",
    ),
    closing(
        "SELECT window_end, k, sum(v) AS s FROM CUMULATE(s, at, INTERVAL '2' SECOND, INTERVAL '8' SECOND) GROUP BY window_end, window_start, k",
    ),
    shape(
        "SELECT k, v, at, window_start, window_end FROM SESSION(s PARTITION BY k, at, INTERVAL '1' SECOND)",
    ),
    shape(
        "SELECT v, window_start, window_end FROM SESSION(s PARTITION BY g, b, at, INTERVAL '3' SECOND) WHERE v > 2",
    ),
    shape(
        "SELECT window_start, window_end, count(*) AS n, sum(v) AS s FROM SESSION(s, at, INTERVAL '0.15' SECOND) GROUP BY window_start, window_end",
    ),
    shape(
        "SELECT k, window_start, window_end, count(*) AS n, min(v) AS lo FROM SESSION(s PARTITION BY k, at, INTERVAL '1.5' SECOND) GROUP BY k, window_start, window_end",
    ),
    shape(
        "SELECT n, count(*) AS sessions FROM (SELECT k, window_end, count(*) AS n FROM SESSION((SELECT k, at FROM s WHERE b) PARTITION BY k, at, INTERVAL '2' SECOND) GROUP BY k, window_end) t GROUP BY n",
    ),
    closing("SELECT window_end, window_start, k, v FROM SESSION(s PARTITION BY k, at, INTERVAL '1' SECOND)"),
    closing(
        "SELECT window_end, window_start, k, count(*) AS n, max(v) AS m FROM SESSION(s PARTITION BY k, at, INTERVAL '2' SECOND) GROUP BY window_start, window_end, k",
    ),
    Shape {
        before: &[(
            "a",
            "SELECT k, v, max(at) AS last, count(*) AS n FROM s GROUP BY k, v",
        )],
        query: "SELECT k, v, n, window_start, window_end FROM SESSION(a PARTITION BY k, last, INTERVAL '2' SECOND)",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT g, k, max(at) AS last FROM s GROUP BY g, k")],
        query: "SELECT g, window_start, window_end, count(*) AS n FROM SESSION(a PARTITION BY g, last, INTERVAL '1' SECOND) GROUP BY g, window_start, window_end",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT k, count(*) AS n, sum(v) AS sv FROM s GROUP BY k")],
        query: "SELECT n, count(*) AS groups, sum(sv) AS total, min(sv) AS lo, max(sv) AS hi FROM a GROUP BY n",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT g, max(v) AS m, count(*) AS n FROM s GROUP BY g")],
        query: "SELECT m, count(DISTINCT n) AS d, min(g) AS first FROM a WHERE n > 1 GROUP BY m",
        closes: false,
    },
    Shape {
        before: &[
            ("a", "SELECT k, g, count(*) AS n FROM s GROUP BY k, g"),
            ("c", "SELECT k, sum(n) AS n FROM a GROUP BY k"),
        ],
        query: "SELECT n, count(*) AS c FROM c GROUP BY n UNION ALL SELECT n, k FROM a WHERE k > 2",
        closes: false,
    },
    Shape {
        before: &[("a", "SELECT k, count(*) AS n, avg(v) AS av FROM s GROUP BY k")],
        query: "SELECT av, n FROM a WHERE n < 4",
        closes: false,
    },
    // Joins.
    shape("SELECT a.k, a.g, b.w FROM s a JOIN s b ON a.k = b.k AND a.v = b.w WHERE a.b"),
    shape("SELECT a.k, a.v, b.w FROM s a LEFT JOIN s b ON a.k = b.w AND a.v < b.v AND b.f > 3"),
    shape(
        "SELECT a.v, b.k, b.g FROM (SELECT * FROM s WHERE f > 2) a RIGHT JOIN (SELECT * FROM s WHERE b) b ON a.v = b.k AND a.w = b.w",
    ),
    shape(
        "SELECT a.k, a.g, b.v, b.f FROM (SELECT * FROM s WHERE f > 2) a FULL JOIN (SELECT * FROM s WHERE b) b ON a.k = b.v AND a.w = b.w AND a.g <> b.g",
    ),
    shape(
        "SELECT a.k, a.n, b.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) a JOIN (SELECT v, max(w) AS m FROM s GROUP BY v) b ON a.k = b.v",
    ),
    shape(
        "SELECT a.k, a.n, b.v, b.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) a FULL JOIN (SELECT v, count(w) AS m FROM s GROUP BY v) b ON a.k = b.v AND a.n > b.m",
    ),
    shape(
        "SELECT s.k, s.v, a.n FROM s JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) a ON s.k = a.k WHERE s.v > 4",
    ),
    shape(
        "SELECT a.k, count(*) AS n, sum(b.v) AS sv FROM s a LEFT JOIN s b ON a.k = b.w AND b.v > 5 GROUP BY a.k",
    ),
    shape(
        "SELECT a.k, b.g, c.f FROM s a JOIN s b ON a.k = b.v JOIN s c ON b.w = c.v AND a.w = c.w WHERE a.b AND b.f > 2",
    ),
    shape(
        "SELECT a.k, b.g FROM (SELECT DISTINCT k FROM s) a CROSS JOIN (SELECT g, count(*) AS n FROM s GROUP BY g) b",
    ),
    shape("SELECT a.k, b.v FROM (SELECT DISTINCT k FROM s) a JOIN (SELECT DISTINCT v FROM s) b ON a.k < b.v"),
    shape(
        "SELECT k, a.n, b.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) a JOIN (SELECT k, min(g) AS m FROM s WHERE b GROUP BY k) b USING (k)",
    ),
    shape(
        "SELECT a.g, a.n, b.m FROM (SELECT g, count(*) AS n FROM s GROUP BY g) a LEFT JOIN (SELECT g, sum(v) AS m FROM s WHERE b GROUP BY g) b ON a.g IS NOT DISTINCT FROM b.g",
    ),
    shape("SELECT a.k, b.k AS other FROM s a, s b WHERE a.f = b.f AND a.v = b.k AND a.w > b.w"),
    shape(
        "SELECT a.window_end, a.k, b.v FROM TUMBLE(s, at, INTERVAL '5' SECOND) a JOIN TUMBLE(s, at, INTERVAL '5' SECOND) b ON a.window_end = b.window_end AND a.k = b.w",
    ),
    shape(
        "SELECT a.window_end, a.k, b.n FROM TUMBLE(s, at, INTERVAL '5' SECOND) a LEFT JOIN (SELECT window_end, k, count(*) AS n FROM TUMBLE(s, at, INTERVAL '5' SECOND) WHERE b GROUP BY window_end, k) b ON a.window_end = b.window_end AND a.k = b.k",
    ),
    closing(
        "SELECT a.window_end, a.k, count(b.v) AS n FROM TUMBLE(s, at, INTERVAL '4' SECOND) a LEFT JOIN TUMBLE(s, at, INTERVAL '4' SECOND) b ON a.window_end = b.window_end AND a.k = b.w GROUP BY a.window_end, a.k",
    ),
    shape("SELECT a.k, b.g FROM s a JOIN s b ON a.at = b.at AND a.k >= b.k"),
    Shape {
        before: &[
            ("a", "SELECT k, count(*) AS n FROM s GROUP BY k"),
            ("c", "SELECT v, max(w) AS m FROM s GROUP BY v"),
        ],
        query: "SELECT a.k, a.n, c.m FROM a LEFT JOIN c ON a.k = c.v",
        closes: false,
    },
    shape(
        "SELECT a.k, b.v FROM s a JOIN s b ON a.k = b.w AND a.at BETWEEN b.at - INTERVAL '2' SECOND AND b.at + INTERVAL '1' SECOND",
    ),
    shape(
        "SELECT a.k, a.v, b.v AS other FROM s a LEFT JOIN s b ON a.k = b.w AND a.at < b.at AND b.at <= a.at + INTERVAL '3' SECOND",
    ),
    // Joins in time.
    shape("SELECT a.k, a.v, b.v AS other, b.g FROM s a ASOF JOIN s b ON a.k = b.w AND a.at >= b.at"),
    shape("SELECT a.k, a.v, b.v AS other FROM s a ASOF LEFT JOIN s b ON a.k = b.w AND a.at > b.at"),
    shape("SELECT a.k, a.at, b.f FROM s a ASOF LEFT JOIN s b ON a.k = b.w AND a.at < b.at"),
    shape(
        "SELECT a.g, b.at FROM s a ASOF JOIN s b MATCH_CONDITION (a.at <= b.at) ON a.g = b.g AND a.v = b.w",
    ),
    shape(
        "SELECT a.v, b.k, b.g FROM s a ASOF LEFT JOIN (SELECT * FROM s WHERE b) b ON a.g = b.g AND a.v >= b.k",
    ),
    shape("SELECT a.f, b.f AS other FROM s a ASOF JOIN s b ON a.k = b.k AND a.f < b.f"),
    shape("SELECT a.g, b.g AS other FROM (SELECT DISTINCT g FROM s) a ASOF LEFT JOIN s b ON a.g > b.g"),
    shape(
        "SELECT a.k, a.n, b.v, b.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) a ASOF LEFT JOIN (SELECT v, min(w) AS m FROM s GROUP BY v) b ON a.n >= b.v",
    ),
    shape(
        "SELECT b.v, count(*) AS n, sum(a.w) AS sw FROM s a ASOF LEFT JOIN s b ON a.k = b.w AND a.at >= b.at GROUP BY b.v",
    ),
    shape(
        "SELECT a.k, b.v, c.g FROM s a ASOF JOIN s b ON a.k = b.w AND a.at >= b.at ASOF LEFT JOIN s c ON b.v = c.k AND a.at > c.at WHERE a.b",
    ),
    closing(
        "SELECT window_end, count(*) AS n, sum(v) AS sv FROM TUMBLE((SELECT a.at, b.v FROM s a ASOF LEFT JOIN s b ON a.k = b.w AND a.at >= b.at), at, INTERVAL '4' SECOND) GROUP BY window_end",
    ),
    // Subqueries.
    shape("SELECT k, v FROM s WHERE k IN (SELECT v FROM s WHERE f > 2)"),
    shape("SELECT k, v FROM s WHERE k NOT IN (SELECT v FROM s WHERE v IS NOT NULL AND b)"),
    shape("SELECT k, v FROM s WHERE k NOT IN (SELECT v FROM s WHERE g = 'a')"),
    shape("SELECT k, v FROM s WHERE k NOT IN (SELECT v FROM s WHERE v > 100)"),
    shape("SELECT k, v FROM s a WHERE EXISTS (SELECT 1 FROM s b WHERE b.v = a.k AND b.w > a.w)"),
    shape("SELECT k, v FROM s a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE b.k = a.v AND b.w > a.w)"),
    shape("SELECT k, v FROM s WHERE v > (SELECT avg(v) FROM s WHERE b)"),
    shape("SELECT k, v - (SELECT min(v) FROM s) AS above FROM s WHERE b"),
    shape(
        "SELECT k, (SELECT count(*) FROM s b WHERE b.v = a.k AND b.b) AS n FROM (SELECT DISTINCT k FROM s) a",
    ),
    shape("SELECT k, v FROM s a WHERE v = (SELECT max(v) FROM s b WHERE b.k = a.k)"),
    shape(
        "SELECT k, v FROM s a WHERE f > 3 OR EXISTS (SELECT 1 FROM s b WHERE b.v = a.k AND b.w > a.w AND b.b)",
    ),
    shape("SELECT k, v FROM s a WHERE b OR v IN (SELECT k FROM s WHERE w = 2)"),
    shape("SELECT k, v FROM s a WHERE b OR v NOT IN (SELECT k FROM s WHERE w = 2 AND f > 1)"),
    shape("SELECT v, v IN (SELECT k FROM s WHERE w = 2 AND f > 1) AS is_key FROM s"),
    shape("SELECT k, count(*) FILTER (WHERE v IN (SELECT w FROM s WHERE f > 1)) AS n FROM s GROUP BY k"),
    shape(
        "SELECT EXISTS (SELECT 1 FROM s o WHERE o.w = s.v) AS e, count(*) AS n, sum(k) AS sk FROM s GROUP BY 1",
    ),
    shape("SELECT k, v FROM s WHERE EXISTS (SELECT 1 FROM s o WHERE o.k = s.v AND o.b OFFSET 2)"),
    shape(
        "SELECT k, v FROM s WHERE NOT EXISTS (SELECT max(o.v) FROM s o WHERE o.k = s.w HAVING count(*) > 3)",
    ),
    shape("SELECT k, v FROM s WHERE 0 IN (SELECT count(*) FROM s o WHERE o.k = s.v AND o.b)"),
    shape("SELECT k, g, v FROM s WHERE (k, v) IN ((1, 2), (3, 4)) OR (k, v) > (5, 1)"),
];

fn schema() -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = [
        ("k", DataType::Int64),
        ("g", DataType::Utf8),
        ("v", DataType::Int64),
        ("w", DataType::Int32),
        ("f", DataType::Float64),
        ("b", DataType::Boolean),
        ("at", timestamp),
    ];
    Arc::new(Schema::new(
        columns
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .to_vec(),
    ))
}

/// Rows whose event time goes up, at most two seconds out of order: within the watermark's delay, so none is late.
fn batch(random: &mut Random, clock_us: &mut i64, count: usize) -> RecordBatch {
    let (mut k, mut g, mut v, mut w) = (vec![], vec![], vec![], vec![]);
    let (mut f, mut b, mut at) = (vec![], vec![], vec![]);
    for _ in 0..count {
        *clock_us += random.below(900_000) as i64;
        let time = *clock_us - random.below(2 * SECOND_US as u64) as i64;
        let key = random.below(7) as i64;
        k.push(random.mostly(6, key));
        let name = ["a", "b", "", "longer text"][random.below(4) as usize];
        g.push(random.mostly(6, name));
        let value = random.below(12) as i64 - 4;
        v.push(random.mostly(6, value));
        let small = random.below(5) as i32;
        w.push(random.mostly(6, small));
        let float = random.below(8) as f64 / 2.0;
        f.push(random.mostly(6, float));
        let flag = random.below(2) == 0;
        b.push(random.mostly(6, flag));
        at.push(Some(time));
    }
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from(k)),
            Arc::new(StringArray::from(g)),
            Arc::new(Int64Array::from(v)),
            Arc::new(Int32Array::from(w)),
            Arc::new(Float64Array::from(f)),
            Arc::new(BooleanArray::from(b)),
            Arc::new(TimestampMicrosecondArray::from(at)),
        ],
    )
    .unwrap()
}

/// The batch answer over all rows; of windows only those that are closed, where a view has no others.
async fn batch_answer(shape: &Shape, all: &[RecordBatch], closed_to_us: Option<i64>) -> Vec<String> {
    let relation = Relation {
        name: "s",
        schema: schema(),
        rows: all.to_vec(),
    };
    let mut found = answer(&inlined(shape), &[relation]).await;
    if shape.closes {
        // No window ends before the epoch.
        let end = closed_to_us.filter(|us| *us >= 0).map(|us| {
            let text = format!(
                "1970-01-01 00:{:02}:{:02}.{:06}",
                us / SECOND_US / 60,
                us / SECOND_US % 60,
                us % SECOND_US
            );
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        });
        // Window ends are within the first hour, so their text sorts as their time.
        found.retain(|line| {
            end.as_ref()
                .is_some_and(|end| line.split('|').next().unwrap() <= end.as_str())
        });
    }
    found
}

/// The query with the views before it as common table expressions.
fn inlined(shape: &Shape) -> String {
    let views: Vec<_> = shape
        .before
        .iter()
        .map(|(name, query)| format!("{name} AS ({query})"))
        .collect();
    let with = if views.is_empty() {
        String::new()
    } else {
        format!("WITH {} ", views.join(", "))
    };
    format!("{with}{}", shape.query)
}

/// The source, or a stored relation with its rows.
async fn create_source(database: &Database, is_stored: bool) {
    let sql = match is_stored {
        true => {
            let raw = SOURCE.replacen("SOURCE s", "SOURCE raw", 1);
            format!("{raw}; CREATE MATERIALIZED VIEW s AS SELECT * FROM raw")
        }
        false => SOURCE.to_owned(),
    };
    database.execute(&sql).await.unwrap();
}

/// The views of a shape have its number, so that those of several shapes stand in one database.
async fn create(database: &Database, number: usize, shape: &Shape) {
    let names = shape.before.iter().map(|(name, _)| *name);
    let own = |sql: &str| {
        names.clone().fold(sql.to_owned(), |sql, name| {
            let words = sql.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_');
            let renamed = words.map(|word| match word.strip_prefix(name) {
                Some(rest) if rest.chars().all(|c| !c.is_alphanumeric() && c != '_') => {
                    format!("{name}_{number}{rest}")
                }
                _ => word.to_owned(),
            });
            renamed.collect()
        })
    };
    let emit = if shape.closes { " EMIT ON WINDOW CLOSE" } else { "" };
    let before = shape.before.iter().map(|(name, query)| (own(name), own(query)));
    let last = (format!("view_{number}"), format!("{}{emit}", own(shape.query)));
    for (name, query) in before.chain([last]) {
        let sql = format!("CREATE MATERIALIZED VIEW {name} AS {query}");
        let created = database.execute(&sql).await;
        created.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// One history: rows in random batches, the views of some shapes made before, between or after them, restarts in between.
/// It depends on the seed alone, so that a shape that failed among others fails alone too.
async fn run(shapes: &[(usize, &'static Shape)], seed: u64) {
    let mut random = Random(seed);
    let registry = Registry::with_builtin();
    let topic = registry.memory().unwrap().handle("s");
    topic.ensure_partitions(PARTITIONS as usize);
    // A view that was opened again first must not let go of rows that another one has yet to open for.
    let _hold = topic.hold().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // In some histories the rows are stored before they are read: a view that is made later is filled, a few rows a step.
    let is_stored = random.below(3) == 0;
    let few = 1 + random.below(20) as usize;
    let open = || {
        let builder = opener(seed).registry(registry.clone());
        builder.backfill_rows(few).open(dir.path())
    };
    let mut database = open().await.unwrap();
    let rounds = 2 + random.below(5);
    // Not before each partition has a row: one that never had any is idle and holds no watermark back.
    let made_at = 1 + random.below(rounds - 1);
    let (mut all, mut clocks, mut pushed) = (Vec::new(), [0_i64; PARTITIONS as usize], 0);
    for round in 0..rounds {
        if round == u64::from(is_stored) {
            create_source(&database, is_stored).await;
        }
        if round == made_at {
            for (number, shape) in shapes {
                create(&database, *number, shape).await;
            }
        }
        for partition in 0..PARTITIONS {
            let count = 1 + random.below(40) as usize;
            let rows = batch(&mut random, &mut clocks[partition as usize], count);
            topic.push_to(partition, rows.clone()).unwrap();
            pushed += count as i64;
            all.push(rows);
        }
        match random.below(4) {
            0 if round >= made_at => wait(&database, pushed).await,
            1 => {
                // As a crash would: without a last checkpoint.
                drop(database);
                database = open().await.unwrap();
            }
            2 => {
                database.checkpoint().await.unwrap();
            }
            _ => {}
        }
    }
    wait(&database, pushed).await;
    let failed = rows(
        &database,
        "SELECT name, error, detail FROM hw.queries WHERE state = 'FAILED'",
    )
    .await;
    assert!(failed.is_empty(), "seed {seed}: {failed:?}");
    let closed_to = watermark(&all);
    for (number, shape) in shapes {
        let found = rows(&database, &format!("SELECT * FROM view_{number}")).await;
        let expected = batch_answer(shape, &all, closed_to).await;
        assert_eq!(found, expected, "seed {seed} of {}", inlined(shape));
    }
    until(&database, "SELECT sum(late_rows)::bigint FROM hw.queries", 0).await;
    let kinds = "SELECT DISTINCT split_part(operator, ':', 1) FROM hw.memory WHERE read_back > 0";
    let kinds = rows(&database, kinds).await;
    READ_BACK.lock().unwrap().extend(kinds);
}

/// Kinds of operators that have read evicted state back.
static READ_BACK: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Of three histories one has memory for all, one has none for state, so that all that is clean is evicted after each step, and
/// one has some.
fn opener(seed: u64) -> DatabaseBuilder {
    let storage = 16 << 20;
    let builder = Database::builder().storage_memory_bytes(storage);
    match seed % 3 {
        0 => builder,
        1 => builder.memory_limit(storage + 1),
        _ => builder.memory_limit(storage + (32 << 10 << (seed / 3 % 6))),
    }
}

/// Waits until every reader has taken all rows.
async fn wait(database: &Database, pushed: i64) {
    until(
        database,
        "SELECT min(taken)::bigint FROM (SELECT sum(position) AS taken FROM hw.lanes GROUP BY query) q",
        pushed,
    )
    .await;
    until(
        database,
        "SELECT count(*) FROM hw.queries WHERE state = 'BACKFILLING'",
        0,
    )
    .await;
}

/// The least over the partitions of the largest event time, less the delay.
fn watermark(all: &[RecordBatch]) -> Option<i64> {
    let largest = |partition: usize| {
        let batches = all.iter().skip(partition).step_by(PARTITIONS as usize);
        let times = batches.flat_map(|batch| {
            let column = batch
                .column(6)
                .as_any()
                .downcast_ref::<TimestampMicrosecondArray>()
                .unwrap()
                .clone();
            (0..column.len())
                .map(move |row| column.value(row))
                .collect::<Vec<_>>()
        });
        times.max()
    };
    (0..PARTITIONS as usize)
        .map(largest)
        .min()
        .flatten()
        .map(|time| time - 3 * SECOND_US)
}

/// Shapes that stand in one database.
const TOGETHER: usize = 24;
/// Databases at once, so that waiting costs no time.
const AT_ONCE: usize = 8;

/// `HIGHWATER_ORACLE_ONLY` leaves only the shapes whose query contains it, `HIGHWATER_ORACLE_FIRST` starts at that seed.
async fn run_all(seeds: u64) {
    let only = std::env::var("HIGHWATER_ORACLE_ONLY").unwrap_or_default();
    let first = std::env::var("HIGHWATER_ORACLE_FIRST").ok();
    let first: u64 = first.and_then(|text| text.parse().ok()).unwrap_or(0);
    let shapes = SHAPES.iter().enumerate();
    let shapes: Vec<_> = shapes.filter(|(_, shape)| shape.query.contains(&only)).collect();
    let mut histories = JoinSet::new();
    for seed in first..first + seeds {
        // Other neighbours each time.
        let mut order = shapes.clone();
        order.rotate_left(seed as usize % shapes.len().max(1));
        for together in order.chunks(TOGETHER) {
            if histories.len() == AT_ONCE {
                ended(histories.join_next().await);
            }
            let together = together.to_vec();
            histories.spawn(async move { run(&together, seed).await });
        }
    }
    while let Some(history) = histories.join_next().await {
        ended(Some(history));
    }
}

/// Passes a failed history on.
fn ended(history: Option<Result<(), JoinError>>) {
    if let Some(Err(failure)) = history {
        std::panic::resume_unwind(failure.into_panic());
    }
}

/// As many seeds as a run of all tests has the time for; `make oracle SEEDS=n` runs more.
const SEEDS: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn a_view_equals_the_batch_answer_however_its_input_is_cut_and_restarted() {
    let seeds = std::env::var("HIGHWATER_ORACLE_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SEEDS);
    run_all(seeds).await;
    if seeds >= 6 && std::env::var_os("HIGHWATER_ORACLE_ONLY").is_none() {
        let read_back = READ_BACK.lock().unwrap();
        for kind in [
            "Aggregate",
            "Join",
            "Left join",
            "Full join",
            "Semi join",
            "Over",
            "ASOF join",
        ] {
            let is_there = read_back.iter().any(|own| own.starts_with(kind));
            assert!(is_there, "no {kind} was read back: {read_back:?}");
        }
    }
}
