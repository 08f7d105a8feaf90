//! Rules of the tree: layers of crates, the top level, folders, the users of fixed dependencies,
//! citations, and the verbs and flags that documents name.
//!
//! Reads the manifests, sources and documents of this checkout. Each rule is a pure function in a
//! file of `tests/architecture/`, tested there on planted faults; here it judges the real tree. It
//! builds nothing and ignores generated files.

#![allow(
    clippy::panic,
    reason = "all of it is tests, and a panic is how a test reports"
)]

mod circles;
mod citations;
mod commands;
mod floors;
mod places;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use source::Source;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with all faults, one per line.
fn assert_none(faults: Vec<String>, rule: &str) {
    assert!(faults.is_empty(), "\n{rule}\n  {}\n", faults.join("\n  "));
}

/// Every `*.rs` file of the checkout, its path relative to the root.
fn sources() -> Vec<Source> {
    fn walk(dir: &Path, root: &Path, found: &mut Vec<Source>) {
        let entries =
            fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, root, found);
                }
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let path = path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                found.push(Source { path, text });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &root(), &mut found);
    assert!(
        found.len() > 20,
        "only {} source files were found",
        found.len()
    );
    found
}

/// The packages of the workspace as cargo sees them.
fn packages() -> Vec<floors::Package> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("cargo metadata did not start: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo metadata failed: {complaint}"
    );
    let metadata = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("cargo metadata gave no JSON: {error}"));
    floors::packages(&metadata)
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn crates_import_only_from_lower_layers() {
    assert_none(
        floors::wrong_imports(&packages()),
        "A crate imports only from floors below (the table is in tests/architecture/floors.rs). A new \
         import between our crates is a design decision: move the code, or change the table.",
    );
}

#[test]
fn crates_are_in_their_planned_folders() {
    assert_none(
        floors::misplaced(&packages()),
        "The crates of the workspace and the table in tests/architecture/floors.rs are not the same.",
    );
}

#[test]
fn fixed_dependencies_are_used_by_one_crate_each() {
    assert_none(
        floors::wrong_dependencies(&packages()),
        "These crates are named behind one small part of ours each, so that they can be replaced there.",
    );
    let faults = sources().iter().flat_map(places::misplaced_names).collect();
    assert_none(
        faults,
        "quinn is named only in transport and testkit, sled only in storage, raft only in consensus, bincode only in \
         runtime/src/wire/codec/mod.rs. Use what those parts offer, or add it there.",
    );
}

#[test]
fn top_level_has_only_planned_entries() {
    let files = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    let listed = match files {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split('\0')
                .filter_map(|path| path.split('/').next())
                .map(str::to_owned)
                .collect()
        }
        // An unpacked archive has no git: then it is the directory without what cargo makes.
        _ => fs::read_dir(root())
            .unwrap_or_else(|error| panic!("{error}"))
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "target")
            .collect::<Vec<String>>(),
    };
    assert_none(
        places::wrong_top_level(&listed),
        "The top level is fixed: move the entry into one of its folders.",
    );
}

/// Parts of a crate that import each other in a circle. Each number may only fall.
const CIRCLES: &[(&str, usize)] = &[
    ("agent/src/", 9),
    ("master/src/", 14), // all but permission, and validation imports them
    ("modules/api/src/", 2),
    ("runtime/cli/", 4),
    ("runtime/http/src/", 10),
    ("runtime/protocol/src/", 4),
    ("runtime/resources/src/", 8),
    ("runtime/src/", 7), // actor, clock, delivery, link, node, observe, wire
    ("runtime/storage/src/", 3),
    ("runtime/v1/src/", 2),
];

#[test]
fn modules_of_a_crate_have_no_import_cycles() {
    let sources = sources();
    let mut faults = Vec::new();
    for place in floors::HOUSE {
        let folder = match place.folder {
            "" => "runtime/cli/".to_owned(),
            folder => format!("{folder}/src/"),
        };
        let found = circles::in_circles(&circles::imports(&sources, &folder));
        let listed = CIRCLES.iter().find(|(listed, _)| *listed == folder);
        let allowed = listed.map_or(0, |(_, number)| *number);
        if found.len() != allowed {
            let names: Vec<_> = found.iter().map(String::as_str).collect();
            let names = names.join(", ");
            faults.push(format!("(\"{folder}\", {}), // {names}", found.len()));
        }
    }
    assert_none(
        faults,
        "Parts of a crate import in one direction. Where the number has fallen, lower it in CIRCLES; else turn an import round.",
    );
}

/// The most entries that a folder of sources shows.
const ENTRIES_MAX: usize = 16;

/// Folders with more entries. Each number may only fall.
const FULL_FOLDERS: &[(&str, usize)] = &[];

#[test]
fn source_folders_are_small() {
    let faults = places::full_folders(&sources(), ENTRIES_MAX)
        .into_iter()
        .filter(|(folder, entries)| !FULL_FOLDERS.contains(&(folder.as_str(), *entries)))
        .map(|(folder, entries)| format!("(\"{folder}\", {entries}),"))
        .collect();
    assert_none(
        faults,
        "A folder shows at most sixteen entries. Where the number has fallen, lower it in FULL_FOLDERS; else group its modules.",
    );
}

#[test]
fn modules_with_children_are_folders_with_mod_rs() {
    assert_none(
        places::split_modules(&sources()),
        "A module with children is `name/mod.rs`, so that a folder shows each module once.",
    );
}

#[test]
fn every_source_file_has_a_module_comment() {
    assert_none(
        sources()
            .iter()
            .filter_map(places::without_introduction)
            .collect(),
        "A source file opens with `//!`: what it is, which messages it handles, which state it keeps.",
    );
}

#[test]
fn citations_exist_in_the_specification() {
    let specification = read("tests/spec/SPEC.md");
    let facts = citations::facts(&specification);
    assert!(facts.len() > 150, "only {} facts were found", facts.len());
    let sections = citations::sections(&specification);
    let sources = sources();
    let cited = sources.iter().flat_map(citations::cited).collect();
    let cited_sections = sources.iter().flat_map(citations::cited_sections).collect();
    let mut faults = citations::without_fact(&facts, &cited);
    faults.extend(citations::without_section(&sections, &cited_sections));
    assert_none(
        faults,
        "Every citation can be followed in tests/spec/SPEC.md: correct its number, or state the reason instead.",
    );
}

#[test]
fn coverage_table_matches_the_annotations() {
    const TABLE: &str = "tests/spec/COVERAGE.md";
    let specification = read("tests/spec/SPEC.md");
    let facts = citations::facts(&specification);
    let covered: Vec<_> = sources().iter().flat_map(citations::covered).collect();
    assert!(covered.len() > 100, "only {} were found", covered.len());
    assert_none(
        citations::unknown(&covered, &facts, &citations::sections(&specification)),
        "A test covers what stands in tests/spec/SPEC.md: correct its annotation.",
    );
    let table = citations::table(&covered, &facts);
    if std::env::var_os("MEROS_WRITE_COVERAGE").is_some() {
        fs::write(root().join(TABLE), &table).unwrap_or_else(|error| panic!("{TABLE}: {error}"));
    }
    assert!(
        read(TABLE) == table,
        "{TABLE} is not what the annotations say: MEROS_WRITE_COVERAGE=1 cargo test --test architecture coverage"
    );
}

#[test]
fn readme_and_ci_run_the_same_tests() {
    let command = "cargo test --workspace";
    for path in ["README.md", ".ci/run"] {
        let text = read(path);
        let found = text
            .lines()
            .any(|line| line.trim_start_matches(['$', ' ']).starts_with(command));
        assert!(
            found,
            "{path} has no line `{command}`: the README's command is what CI runs"
        );
    }
}

/// The documents for people: every `*.md` but the specification, which names flags of Mesos.
fn documents() -> Vec<String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.md",
        ])
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("git did not start: {error}"));
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_document = |path: &&str| !path.starts_with("tests/spec/") && root().join(path).is_file();
    listed
        .lines()
        .filter(is_document)
        .map(str::to_owned)
        .collect()
}

#[test]
fn named_verbs_and_flags_exist() {
    let command = meros::command_line();
    let sources = sources();
    let lab = sources
        .iter()
        .filter(|source| source.path.starts_with("tests/lab/"))
        .flat_map(commands::declared_flags);
    let vocabulary = commands::Vocabulary::new(&command, &meros::removed_flags(), lab.collect());
    let documents = documents();
    assert!(documents.len() > 20, "only {documents:?} were found");
    let documents = documents
        .iter()
        .flat_map(|path| commands::wrong_in_document(path, &read(path), &vocabulary));
    let sources = sources
        .iter()
        .flat_map(|source| commands::wrong_in_source(source, &vocabulary));
    assert_none(
        documents.chain(sources).collect(),
        "A verb or flag that is named in a document, a comment or an error is one of `meros`, or a flag of Mesos: correct its name.",
    );
}
