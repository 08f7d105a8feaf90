//! A task's output on a terminal: colours, tabs and line ends pass, other control characters are
//! shown escaped.
//!
//! An untrusted task could otherwise move the cursor, set the title, or type an answer. Only used
//! if standard output or error is a terminal; pipes and files get the bytes unchanged.

/// The longest colour sequence.
const COLOUR_BYTES_MAX: usize = 32;

/// Filters a stream in chunks.
#[derive(Debug, Default)]
pub struct TerminalFilter {
    /// The start of a sequence that continues in the next chunk.
    pending: Vec<u8>,
}

impl TerminalFilter {
    /// The bytes to show.
    pub fn filter(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(piece);
        let mut shown = Vec::with_capacity(input.len());
        let mut rest = input.as_slice();
        while let Some((&first, after)) = rest.split_first() {
            let taken = match first {
                b'\n' | b'\t' | b'\r' => Taken::Shown(1),
                b'\x1b' => colour(rest),
                ..=0x1f | 0x7f => Taken::Escaped(1),
                // C1 controls in UTF-8.
                0xc2 => match after.first() {
                    None => Taken::Unknown,
                    Some(0x80..=0x9f) => Taken::Escaped(2),
                    Some(_) => Taken::Shown(1),
                },
                _ => Taken::Shown(1),
            };
            match taken {
                Taken::Shown(length) => shown.extend_from_slice(&rest[..length]),
                Taken::Escaped(length) => {
                    let code = rest[length - 1];
                    shown.extend_from_slice(format!("\\u{{{code:x}}}").as_bytes());
                }
                Taken::Unknown => {
                    self.pending = rest.to_vec();
                    return shown;
                }
            }
            rest = match taken {
                Taken::Shown(length) | Taken::Escaped(length) => &rest[length..],
                Taken::Unknown => &[],
            };
        }
        shown
    }
}

#[derive(Clone, Copy)]
enum Taken {
    Shown(usize),
    Escaped(usize),
    /// Depends on the following bytes.
    Unknown,
}

/// Accepts `ESC [ 1 ; 31 m`, and no other sequence that begins with ESC.
fn colour(bytes: &[u8]) -> Taken {
    match bytes.get(1) {
        None => return Taken::Unknown,
        Some(b'[') => {}
        Some(_) => return Taken::Escaped(1),
    }
    let parameters = bytes[2..].iter().take(COLOUR_BYTES_MAX);
    let length = 2 + parameters
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
        .count();
    match bytes.get(length) {
        Some(b'm') => Taken::Shown(length + 1),
        None if length < COLOUR_BYTES_MAX => Taken::Unknown,
        _ => Taken::Escaped(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_pass_and_other_sequences_are_shown() {
        for (text, expected) in [
            (
                "a\tb\r\n\x1b[1;31mred\x1b[0m \u{e9}",
                "a\tb\r\n\x1b[1;31mred\x1b[0m \u{e9}",
            ),
            ("\x1b]0;title\x07", r"\u{1b}]0;title\u{7}"),
            ("\x1b[2J\x1b[?25l\x1bc", r"\u{1b}[2J\u{1b}[?25l\u{1b}c"),
            ("\u{9b}31m\x7f", r"\u{9b}31m\u{7f}"),
        ] {
            let whole = TerminalFilter::default().filter(text.as_bytes());
            assert_eq!(String::from_utf8(whole).unwrap(), expected);
            let mut filter = TerminalFilter::default();
            let bytes = text.as_bytes().iter();
            let piecewise: Vec<u8> = bytes.flat_map(|byte| filter.filter(&[*byte])).collect();
            assert_eq!(String::from_utf8(piecewise).unwrap(), expected);
        }
        let long = format!("\x1b[{}", "1".repeat(100));
        assert!(
            TerminalFilter::default()
                .filter(long.as_bytes())
                .starts_with(b"\\u{1b}[")
        );
    }
}
