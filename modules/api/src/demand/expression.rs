//! Regular expressions that match whole texts, each of bounded size.
//!
//! An expression runs on the NFA, in time linear in the text. The faster engines of
//! `regex-automata` each need a cache of their own, and other crates' features decide which of them
//! exist, so all are off. Groups do not capture: otherwise each NFA state would hold a slot for
//! each group, 9 MB for the longest repetition of `(a)`. The memory of an expression is thus its
//! program, and two lists of the program's states for each concurrent thread.

use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;

/// Bytes of one compiled program.
const PROGRAM_MAX: usize = 32 << 10;
/// Bytes of one expression: its program and the cache of one thread.
#[cfg(test)]
const TAKEN_MAX: usize = 96 << 10;

/// An expression that matches whole texts.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    text: String,
    whole: Regex,
}

/// The same text compiles to the same program.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Expression {
    /// Compiles an expression. The error states the expected form.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        // Compiled alone first: a text such as `a)|(b` would only be valid inside the group around
        // it.
        compile(text)?;
        Ok(Self {
            text: text.to_owned(),
            whole: compile(&format!(r"\A(?:{text})\z"))?,
        })
    }

    /// Whether it matches the whole text.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }

    /// The source text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    let bounds = Regex::config()
        .nfa_size_limit(Some(PROGRAM_MAX))
        .which_captures(WhichCaptures::Implicit)
        .auto_prefilter(false)
        .onepass(false)
        .hybrid(false)
        .dfa(false)
        .backtrack(false);
    let made = Regex::builder().configure(bounds).build(text);
    made.map_err(|error| {
        if error.size_limit().is_some() {
            return "a regular expression that takes less memory when it is compiled".to_owned();
        }
        let text = match error.syntax_error() {
            Some(error) => error.to_string(),
            None => error.to_string(),
        };
        let reason = text.lines().last().unwrap_or("it cannot be read").trim();
        let reason = reason.trim_start_matches("error: ");
        format!("a regular expression: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use regex_automata::Input;

    use super::*;

    /// Expressions that need much memory: groups, large character classes and repetitions, as long
    /// as possible.
    #[test]
    fn expression_memory_is_bounded() {
        for one in [
            "()", "(a)", "(a|b)", r"\w", r"\b", r"(?i)\pL", ".{9}", "(a?){30}", "x", r"(\d+)",
            "(?:a*)*", "[^a-z]?",
        ] {
            // About the longest of its kind.
            let longest = super::super::TEXT_MAX / one.len();
            let shorter = std::iter::successors(Some(longest), |times| Some(times * 9 / 10));
            let mut made = shorter.map(|times| Expression::new(&one.repeat(times)));
            let made = made.find_map(Result::ok).unwrap();
            // The first search fills the cache.
            let mut cache = made.whole.create_cache();
            for length in [4, made.text().len() / one.len(), 255] {
                let text = "a".repeat(length);
                made.whole.search_with(&mut cache, &Input::new(&text));
            }
            let taken = made.whole.memory_usage() + cache.memory_usage();
            assert!(taken <= TAKEN_MAX, "{one} takes {taken}");
        }
    }

    #[test]
    fn expression_keeps_its_text_and_explains_errors() {
        let said = r"node-(\d)|host";
        let made = Expression::new(said).unwrap();
        assert_eq!(made.text(), said);
        for (text, matches) in [("node-7", true), ("host", true), ("a-host", false)] {
            assert_eq!(made.matches(text), matches, "{text}");
        }
        let refused = |text: &str| Expression::new(text).unwrap_err();
        assert_eq!(refused("a("), "a regular expression: unclosed group");
        assert_eq!(refused("a)|(b"), "a regular expression: unopened group");
        let large = "a regular expression that takes less memory when it is compiled";
        assert_eq!(refused("(x{1000}){1000}"), large);
    }
}
