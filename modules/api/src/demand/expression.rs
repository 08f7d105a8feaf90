//! Regular expressions that match whole texts, each of a bounded size.
//!
//! Pure. An expression is run as its program says, in time linear in the text. `regex-automata` knows faster ways, each of which keeps a table
//! of its own, and which of them there are depends on what other crates ask of it: here all are off. Groups capture nothing: else each state of
//! the program has a place for each group, 9 MB for `(a)` as often as it fits. So what an expression takes is its program and two lists of that
//! program's states for each thread that asks it at the same time.

use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;

/// Bytes that the program of one expression may take.
const PROGRAM_MAX: usize = 32 << 10;
/// Bytes that one expression takes at most: its program, and what one thread remembers while it asks.
#[cfg(test)]
const TAKEN_MAX: usize = 96 << 10;

/// An expression that matches whole texts.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    text: String,
    whole: Regex,
}

/// Of the same text is the same program made.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl Expression {
    /// The expression of this text, or what is wrong with it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        // Compiled alone first: what closes the group that we open around it is no expression.
        compile(text)?;
        Ok(Self {
            text: text.to_owned(),
            whole: compile(&format!(r"\A(?:{text})\z"))?,
        })
    }

    /// Whether it matches the whole of this.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }

    /// As it was said.
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

    /// What is known to take much: groups, classes of many characters, repetitions, and as many of each as there may be.
    #[test]
    fn no_expression_takes_more_than_its_bound() {
        for one in [
            "()", "(a)", "(a|b)", r"\w", r"\b", r"(?i)\pL", ".{9}", "(a?){30}", "x", r"(\d+)",
            "(?:a*)*", "[^a-z]?",
        ] {
            // About the longest of its kind that may be.
            let longest = super::super::TEXT_MAX / one.len();
            let shorter = std::iter::successors(Some(longest), |times| Some(times * 9 / 10));
            let mut made = shorter.map(|times| Expression::new(&one.repeat(times)));
            let made = made.find_map(Result::ok).unwrap();
            // What it remembers while it is asked is made when it is first asked.
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
    fn an_expression_is_shown_as_it_was_said_and_what_is_wrong_with_it_in_words() {
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
