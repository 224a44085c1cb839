// What node-pg does with a served database. Arguments: host, port. Prints "ok" at the end.
const assert = require('node:assert');
const { Client } = require('pg');

async function main(host, port) {
  const client = new Client({ host, port: Number(port), user: 'tester', database: 'highwater' });
  const notices = [];
  client.on('notice', (notice) => notices.push(notice.message));
  await client.connect();
  await client.query(
    'CREATE TABLE js (k BIGINT PRIMARY KEY, b BOOLEAN, i INT, d DOUBLE PRECISION, n NUMERIC(12, 4), v VARCHAR, y BYTEA, z TIMESTAMPTZ, j JSONB, a INT[])',
  );
  const noon = new Date('2024-02-29T12:00:00.005Z');
  const insert = 'INSERT INTO js VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)';
  const done = await client.query(insert, [1, true, -7, 0.1, '12.5', "it's", Buffer.from([0, 255]), noon, { a: [1, null] }, [1, null, 3]]);
  assert.deepStrictEqual([done.command, done.rowCount], ['INSERT', 1]);
  await client.query(insert, [2, null, null, null, null, null, null, null, null, null]);
  const { rows } = await client.query('SELECT * FROM js ORDER BY k');
  assert.deepStrictEqual(rows[0], {
    k: '1', b: true, i: -7, d: 0.1, n: '12.5000', v: "it's", y: Buffer.from([0, 255]), z: noon, j: { a: [1, null] }, a: [1, null, 3],
  });
  assert.deepStrictEqual(Object.values(rows[1]), ['2', null, null, null, null, null, null, null, null, null]);
  await client.query('CREATE TABLE jsarr (k INT PRIMARY KEY, b BOOLEAN[], i INT[], d DOUBLE PRECISION[], n NUMERIC(12, 4)[], t TEXT[], z TIMESTAMPTZ[], j JSONB[])');
  const texts = ['a "b"', null, '', 'NULL', '{x,y}'];
  await client.query('INSERT INTO jsarr VALUES ($1, $2, $3, $4, $5, $6, $7, $8)', [
    1, [true, null], [1, null, -3], [0.5, null], ['12.5', null], texts, [noon, null], [JSON.stringify({ a: 1 }), null],
  ]);
  const arrays = (await client.query('SELECT * FROM jsarr')).rows[0];
  assert.deepStrictEqual(arrays, {
    k: 1, b: [true, null], i: [1, null, -3], d: [0.5, null], n: [12.5, null], t: texts, z: [noon, null], j: [{ a: 1 }, null],
  });
  const found = await client.query('SELECT k FROM js WHERE k = ANY($1) ORDER BY k', [[1, 2, 9]]);
  assert.deepStrictEqual(found.rows, [{ k: '1' }, { k: '2' }]);
  const named = { name: 'by key', text: 'SELECT v FROM js WHERE k = $1', values: [1] };
  for (let n = 0; n < 3; n += 1) assert.strictEqual((await client.query(named)).rows[0].v, "it's");
  await assert.rejects(client.query('SELECT 1 / $1::int', [0]), { code: '22012' });
  await assert.rejects(client.query('SELECT nothing FROM js'), { code: '42703', position: '8' });
  const several = await client.query('SELECT 1::int AS a; SELECT 2::int AS b');
  assert.deepStrictEqual(several.map((result) => result.rows), [[{ a: 1 }], [{ b: 2 }]]);
  await client.query('CREATE TABLE IF NOT EXISTS js (k INT)');
  assert.strictEqual(notices.length, 1, String(notices));
  await client.query('BEGIN');
  await client.query('DECLARE c CURSOR FOR SUBSCRIBE js');
  const fetched = await client.query('FETCH ALL FROM c');
  assert.deepStrictEqual(fetched.rows.map((row) => [row.change, row.k]), [['1', '1'], ['1', '2']]);
  await client.query('COMMIT');
  await client.end();
  console.log('ok');
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
