//! Rules about who may import whom: no cycles between the modules of a crate, and layers that point one way.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{SourceFile, identifier_after, is_word, line_of, positions_of};

/// How deeply braces in an import may nest before the reader gives up.
const NESTING_MAX: usize = 8;
const LEAVES: &[(&str, &str)] = &[
    ("sql/", "highwater_sql"),
    ("connectors/", "highwater_connectors"),
    ("storage/", "highwater_storage"),
];
/// The doors: they use the public API and nothing behind it.
const DOORS: &[&str] = &["src/cli", "src/server"];

/// A tree of modules that must have no cycle: the folder, and the path of its root inside the crate.
pub(crate) struct ModuleTree {
    pub(crate) folder: &'static str,
    pub(crate) within: &'static [&'static str],
}

/// The four crates, and the engine, which is written like a crate.
pub(crate) const TREES: &[ModuleTree] = &[
    ModuleTree {
        folder: "src/",
        within: &[],
    },
    ModuleTree {
        folder: "src/engine/",
        within: &["engine"],
    },
    ModuleTree {
        folder: "sql/src/",
        within: &[],
    },
    ModuleTree {
        folder: "connectors/src/",
        within: &[],
    },
    ModuleTree {
        folder: "storage/src/",
        within: &[],
    },
];

/// An import, or a path in code, as the segments from the crate's root, and where it stands.
struct Import {
    segments: Vec<String>,
    line: usize,
}

/// Reads the tree of a path: `a::{b, c::d}` gives `a::b` and `a::c::d`. Returns where it ends.
fn read_tree(
    code: &str,
    from: usize,
    prefix: &[String],
    depth: usize,
    found: &mut Vec<Vec<String>>,
) -> usize {
    let bytes = code.as_bytes();
    let skip_blanks = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    let mut path = prefix.to_vec();
    let mut at = skip_blanks(from);
    loop {
        if bytes.get(at) == Some(&b'{') && depth < NESTING_MAX {
            at = skip_blanks(at + 1);
            while at < bytes.len() && bytes[at] != b'}' {
                let before = at;
                at = skip_blanks(read_tree(code, at, &path, depth + 1, found));
                at = skip_blanks(if bytes.get(at) == Some(&b',') {
                    at + 1
                } else {
                    at.max(before + 1)
                });
            }
            return at + 1;
        }
        let end = at + bytes[at..].iter().take_while(|&&byte| is_word(byte)).count();
        if end > at {
            path.push(code[at..end].to_owned());
        }
        let next = skip_blanks(end);
        if !code[next..].starts_with("::") || end == at {
            let (end, alias) = read_alias(code, end);
            path.extend(alias);
            found.push(path);
            return if bytes.get(end) == Some(&b'*') {
                end + 1
            } else {
                end
            };
        }
        at = skip_blanks(next + 2);
    }
}

/// The name after `as`, which becomes the last segment of the path, and where it ends.
fn read_alias(code: &str, end: usize) -> (usize, Option<String>) {
    let Some(rest) = code[end..].trim_start().strip_prefix("as ") else {
        return (end, None);
    };
    let name = identifier_after(rest, 0);
    let blanks = rest.len() - rest.trim_start().len();
    (
        code.len() - rest.len() + blanks + name.len(),
        Some(name.to_owned()),
    )
}

/// Every path of the file that starts at `crate` or `super`, made absolute.
fn imports_of(file: &SourceFile) -> Vec<Import> {
    let code = &file.production;
    let own: Vec<String> = file
        .module_path()
        .iter()
        .map(|&segment| segment.to_owned())
        .collect();
    let mut imports = Vec::new();
    for start in positions_of(code, "crate")
        .into_iter()
        .chain(positions_of(code, "super"))
    {
        let inside_a_path = code[..start].trim_end().ends_with("::");
        let ends_in_path = code[start + "crate".len()..].trim_start().starts_with("::");
        if inside_a_path || !ends_in_path {
            continue;
        }
        let mut trees = Vec::new();
        read_tree(code, start, &[], 0, &mut trees);
        let line = line_of(code, start);
        imports.extend(trees.into_iter().map(|tree| Import {
            segments: absolute(&tree, &own),
            line,
        }));
    }
    imports
}

fn absolute(tree: &[String], own: &[String]) -> Vec<String> {
    let ups = tree.iter().take_while(|segment| *segment == "super").count();
    let base = if tree[0] == "crate" {
        &own[..0]
    } else {
        &own[..own.len().saturating_sub(ups)]
    };
    let rest = &tree[ups.max(1)..];
    base.iter()
        .chain(rest)
        .filter(|segment| *segment != "self")
        .cloned()
        .collect()
}

/// The names that the root file passes on, each with the module that it comes from.
fn reexports(root: &SourceFile) -> BTreeMap<String, String> {
    let code = &root.production;
    let mut names = BTreeMap::new();
    for at in positions_of(code, "use") {
        let mut trees = Vec::new();
        read_tree(code, at + "use".len(), &[], 0, &mut trees);
        for tree in trees {
            let path: Vec<&String> = tree
                .iter()
                .filter(|part| !matches!(part.as_str(), "crate" | "self"))
                .collect();
            if let (Some(first), Some(last)) = (path.first(), path.last()) {
                names.insert((*last).clone(), (*first).clone());
            }
        }
    }
    names
}

fn is_root(file: &SourceFile, tree: &ModuleTree) -> bool {
    let name = file.path.strip_prefix(tree.folder).unwrap_or_default();
    matches!(name, "lib.rs" | "main.rs" | "mod.rs")
}

/// No cycle between the modules directly below the root of the tree.
pub(crate) fn module_cycles(files: &[SourceFile], tree: &ModuleTree) -> Vec<String> {
    let inside = || files.iter().filter(|file| file.path.starts_with(tree.folder));
    let depth = tree.within.len();
    let module_of = |file: &SourceFile| file.module_path().get(depth).map(|&name| name.to_owned());
    let modules: BTreeSet<String> = inside().filter_map(module_of).collect();
    let passed_on: BTreeMap<String, String> = inside()
        .filter(|file| is_root(file, tree))
        .flat_map(reexports)
        .collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in inside() {
        let Some(from) = module_of(file) else { continue };
        for import in imports_of(file) {
            let Some(name) = import.segments.get(depth) else {
                continue;
            };
            let to = if modules.contains(name) {
                Some(name)
            } else {
                passed_on.get(name)
            };
            let within = import
                .segments
                .iter()
                .zip(tree.within)
                .all(|(have, want)| have == want);
            if let Some(to) = to.filter(|to| within && modules.contains(*to) && **to != from) {
                edges.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    cycles(&edges)
        .into_iter()
        .map(|cycle| format!("{}: modules in a cycle: {cycle}", tree.folder))
        .collect()
}

/// Takes away modules that import none of the remaining ones until nothing changes; what is left is on or above a cycle.
fn cycles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut left = edges.clone();
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, targets| targets.iter().any(|target| names.contains(target)));
        if left.len() == before {
            break;
        }
    }
    let Some(start) = left.keys().next() else {
        return Vec::new();
    };
    let mut walk = vec![start.clone()];
    loop {
        let targets = &left[&walk[walk.len() - 1]];
        let next = targets
            .iter()
            .find(|target| left.contains_key(*target))
            .expect("each one left has a target left");
        if let Some(at) = walk.iter().position(|name| name == next) {
            walk.push(next.clone());
            return vec![walk[at..].join(" -> ")];
        }
        walk.push(next.clone());
    }
}

/// The leaves import no other crate of the house; the engine imports leaves and itself; the doors use the public API.
pub(crate) fn layers(file: &SourceFile, public: &BTreeSet<String>) -> Vec<String> {
    let is_leaf = LEAVES.iter().find(|(folder, _)| file.path.starts_with(folder));
    let is_door = DOORS.iter().any(|door| file.path.starts_with(door));
    let is_engine = file.path.starts_with("src/engine");
    let mut faults = Vec::new();
    let mut refuse = |line: usize, what: String| faults.push(format!("{}:{line}: {what}", file.path));
    let houses = LEAVES.iter().map(|&(_, name)| name).chain(["highwater"]);
    for house in houses {
        let own = is_leaf.is_some_and(|&(_, name)| name == house);
        let foreign =
            is_leaf.is_some() || (is_door && house != "highwater") || (is_engine && house == "highwater");
        for at in positions_of(&file.code, house)
            .into_iter()
            .filter(|_| foreign && !own)
        {
            refuse(
                line_of(&file.code, at),
                format!("this layer must not know {house}"),
            );
        }
    }
    for import in imports_of(file) {
        let Some(first) = import.segments.first() else {
            continue;
        };
        if is_engine && first != "engine" {
            refuse(
                import.line,
                format!("the engine imports leaves and itself, not crate::{first}"),
            );
        }
        let own = file.module_path().first() == Some(&first.as_str());
        if is_door && !own && (first == "engine" || !public.contains(first)) {
            refuse(
                import.line,
                format!("a door uses the public API, not crate::{first}"),
            );
        }
    }
    faults
}

/// What the library shows to its users: the public modules of `lib.rs` and the names that it passes on.
pub(crate) fn public_names(library: &SourceFile) -> BTreeSet<String> {
    let modules = library
        .production
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod "));
    let modules = modules.map(|rest| rest.trim_end_matches([';', ' ', '{']).to_owned());
    modules.chain(reexports(library).into_keys()).collect()
}

/// Leaf manifests name no other crate of the house.
pub(crate) fn leaf_manifest(path: &str, text: &str) -> Vec<String> {
    let mut section = "";
    let mut faults = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && line.starts_with("highwater") {
            faults.push(format!("{path}: a leaf depends on {line}"));
        }
    }
    faults
}

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile::new(path, text)
}

#[test]
fn a_cycle_is_caught_through_use_super_and_reexports() {
    let tree = &TREES[4];
    let root = file(
        "storage/src/lib.rs",
        "pub mod a;\nmod b;\npub use b::{B, inner::C};\n",
    );
    let a = |text: &str| file("storage/src/a.rs", text);
    let b = file("storage/src/b/inner.rs", "use crate::{\n  a::{A, D},\n};\n");
    let seen = |text: &str| {
        module_cycles(
            &[file(&root.path, &root.text), a(text), file(&b.path, &b.text)],
            tree,
        )
    };
    assert_eq!(
        seen("use crate::b::B;"),
        ["storage/src/: modules in a cycle: a -> b -> a"]
    );
    assert_eq!(seen("fn f() { super::b::g() }").len(), 1);
    assert_eq!(seen("use crate::C;").len(), 1);
    assert!(seen("// crate::b::B\nuse super::*;\n#[cfg(test)]\nmod tests { use crate::b::B; }").is_empty());
}

#[test]
fn a_cycle_inside_the_engine_is_caught() {
    let step = file("src/engine/step.rs", "use super::lane::Lane;");
    let lane = file("src/engine/lane/pool.rs", "use crate::engine::step::Step;");
    assert_eq!(module_cycles(&[step, lane], &TREES[1]).len(), 1);
}

#[test]
fn an_import_against_the_layers_is_caught() {
    let public = BTreeSet::from(["Database".to_owned(), "engine".to_owned()]);
    let faults = |path: &str, text: &str| layers(&file(path, text), &public).len();
    assert_eq!(faults("storage/src/a.rs", "use highwater_sql::Plan;"), 1);
    assert_eq!(
        faults(
            "storage/src/a.rs",
            "use highwater_storage::Store; use crate::b::C;"
        ),
        0
    );
    assert_eq!(faults("src/engine/a.rs", "use crate::session::Session;"), 1);
    assert_eq!(
        faults("src/engine/a/b.rs", "use super::super::super::query::Query;"),
        1
    );
    assert_eq!(
        faults(
            "src/engine/a.rs",
            "use crate::engine::b::C; use highwater_storage::Store;"
        ),
        0
    );
    assert_eq!(faults("src/cli/a.rs", "use crate::{Database, cli::b::C};"), 0);
    assert_eq!(faults("src/cli/a.rs", "use crate::engine::step::Step;"), 1);
    assert_eq!(
        faults(
            "src/server/a.rs",
            "use highwater_sql::Plan; use crate::hidden::A;"
        ),
        2
    );
}

#[test]
fn a_leaf_manifest_that_names_another_leaf_is_caught() {
    let text =
        "[package]\nname = \"highwater-sql\"\n[dev-dependencies]\nhighwater-storage.workspace = true\n";
    assert_eq!(leaf_manifest("sql/Cargo.toml", text).len(), 1);
}

#[test]
fn the_public_api_is_what_the_library_shows() {
    let library = file(
        "src/lib.rs",
        "mod session;\npub mod cli;\npub use session::{Session, Rows as Answer};\n",
    );
    let names: Vec<String> = public_names(&library).into_iter().collect();
    assert_eq!(names, ["Answer", "Session", "cli"]);
}
