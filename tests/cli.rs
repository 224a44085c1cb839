//! The command line as its users meet it: the real binary, its output and its exit status.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/caught_up.rs"]
mod caught_up;
#[path = "cli/shell.rs"]
mod shell;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long something that must happen may take.
const PATIENCE: Duration = Duration::from_secs(60);

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");

/// 1,000 bids, counted.
const COUNT_SQL: &str = "
CREATE SOURCE bids WITH (connector = 'nexmark', event.num = '1000', rows.per.second = '0', partitions = '2');
CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, min(price) AS least FROM bids;";

/// Bids without an end, 1,000 a second.
const ENDLESS_SQL: &str = "
CREATE SOURCE endless WITH (connector = 'nexmark', rows.per.second = '1000');
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM endless;";

fn highwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("HIGHWATER_LOG")
        .env("NO_COLOR", "1");
    command
}

/// Runs to the end, which must come.
fn run(arguments: &[&str]) -> Output {
    finish(
        highwater(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

fn finish(child: Child) -> Output {
    let id = child.id();
    let (tell, told) = mpsc::channel();
    let waiter = std::thread::spawn(move || drop(tell.send(child.wait_with_output().unwrap())));
    let ended = told.recv_timeout(PATIENCE);
    let output = ended.unwrap_or_else(|_| {
        signal(id, "KILL");
        let output = told.recv().unwrap();
        panic!("it did not end:\n{}{}", out(&output), err(&output));
    });
    waiter.join().unwrap();
    output
}

fn signal(id: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &id.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The standard output of a call that must go well.
fn good(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    out(&output)
}

/// The standard error of a call that must fail with status 1.
fn bad(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{arguments:?}: {}{}",
        out(&output),
        err(&output)
    );
    err(&output)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asks again and again until the answer is right.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::yield_now();
    }
}

/// A process that is killed when the test ends in any way.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = highwater(arguments);
        Self(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    /// Reads standard error until a line says what is waited for.
    fn await_line(&mut self, is_it: impl Fn(&str) -> bool) {
        let mut lines = BufReader::new(self.0.stderr.take().unwrap());
        let mut seen = String::new();
        loop {
            let from = seen.len();
            assert!(
                lines.read_line(&mut seen).unwrap() > 0,
                "the line never came:\n{seen}"
            );
            if is_it(&seen[from..]) {
                break;
            }
        }
        // Somebody must go on reading, or the process would wait for us.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    }
}

#[test]
fn statements_on_the_command_line_print_tables_and_tags() {
    let shown = good(&[
        "-c",
        "SELECT 1 AS one, 'a' AS two",
        "-c",
        "CREATE VIEW v AS SELECT 2 AS n; SELECT * FROM v",
    ]);
    let expected = " one | two \n-----+-----\n   1 | a\n(1 row)\n\nCREATE VIEW\n n \n---\n 2\n(1 row)\n\n";
    assert_eq!(shown, expected);
    assert_eq!(good(&["-q", "-c", "CREATE VIEW v AS SELECT 2 AS n"]), "");
}

#[test]
fn an_error_points_at_its_place_and_nothing_runs_after_it() {
    let output = run(&["-c", "SELECT 1 AS n;\nSELECT nothing", "-c", "SELECT 3 AS n"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out(&output), " n \n---\n 1\n(1 row)\n\n");
    let told = err(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[0].starts_with("ERROR:  ") && lines[0].contains("nothing"),
        "{told}"
    );
    assert_eq!(
        lines[1..3],
        ["LINE 2: SELECT nothing", "               ^"],
        "{told}"
    );
}

#[test]
fn a_value_of_any_width_is_drawn() {
    let drawn = good(&["-c", "SELECT repeat('x', 140000) AS a, 1 AS b"]);
    let widths: Vec<usize> = drawn.lines().map(str::len).collect();
    assert_eq!(
        widths[..2],
        [140_000 + 2 + 1 + 3, 140_000 + 2 + 1 + 3],
        "name and rule"
    );
}

#[test]
fn a_script_that_cannot_be_read_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.sql");
    std::fs::write(&file, "SELECT 1;\n\nSELEC 2;\n").unwrap();
    let output = run(&["-f", text(&file)]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), String::new()));
    assert!(
        err(&output).starts_with(&format!("{}:3: ERROR:  ", file.display())),
        "{}",
        err(&output)
    );
    let missing = bad(&["-f", text(&dir.path().join("missing.sql"))]);
    assert!(missing.starts_with("highwater: cannot read \""), "{missing}");
}

#[test]
fn files_and_standard_input_are_scripts_with_backslash_commands() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.sql");
    std::fs::write(&file, "\\x on\nSELECT 1 AS n;\n\\echo done\n").unwrap();
    assert_eq!(good(&["-q", "-f", text(&file)]), "-[ RECORD 1 ]\nn | 1\n\ndone\n");
    let mut child = highwater(&["--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"SELECT 1 AS n;\nSELECT 2 AS n")
        .unwrap();
    let output = finish(child);
    assert_eq!(
        (output.status.code(), out(&output)),
        (Some(0), "n\n1\nn\n2\n".to_owned())
    );
    assert!(bad(&["-c", "\\nonsense"]).contains("invalid command \\nonsense"));
}

#[test]
fn rows_come_as_csv_and_as_json_lines() {
    let sql =
        "SELECT * FROM (VALUES (1, 'a,b', 9007199254740993), (2, NULL, -1)) AS t (n, s, big) ORDER BY n";
    assert_eq!(
        good(&["--format", "csv", "-c", sql]),
        "n,s,big\n1,\"a,b\",9007199254740993\n2,,-1\n"
    );
    let json = good(&["--format", "json", "-c", sql]);
    assert_eq!(
        json,
        "{\"n\":1,\"s\":\"a,b\",\"big\":9007199254740993}\n{\"n\":2,\"s\":null,\"big\":-1}\n"
    );
}

#[test]
fn usage_errors_have_status_2_and_help_and_version_status_0() {
    for wrong in [
        &["--format", "xml"][..],
        &["run"],
        &["a", "b"],
        &["demo", "--seconds", "0"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(
        good(&["--version"]),
        format!("highwater {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = good(&["--help"]);
    for word in ["run", "demo", "--read-only", "Exit status"] {
        assert!(help.contains(word), "{help}");
    }
}

#[test]
fn the_memory_limit_has_a_unit_and_is_shown_in_bytes() {
    let shown = good(&["--memory-limit", "512MiB", "-q", "-c", "SHOW memory_limit"]);
    assert!(shown.contains("536870912"), "{shown}");
    assert_eq!(run(&["--memory-limit", "512"]).status.code(), Some(2));
    let few = run(&["--memory-limit", "10MB", "-c", "SELECT 1"]);
    assert_eq!(few.status.code(), Some(1));
    assert!(
        err(&few).contains("memory_limit cannot be 10000000 bytes"),
        "{}",
        err(&few)
    );
}

#[test]
fn objects_are_listed_and_described() {
    let sql = format!("{COUNT_SQL} CREATE VIEW v AS SELECT n FROM totals;");
    let shown = good(&[
        "-q",
        "-c",
        &sql,
        "-c",
        "\\d",
        "-c",
        "\\d totals",
        "-c",
        "\\dso b*",
        "-c",
        "\\d hw.lanes",
    ]);
    let has = |line: &str| {
        assert!(
            shown.lines().any(|shown| shown.trim_end() == line),
            "{line}\n{shown}"
        )
    };
    has(" bids   | source            | nexmark   |");
    has(" v      | view              |           |");
    assert!(shown.contains("List of relations"), "{shown}");
    assert!(
        shown.contains(" totals | materialized view |           | "),
        "{shown}"
    );
    has("Definition:");
    assert!(shown.contains("Materialized view \"totals\""), "{shown}");
    assert!(shown.contains(" n      | bigint |"), "{shown}");
    assert!(shown.contains("List of sources"), "{shown}");
    assert!(shown.contains("end_offset"), "{shown}");
    assert!(bad(&["-c", "\\d nothing"]).contains("Did not find any relation named \"nothing\"."));
}

#[test]
fn a_bounded_script_runs_to_its_end_and_its_view_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    std::fs::write(&file, COUNT_SQL).unwrap();
    let output = run(&["run", text(&file), "--data", text(&data)]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("CREATE MATERIALIZED VIEW\n"),
        "{}",
        out(&output)
    );
    assert!(
        err(&output).contains("the last checkpoint is durable"),
        "{}",
        err(&output)
    );
    assert_eq!(
        good(&[
            text(&data),
            "--read-only",
            "--format",
            "csv",
            "-c",
            "SELECT n FROM totals"
        ]),
        "n\n1000\n"
    );
}

#[test]
fn the_same_script_goes_on_and_another_definition_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    let arguments = ["run", text(&file), "--data", text(&data), "--until-caught-up"];
    std::fs::write(&file, COUNT_SQL).unwrap();
    good(&arguments);
    let again = run(&arguments);
    assert_eq!(
        (again.status.code(), out(&again)),
        (Some(0), String::new()),
        "{}",
        err(&again)
    );
    assert!(
        err(&again).contains("NOTICE:  source \"bids\" is there already and goes on"),
        "{}",
        err(&again)
    );
    std::fs::write(&file, COUNT_SQL.replace("min(price)", "max(price)")).unwrap();
    let refused = bad(&arguments);
    let expected = ":3: ERROR:  materialized view \"totals\" is there already with another definition";
    assert!(refused.contains(expected), "{refused}");
    std::fs::write(
        &file,
        COUNT_SQL
            .replace("min(price)", "max(price)")
            .replace("VIEW t", "VIEW IF NOT EXISTS t"),
    )
    .unwrap();
    let kept = run(&arguments);
    assert_eq!(kept.status.code(), Some(0), "{}", err(&kept));
    assert!(
        err(&kept).contains("with another definition, which is kept"),
        "{}",
        err(&kept)
    );
}

#[test]
fn a_script_whose_queries_all_fail_ends_with_status_1() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    let sql = ENDLESS_SQL.replace("count(*) AS n", "sum(1 / (price - price)) AS n");
    std::fs::write(&file, sql).unwrap();
    let told = bad(&["run", text(&file), "--data", text(&data)]);
    assert!(
        told.contains("every query has failed") && told.contains("division by zero"),
        "{told}"
    );
}

#[test]
fn sigterm_ends_a_run_with_a_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    std::fs::write(&file, format!("{COUNT_SQL}{ENDLESS_SQL}")).unwrap();
    let arguments = [
        "run",
        text(&file),
        "--data",
        text(&data),
        "--checkpoint-interval",
        "60min",
    ];
    let mut running = Running::start(&arguments);
    running.await_line(|line| line.contains("source=\"bids\"") && line.contains("lag=0 "));
    signal(running.0.id(), "TERM");
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    // Nothing but the last checkpoint can have made it durable.
    assert_eq!(
        good(&[
            text(&data),
            "--read-only",
            "--format",
            "csv",
            "-c",
            "SELECT n FROM totals"
        ]),
        "n\n1000\n"
    );
}

#[test]
fn beside_a_running_process_the_shell_is_read_only_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    std::fs::write(&file, ENDLESS_SQL).unwrap();
    let running = Running::start(&[
        "run",
        text(&file),
        "--data",
        text(&data),
        "--checkpoint-interval",
        "100ms",
        "--quiet",
    ]);
    let ask = |sql: &str| run(&[text(&data), "--format", "csv", "-c", sql]);
    eventually("rows of a checkpoint", || {
        let output = if data.join("CURRENT").exists() {
            ask("SELECT n FROM counted WHERE n > 0")
        } else {
            run(&["--version"])
        };
        out(&output).starts_with("n\n") && out(&output).lines().count() == 2
    });
    let lanes = ask("SHOW LANES");
    assert_eq!(lanes.status.code(), Some(0), "{}", err(&lanes));
    assert!(
        out(&lanes)
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("endless,counted,0,")),
        "{}",
        out(&lanes)
    );
    let remark = err(&lanes);
    assert!(
        remark.contains("read-only") && remark.contains(&running.0.id().to_string()),
        "{remark}"
    );
    assert_eq!(remark.lines().count(), 1, "{remark}");
    let refused = ask("DROP MATERIALIZED VIEW counted");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        err(&refused).contains("ERROR:  cannot execute DROP MATERIALIZED VIEW"),
        "{}",
        err(&refused)
    );
}

#[test]
fn a_subscription_prints_rows_and_changes_until_its_reader_goes() {
    let sql = format!("{ENDLESS_SQL} SUBSCRIBE counted;");
    let mut command = highwater(&["--format", "json", "-c", &sql]);
    let mut running = Running(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let taken_away = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("\"change\":-1")));
    let added = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("\"change\":1")));
    assert!(taken_away.is_some() && added.is_some());
    drop(lines);
    eventually("an end without a reader", || {
        running.0.try_wait().unwrap().is_some()
    });
}

#[test]
fn the_demo_proves_itself_after_its_crash() {
    let output = run(&["demo", "--seconds", "8"]);
    let shown = out(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", err(&output));
    assert_eq!(shown.matches("✓").count(), 3, "{shown}");
    for part in [
        "CREATE MATERIALIZED VIEW closed_windows",
        "Crash",
        "opened again",
        "0 missing, 0 double, 0 wrong",
        "Try next",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn a_statement_on_standard_input_runs_as_soon_as_it_is_complete() {
    let mut child = highwater(&["--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running(child);
    let mut line = |expected: &str| {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    };
    // The byte order mark that some editors write says nothing.
    stdin.write_all("\u{feff}SELECT 1 AS a;\n".as_bytes()).unwrap();
    line("a\n");
    line("1\n");
    stdin.write_all(b"SELECT ';' AS b,\n 2").unwrap();
    stdin.write_all(b" AS c;\n\\echo done\n").unwrap();
    line("b,c\n");
    line(";,2\n");
    line("done\n");
    stdin.write_all(b"SELECT 3 AS d").unwrap();
    drop(stdin);
    line("d\n");
    line("3\n");
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn the_byte_order_mark_of_a_file_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.sql");
    std::fs::write(&file, "\u{feff}SELECT 1 AS n;\nSELECT nothing;").unwrap();
    let output = run(&["--format", "csv", "-f", text(&file)]);
    assert_eq!(out(&output), "n\n1\n");
    assert!(
        err(&output).contains("a.sql:2: ERROR:  column \"nothing\""),
        "{}",
        err(&output)
    );
}

#[test]
fn an_unknown_connector_is_refused_with_the_one_that_was_meant() {
    let told = bad(&["-c", "CREATE SOURCE s WITH (connector = 'nexmarx')"]);
    assert_eq!(
        told,
        "ERROR:  unknown source connector \"nexmarx\"\n\
         LINE 1: CREATE SOURCE s WITH (connector = 'nexmarx')\n\
         \x20                                         ^\n\
         HINT:  Did you mean \"nexmark\"?\n"
    );
    let told = bad(&["-c", "CREATE SOURCE s WITH (topic = 't')"]);
    assert!(
        told.starts_with("ERROR:  source \"s\" has no connector"),
        "{told}"
    );
}

#[test]
fn lists_are_shown_under_their_names() {
    let csv = |sql: &str| good(&["--format", "csv", "-c", COUNT_SQL, "-c", sql]);
    let queries = csv("SHOW QUERIES");
    assert!(queries.starts_with("name,kind,state,"), "{queries}");
    assert!(queries.contains("\ntotals,materialized view,"), "{queries}");
    assert_eq!(csv("SHOW JOBS").lines().count(), queries.lines().count());
    let operators = csv("SELECT operator FROM hw.operators WHERE state_rows IS NOT NULL");
    assert_eq!(operators, "operator\n\"Aggregate: count(*), min(price)\"\n");
    let options = csv("SHOW OPTIONS");
    assert!(options.contains("\nkafka source,topic,"), "{options}");
    assert!(csv("SHOW OPTIONS FOR nexmark").contains("\nsource,event.num,"));
    assert!(csv("SHOW ALL").contains("\ntimezone,UTC\n"));
}

#[test]
fn a_read_only_look_needs_no_environment_and_lists_what_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    std::fs::write(&file, COUNT_SQL.replace("'1000'", "'${HIGHWATER_TEST_EVENTS}'")).unwrap();
    let ran = highwater(&["run", text(&file), "--data", text(&data)])
        .env("HIGHWATER_TEST_EVENTS", "1000")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ran = finish(ran);
    assert_eq!(ran.status.code(), Some(0), "{}", err(&ran));

    let look = |sql: &str| good(&[text(&data), "--read-only", "--format", "csv", "-c", sql]);
    assert_eq!(
        look("SELECT name, kind, state, rows FROM hw.queries"),
        "name,kind,state,rows\ntotals,materialized view,NOT RUNNING,\n"
    );
    assert_eq!(look("SELECT DISTINCT paused FROM hw.lanes"), "paused\n\n");
    assert_eq!(look("SELECT n FROM totals"), "n\n1000\n");
    assert_eq!(
        look("SELECT queries, epoch > 0 AS written FROM hw.checkpoints"),
        "queries,written\ntotals,t\n"
    );
    assert!(look("SHOW CREATE bids").contains("${HIGHWATER_TEST_EVENTS}"));

    // Opened to run, the query alone fails, and says what it misses.
    let state = good(&[
        text(&data),
        "--format",
        "csv",
        "-c",
        "SELECT name, kind, state FROM hw.queries",
        "-c",
        "SELECT n FROM totals",
        "-c",
        "CREATE VIEW other AS SELECT 1 AS one",
    ]);
    assert!(state.contains("totals,materialized view,FAILED\n"), "{state}");
    assert!(state.contains("n\n1000\n"), "{state}");
    let reason = good(&[
        text(&data),
        "--format",
        "csv",
        "-c",
        "SELECT error FROM hw.queries",
    ]);
    assert!(reason.contains("HIGHWATER_TEST_EVENTS"), "{reason}");

    let told = bad(&[text(&data), "--read-only", "-c", "CREATE VIEW v AS SELECT 1"]);
    assert!(
        told.contains("cannot execute CREATE VIEW in a read-only database"),
        "{told}"
    );
    assert!(!told.contains("nother process holds"), "{told}");
}

#[test]
fn a_run_says_which_queries_failed_and_the_others_catch_up() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.sql"), dir.path().join("db"));
    let failing = "\nCREATE MATERIALIZED VIEW broken AS SELECT sum(price / (price - price)) AS s FROM bids;";
    std::fs::write(&file, format!("{COUNT_SQL}{failing}")).unwrap();
    let output = run(&["run", text(&file), "--data", text(&data), "--until-caught-up"]);
    let told = err(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("highwater: query \"broken\" has failed: division by zero (22012)"),
        "{told}"
    );
    assert!(
        told.contains("highwater: 1 of 2 queries failed, the others have caught up"),
        "{told}"
    );
    assert_eq!(
        good(&[
            text(&data),
            "--read-only",
            "--format",
            "csv",
            "-c",
            "SELECT n FROM totals"
        ]),
        "n\n1000\n"
    );
}

#[test]
fn a_show_create_statement_makes_the_same_source_again() {
    let create = "CREATE SOURCE s (a integer, b character varying, c timestamp with time zone, d decimal(10, 2), e double precision[]) \
                  WITH (connector = 'memory', topic = 't') FORMAT PLAIN ENCODE JSON";
    let shown = |sql: &str| {
        let json = good(&["--format", "json", "-c", sql, "-c", "SHOW CREATE s"]);
        let (_, text) = json.split_once("\"create_statement\":\"").unwrap();
        text.trim_end().trim_end_matches("\"}").replace("\\n", "\n")
    };
    let first = shown(create);
    assert!(
        first
            .contains("a INT,\n  b VARCHAR,\n  c TIMESTAMPTZ,\n  d NUMERIC(10,2),\n  e DOUBLE PRECISION[]\n"),
        "{first}"
    );
    assert_eq!(shown(&first), first);
}

/// A database that is served until this is dropped.
struct Serving {
    child: Child,
    /// Host and port.
    address: String,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Serving {
    fn start(dir: &Path) -> Self {
        Self::with(dir, &[])
    }

    fn with(dir: &Path, options: &[&str]) -> Self {
        let mut child = highwater(&["serve", text(dir), "--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("highwater: listening on ").map(str::to_owned)
        });
        Self {
            child,
            address: address.unwrap(),
            lines,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_lets_psql_in_until_a_signal_and_keeps_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let mut serving = Serving::start(&dir);
    let dir = text(&dir);
    let (host, port) = serving.address.split_once(':').unwrap();
    let psql = Command::new("psql")
        .args([
            "-X",
            "-w",
            "-h",
            host,
            "-p",
            port,
            "-U",
            "tester",
            "-d",
            "highwater",
            "-c",
        ])
        .arg("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (7)")
        .output()
        .unwrap();
    assert_eq!(out(&psql), "CREATE TABLE\nINSERT 0 1\n", "{}", err(&psql));

    signal(serving.child.id(), "TERM");
    let rest: Vec<String> = serving.lines.by_ref().map(Result::unwrap).collect();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("stopped by SIGTERM")),
        "{rest:?}"
    );
    assert_eq!(
        good(&[dir, "-c", "SELECT a FROM t", "--format", "csv", "--quiet"]),
        "a\n7\n"
    );

    let refused = bad(&["serve", dir, "--listen", "0.0.0.0:0"]);
    assert!(
        refused.contains("cannot listen on 0.0.0.0:0 without users"),
        "{refused}"
    );
}
