//! A Rust source file, told apart into code and comments.
//!
//! A small scanner that knows strings, characters, lifetimes and comments, and nothing else of the
//! language. It keeps line breaks, so that a line of one half is the same line of the other.

/// A file of the tree.
#[derive(Debug, Clone)]
pub struct Source {
    /// From the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// What a piece of the text is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Text,
}

impl Source {
    /// The code alone: comments and the insides of strings are blanks.
    pub fn code(&self) -> String {
        self.only(Kind::Code)
    }

    /// The comments alone.
    pub fn comments(&self) -> String {
        self.only(Kind::Comment)
    }

    /// The code before the tests, which are last in a file; empty if the file has only tests.
    pub fn code_without_tests(&self) -> String {
        let in_tests = ["tests/", "benches/", "examples/"];
        let folder =
            |name: &&str| self.path.starts_with(*name) || self.path.contains(&format!("/{name}"));
        if in_tests.iter().any(folder) || self.path.ends_with("/tests.rs") {
            return String::new();
        }
        let code = self.code();
        code.split("#[cfg(test)]")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    fn only(&self, wanted: Kind) -> String {
        let keep = |(piece, kind): (&str, Kind)| -> String {
            match kind == wanted {
                true => piece.to_owned(),
                false => piece
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' })
                    .collect(),
            }
        };
        pieces(&self.text).into_iter().map(keep).collect()
    }
}

/// Does this text hold the word, with no letter, digit or underscore beside it? The line, from 1.
pub fn line_of_word(text: &str, word: &str) -> Option<usize> {
    let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let whole = |at: &usize| {
        !part_of_word(text[..*at].chars().next_back())
            && !part_of_word(text[at + word.len()..].chars().next())
    };
    let at = text.match_indices(word).map(|(at, _)| at).find(whole)?;
    Some(text[..at].matches('\n').count() + 1)
}

/// The text cut into pieces of one kind each. Every byte is in exactly one of them.
fn pieces(text: &str) -> Vec<(&str, Kind)> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    // Ends: each turn moves `at` on by at least one byte.
    while at < text.len() {
        let rest = &text[at..];
        let previous = text[..at].chars().next_back();
        let (length, kind) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Kind::Comment)
        } else if rest.starts_with("/*") {
            (block_comment(rest), Kind::Comment)
        } else if let Some(length) = raw_string(rest, previous) {
            (length, Kind::Text)
        } else if rest.starts_with('"') {
            (quoted(rest, '"'), Kind::Text)
        } else if rest.starts_with('\'') && is_character(rest) {
            (quoted(rest, '\''), Kind::Text)
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        pieces.push((&text[from..at], Kind::Code));
        pieces.push((&rest[..length], kind));
        at += length;
        from = at;
    }
    pieces.push((&text[from..], Kind::Code));
    pieces
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the raw string that begins here, if one does.
fn raw_string(text: &str, previous: Option<char>) -> Option<usize> {
    if previous.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let body = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body
        .find(&close)
        .map_or(body.len(), |end| end + close.len());
    Some(text.len() - body.len() + end)
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Is this quote the beginning of a character and not of a lifetime?
fn is_character(text: &str) -> bool {
    let mut next = text.chars().skip(1);
    matches!(
        (next.next(), next.next()),
        (Some('\\'), _) | (Some(_), Some('\''))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "runtime/src/lib.rs".into(),
            text: text.into(),
        }
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let source = source(concat!(
            "//! says sled\n",
            "use one; /* two /* sled */ three */ let four = \"sled // no comment\";\n",
            "let five = r#\"sled \" still\"#; let six = '\"'; let seven: &'a str = br\"sled\"; // eight\n",
        ));
        let code = source.code();
        assert_eq!(line_of_word(&code, "sled"), None, "{code}");
        for word in ["one", "four", "five", "six", "seven", "str"] {
            assert!(
                line_of_word(&code, word).is_some(),
                "{word} is missing in {code}"
            );
        }
        assert_eq!(code.lines().count(), 3);
        let comments = source.comments();
        assert_eq!(line_of_word(&comments, "says"), Some(1));
        assert_eq!(line_of_word(&comments, "three"), Some(2));
        assert_eq!(line_of_word(&comments, "eight"), Some(3));
        assert_eq!(line_of_word(&comments, "no"), None);
    }

    #[test]
    fn only_whole_words_are_found() {
        assert_eq!(
            line_of_word("unsledged sled_store\nsled::open", "sled"),
            Some(2)
        );
        assert_eq!(line_of_word("fn crawl()", "raw"), None);
    }

    #[test]
    fn tests_are_not_code() {
        let source = source("use a;\n#[cfg(test)]\nmod tests { use bincode; }");
        assert_eq!(line_of_word(&source.code_without_tests(), "bincode"), None);
        assert_eq!(line_of_word(&source.code_without_tests(), "a"), Some(1));
        let bench = Source {
            path: "runtime/resources/benches/algebra.rs".into(),
            ..source
        };
        assert_eq!(bench.code_without_tests(), "");
    }

    #[test]
    fn a_file_that_ends_within_something_ends_there() {
        for text in ["\"open", "/* open", "'\\", "r#\"open", "// é", "'é'"] {
            assert_eq!(source(text).code().lines().count(), 1, "{text}");
        }
    }
}
