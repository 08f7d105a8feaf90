//! Targets: what is fed with bytes, and the laws it must keep.
//!
//! A target judges one input: what it showed (its features), or which law it broke. Remembers nothing between inputs.

use std::fmt::{self, Debug, Write};

use runtime::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chance::Chance;
use crate::heap;
use crate::imagine::imagine;

/// The longest refusal, in bytes: it goes into logs, and must not be the peer's own megabyte.
const WORDS_MAX: usize = 1000;

/// What an input showed, or the law it broke.
pub type Judged = Result<Shown, String>;

/// Something that is fed with bytes.
pub struct Target {
    /// For people, and the name of its corpus file.
    pub name: String,
    /// Whether its inputs are text, to be written as such.
    pub text: bool,
    /// How many inputs it is given for one that others are.
    pub weight: usize,
    /// Inputs to begin with, beside the corpus.
    pub seeds: Vec<Vec<u8>>,
    /// Makes a good input.
    pub imagine: Imagine,
    /// Feeds it with one input.
    pub judge: Judge,
}

type Imagine = Box<dyn Fn(&mut Chance) -> Option<Vec<u8>>>;
type Judge = Box<dyn Fn(&[u8]) -> Judged>;

impl Target {
    /// The same inputs, judged otherwise.
    pub fn judged(mut self, judge: fn(&[u8]) -> Judged) -> Self {
        self.judge = Box::new(judge);
        self
    }
}

/// How much memory reading an input may take at once.
#[derive(Clone, Copy)]
pub struct Heap {
    /// Bytes for each byte of the input.
    pub per_byte: usize,
    /// Bytes beside that.
    pub beside: usize,
}

impl Heap {
    /// Does the work, which reads an input of this length, and holds it to the bound.
    pub fn hold<T>(self, length: usize, work: impl FnOnce() -> T) -> Result<T, String> {
        let (done, held) = heap::peak(work);
        let most = self.per_byte * length + self.beside;
        match held <= most {
            true => Ok(done),
            false => Err(format!(
                "reading {length} bytes held {held} bytes of memory, expected at most {most}"
            )),
        }
    }
}

/// What an input showed.
#[derive(Debug, Default)]
pub struct Shown {
    /// Small numbers; equal ones mean the same thing.
    pub features: Vec<u16>,
    /// Whether it was read as a value, and not refused.
    pub taken: bool,
}

impl Shown {
    /// Refused with these words. They must say something, and not too much.
    pub fn refused(words: &impl fmt::Display) -> Judged {
        let words = words.to_string();
        if words.trim().len() < 8 {
            return Err(format!("refused without saying why: {words:?}"));
        }
        if words.len() > WORDS_MAX {
            return Err(format!(
                "refused with {} bytes of words, expected at most {WORDS_MAX}",
                words.len()
            ));
        }
        // What was found differs from input to input; what is wrong with it does not.
        let mut hash = Hash::default();
        let mut quoted = None;
        for word in words.split_inclusive([' ', '"', '`', '\'']) {
            let quote = word.chars().next_back().filter(|c| "\"`'".contains(*c));
            let number = word.contains(|c: char| c.is_ascii_digit())
                || word.len() > 8 && word.trim_end().chars().all(|c| c.is_ascii_hexdigit());
            let found = quoted.is_some() || number;
            if !found {
                word.chars().for_each(|c| hash.add(c));
            }
            quoted = match (quoted, quote) {
                (Some(opened), Some(closing)) if opened == closing => None,
                (None, Some(opening)) => Some(opening),
                (quoted, _) => quoted,
            };
        }
        Ok(Self {
            features: vec![hash.small()],
            taken: false,
        })
    }

    /// A value was read.
    pub fn value(value: &impl Debug) -> Self {
        Self {
            features: Shape::of(value).features,
            taken: true,
        }
    }
}

/// A hash of text (FNV-1a).
#[derive(Clone, Copy)]
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, c: char) {
        self.0 = (self.0 ^ u64::from(c)).wrapping_mul(0x100_0000_01b3);
    }

    fn small(self) -> u16 {
        (self.0 ^ (self.0 >> 16) ^ (self.0 >> 32) ^ (self.0 >> 48)) as u16
    }
}

/// What the debug form of a value says: which variant stands in which field, and a hash of all of it.
#[derive(Default)]
struct Shape {
    features: Vec<u16>,
    whole: Hash,
    word: String,
    field: Hash,
}

impl Shape {
    fn of(value: &impl Debug) -> Self {
        let mut shape = Self::default();
        let _ = write!(shape, "{value:?} "); // the writer never fails
        shape
    }
}

impl Write for Shape {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.whole.add(c);
            if c.is_alphabetic() || c == '_' {
                self.word.push(c);
                continue;
            }
            let mut hash = Hash::default();
            self.word.chars().for_each(|c| hash.add(c));
            match self.word.chars().next() {
                Some(first) if first.is_uppercase() => {
                    self.field.0.to_string().chars().for_each(|c| hash.add(c));
                    self.features.push(hash.small());
                }
                Some(_) => self.field = hash,
                None => {}
            }
            self.word.clear();
        }
        Ok(())
    }
}

/// Whether two values look the same. Not `==`, for which not-a-number is never itself.
pub fn same(one: &impl Debug, other: &impl Debug) -> bool {
    Shape::of(one).whole.0 == Shape::of(other).whole.0
}

/// Memory for reading a body of the codec: a byte may stand for a whole struct of empty parts.
pub const BODY: Heap = Heap {
    per_byte: 256,
    beside: 8 << 10,
};

/// What no message is: nothing, claims of 2^40 and 2^24 of anything, depth without end, and all the same byte.
const HOSTILE: &[&[u8]] = &[
    &[],
    &[0xfd, 0, 0, 0, 0, 0, 1, 0, 0],
    &[0xfc, 0, 0, 0, 1],
    &[0xfb, 0xff, 0x0f, 0, 0, 0],
    &[1; 4096],
    &[4; 4096],
    &[0; 200],
    &[0xff; 200],
];

/// A type that is read by the codec.
pub fn body<T: Serialize + DeserializeOwned + Debug + 'static>(name: impl Into<String>) -> Target {
    Target {
        name: name.into(),
        text: false,
        weight: 1,
        seeds: HOSTILE.iter().map(|bytes| bytes.to_vec()).collect(),
        imagine: Box::new(|chance| codec::encode(&imagine::<T>(chance)?).ok()),
        judge: Box::new(
            |bytes| match BODY.hold(bytes.len(), || codec::decode::<T>(bytes))? {
                Err(garbled) => Shown::refused(&garbled),
                Ok(value) => {
                    written_and_read_again(&value)?;
                    Ok(Shown::value(&value))
                }
            },
        ),
    }
}

/// The law of a value that was read: it can be written, and what was written is read as the same value.
fn written_and_read_again<T: Serialize + DeserializeOwned + Debug>(
    value: &T,
) -> Result<(), String> {
    let written = codec::encode(value).map_err(|error| {
        format!("what was read cannot be written: {error}; the value is {value:?}")
    })?;
    let again: T = codec::decode(&written).map_err(|error| {
        format!("what was read and written cannot be read: {error}; the value is {value:?}")
    })?;
    if !same(value, &again) {
        return Err(format!("read {value:?}, and once written {again:?}"));
    }
    match codec::encode(&again) {
        Ok(bytes) if bytes == written => Ok(()),
        _ => Err(format!("{value:?} is written in two ways")),
    }
}
