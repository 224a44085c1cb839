//! The SQL of the documents runs: every block of the README, the guides and the reference, and every example.

use std::path::{Path, PathBuf};

use highwater::Database;
use highwater::sql::parse::parse;

use crate::support::cells;

/// One SQL block of a page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// 1 for the first SQL block of its page.
    number: usize,
    /// Its text starts on this line of the page.
    line: usize,
    /// Marked `sql kafka`: it wants a broker, so that it is parsed and not run.
    kafka: bool,
    sql: String,
}

/// The blocks of a page that are marked as SQL, in their order.
fn sql_blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fenced = false;
    let mut wanted = false;
    for (at, line) in page.lines().enumerate() {
        let mark = line.trim().strip_prefix("```");
        match (fenced, mark) {
            (false, Some(mark)) => {
                let words: Vec<&str> = mark.split_whitespace().collect();
                fenced = true;
                wanted = words.first() == Some(&"sql");
                if wanted {
                    blocks.push(Block {
                        number: blocks.len() + 1,
                        line: at + 2,
                        kafka: words.contains(&"kafka"),
                        sql: String::new(),
                    });
                }
            }
            (true, Some(_)) => fenced = false,
            (true, None) if wanted => {
                let block = blocks.last_mut().expect("the fence began a block");
                block.sql.push_str(line);
                block.sql.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder with this extension, sorted.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(top().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort_unstable();
    paths
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs the blocks of one page in one database and returns what went wrong, with the page and the block.
async fn faults_of(name: &str, page: &str) -> Vec<String> {
    let database = Database::in_memory().await.unwrap();
    let mut faults = Vec::new();
    for block in sql_blocks(page) {
        let fault = if block.kafka {
            parse(&block.sql).err().map(|error| error.to_string())
        } else {
            database
                .execute(&block.sql)
                .await
                .err()
                .map(|error| error.to_string())
        };
        if let Some(fault) = fault {
            let (number, line) = (block.number, block.line);
            faults.push(format!("{name}: SQL block {number} on line {line}: {fault}"));
        }
    }
    database.close().await.unwrap();
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sql_block_of_the_readme_the_guides_and_the_reference_runs() {
    let mut pages = vec![top().join("README.md")];
    pages.extend(files("docs/guide", "md"));
    pages.extend(files("docs/reference", "md"));
    let mut faults = Vec::new();
    for path in pages {
        let name = path.strip_prefix(top()).unwrap().display().to_string();
        faults.extend(faults_of(&name, &read(&path)).await);
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_readme_has_blocks_that_run_and_blocks_for_kafka() {
    let blocks = sql_blocks(&read(&top().join("README.md")));
    assert!(blocks.iter().any(|block| !block.kafka), "{blocks:#?}");
    assert!(blocks.iter().any(|block| block.kafka), "{blocks:#?}");
}

#[test]
fn every_example_script_parses_and_bids_has_its_five_statements() {
    let scripts = files("docs/examples", "sql");
    assert!(
        scripts.iter().any(|path| path.ends_with("bids.sql")),
        "{scripts:?}"
    );
    for path in scripts {
        let statements = parse(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if path.ends_with("bids.sql") {
            assert_eq!(statements.len(), 5, "a source, two views, two sinks");
        }
    }
}

#[test]
fn blocks_are_found_with_their_marks_and_lines() {
    let page = "# A\n```sql\nSELECT 1;\n```\ntext\n```text\n```\n```sql kafka\nSELECT 2;\nSELECT 3;\n```\n";
    let block = |number, line, kafka, sql: &str| Block {
        number,
        line,
        kafka,
        sql: sql.to_owned(),
    };
    assert_eq!(
        sql_blocks(page),
        [
            block(1, 3, false, "SELECT 1;\n"),
            block(2, 9, true, "SELECT 2;\nSELECT 3;\n"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_fails_is_named() {
    let page = "```sql\nSELECT 1;\n```\n```sql\nSELECT nothing;\n```\n```sql kafka\nCREATE TRIGGER t;\n```\n";
    let faults = faults_of("page.md", page).await;
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("page.md: SQL block 2 on line 5: "),
        "{faults:?}"
    );
    assert!(
        faults[1].starts_with("page.md: SQL block 3 on line 8: "),
        "{faults:?}"
    );
}

/// The page that lists every option, as the registry has them.
async fn options_page() -> String {
    let database = Database::in_memory().await.unwrap();
    let outcomes = database.execute("SHOW OPTIONS").await.unwrap();
    let rows = outcomes.into_iter().find_map(|outcome| outcome.rows).unwrap();
    let mut page = String::from(
        "# Options\n\nWhat stands in `WITH (…)` of sources and sinks, and behind `ENCODE JSON`. `SHOW OPTIONS [FOR connector]` says the same. An option\n\
         that is not here is refused with the nearest one that is. This page is written by `HIGHWATER_WRITE_DOCS=1 make test`.\n",
    );
    let mut of = String::new();
    for cells in cells(&rows.batches) {
        let [owner, name, aliases, value, default, required, description] =
            <[String; 7]>::try_from(cells).unwrap();
        if owner != of {
            page.push_str(&format!(
                "\n## {}{}\n\n| option | value | default | meaning |\n|---|---|---|---|\n",
                owner[..1].to_uppercase(),
                &owner[1..]
            ));
            of = owner;
        }
        let also = if aliases.is_empty() {
            String::new()
        } else {
            format!(" (also `{aliases}`)")
        };
        let default = match (default.as_str(), required.as_str()) {
            (_, "yes") => "must be given".to_owned(),
            ("", _) => String::new(),
            (default, _) => format!("`{default}`"),
        };
        page.push_str(&format!(
            "| `{name}`{also} | {value} | {default} | {description} |\n"
        ));
    }
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_options_is_what_the_registry_has() {
    let path = top().join("docs/reference/options.md");
    let expected = options_page().await;
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert!(
        read(&path) == expected,
        "docs/reference/options.md is not what SHOW OPTIONS says: run this test with HIGHWATER_WRITE_DOCS=1"
    );
}

/// The page that lists every metric, as the registry has them.
fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nWhat `/metrics` of `highwater serve --http` tells, and `Database::metrics` of the library. The values are those of the `hw.*` tables. Counters\n\
         count from the start of the process, where they do not say otherwise. This page is written by `HIGHWATER_WRITE_DOCS=1 make test`.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for spec in highwater::metric_specs() {
        let labels: Vec<String> = spec.labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            spec.name,
            spec.kind,
            labels.join(", "),
            spec.help
        ));
    }
    page
}

#[test]
fn the_page_of_metrics_is_what_the_registry_has() {
    let path = top().join("docs/reference/metrics.md");
    let expected = metrics_page();
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert!(
        read(&path) == expected,
        "docs/reference/metrics.md is not what the registry has: run this test with HIGHWATER_WRITE_DOCS=1"
    );
}
