//! Circles: parts of a crate that import each other, directly or through others.
//!
//! The parts are the modules at the crate's root. Code outside tests counts, by its paths that
//! begin with `crate::` or `super::`. The root itself is no part: it only lists and exports them.
//! Pure functions over sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// Imports between the parts of one crate.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports between the parts of the crate whose sources are in `folder`, such as `master/src/`.
pub fn imports(sources: &[Source], folder: &str) -> Imports {
    let inside = || {
        sources
            .iter()
            .filter_map(|source| Some((module(source.path.strip_prefix(folder)?), source)))
    };
    let parts: BTreeSet<String> = inside()
        .filter_map(|(path, _)| path.first().cloned())
        .collect();
    let mut imports = Imports::new();
    for (path, source) in inside() {
        let Some(part) = path.first() else { continue };
        let used = paths(&source.code_without_tests(), &path);
        let others = used
            .into_iter()
            .filter(|used| used != part && parts.contains(used));
        imports.entry(part.clone()).or_default().extend(others);
    }
    imports
}

/// The parts that reach themselves through others.
pub fn in_circles(imports: &Imports) -> BTreeSet<String> {
    let reaches_itself = |part: &&String| {
        let mut open: Vec<&String> = imports[*part].iter().collect();
        let mut seen = BTreeSet::new();
        // Ends: each part is expanded once.
        while let Some(next) = open.pop() {
            if next == *part {
                return true;
            }
            if seen.insert(next) {
                open.extend(imports.get(next).into_iter().flatten());
            }
        }
        false
    };
    imports.keys().filter(reaches_itself).cloned().collect()
}

/// The path of the module in this file: `agents/lost.rs` is `agents::lost`, `agents/mod.rs` is
/// `agents`.
fn module(file: &str) -> Vec<String> {
    let file = file.trim_end_matches(".rs");
    let mut path: Vec<String> = file.split('/').map(str::to_owned).collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    path
}

/// The parts of the crate that this code of module `here` names.
fn paths(code: &str, here: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        found.extend(names(rest));
    }
    let up = "super::".repeat(here.len());
    if !here.is_empty() {
        for (at, _) in code.match_indices(&up) {
            let deeper =
                code[..at].ends_with("super::") || code[at + up.len()..].starts_with("super::");
            if !deeper {
                found.extend(names(&code[at + up.len()..]));
            }
        }
    }
    found
}

/// The first names of a path or of a group in braces.
fn names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![name(rest)];
    };
    let (mut depth, mut start, mut all) = (0_u32, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                all.push(name(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.push(name(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    all
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

    #[test]
    fn circles_are_found_through_other_parts() {
        let sources = [
            source("x/src/lib.rs", "mod a; mod b; mod c; use crate::a::A;"),
            source("x/src/a/mod.rs", "use crate::{b::{B, Z}, d::D};"),
            source(
                "x/src/b.rs",
                "use super::c::C;\n#[cfg(test)]\nmod t { use crate::d::D; }",
            ),
            source(
                "x/src/c/deep.rs",
                "fn f() { super::super::a::g(); super::own(); }",
            ),
            source("x/src/d.rs", "use crate::b::B;"),
            source("y/src/a.rs", "use crate::c::C;"),
        ];
        let imports = imports(&sources, "x/src/");
        let of = |part: &str| imports[part].iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(
            (of("a"), of("b"), of("c")),
            ("b d".into(), "c".into(), "a".into())
        );
        let circles: Vec<_> = in_circles(&imports).into_iter().collect();
        assert_eq!(circles, ["a", "b", "c", "d"]);
        let only_down = super::imports(&sources[4..], "x/src/");
        assert!(in_circles(&only_down).is_empty());
    }
}
