//! Where things may stand: the top level, the names of the fixed dependencies, the shape of a file.
//!
//! Pure functions over lists of names and single files. Each fault is a sentence that names the file.

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
    // The bare peer is measured beside our transport in the same run.
    let bench = path.starts_with("tests/benches/")
        || (path.starts_with("runtime/cli/") && path.contains("bench"));
    let (code, code_without_tests) = (source.code(), source.code_without_tests());
    let transport = path.starts_with("runtime/transport/");
    let rules = [
        ("quinn", transport || bench, &code),
        ("sled", path.starts_with("runtime/storage/"), &code),
        ("raft", path.starts_with("master/consensus/"), &code),
        (
            "bincode",
            path == "runtime/src/codec.rs",
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

/// The fault of a source file that does not say what it is.
pub fn without_introduction(source: &Source) -> Option<String> {
    let path = source.path.as_str();
    let is_source =
        path.starts_with("src/") || path.contains("/src/") || path.starts_with("runtime/cli/");
    let introduced = source.text.trim_start().starts_with("//!");
    (is_source && !introduced).then(|| format!("{path} does not open with `//!`"))
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
    fn the_plan_itself_is_right_and_a_stranger_is_found() {
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
    fn a_fixed_dependency_is_found_where_it_does_not_belong() {
        for (path, text, count) in [
            ("master/src/registrar.rs", "use sled::Db;", 1),
            (
                "master/src/registrar.rs",
                "// sled does this\nuse storage::sled_store::SledStore;",
                0,
            ),
            ("runtime/storage/src/sled_store.rs", "let db: sled::Db;", 0),
            ("agent/src/link.rs", "fn f(_: quinn::Connection) {}", 1),
            ("tests/main.rs", "use quinn::Endpoint;", 1),
            ("tests/benches/messages.rs", "use quinn::Endpoint;", 0),
            ("runtime/cli/bench/messages.rs", "use quinn::Endpoint;", 0),
            ("runtime/cli/local.rs", "use quinn::Endpoint;", 1),
            ("master/src/lib.rs", "use raft::RawNode;", 1),
            ("master/consensus/src/lib.rs", "use raft::RawNode;", 0),
            ("runtime/src/codec.rs", "bincode::serde::encode_to_vec", 0),
            ("runtime/src/link.rs", "bincode::serde::encode_to_vec", 1),
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
    fn a_file_that_does_not_introduce_itself_is_found() {
        let wrong = source("agent/src/usage.rs", "// Usage.\nuse std::fs;");
        assert!(without_introduction(&wrong).is_some());
        assert!(without_introduction(&source("agent/src/usage.rs", "//! Usage.\n")).is_none());
        assert!(without_introduction(&source("agent/benches/usage.rs", "fn main() {}")).is_none());
    }
}
