"""What asyncpg does with a served database. Arguments: host, port. Prints "ok" at the end."""

import asyncio
import datetime
import decimal
import io
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
    # It asks pg_catalog about types of arrays, which is not there yet.
    found = await conn.fetch("SELECT k FROM apg WHERE k IN ($1, $2) ORDER BY k", 1, 2)
    assert [r["k"] for r in found] == [1, 2]
    try:
        await conn.fetch("SELECT 1 / $1::int", 0)
        raise AssertionError("an error was expected")
    except asyncpg.DivisionByZeroError:
        pass

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
    print("ok")


asyncio.run(main(*sys.argv[1:3]))
