"""What psycopg does with a served database. Arguments: host, port. Prints "ok" at the end."""

import datetime
import decimal
import sys
import threading

import psycopg
from psycopg.types.json import Jsonb

host, port = sys.argv[1:3]
url = f"host={host} port={port} user=tester dbname=highwater"

with psycopg.connect(url, autocommit=True) as conn:
    conn.execute(
        "CREATE TABLE py (k BIGINT PRIMARY KEY, b BOOLEAN, i INT, d DOUBLE PRECISION, n NUMERIC(12, 4), v VARCHAR, y BYTEA,"
        " e DATE, m TIME, s TIMESTAMP, z TIMESTAMPTZ, l INTERVAL, j JSONB, a INT[])"
    )
    noon = datetime.datetime(2024, 2, 29, 12, 0, 0, 5000)
    row = (
        1, True, -7, 0.1, decimal.Decimal("12.5000"), "it's", b"\x00\xff", noon.date(), noon.time(), noon,
        noon.replace(tzinfo=datetime.timezone.utc), datetime.timedelta(days=2, seconds=3.5), {"a": [1, None]}, [1, None, 3],
    )
    given = row[:12] + (Jsonb(row[12]), row[13])
    insert = "INSERT INTO py VALUES (" + ", ".join(["%s"] * len(row)) + ")"
    conn.execute(insert, given)
    conn.execute(insert, (2,) + (None,) * (len(row) - 1))
    for binary in (False, True):
        with conn.cursor(binary=binary) as cur:
            got = cur.execute("SELECT * FROM py WHERE k = %s", (1,)).fetchone()
            assert got == row, (binary, got)
            got = cur.execute("SELECT * FROM py WHERE k = %b", (2,)).fetchone()
            assert got == (2,) + (None,) * (len(row) - 1), got
    found = conn.execute("SELECT k FROM py WHERE k = ANY(%s) ORDER BY k", ([1, 2, 9],)).fetchall()
    assert found == [(1,), (2,)], found
    for _ in range(8):  # prepared from the sixth time on
        assert conn.execute("SELECT v FROM py WHERE k = %s", (1,)).fetchone() == ("it's",)

    # Arrays of each type, with NULLs, empty, and of two dimensions; as text and binary.
    conn.execute(
        "CREATE TABLE pyarr (k INT PRIMARY KEY, b BOOLEAN[], i INT[], g BIGINT[], d DOUBLE PRECISION[], n NUMERIC(12, 4)[], t TEXT[], y BYTEA[],"
        " e DATE[], z TIMESTAMPTZ[], l INTERVAL[], j JSONB[])"
    )
    utc = noon.replace(tzinfo=datetime.timezone.utc)
    arrays = (
        1, [True, None], [1, None, -3], [2**40, None], [0.5, None], [decimal.Decimal("12.5000"), None], ['a "b"', None, "", "NULL", "{x,y}"],
        [b"\x00\xff", None], [noon.date(), None], [utc, None], [datetime.timedelta(days=2, seconds=3.5), None], [{"a": [1, None]}, None],
    )
    given = arrays[:11] + ([Jsonb(arrays[11][0]), None],)
    for placeholder in ("%s", "%b"):
        conn.execute("DELETE FROM pyarr")
        conn.execute("INSERT INTO pyarr VALUES (" + ", ".join([placeholder] * len(arrays)) + ")", given)
        for binary in (False, True):
            with conn.cursor(binary=binary) as cur:
                got = cur.execute("SELECT * FROM pyarr").fetchone()
                assert got == arrays, (placeholder, binary, got)
                got = cur.execute(f"SELECT {placeholder}::int[][]", ([[1, 2], [3, None]],)).fetchone()
                assert got == ([[1, 2], [3, None]],), got
    assert conn.execute("SELECT set_config('application_name', %s, false)", ("me",)).fetchone() == ("me",)
    assert conn.execute("SELECT current_setting('application_name')").fetchone() == ("me",)

    try:
        conn.execute("SELECT nothing FROM py")
        raise AssertionError("an error was expected")
    except psycopg.errors.UndefinedColumn as error:
        assert error.diag.sqlstate == "42703" and error.diag.statement_position == "8", error.diag.statement_position

    conn.execute("CREATE TABLE copied (a INT PRIMARY KEY, b VARCHAR)")
    with conn.cursor() as cur:
        with cur.copy("COPY copied FROM STDIN") as copy:
            for a in range(5000):
                copy.write_row((a, None if a % 3 == 0 else f"row\t{a}"))
        with cur.copy("COPY (SELECT * FROM copied ORDER BY a) TO STDOUT") as copy:
            rows = list(copy.rows())
        assert len(rows) == 5000 and rows[0] == ("0", None) and rows[1] == ("1", "row\t1"), rows[:2]
        for below, expected in ((2, [(0, None), (1, "row\t1")]), (0, [])):
            with cur.copy(f"COPY (SELECT * FROM copied WHERE a < {below} ORDER BY a) TO STDOUT (FORMAT binary)") as copy:
                copy.set_types(["int4", "varchar"])
                got = list(copy.rows())
            assert got == expected, got

    # A statement that is told as cancelled has changed nothing, however late the timeout comes.
    conn.execute("CREATE TABLE in_time (a INT)")
    acknowledged = 0
    for turn in range(120):
        conn.execute(f"SET statement_timeout = '{1 + turn % 12}ms'")
        try:
            conn.execute("INSERT INTO in_time VALUES (1)")
            acknowledged += 1
        except psycopg.errors.QueryCanceled:
            pass
    conn.execute("SET statement_timeout = 0")
    assert conn.execute("SELECT count(*) FROM in_time").fetchone() == (acknowledged,), acknowledged

with psycopg.connect(url) as conn:
    with conn.cursor(name="big") as cur:  # a cursor of the server, in a transaction
        cur.itersize = 700
        assert [a for (a,) in cur.execute("SELECT a FROM copied ORDER BY a")] == list(range(5000))
    conn.rollback()

    with conn.cursor() as cur:
        threading.Timer(0.3, conn.cancel).start()
        try:
            with cur.copy("COPY (SUBSCRIBE copied WITH (snapshot = false)) TO STDOUT") as copy:
                for _ in copy:
                    pass
            raise AssertionError("the subscription should have been cancelled")
        except psycopg.errors.QueryCanceled:
            conn.rollback()

    with conn.cursor() as cur:
        changes = cur.stream("SUBSCRIBE copied")
        assert next(changes)[1:] == (1, 0, None)
        changes.close()

print("ok")
