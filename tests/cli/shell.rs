//! The shell beyond plain statements: servers, variables, `\copy`, the pager, tables that are drawn live; `check`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{BINARY, Serving, bad, err, finish, good, highwater, out, run, signal, text};

/// A shell on a server, with these arguments.
fn remote(serving: &Serving, user: &str, arguments: &[&str]) -> std::process::Output {
    let url = format!("postgres://{user}@{}", serving.address);
    finish(
        highwater(&["--url", &url])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

#[test]
fn a_shell_on_a_server_shows_what_one_on_a_directory_shows() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, price NUMERIC(8, 2), ok BOOLEAN, at TIMESTAMP, doc JSONB, tags INT[]);
INSERT INTO t VALUES (1, 'a|b', 1.50, true, '2024-05-06 12:00:00.5', '{\"a\": 1}', '{1,2}'), (2, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(price) AS total FROM t;
SELECT * FROM t ORDER BY id;
UPDATE t SET price = 2 WHERE id = 2 RETURNING id, price;
SELECT * FROM v;
\\d t
\\dm
\\x on
SELECT * FROM v;
COPY t TO STDOUT WITH (FORMAT csv, HEADER);
";
    let file = folder.path().join("script.sql");
    std::fs::write(&file, script).unwrap();
    let own = good(&[text(&folder.path().join("own")), "-f", text(&file)]);
    let serving = Serving::start(&folder.path().join("served"));
    let served = remote(&serving, "tester", &["-f", text(&file)]);
    assert_eq!(err(&served), "");
    assert_eq!(out(&served), own);

    let json = [
        "-c",
        "SELECT id, price, ok, at, doc FROM t ORDER BY id",
        "--format",
        "json",
    ];
    let expected = "{\"id\":1,\"price\":1.50,\"ok\":true,\"at\":\"2024-05-06T12:00:00.5\",\"doc\":{\"a\": 1}}\n\
                    {\"id\":2,\"price\":2.00,\"ok\":null,\"at\":null,\"doc\":null}\n";
    assert_eq!(out(&remote(&serving, "tester", &json)), expected);
}

#[test]
fn errors_and_notices_of_a_server_have_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&folder.path().join("db"));
    let failed = remote(
        &serving,
        "tester",
        &["-c", "SELECT 1;\n  SELECT 'ä', pice FROM hw.queries"],
    );
    assert_eq!(failed.status.code(), Some(1));
    let told = err(&failed);
    assert!(told.contains("ERROR:  column \"pice\" does not exist"), "{told}");
    assert!(
        told.contains("LINE 2:   SELECT 'ä', pice FROM hw.queries\n                      ^"),
        "{told}"
    );

    let sql = "CREATE TABLE t (a INT); CREATE TABLE IF NOT EXISTS t (a INT)";
    let noticed = remote(&serving, "tester", &["-c", sql]);
    assert!(err(&noticed).contains("NOTICE:"), "{}", err(&noticed));

    let nobody = run(&["--url", "postgres://127.0.0.1:1", "-c", "SELECT 1"]);
    assert!(
        err(&nobody).contains("could not connect to the server at 127.0.0.1:1"),
        "{}",
        err(&nobody)
    );
}

#[test]
fn a_server_with_users_asks_a_shell_for_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&folder.path().join("db"));
    let made = remote(&serving, "tester", &["-c", "CREATE USER ada PASSWORD 's%cret'"]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let asked = remote(&serving, "ada", &["-c", "SELECT 1"]);
    assert!(
        err(&asked).contains("the server asks for a password"),
        "{}",
        err(&asked)
    );
    let wrong = remote(&serving, "ada:wrong", &["-c", "SELECT 1"]);
    assert!(
        err(&wrong).contains("password authentication failed"),
        "{}",
        err(&wrong)
    );
    let right = remote(
        &serving,
        "ada:s%25cret",
        &["-c", "SELECT 1 AS one", "--format", "csv"],
    );
    assert_eq!(out(&right), "one\n1\n", "{}", err(&right));
}

#[test]
fn copy_moves_rows_between_tables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("in.csv"), "id,name\n1,\"a, b\"\n2,\n").unwrap();
    let script = format!(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR);
\\copy t FROM '{}' csv header
\\copy (SELECT * FROM t ORDER BY id DESC) TO '{}' csv
\\copy t (id) to stdout
",
        text(&path("in.csv")),
        text(&path("out.csv")),
    );
    std::fs::write(path("script.sql"), script).unwrap();
    let serving = Serving::start(&path("served"));
    let file = path("script.sql");
    let arguments = ["-f", text(&file)];
    let own = good(&[&[text(&path("own"))][..], &arguments[..]].concat());
    assert_eq!(own, "CREATE TABLE\nCOPY 2\nCOPY 2\n1\n2\n");
    assert_eq!(
        std::fs::read_to_string(path("out.csv")).unwrap(),
        "2,\n1,\"a, b\"\n"
    );
    std::fs::remove_file(path("out.csv")).unwrap();
    assert_eq!(out(&remote(&serving, "tester", &arguments)), own);
    assert_eq!(
        std::fs::read_to_string(path("out.csv")).unwrap(),
        "2,\n1,\"a, b\"\n"
    );

    std::fs::write(path("in.csv"), "id,name\nx,y\n").unwrap();
    let copy = format!("\\copy t FROM '{}' csv header", text(&path("in.csv")));
    for told in [
        err(&remote(&serving, "tester", &["-c", &copy])),
        bad(&[text(&path("own")), "-c", &copy]),
    ] {
        assert!(
            told.contains("invalid input syntax for type integer: \"x\""),
            "{told}"
        );
    }
    let missing = bad(&[text(&path("own")), "-c", "\\copy t FROM '/nowhere/x.csv'"]);
    assert!(missing.contains("cannot read \"/nowhere/x.csv\""), "{missing}");
}

#[test]
fn variables_stand_in_statements_and_a_text_is_edited() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sql");
    let script =
        "\\set n 40\n\\set who 'it''s'\nSELECT :n + 2 AS sum, :'who' AS who, ':n' AS plain;\n\\e\n\\set\n";
    std::fs::write(&file, script).unwrap();
    let mut shell = highwater(&["-f", text(&file), "--format", "csv"]);
    shell.env("VISUAL", "sed -i s/40/58/");
    let shown = finish(
        shell
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    assert_eq!(err(&shown), "");
    assert_eq!(
        out(&shown),
        "sum,who,plain\n42,it's,:n\nSELECT 58 + 2 AS sum, 'it''s' AS who, ':n' AS plain\nsum,who,plain\n60,it's,:n\n\
         n = '40'\nwho = 'it's'\n"
    );
}

#[test]
fn check_plans_a_script_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sql");
    let script = "CREATE SOURCE orders (id BIGINT, amount NUMERIC, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECOND)
  WITH (connector = 'kafka', topic = 'orders', properties.bootstrap.server = '127.0.0.1:1') FORMAT PLAIN ENCODE JSON;
CREATE SOURCE bids WITH (connector = 'nexmark');
CREATE TABLE limits (id BIGINT PRIMARY KEY, most NUMERIC);
INSERT INTO limits SELECT id, 1 FROM generate_series(1, 10) AS g(id);
CREATE MATERIALIZED VIEW totals AS SELECT id, sum(amount) AS total FROM orders GROUP BY id;
CREATE SINK out FROM totals WITH (connector = 'kafka', topic = 'out', properties.bootstrap.server = '127.0.0.1:1', primary_key = 'id')
  FORMAT UPSERT ENCODE JSON;
SELECT * FROM totals JOIN limits USING (id);
SUBSCRIBE totals;
DROP TABLE limits;
";
    std::fs::write(&file, script).unwrap();
    assert_eq!(
        good(&["check", text(&file)]),
        "No statement of the script would be refused.\n"
    );
    for (wrong, message) in [
        ("SELECT * FROM limits;", "relation \"limits\" does not exist"),
        (
            "INSERT INTO totals VALUES (1);",
            "cannot change materialized view \"totals\"",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'memory', topc = 's');",
            "unknown option \"topc\"",
        ),
        ("SELECT nothing FROM totals;", "column \"nothing\" does not exist"),
    ] {
        std::fs::write(&file, format!("{script}{wrong}")).unwrap();
        let told = bad(&["check", text(&file)]);
        assert!(
            told.contains(message) && told.contains("script.sql:12: ERROR:"),
            "{told}"
        );
    }
}

#[test]
fn commands_run_open_statements_of_a_file_and_see_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sql");
    let script = "\\set n 3
\\set name 'it''s'
\\echo :n of :'n' \'a  b\' :name
SELECT :n AS a
\\g
SELECT 4 AS a;
\\g
SELECT nothing
\\gx
";
    std::fs::write(&file, script).unwrap();
    let output = run(&["-f", text(&file), "--format", "csv"]);
    assert_eq!(out(&output), "3 of '3' a  b it's\na\n3\na\n4\na\n4\n");
    assert!(
        err(&output).contains("script.sql:8: ERROR:  column \"nothing\" does not exist"),
        "{}",
        err(&output)
    );
    let mut piped = highwater(&["--format", "csv"]);
    let expanded = good(&["-c", "SELECT 5 AS b, 6 AS c \\gx\nSELECT 7 AS d"]);
    assert!(
        expanded.starts_with("-[ RECORD 1 ]\nb | 5\nc | 6\n\n"),
        "{expanded}"
    );
    assert!(!expanded.contains("RECORD 1 ]\nd"), "{expanded}");
    let piped = piped
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(b"SELECT 7 AS a\n\\g\nSELECT\n 8 AS a \\g\n")
        .unwrap();
    drop(stdin);
    assert_eq!(out(&finish(child)), "a\n7\na\n8\n");
    let help = good(&["-c", "\\h CREATE MATERIALIZED VIEW"]);
    assert!(help.contains("WITH (state.ttl = "), "{help}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_with_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let made = |name: &str, more: &[&str]| {
        let path = |end: &str| folder.path().join(format!("{name}.{end}"));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(more)
            .arg("-out")
            .arg(path("crt"))
            .arg("-keyout")
            .arg(path("key"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", err(&made));
        (path("crt"), path("key"))
    };
    let server = "basicConstraints=critical,CA:FALSE";
    let authority = made("ca", &["-addext", "subjectAltName=IP:127.0.0.1"]);
    let own = made(
        "own",
        &["-addext", "subjectAltName=IP:127.0.0.1", "-addext", server],
    );
    let other = made(
        "other",
        &["-addext", "subjectAltName=DNS:elsewhere", "-addext", server],
    );
    let look = |files: &(std::path::PathBuf, std::path::PathBuf), root: &Path| {
        let dir = tempfile::tempdir_in(folder.path()).unwrap();
        let tls = ["--tls-cert", text(&files.0), "--tls-key", text(&files.1)];
        let serving = Serving::with(&dir.path().join("db"), &tls);
        let url = format!(
            "postgres://tester@{}?sslmode=verify-full&sslrootcert={}",
            serving.address,
            root.display()
        );
        run(&["--url", &url, "-c", "SELECT 1 AS a", "--format", "csv"])
    };
    let good = look(&own, &own.0);
    assert_eq!((out(&good).as_str(), err(&good).as_str()), ("a\n1\n", ""));
    for (files, root, why, hint) in [
        (&authority, &authority.0, "is that of an authority", "CA:FALSE"),
        (
            &own,
            &authority.0,
            "nobody whom sslrootcert trusts",
            "as sslrootcert",
        ),
        (&other, &other.0, "is for another host", "subjectAltName"),
    ] {
        let told = err(&look(files, root));
        assert!(told.contains(why) && told.contains(hint), "{told}");
        assert!(!told.contains("highwater serve"), "{told}");
    }
}

#[test]
fn check_does_not_tell_what_follows_from_a_create_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sql");
    let script = "CREATE TABLE IF NOT EXISTS \"T\" (a BIGINT PRIMARY KEY b);
CREATE MATERIALIZED VIEW v AS SELECT a FROM \"T\";
SELECT * FROM v;
CREATE FUNCTION twice(n BIGINT) RETURN BIGINT LANGUAGE SQL AS 'n * 2';
SELECT twice(3);
DROP TABLE \"T\";
SELECT * FROM u;
";
    std::fs::write(&file, script).unwrap();
    let output = run(&["check", text(&file)]);
    let told = err(&output);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("ERROR:")).collect();
    let places = ["script.sql:1: ", "script.sql:4: ", "script.sql:7: "];
    assert_eq!(lines.len(), places.len(), "{told}");
    for (line, place) in lines.iter().zip(places) {
        assert!(line.contains(place), "{told}");
    }
}

#[test]
fn check_tells_every_error_and_not_what_only_follows_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script.sql");
    let script = "CREATE TABLE t (a BIGINT PRIMARY KEY);
SELEC 1;
CREATE VIEW v AS SELECT nothing FROM t;
CREATE VIEW w AS SELECT * FROM v;
SELECT count(*) FROM w;
\\echo a command of the shell
INSERT INTO t VALUES (1,
  'x' + 2);
SELECT a FROM t;
SELECT * FROM u;
";
    std::fs::write(&file, script).unwrap();
    let output = run(&["check", text(&file)]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), String::new()));
    let told = err(&output);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("ERROR:")).collect();
    assert_eq!(lines.len(), 4, "{told}");
    for (line, place, message) in [
        (lines[0], "script.sql:2: ", "syntax error"),
        (lines[1], "script.sql:3: ", "column \"nothing\" does not exist"),
        (
            lines[2],
            "script.sql:7: ",
            "INSERT has more expressions than target columns",
        ),
        (lines[3], "script.sql:10: ", "relation \"u\" does not exist"),
    ] {
        assert!(line.contains(place) && line.contains(message), "{told}");
    }
    let summary =
        "4 statements of the script would be refused; 2 statements more could not be planned without them.";
    assert_eq!(told.lines().last(), Some(summary));
}

#[test]
fn json_is_the_same_from_a_directory_and_from_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let values = "SELECT 1::smallint AS a, 2.50::numeric(5, 2) AS b, 1.5::double precision AS c, 'NaN'::double precision AS d,
        0.1::real AS e, true AS f, 'q\"\\' AS g, NULL::int AS h, DATE '2024-05-06' AS i, TIME '01:02:03.5' AS j,
        TIMESTAMP '2024-05-06 12:00:00.25' AS k, TIMESTAMPTZ '2024-05-06 12:00:00+00' AS l, INTERVAL '1 day 2 hours' AS m,
        '\\x00ff'::bytea AS n, '{\"a\": [1, null]}'::jsonb AS o, ARRAY[1, NULL, 3] AS p, ARRAY[[1, 2], [3, 4]] AS q,
        ARRAY['a b', 'NULL', NULL, '', '{,}'] AS r, ARRAY[true, false] AS s, ARRAY[2.50, 1.25]::numeric(5, 2)[] AS t,
        ARRAY['{\"a\": 1}'::jsonb] AS u, ARRAY[TIMESTAMP '2024-05-06 12:00:00'] AS v, ARRAY[]::int[] AS w";
    let arguments = ["--format", "json", "-c", values];
    let dir = folder.path().join("own");
    let own = good(&[&[text(&dir)], &arguments[..]].concat());
    let serving = Serving::start(&folder.path().join("served"));
    let served = remote(&serving, "tester", &arguments);
    assert_eq!(err(&served), "");
    assert_eq!(out(&served), own);
    assert!(own.contains("\"p\":[1,null,3],\"q\":[[1,2],[3,4]]"), "{own}");
}

#[test]
fn the_shell_has_the_syntax_of_every_statement() {
    for (asked, shown) in [
        ("copy", "COPY table [(column, …)] FROM STDIN"),
        ("create function", "FUNCTION name ([argument] type"),
        ("start", "START TRANSACTION"),
    ] {
        let help = good(&["-c", &format!("\\h {asked}")]);
        assert!(help.contains(shown), "{help}");
    }
}

/// The shell on a terminal of its own, as `script` of util-linux makes one.
struct Terminal {
    child: Child,
    screen: std::sync::mpsc::Receiver<u8>,
    seen: String,
}

impl Terminal {
    fn start(dir: &Path, pager: &str) -> Self {
        // Without `exec`, the shell in between is what Ctrl-C ends.
        let command = format!("exec '{BINARY}' '{}' --quiet", dir.display());
        let mut child = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("HIGHWATER_PAGER", pager)
            .env("HIGHWATER_HISTORY", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut shown = BufReader::new(child.stdout.take().unwrap());
        let (tell, screen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut byte = [0];
            while shown.read_exact(&mut byte).is_ok() && tell.send(byte[0]).is_ok() {}
        });
        Self {
            child,
            screen,
            seen: String::new(),
        }
    }

    fn type_in(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits until the screen shows something new.
    fn sees(&mut self, text: &str) {
        let mut bytes = Vec::new();
        let until = std::time::Instant::now() + super::PATIENCE;
        while !String::from_utf8_lossy(&bytes).contains(text) {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(byte) => bytes.push(byte),
                Err(_) => panic!("no {text:?}: {}{}", self.seen, String::from_utf8_lossy(&bytes)),
            }
        }
        self.seen.push_str(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_subscription_is_a_table_that_is_drawn_anew_and_long_rows_go_to_the_pager() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let paged = folder.path().join("paged");
    let mut terminal = Terminal::start(&dir, &format!("cat > {}", paged.display()));
    terminal.sees("highwater=>");
    terminal.type_in("CREATE SOURCE bids WITH (connector = 'nexmark', rows.per.second = '20');\n");
    terminal.sees("highwater=>");
    terminal.type_in("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS bids FROM bids;\n");
    terminal.sees("highwater=>");
    terminal.type_in("SUBSCRIBE v;\n");
    for _ in 0..3 {
        terminal.sees("(1 row; Ctrl-C ends)");
    }
    terminal.type_in("\x03");
    terminal.sees("highwater=>");
    terminal.type_in("SELECT n FROM generate_series(1, 500) AS g(n);\n");
    terminal.sees("highwater=>");
    let pages = std::fs::read_to_string(&paged).unwrap();
    assert!(pages.contains("(500 rows)"), "{pages}");
    terminal.type_in("\\q\n");
    let ended = terminal.child.wait().unwrap();
    assert!(ended.success());
}

#[test]
fn a_subscription_on_a_server_prints_changes_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(&folder.path().join("db"));
    let sql = "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)";
    assert_eq!(remote(&serving, "tester", &["-c", sql]).status.code(), Some(0));
    let url = format!("postgres://tester@{}", serving.address);
    let mut follower = highwater(&["--url", &url, "-c", "SUBSCRIBE t", "--format", "csv"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "step,change,a");
    assert_eq!(lines.next().unwrap(), "0,1,1");
    let sql = "DELETE FROM t";
    assert_eq!(remote(&serving, "tester", &["-c", sql]).status.code(), Some(0));
    let change = lines.next().unwrap();
    assert!(change.ends_with(",-1,1"), "{change}");
    signal(follower.id(), "KILL");
    follower.wait().unwrap();
}
