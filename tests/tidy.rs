//! The house rules that no compiler checks, read from the tracked files. Each rule stands in `tests/tidy/` beside a test
//! that shows it failing; this file applies them to the repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

use documents::Documents;
use source::{SourceFile, identifier_after, positions_of};

/// The tracked files of this repository that exist.
struct Repository {
    tracked: Vec<String>,
    rust: Vec<SourceFile>,
    documents: Documents,
}

impl Repository {
    fn read() -> Repository {
        let top = Path::new(option_env!("CARGO_MANIFEST_DIR").unwrap_or("."));
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(top)
            .output();
        let listed = listed.expect("git runs: the house rules look at tracked files");
        assert!(
            listed.status.success(),
            "git ls-files failed: {}",
            String::from_utf8_lossy(&listed.stderr)
        );
        let listed = String::from_utf8(listed.stdout).expect("tracked paths are UTF-8");
        let mut repository = Repository {
            tracked: Vec::new(),
            rust: Vec::new(),
            documents: Documents::new(),
        };
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            let Ok(bytes) = std::fs::read(top.join(path)) else {
                continue;
            };
            repository.tracked.push(path.to_owned());
            match String::from_utf8(bytes) {
                Ok(text) if path.ends_with(".rs") => repository.rust.push(SourceFile::new(path, &text)),
                Ok(text) => drop(repository.documents.insert(path.to_owned(), text)),
                Err(_) => {}
            }
        }
        assert!(!repository.rust.is_empty(), "no tracked Rust file found");
        repository
    }

    fn each(&self, rule: impl Fn(&SourceFile) -> Vec<String>) {
        hold(self.rust.iter().flat_map(rule).collect());
    }
}

fn hold(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn files_are_short() {
    Repository::read().each(shape::long_files);
}

#[test]
fn functions_fit_a_screen() {
    Repository::read().each(shape::long_functions);
}

#[test]
fn structs_are_narrow() {
    Repository::read().each(shape::wide_structs);
}

#[test]
fn no_work_is_left_unfinished() {
    Repository::read().each(words::unfinished_work);
}

#[test]
fn nothing_unwraps_outside_tests() {
    Repository::read().each(words::unwraps);
}

#[test]
fn each_file_says_what_it_provides() {
    Repository::read().each(words::missing_module_docs);
}

#[test]
fn unsafe_code_is_listed_and_argued() {
    Repository::read().each(words::unsafe_code);
}

#[test]
fn features_switch_whole_modules() {
    Repository::read().each(words::features_inside_modules);
}

#[test]
fn modules_have_no_cycle() {
    let repository = Repository::read();
    hold(
        imports::TREES
            .iter()
            .flat_map(|tree| imports::module_cycles(&repository.rust, tree))
            .collect(),
    );
}

#[test]
fn layers_point_one_way() {
    let repository = Repository::read();
    let library = repository
        .rust
        .iter()
        .find(|file| file.path == "src/lib.rs")
        .expect("the library has a root");
    let public = imports::public_names(library);
    repository.each(|file| imports::layers(file, &public));
    let manifests = ["sql/Cargo.toml", "connectors/Cargo.toml", "storage/Cargo.toml"];
    hold(
        manifests
            .iter()
            .flat_map(|path| imports::leaf_manifest(path, &repository.documents[*path]))
            .collect(),
    );
}

#[test]
fn decisions_are_numbered_and_honest() {
    hold(documents::decisions(&Repository::read().documents));
}

#[test]
fn citations_lead_somewhere() {
    let repository = Repository::read();
    let outside_the_rules = |path: &str| !path.starts_with("tests/tidy");
    let rust = repository
        .rust
        .iter()
        .map(|file| (&file.path, &file.text))
        .filter(|(path, _)| outside_the_rules(path));
    let pages = repository
        .documents
        .iter()
        .filter(|(path, _)| path.ends_with(".md"));
    hold(
        rust.chain(pages)
            .flat_map(|(path, text)| documents::citations(path, text, &repository.documents))
            .collect(),
    );
}

#[test]
fn links_work_and_no_page_is_lost() {
    let repository = Repository::read();
    let mut faults = documents::dead_links(&repository.documents, &repository.tracked);
    faults.extend(documents::unlinked_pages(
        &repository.documents,
        &repository.tracked,
    ));
    hold(faults);
}

#[test]
fn the_tests_that_invariants_name_exist() {
    let repository = Repository::read();
    let names = |file: &SourceFile| {
        positions_of(&file.code, "fn")
            .iter()
            .map(|at| identifier_after(&file.code, at + 2).to_owned())
            .collect::<Vec<_>>()
    };
    let functions: BTreeSet<String> = repository.rust.iter().flat_map(names).collect();
    hold(documents::missing_tests(&repository.documents, &functions));
}

#[test]
fn each_dependency_is_explained() {
    let documents = Repository::read().documents;
    let manifests = documents.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    hold(
        manifests
            .flat_map(|(path, text)| documents::unexplained_dependencies(path, text, &documents))
            .collect(),
    );
}

#[test]
fn no_file_names_a_machine() {
    let repository = Repository::read();
    let rust = repository.rust.iter().map(|file| (&file.path, &file.text));
    hold(
        rust.chain(&repository.documents)
            .flat_map(|(path, text)| documents::machine_paths(path, text))
            .collect(),
    );
}
