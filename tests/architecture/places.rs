//! Places: the top level, folders and module files, and the users of fixed dependencies.
//!
//! Pure functions over lists of names and single files. Each fault is a sentence that names the
//! file.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, line_of_word};

const REQUIRED: &[&str] = &[
    "Cargo.toml",
    "runtime",
    "master",
    "agent",
    "modules",
    "tests",
    "README.md",
];
const ALLOWED: &[&str] = &["Cargo.lock", "LICENSE", "ARCHITECTURE.md", "CHANGELOG.md"];

/// What is missing at the top level of the tree or does not belong there.
pub fn wrong_top_level(names: &[String]) -> Vec<String> {
    let mut faults: Vec<String> = REQUIRED
        .iter()
        .filter(|required| !names.iter().any(|name| name == *required))
        .map(|required| format!("{required} is missing"))
        .collect();
    let mut strangers: Vec<&String> = names
        .iter()
        .filter(|name| !name.is_empty() && !name.starts_with('.'))
        .filter(|name| !REQUIRED.contains(&name.as_str()) && !ALLOWED.contains(&name.as_str()))
        .collect();
    strangers.sort();
    strangers.dedup();
    faults.extend(
        strangers
            .iter()
            .map(|name| format!("{name} does not belong here: move it into a part")),
    );
    faults
}

/// Where this file names a fixed dependency and may not.
pub fn misplaced_names(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let (code, code_without_tests) = (source.code(), source.code_without_tests());
    // The testkit has sockets in memory; the lab measures a bare stream beside the transport.
    let transport = [
        "runtime/transport/",
        "tests/testkit/src/virtual_udp/",
        "tests/lab/src/bench/",
    ]
    .iter()
    .any(|folder| path.starts_with(folder));
    let rules = [
        ("quinn", transport, &code),
        ("sled", path.starts_with("runtime/storage/"), &code),
        ("raft", path.starts_with("master/consensus/"), &code),
        (
            "bincode",
            path == "runtime/src/wire/codec/mod.rs",
            &code_without_tests,
        ),
    ];
    let mut faults = Vec::new();
    for (name, may, code) in rules {
        if let (false, Some(line)) = (may, line_of_word(code, name)) {
            faults.push(format!("{path}:{line} names {name}"));
        }
    }
    faults
}

/// The source folders of crates with more than `most` entries, and their number. A module's tests
/// (`tests.rs`, `tests/`) count as its other files do.
pub fn full_folders(sources: &[Source], most: usize) -> BTreeMap<String, usize> {
    let mut entries: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| is_source(&source.path)) {
        let parts: Vec<&str> = source.path.split('/').collect();
        for (at, entry) in parts.iter().enumerate().skip(1) {
            let folder = parts[..at].join("/");
            if is_source(&format!("{folder}/")) {
                entries.entry(folder).or_default().insert(entry);
            }
        }
    }
    let full = entries
        .into_iter()
        .map(|(folder, names)| (folder, names.len()));
    full.filter(|(_, count)| *count > most).collect()
}

/// Modules of which a part stands beside their folder: `name.rs` and `name/`.
pub fn split_modules(sources: &[Source]) -> Vec<String> {
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let is_split = |path: &&&str| {
        let Some(name) = path.strip_suffix(".rs").filter(|_| is_source(path)) else {
            return false;
        };
        let folder = format!("{name}/");
        paths.iter().any(|other| other.starts_with(&folder))
    };
    let split = paths.iter().filter(is_split);
    split
        .map(|path| format!("{path} has a folder beside it"))
        .collect()
}

fn is_source(path: &str) -> bool {
    path.starts_with("src/") || path.contains("/src/") || path.starts_with("runtime/cli/")
}

/// The fault of a source file that does not say what it is.
pub fn without_introduction(source: &Source) -> Option<String> {
    let path = source.path.as_str();
    let introduced = source.text.trim_start().starts_with("//!");
    (is_source(path) && !introduced).then(|| format!("{path} does not open with `//!`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    fn top_level(extra: &[&str]) -> Vec<String> {
        let names = REQUIRED
            .iter()
            .chain(extra)
            .map(|name| name.to_string())
            .collect::<Vec<_>>();
        wrong_top_level(&names)
    }

    #[test]
    fn file_outside_the_plan_is_found() {
        let plan = top_level(&[
            "Cargo.lock",
            "LICENSE",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            ".ci",
            ".gitignore",
        ]);
        assert!(plan.is_empty(), "{plan:?}");
        assert_eq!(
            top_level(&["src", "src"]),
            ["src does not belong here: move it into a part"]
        );
        assert_eq!(wrong_top_level(&[]).len(), REQUIRED.len());
    }

    #[test]
    fn misplaced_dependency_is_found() {
        for (path, text, count) in [
            ("master/src/registrar.rs", "use sled::Db;", 1),
            (
                "master/src/registrar.rs",
                "// sled does this\nuse storage::sled_store::SledStore;",
                0,
            ),
            (
                "runtime/storage/src/sled_store/mod.rs",
                "let db: sled::Db;",
                0,
            ),
            ("agent/src/link.rs", "fn f(_: quinn::Connection) {}", 1),
            ("tests/main.rs", "use quinn::Endpoint;", 1),
            ("tests/lab/src/bench/messages.rs", "use quinn::Endpoint;", 0),
            ("runtime/cli/service/local.rs", "use quinn::Endpoint;", 1),
            ("master/src/lib.rs", "use raft::RawNode;", 1),
            ("master/consensus/src/lib.rs", "use raft::RawNode;", 0),
            (
                "runtime/src/wire/codec/mod.rs",
                "bincode::serde::encode_to_vec",
                0,
            ),
            (
                "runtime/src/link/mod.rs",
                "bincode::serde::encode_to_vec",
                1,
            ),
            (
                "runtime/resources/src/wire.rs",
                "fn f() {}\n#[cfg(test)]\nmod t { use bincode; }",
                0,
            ),
        ] {
            let found = misplaced_names(&source(path, text));
            assert_eq!(found.len(), count, "{path}: {found:?}");
        }
        let found = misplaced_names(&source("master/src/lib.rs", "//! Doc.\n\nuse sled::Db;"));
        assert_eq!(found, ["master/src/lib.rs:3 names sled"]);
    }

    #[test]
    fn full_folders_and_split_modules_are_found() {
        let sources = [
            "a/src/lib.rs",
            "a/src/b.rs",
            "a/src/b/c.rs",
            "a/src/b/d.rs",
            "a/x.rs",
        ];
        let sources = sources.map(|path| source(path, ""));
        let full: Vec<_> = full_folders(&sources, 2).into_iter().collect();
        assert_eq!(full, [("a/src".to_owned(), 3)]);
        assert_eq!(
            split_modules(&sources),
            ["a/src/b.rs has a folder beside it"]
        );
    }

    #[test]
    fn file_without_introduction_is_found() {
        let wrong = source("agent/src/usage.rs", "// Usage.\nuse std::fs;");
        assert!(without_introduction(&wrong).is_some());
        assert!(without_introduction(&source("agent/src/usage.rs", "//! Usage.\n")).is_none());
        assert!(without_introduction(&source("agent/benches/usage.rs", "fn main() {}")).is_none());
    }
}
