//! Targets: decoders under test and the properties that they must keep.
//!
//! A target checks one input and returns its features, or the violated property. Has no state
//! between inputs.

use std::fmt::{self, Debug, Write};

use runtime::wire::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::generate::generate;
use crate::heap;
use crate::rng::Rng;

/// Maximum length of an error text, in bytes: it is logged and must not contain the peer's whole
/// input.
const WORDS_MAX: usize = 1000;

/// Features of an input, or the violated property.
pub type Verdict = Result<Observation, String>;

/// A decoder under test.
pub struct Target {
    /// Name for display; also determines the corpus file.
    pub name: String,
    /// Whether its inputs are text.
    pub text: bool,
    /// Number of inputs relative to other targets.
    pub weight: usize,
    /// Initial inputs, in addition to the corpus.
    pub seeds: Vec<Vec<u8>>,
    /// Generates a valid input.
    pub generate: Generate,
    /// Checks an input.
    pub check: Check,
}

type Generate = Box<dyn Fn(&mut Rng) -> Option<Vec<u8>>>;
type Check = Box<dyn Fn(&[u8]) -> Verdict>;

impl Target {
    /// Replaces the check.
    pub fn with_check(mut self, check: fn(&[u8]) -> Verdict) -> Self {
        self.check = Box::new(check);
        self
    }
}

/// Memory limit of decoding one input.
#[derive(Clone, Copy)]
pub struct HeapLimit {
    /// Bytes per input byte.
    pub per_byte: usize,
    /// Additional bytes.
    pub fixed: usize,
}

impl HeapLimit {
    /// Runs `work`, which decodes an input of this length, and checks the limit.
    pub fn enforce<T>(self, length: usize, work: impl FnOnce() -> T) -> Result<T, String> {
        let (done, held) = heap::peak(work);
        let most = self.per_byte * length + self.fixed;
        match held <= most {
            true => Ok(done),
            false => Err(format!(
                "reading {length} bytes held {held} bytes of memory, expected at most {most}"
            )),
        }
    }
}

/// Result of a valid check.
#[derive(Debug, Default)]
pub struct Observation {
    /// Hashes of properties of the input; new ones make it interesting.
    pub features: Vec<u16>,
    /// Whether the input was decoded.
    pub accepted: bool,
}

impl Observation {
    /// The input was rejected with this error, which must be neither empty nor too long.
    pub fn rejected(words: &impl fmt::Display) -> Verdict {
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
        // Only the constant words count as a feature: quoted parts and numbers differ from input to
        // input.
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
            accepted: false,
        })
    }

    /// A decoded value.
    pub fn value(value: &impl Debug) -> Self {
        Self {
            features: Shape::of(value).features,
            accepted: true,
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

/// Features of a value's debug text: its pairs of field and variant, and a hash of the whole text.
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

/// Whether two values have the same debug text. Unlike `==`, this also works for NaN.
pub fn same(one: &impl Debug, other: &impl Debug) -> bool {
    Shape::of(one).whole.0 == Shape::of(other).whole.0
}

/// Memory limit for the codec: one byte may stand for a struct of empty parts.
pub const BODY: HeapLimit = HeapLimit {
    per_byte: 256,
    fixed: 8 << 10,
};

/// Invalid inputs: empty, claimed lengths of 2^40 and 2^24, unlimited depth, and equal bytes.
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

/// A type that the codec decodes.
pub fn body<T: Serialize + DeserializeOwned + Debug + 'static>(name: impl Into<String>) -> Target {
    Target {
        name: name.into(),
        text: false,
        weight: 1,
        seeds: HOSTILE.iter().map(|bytes| bytes.to_vec()).collect(),
        generate: Box::new(|rng| codec::encode(&generate::<T>(rng)?).ok()),
        check: Box::new(
            |bytes| match BODY.enforce(bytes.len(), || codec::decode::<T>(bytes))? {
                Err(garbled) => Observation::rejected(&garbled),
                Ok(value) => {
                    written_and_read_again(&value)?;
                    Ok(Observation::value(&value))
                }
            },
        ),
    }
}

/// A decoded value can be encoded, and decodes to the same value again.
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
