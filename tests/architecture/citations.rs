//! Citations of the specification, and the coverage table made from the tests' annotations.
//!
//! The specification is `tests/spec/SPEC.md`. A comment cites a numbered fact (`S31`, `W15`, `P7`,
//! a range `S79-S86`) or a section (`SPEC 2.2`). A test is annotated with a line directly above it:
//! `// Covers S31; 2.2 KILL; S30 in part: the thresholds.` Pure functions over texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::source::Source;

/// A numbered fact of the specification; ordered as the specification is.
pub type Number = (char, u16);

const ANNOTATION: &str = "// Covers ";

/// Every number cited in the comments of this file, with the place of its first citation.
pub fn cited(source: &Source) -> BTreeMap<Number, String> {
    let mut found = BTreeMap::new();
    for (line, text) in source.comments().lines().enumerate() {
        for number in numbers(text) {
            found
                .entry(number)
                .or_insert_with(|| format!("{}:{}", source.path, line + 1));
        }
    }
    found
}

/// Every section cited in comments of this file as `SPEC 2.2`, with the place of its first citation.
pub fn cited_sections(source: &Source) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (line, text) in source.comments().lines().enumerate() {
        for rest in text.split("SPEC ").skip(1) {
            let number = |c: char| c.is_ascii_digit() || c == '.';
            let end = rest.find(|c| !number(c)).unwrap_or(rest.len());
            let section = rest[..end].trim_end_matches('.');
            if !section.is_empty() {
                let place = format!("{}:{}", source.path, line + 1);
                found.entry(section.to_owned()).or_insert(place);
            }
        }
    }
    found
}

/// The numbered facts of the specification.
pub fn facts(specification: &str) -> BTreeSet<Number> {
    let is_entry = |line: &&str| {
        ["- S", "- P", "| W"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let entries = specification.lines().filter(is_entry);
    entries.flat_map(numbers).collect()
}

/// The numbers of the specification's headings.
pub fn sections(specification: &str) -> BTreeSet<String> {
    let headings = specification.lines().filter_map(|line| {
        let title = line.strip_prefix('#')?.trim_start_matches('#').trim_start();
        let number = title.split(' ').next()?.trim_end_matches('.');
        number
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| number.to_owned())
    });
    headings.collect()
}

/// A part of the specification that a test covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Covered {
    /// The fact or the row of a section, as annotated: `S31`, `2.2 KILL`.
    pub key: String,
    /// Which part, where it is not the whole.
    pub part: Option<String>,
    /// The test's function.
    pub test: String,
    /// The test's file.
    pub path: String,
}

/// The annotations of this file's tests.
pub fn covered(source: &Source) -> Vec<Covered> {
    let mut all = Vec::new();
    let mut open: Vec<(String, Option<String>)> = Vec::new();
    for line in source.text.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix(ANNOTATION) {
            open.extend(list.trim_end_matches('.').split("; ").map(item));
        } else if let Some(test) = function(line) {
            all.extend(open.drain(..).map(|(key, part)| Covered {
                key,
                part,
                test: test.to_owned(),
                path: source.path.clone(),
            }));
        }
    }
    all
}

fn item(text: &str) -> (String, Option<String>) {
    match text.split_once(" in part: ") {
        Some((key, part)) => (key.to_owned(), Some(part.to_owned())),
        None => (text.to_owned(), None),
    }
}

fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let name = line.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

/// Annotations that name nothing in the specification.
pub fn unknown(
    covered: &[Covered],
    facts: &BTreeSet<Number>,
    sections: &BTreeSet<String>,
) -> Vec<String> {
    let is_known = |one: &&Covered| match number(&one.key) {
        Some(number) => facts.contains(&number),
        None => sections.contains(one.key.split([' ', ',']).next().unwrap_or_default()),
    };
    let unknown = covered.iter().filter(|one| !is_known(one));
    unknown
        .map(|one| format!("{}: `{}` covers {}", one.path, one.test, one.key))
        .collect()
}

const HEAD: &str = "\
# Coverage of the specification

Made from the lines `// Covers ...` above the tests; `tests/architecture` compares it with them. To write it anew:

    MEROS_WRITE_COVERAGE=1 cargo test --test architecture coverage

";

/// The coverage table.
pub fn table(covered: &[Covered], facts: &BTreeSet<Number>) -> String {
    let mut rows: BTreeMap<(Option<Number>, &str), BTreeSet<&Covered>> = BTreeMap::new();
    for one in covered {
        let key = (number(&one.key), one.key.as_str());
        rows.entry(key).or_default().insert(one);
    }
    let mut text = HEAD.to_owned();
    let has_test = |number: &Number| rows.keys().any(|(row, _)| row.as_ref() == Some(number));
    let missing: Vec<String> = facts
        .iter()
        .filter(|number| !has_test(number))
        .map(|(letter, digits)| format!("{letter}{digits}"))
        .collect();
    let _ = writeln!(text, "Facts without a test: {}.\n", missing.join(", "));
    text.push_str("| SPEC | Tests |\n|---|---|\n");
    for ((_, key), tests) in &rows {
        let cell: Vec<String> = tests.iter().map(|one| cell(one)).collect();
        let _ = writeln!(text, "| {key} | {} |", cell.join("<br>"));
    }
    text
}

fn cell(one: &Covered) -> String {
    let test = format!("`{}` in {}", one.test, one.path);
    match &one.part {
        Some(part) => format!("{test}, in part: {part}"),
        None => test,
    }
}

/// Every number that is cited and not in the specification.
pub fn without_fact(facts: &BTreeSet<Number>, cited: &BTreeMap<Number, String>) -> Vec<String> {
    let missing = cited.iter().filter(|(number, _)| !facts.contains(number));
    missing
        .map(|((letter, digits), place)| format!("{letter}{digits} is cited at {place}"))
        .collect()
}

/// Every section that is cited and not in the specification.
pub fn without_section(
    sections: &BTreeSet<String>,
    cited: &BTreeMap<String, String>,
) -> Vec<String> {
    let missing = cited
        .iter()
        .filter(|(section, _)| !sections.contains(*section));
    missing
        .map(|(section, place)| format!("SPEC {section} is cited at {place}"))
        .collect()
}

fn numbers(text: &str) -> Vec<Number> {
    let part_of_chain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let chains = text.split(|c| !part_of_chain(c));
    chains
        .flat_map(|chain| chain_of_numbers(chain.trim_matches('-')).unwrap_or_default())
        .collect()
}

/// `S31` is one number, `S79-S86` and `S79-86` are eight, anything else none.
fn chain_of_numbers(chain: &str) -> Option<Vec<Number>> {
    let mut ends = chain.split('-');
    let (letter, first) = number(ends.next()?)?;
    let last = match ends.next() {
        None => first,
        Some(end) => match number(end) {
            Some((other, last)) if other == letter => last,
            Some(_) => return None,
            None => number(&format!("{letter}{end}"))?.1,
        },
    };
    match ends.next() {
        None => Some((first..=last).map(|digits| (letter, digits)).collect()),
        Some(_) => None,
    }
}

fn number(text: &str) -> Option<Number> {
    let letter = text
        .chars()
        .next()
        .filter(|letter| "SWP".contains(*letter))?;
    let digits = &text[1..];
    let right =
        (1..=3).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    right
        .then(|| digits.parse().ok())
        .flatten()
        .map(|digits| (letter, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIFICATION: &str = "# 2. V1 API\n## 2.2 Calls\n- S31 a; S32 b.\n- S33 c\n| W3 | d |\n";

    fn file(text: &str) -> Source {
        Source {
            path: "agent/src/oversubscription/qos.rs".into(),
            text: text.into(),
        }
    }

    #[test]
    fn citations_are_found_in_comments_with_their_lines() {
        let found = cited(&file(
            "//! Of S31, (W3).\nlet id = \"S7\"; struct S9;\n// and P4.",
        ));
        let places: Vec<_> = found.into_iter().collect();
        assert_eq!(
            places,
            [
                (('P', 4), "agent/src/oversubscription/qos.rs:3".to_owned()),
                (('S', 31), "agent/src/oversubscription/qos.rs:1".to_owned()),
                (('W', 3), "agent/src/oversubscription/qos.rs:1".to_owned()),
            ]
        );
    }

    #[test]
    fn range_cites_every_number() {
        let count = |text: &str| cited(&file(&format!("// {text}"))).len();
        assert_eq!(count("S79-S86, S117-119"), 11);
        assert_eq!(
            count("agent 20150618-112946-201330860-5050-2210-S1 of AWS3 S1234 S12x"),
            0
        );
        assert_eq!(count("a dash follows S5- and precedes -S6"), 2);
    }

    #[test]
    fn unknown_citations_are_found() {
        let (facts, sections) = (facts(SPECIFICATION), sections(SPECIFICATION));
        assert_eq!(facts.len(), 4);
        assert_eq!(sections.len(), 2);
        let source = file("// S31, S34; SPEC 2.2, SPEC 2.3.");
        assert_eq!(
            without_fact(&facts, &cited(&source)),
            ["S34 is cited at agent/src/oversubscription/qos.rs:1"]
        );
        assert_eq!(
            without_section(&sections, &cited_sections(&source)),
            ["SPEC 2.3 is cited at agent/src/oversubscription/qos.rs:1"]
        );
    }

    #[test]
    fn annotations_become_the_coverage_table() {
        let source = file(
            "// Covers S31; 2.2 KILL.\n#[test]\nfn kills() {}\n\
             // Covers S31 in part: b.\n// Covers S99; 9.9 X.\nfn other() {}",
        );
        let covered = covered(&source);
        let (facts, sections) = (facts(SPECIFICATION), sections(SPECIFICATION));
        assert_eq!(
            unknown(&covered, &facts, &sections),
            [
                "agent/src/oversubscription/qos.rs: `other` covers S99",
                "agent/src/oversubscription/qos.rs: `other` covers 9.9 X"
            ]
        );
        let table = table(&covered[..3], &facts);
        assert!(table.contains("without a test: S32, S33, W3.\n"), "{table}");
        let s31 = "| S31 | `kills` in agent/src/oversubscription/qos.rs<br>`other` in agent/src/oversubscription/qos.rs, in part: b |";
        assert!(table.contains(s31), "{table}");
        assert!(table.contains("| 2.2 KILL | `kills`"), "{table}");
    }
}
