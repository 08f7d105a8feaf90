//! How much a message may cost to read: its depth, and the memory it takes once it is read.
//!
//! What is read is charged before it is kept, so that a short text which stands for much (`[{},{},{},...]`) is refused in time. The length of
//! the text or bytes themselves is for whoever takes them from the wire to bound.

use resources::{Invalid, excerpt};

use crate::message::Field;

/// The value of what takes too much memory.
const TOO_MUCH: &str = "too much";

/// What reading one message may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages within messages.
    pub depth: usize,
    /// Memory of the message once it is read, in bytes.
    pub memory: usize,
}

impl Default for Limits {
    /// 64 messages deep, 64 MiB: far above what a scheduler says, and nothing that a master would notice.
    fn default() -> Self {
        Self {
            depth: 64,
            memory: 64 << 20,
        }
    }
}

impl Limits {
    /// Whether this was refused because it takes more memory than these allow.
    pub fn is_too_much(&self, bad: &Invalid) -> bool {
        bad.value == TOO_MUCH && bad.expected == self.expected()
    }

    fn expected(&self) -> String {
        let memory = self.memory;
        format!("a message that takes at most {memory} bytes of memory once it is read")
    }
}

/// What is left of the limits.
#[derive(Debug)]
pub(crate) struct Allowance {
    limits: Limits,
    depth: usize,
    memory: usize,
}

impl Allowance {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            depth: limits.depth,
            memory: limits.memory,
        }
    }

    /// One more value of this field, with so many bytes of text in it.
    pub(crate) fn charge(&mut self, field: &dyn Field, bytes: usize) -> Result<(), Invalid> {
        let cost = field.weight().saturating_add(bytes);
        match self.memory.checked_sub(cost) {
            Some(rest) => {
                self.memory = rest;
                Ok(())
            }
            None => Err(Invalid::new("", TOO_MUCH, self.limits.expected())),
        }
    }

    /// One message deeper. [`Allowance::leave`] comes back.
    pub(crate) fn enter(&mut self) -> Result<(), Invalid> {
        match self.depth.checked_sub(1) {
            Some(rest) => {
                self.depth = rest;
                Ok(())
            }
            None => {
                let expected = format!("at most {} messages within messages", self.limits.depth);
                Err(Invalid::new("", "deeper", expected))
            }
        }
    }

    pub(crate) fn leave(&mut self) {
        self.depth += 1;
    }
}

/// Which fields of a message were there, a bit for each place of its table.
#[derive(Default)]
pub(crate) struct Seen(u128);

impl Seen {
    /// The field at this place of the table was there.
    pub(crate) fn mark(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// Whether it was.
    pub(crate) fn has(&self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    /// Refuses a message of which a required field was not there.
    pub(crate) fn check(&self, message: &dyn crate::message::Message) -> Result<(), Invalid> {
        use crate::message::Label;
        for (place, entry) in message.table().iter().enumerate() {
            let required = || {
                let field = message.field(entry.number);
                field.is_some_and(|field| field.label() == Label::Required)
            };
            if !self.has(place) && required() {
                let expected = "a value, since the field is required";
                return Err(Invalid::new(entry.name, "absent or not known", expected));
            }
        }
        Ok(())
    }
}

/// The place of a key in a map, as an error shows it: keys are a stranger's words, and as long as these like.
pub(crate) fn place_of(key: &str) -> String {
    format!("[{}]", excerpt(key))
}

/// The error, seen from what holds the field: `outer` is a name, or `[place]` in a list or a map.
pub(crate) fn within(mut bad: Invalid, outer: &str) -> Invalid {
    bad.field = match bad.field.as_str() {
        "" => outer.to_owned(),
        inner if inner.starts_with('[') || outer.is_empty() => format!("{outer}{inner}"),
        inner => format!("{outer}.{inner}"),
    };
    bad
}
