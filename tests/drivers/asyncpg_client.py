"""What asyncpg does with a served database. Arguments: host, port. Prints "ok" at the end."""

import asyncio
import datetime
import decimal
import io
import json
import sys

import asyncpg


async def main(host, port):
    conn = await asyncpg.connect(host=host, port=int(port), user="tester", database="highwater")
    await conn.execute(
        "CREATE TABLE apg (k BIGINT PRIMARY KEY, b BOOLEAN, i INT, d DOUBLE PRECISION, n NUMERIC(12, 4), v VARCHAR, y BYTEA,"
        " e DATE, m TIME, s TIMESTAMP, z TIMESTAMPTZ, l INTERVAL, j JSONB)"
    )
    noon = datetime.datetime(2024, 2, 29, 12, 0, 0, 5000)
    row = (
        1, True, -7, 0.1, decimal.Decimal("12.5000"), "it's", b"\x00\xff", noon.date(), noon.time(), noon,
        noon.replace(tzinfo=datetime.timezone.utc), datetime.timedelta(days=2, seconds=3.5), '{"a": [1, null]}',
    )
    insert = "INSERT INTO apg VALUES (" + ", ".join(f"${n + 1}" for n in range(len(row))) + ")"
    assert await conn.execute(insert, *row) == "INSERT 0 1"
    await conn.execute(insert, 2, *[None] * (len(row) - 1))
    got = await conn.fetchrow("SELECT * FROM apg WHERE k = $1", 1)
    assert tuple(got) == row, tuple(got)
    got = await conn.fetchrow("SELECT * FROM apg WHERE k = $1", 2)
    assert tuple(got) == (2,) + (None,) * (len(row) - 1), tuple(got)
    found = await conn.fetch("SELECT k FROM apg WHERE k IN ($1, $2) ORDER BY k", 1, 2)
    assert [r["k"] for r in found] == [1, 2]
    found = await conn.fetch("SELECT k FROM apg WHERE k = ANY($1) ORDER BY k", [1, 2, 9])
    assert [r["k"] for r in found] == [1, 2]
    try:
        await conn.fetch("SELECT 1 / $1::int", 0)
        raise AssertionError("an error was expected")
    except asyncpg.DivisionByZeroError:
        pass

    # Arrays, whose types it looks up in pg_catalog, within a transaction too.
    await conn.execute(
        "CREATE TABLE aarr (k INT PRIMARY KEY, b BOOLEAN[], i INT[], h SMALLINT[], g BIGINT[], d DOUBLE PRECISION[], n NUMERIC(12, 4)[], t TEXT[],"
        " v VARCHAR[], y BYTEA[], e DATE[], s TIMESTAMP[], z TIMESTAMPTZ[], l INTERVAL[], j JSONB[])"
    )
    utc = noon.replace(tzinfo=datetime.timezone.utc)
    arrays = (
        1, [True, None], [1, None, -3], [7], [2**40, None], [0.5, None], [decimal.Decimal("12.5000"), None], ['a "b"', None, "", "NULL", "{x,y}"],
        ["v", None], [b"\x00\xff", None], [noon.date(), None], [noon, None], [utc, None], [datetime.timedelta(days=2, seconds=3.5), None],
        ['{"a": [1, null]}', None],
    )
    insert = "INSERT INTO aarr VALUES (" + ", ".join(f"${n + 1}" for n in range(len(arrays))) + ")"
    async with conn.transaction():
        await conn.execute(insert, *arrays)
        await conn.execute(insert, 2, *[None] * (len(arrays) - 1))
        await conn.execute(insert, 3, *[[]] * (len(arrays) - 1))
    got = await conn.fetch("SELECT * FROM aarr ORDER BY k")
    assert tuple(got[0]) == arrays, tuple(got[0])
    assert tuple(got[1]) == (2,) + (None,) * (len(arrays) - 1), tuple(got[1])
    assert tuple(got[2]) == (3,) + ([],) * (len(arrays) - 1), tuple(got[2])
    assert await conn.fetchval("SELECT $1::int[][]", [[1, 2], [3, None]]) == [[1, 2], [3, None]]
    assert await conn.fetchval("SELECT array_agg(k ORDER BY k) FROM aarr") == [1, 2, 3]
    done = await conn.copy_records_to_table("aarr", records=[(4, [True], [4])], columns=["k", "b", "i"])
    assert done == "COPY 1", done
    assert await conn.fetchval("SELECT i FROM aarr WHERE k = 4") == [4]
    assert await conn.fetchval("SELECT current_setting('jit')") == "off"
    # A codec of its own for JSON, which it looks up by the name of the type.
    await conn.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    assert await conn.fetchval("SELECT j FROM aarr WHERE k = 1") == [{"a": [1, None]}, None]
    assert await conn.fetchval("SELECT $1::jsonb", {"b": 2}) == {"b": 2}
    await conn.reset_type_codec("jsonb", schema="pg_catalog")

    await conn.execute("CREATE TABLE acopied (a INT PRIMARY KEY, b VARCHAR)")
    text = io.BytesIO(b"".join(b"%d,row %d\n" % (a, a) for a in range(3000)))
    assert await conn.copy_to_table("acopied", source=text, format="csv") == "COPY 3000"
    out = io.BytesIO()
    await conn.copy_from_query("SELECT * FROM acopied WHERE a < $1 ORDER BY a", 2, output=out, format="csv")
    assert out.getvalue() == b"0,row 0\n1,row 1\n", out.getvalue()
    async with conn.transaction():
        got = [r["a"] async for r in conn.cursor("SELECT a FROM acopied ORDER BY a", prefetch=500)]
        assert got == list(range(3000))
    try:
        await conn.execute("SUBSCRIBE acopied", timeout=0.3)  # asyncpg cancels
        raise AssertionError("the subscription should have been cancelled")
    except asyncio.TimeoutError:
        pass
    assert await conn.fetchval("SELECT count(*) FROM acopied") == 3000
    await conn.close()

    # A pool resets a connection each time that one is given back.
    async with asyncpg.create_pool(host=host, port=int(port), user="tester", database="highwater", min_size=1, max_size=2) as pool:
        for _ in range(3):
            async with pool.acquire() as conn:
                await conn.execute("SET application_name = 'of the pool'")
                assert await conn.fetchval("SELECT count(*) FROM acopied") == 3000
            async with pool.acquire() as conn:
                assert await conn.fetchval("SHOW application_name") == ""
    print("ok")


asyncio.run(main(*sys.argv[1:3]))
