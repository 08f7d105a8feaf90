//! What the sources cite of the specification, and the table in `tests/README.md` that answers it.
//!
//! A citation is a letter S, W or P and one to three digits, as a word of a comment; `S79-S86` cites every
//! number between. Inside a longer chain of dashes it is no citation but an agent's id. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// A number of the specification; ordered as the specification is.
pub type Number = (char, u16);

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

/// The names of the functions of this file.
pub fn functions(source: &Source) -> BTreeSet<String> {
    let code = source.code();
    let name = |rest: &str| {
        rest.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    code.split("fn ").skip(1).map(name).collect()
}

/// The rows of the tables: what the first column says, and the tests that the last of three names in backticks.
pub fn rows(table: &str) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let is_ruler = |line: &str| line.starts_with("|--");
    let below = table.lines().skip(1).chain([""]);
    let lines = table.lines().zip(below);
    // What stands above a ruler names the columns.
    let lines = lines.filter(|(line, below)| !is_ruler(line) && !is_ruler(below));
    for (line, _) in lines.filter(|(line, _)| line.starts_with('|')) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [what, _, tests] = columns[..] {
            let named = tests.split('`').skip(1).step_by(2);
            let named = named.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned());
            rows.push((what.to_owned(), named.collect()));
        }
    }
    rows
}

/// The numbers of those rows that are about one.
pub fn answered(rows: &[(String, Vec<String>)]) -> BTreeSet<Number> {
    rows.iter().filter_map(|(what, _)| number(what)).collect()
}

/// Every row that stands there twice: who corrects one would leave the other.
pub fn doubled(rows: &[(String, Vec<String>)]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let again = rows.iter().filter(|(what, _)| !seen.insert(what));
    again
        .map(|(what, _)| format!("{what} has two rows"))
        .collect()
}

/// Every number that is cited and has no row.
pub fn without_row(answered: &BTreeSet<Number>, cited: &BTreeMap<Number, String>) -> Vec<String> {
    let missing = cited
        .iter()
        .filter(|(number, _)| !answered.contains(number));
    missing
        .map(|((letter, digits), place)| format!("{letter}{digits} is cited at {place}"))
        .collect()
}

/// Every test that a row names and nobody wrote.
pub fn without_test(rows: &[(String, Vec<String>)], functions: &BTreeSet<String>) -> Vec<String> {
    let named = rows
        .iter()
        .flat_map(|(what, tests)| tests.iter().map(move |test| (what, test)));
    let missing = named.filter(|(_, test)| !functions.contains(*test));
    missing
        .map(|(what, test)| format!("{what} names `{test}`"))
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

    fn file(text: &str) -> Source {
        Source {
            path: "agent/src/qos.rs".into(),
            text: text.into(),
        }
    }

    #[test]
    fn a_citation_is_found_in_comments_only_and_with_its_line() {
        let found = cited(&file(
            "//! Of S31, (W3).\nlet id = \"S7\"; struct S9;\n// and P4.",
        ));
        let places: Vec<_> = found.into_iter().collect();
        assert_eq!(
            places,
            [
                (('P', 4), "agent/src/qos.rs:3".to_owned()),
                (('S', 31), "agent/src/qos.rs:1".to_owned()),
                (('W', 3), "agent/src/qos.rs:1".to_owned()),
            ]
        );
    }

    #[test]
    fn a_range_cites_every_number_in_it_and_an_id_cites_none() {
        let count = |text: &str| cited(&file(&format!("// {text}"))).len();
        assert_eq!(count("S79-S86, S117-119"), 11);
        assert_eq!(
            count("agent 20150618-112946-201330860-5050-2210-S1 of AWS3 S1234 S12x"),
            0
        );
        assert_eq!(count("a dash follows S5- and precedes -S6"), 2);
    }

    #[test]
    fn a_citation_without_a_row_and_a_row_without_its_test_are_found() {
        let rows = rows(concat!(
            "| SPEC | sentence | test |\n|---|---|---|\n",
            "| S31 | Above the threshold, all go. | `only_above` and `qos::both_limits` |\n",
            "| S32 | Every 15 seconds. | none yet |\n",
            "| Mailbox | It is bounded. | `it_is_full` |\n",
        ));
        assert_eq!(rows.len(), 3);
        let answered = answered(&rows);
        assert_eq!(answered.len(), 2);
        let cited = cited(&file("// S31 S32 S33"));
        assert_eq!(
            without_row(&answered, &cited),
            ["S33 is cited at agent/src/qos.rs:1"]
        );
        let functions = functions(&file("fn only_above() {}\n// fn both_limits() {}"));
        let expected = ["S31 names `both_limits`", "Mailbox names `it_is_full`"];
        assert_eq!(without_test(&rows, &functions), expected);
    }

    #[test]
    fn a_row_that_stands_there_twice_is_found() {
        let table = concat!(
            "| SPEC | sentence | test |\n|---|---|---|\n| S31 | a | `b` |\n| S32 | c | `d` |\n\n",
            "| SPEC | sentence | test |\n|---|---|---|\n| S33 | e | `f` |\n| S31 | g | `h` |\n",
        );
        assert_eq!(doubled(&rows(table)), ["S31 has two rows"]);
    }
}
