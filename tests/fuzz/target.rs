//! Targets: decoders under test and the properties that they must keep.

use std::fmt::{Debug, Display};

use runtime::wire::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::generate::generate;
use crate::heap;
use crate::rng::Rng;

/// Maximum length of an error text, in bytes: it is logged and must not contain the peer's whole
/// input.
const ERROR_MAX: usize = 1000;

/// The violated property, if there is one.
pub type Verdict = Result<(), String>;

/// A decoder under test.
pub struct Target {
    /// Name for display; also determines the corpus file.
    pub name: String,
    /// Whether its inputs are text.
    pub text: bool,
    /// Number of inputs relative to other targets.
    pub weight: u32,
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
    /// A target of bytes without initial inputs.
    pub fn new(
        name: impl Into<String>,
        check: impl Fn(&[u8]) -> Verdict + 'static,
        generate: impl Fn(&mut Rng) -> Option<Vec<u8>> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            text: false,
            weight: 2,
            seeds: Vec::new(),
            generate: Box::new(generate),
            check: Box::new(check),
        }
    }

    /// Replaces the check.
    pub fn with_check(mut self, check: fn(&[u8]) -> Verdict) -> Self {
        self.check = Box::new(check);
        self
    }

    /// Sets the initial inputs.
    pub fn with_seeds(mut self, seeds: Vec<Vec<u8>>) -> Self {
        self.seeds = seeds;
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

/// The input was rejected with this error, which must be neither empty nor too long.
pub fn rejected(error: &impl Display) -> Verdict {
    let error = error.to_string();
    match error.len() {
        _ if error.trim().len() < 8 => Err(format!("refused without saying why: {error:?}")),
        ..=ERROR_MAX => Ok(()),
        length => Err(format!(
            "refused with {length} bytes of words, expected at most {ERROR_MAX}"
        )),
    }
}

/// The decoded value is equal to the one that was decoded from its encoding.
pub fn same_again<E: Debug>(value: &impl Debug, again: Result<impl Debug, E>) -> Verdict {
    match again {
        Ok(again) if same(value, &again) => Ok(()),
        other => Err(format!("read {value:?}, and once written {other:?}")),
    }
}

/// Whether two values have the same debug text. Unlike `==`, this also works for NaN.
pub fn same(one: &impl Debug, other: &impl Debug) -> bool {
    format!("{one:?}") == format!("{other:?}")
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
    let check = |bytes: &[u8]| match BODY.enforce(bytes.len(), || codec::decode::<T>(bytes))? {
        Err(garbled) => rejected(&garbled),
        Ok(value) => {
            let written = codec::encode(&value)
                .map_err(|error| format!("{error}: cannot be written: {value:?}"))?;
            let again = codec::decode::<T>(&written);
            let twice = again.as_ref().map(codec::encode);
            if !matches!(twice, Ok(Ok(twice)) if twice == written) {
                return Err(format!("{value:?} is written in two ways"));
            }
            same_again(&value, again)
        }
    };
    let generate = |rng: &mut Rng| codec::encode(&generate::<T>(rng)?).ok();
    let seeds = HOSTILE.iter().map(|bytes| bytes.to_vec()).collect();
    Target {
        weight: 1,
        ..Target::new(name, check, generate).with_seeds(seeds)
    }
}
