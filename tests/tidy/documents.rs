//! Rules about the documents: decisions in sequence, citations that lead somewhere, links that work, no page unlinked.

use std::collections::{BTreeMap, BTreeSet};

/// A tracked file that is no Rust: its path and its text.
pub(crate) type Documents = BTreeMap<String, String>;

/// Decisions are numbered 0001, 0002, … without a gap, and each owns up to what is bad about it.
pub(crate) fn decisions(documents: &Documents) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expected = 1;
    for (path, text) in documents.iter().filter(|(path, _)| path.starts_with("docs/adr/")) {
        let number = decision_number(path);
        if number != Some(expected) {
            faults.push(format!("{path}: expected the decision with number {expected:04}"));
        }
        expected = number.unwrap_or(expected) + 1;
        for needed in [
            "## Context",
            "## Decision",
            "## Consequences",
            "*Bad*",
            "Confirmed by",
        ] {
            if !text.contains(needed) {
                faults.push(format!("{path}: a decision needs {needed}"));
            }
        }
    }
    faults
}

fn decision_number(path: &str) -> Option<u32> {
    let name = path.strip_prefix("docs/adr/")?;
    name.get(..4).filter(|_| name[4..].starts_with('-'))?.parse().ok()
}

/// The numbers that follow `prefix` in the text, as in `INV-3`.
fn cited(text: &str, prefix: &str) -> BTreeSet<u32> {
    let after = text.split(prefix).skip(1);
    after
        .filter_map(|rest| {
            rest.split(|char: char| !char.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

/// Every cited invariant and decision exists.
pub(crate) fn citations(path: &str, text: &str, documents: &Documents) -> Vec<String> {
    let invariants = documents
        .get("docs/INVARIANTS.md")
        .map(String::as_str)
        .unwrap_or_default();
    let known: BTreeSet<u32> = invariants
        .lines()
        .filter(|line| line.starts_with("## INV-"))
        .flat_map(|line| cited(line, "INV-"))
        .collect();
    let decided: BTreeSet<u32> = documents
        .keys()
        .filter_map(|path| decision_number(path))
        .collect();
    let unknown = |prefix: &'static str, known: &BTreeSet<u32>| {
        let missing: Vec<u32> = cited(text, prefix).difference(known).copied().collect();
        missing
            .into_iter()
            .map(move |number| format!("{path}: {prefix}{number} does not exist"))
    };
    unknown("INV-", &known).chain(unknown("ADR-", &decided)).collect()
}

/// The targets of the page's links to files, relative to the top of the repository.
fn links(page: &str, text: &str) -> Vec<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local
        .map(|target| resolve(folder, target.split('#').next().unwrap_or(target)))
        .collect()
}

fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Every link leads to a tracked file or folder.
pub(crate) fn dead_links(documents: &Documents, tracked: &[String]) -> Vec<String> {
    let exists = |target: &str| {
        tracked.iter().any(|path| {
            path == target
                || path
                    .strip_prefix(target)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let pages = documents.iter().filter(|(path, _)| path.ends_with(".md"));
    let dead = pages.flat_map(|(path, text)| {
        links(path, text)
            .into_iter()
            .filter(|target| !exists(target))
            .map(move |target| format!("{path}: dead link to {target}"))
    });
    dead.collect()
}

/// Every file below docs is linked from docs/README.md or README.md.
pub(crate) fn unlinked_pages(documents: &Documents, tracked: &[String]) -> Vec<String> {
    let doors = ["README.md", "docs/README.md"];
    let linked: BTreeSet<String> = doors
        .iter()
        .filter_map(|door| documents.get(*door).map(|text| links(door, text)))
        .flatten()
        .collect();
    let pages = tracked
        .iter()
        .filter(|path| path.starts_with("docs/") && !doors.contains(&path.as_str()));
    pages
        .filter(|path| !linked.contains(*path))
        .map(|path| format!("{path}: no link from docs/README.md"))
        .collect()
}

/// Every test that docs/INVARIANTS.md names, as `name_of_a_test` in backticks, is a function somewhere.
pub(crate) fn missing_tests(documents: &Documents, functions: &BTreeSet<String>) -> Vec<String> {
    let text = documents
        .get("docs/INVARIANTS.md")
        .map(String::as_str)
        .unwrap_or_default();
    let quoted = text.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        name.matches('_').count() >= 2
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
    };
    let missing = quoted.filter(is_test).filter(|name| !functions.contains(*name));
    missing
        .map(|name| format!("docs/INVARIANTS.md names the test {name}, which does not exist"))
        .collect()
}

/// Every direct dependency has its line in docs/DEPENDENCIES.md.
pub(crate) fn unexplained_dependencies(manifest: &str, text: &str, documents: &Documents) -> Vec<String> {
    let explained = documents
        .get("docs/DEPENDENCIES.md")
        .map(String::as_str)
        .unwrap_or_default();
    let mut faults = Vec::new();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let direct = section.ends_with("dependencies]") && !section.starts_with("[workspace");
        let named =
            line.starts_with(|char: char| char.is_ascii_lowercase()) && !name.starts_with("highwater");
        if direct && named && !explained.contains(&format!("`{name}`")) {
            faults.push(format!(
                "{manifest}: docs/DEPENDENCIES.md does not say why {name} is there"
            ));
        }
    }
    faults
}

/// No path into someone's home in a tracked file.
pub(crate) fn machine_paths(path: &str, text: &str) -> Vec<String> {
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| homes.iter().any(|home| line.contains(home)));
    lines
        .map(|(at, _)| format!("{path}:{}: a path of one machine", at + 1))
        .collect()
}

fn documents(files: &[(&str, &str)]) -> Documents {
    files
        .iter()
        .map(|&(path, text)| (path.to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn a_gap_between_decisions_is_caught() {
    let good = "## Context\n## Decision\n## Consequences\n*Bad*: slow.\nConfirmed by a test.\n";
    let found =
        |second: &str, text: &str| decisions(&documents(&[("docs/adr/0001-a.md", good), (second, text)]));
    assert!(found("docs/adr/0002-b.md", good).is_empty());
    assert_eq!(found("docs/adr/0003-b.md", good).len(), 1);
    assert_eq!(found("docs/adr/0001-b.md", good).len(), 1);
    assert_eq!(
        found(
            "docs/adr/0002-b.md",
            "## Context\n## Decision\n## Consequences\nConfirmed by a test.\n"
        )
        .len(),
        1
    );
}

#[test]
fn a_citation_of_nothing_is_caught() {
    let known = documents(&[
        ("docs/INVARIANTS.md", "## INV-1 Offsets\nnot INV-3\n"),
        ("docs/adr/0002-b.md", ""),
    ]);
    assert!(citations("src/a.rs", "// INV-1, ADR-2 and ADR-0002.", &known).is_empty());
    assert_eq!(citations("src/a.rs", "// INV-3 and ADR-1.", &known).len(), 2);
}

#[test]
fn a_dead_link_and_an_unlinked_page_are_caught() {
    let pages = documents(&[
        (
            "README.md",
            "[docs](docs/README.md#top) [site](https://example.org/x.md)",
        ),
        (
            "docs/README.md",
            "[a](adr/0001-a.md) [gone](gone.md) [up](../README.md) [here](#here)",
        ),
    ]);
    let tracked = [
        "README.md",
        "docs/README.md",
        "docs/adr/0001-a.md",
        "docs/lost.md",
    ]
    .map(str::to_owned);
    assert_eq!(
        dead_links(&pages, &tracked),
        ["docs/README.md: dead link to docs/gone.md"]
    );
    assert_eq!(
        unlinked_pages(&pages, &tracked),
        ["docs/lost.md: no link from docs/README.md"]
    );
}

#[test]
fn a_named_test_that_does_not_exist_is_caught() {
    let page = documents(&[(
        "docs/INVARIANTS.md",
        "`a_durable_offset_waits` and `no_such_test_here`, `hw.errors`",
    )]);
    let functions = BTreeSet::from(["a_durable_offset_waits".to_owned()]);
    assert_eq!(missing_tests(&page, &functions).len(), 1);
}

#[test]
fn a_path_of_one_machine_is_caught() {
    assert_eq!(
        machine_paths("a.md", concat!("see /ro", "ot/x\nfine: /tmp/x\n")).len(),
        1
    );
}

#[test]
fn an_unexplained_dependency_is_caught() {
    let page = documents(&[("docs/DEPENDENCIES.md", "| `arrow` | columns |")]);
    let manifest =
        "[workspace.dependencies]\nold = \"1\"\n[dependencies]\narrow.workspace = true\nnew = \"1\"\n";
    assert_eq!(unexplained_dependencies("Cargo.toml", manifest, &page).len(), 1);
}
