//! Limits for decoding a message: nesting depth and decoded memory.
//!
//! Values are charged before they are stored, so a short text with a large decoded form
//! (`[{},{},{},...]`) is refused in time. Callers bound the encoded length themselves.

use resources::{Invalid, excerpt};

use crate::message::Field;

/// The value in the error for excessive memory.
const TOO_MUCH: &str = "too much";

/// Limits for decoding one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting depth.
    pub depth: usize,
    /// Maximum bytes of the decoded message.
    pub memory: usize,
}

impl Default for Limits {
    /// 64 levels and 64 MiB: far above the calls of schedulers, and harmless to a master.
    fn default() -> Self {
        Self {
            depth: 64,
            memory: 64 << 20,
        }
    }
}

impl Limits {
    /// Whether this error says that the memory limit was exceeded.
    pub fn is_too_much(&self, bad: &Invalid) -> bool {
        bad.value == TOO_MUCH && bad.expected == self.expected()
    }

    fn expected(&self) -> String {
        let memory = self.memory;
        format!("a message of at most {memory} decoded bytes")
    }
}

/// The remaining limits.
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

    /// Charges one more value of this field with `bytes` bytes of text.
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

    /// Enters a nested message; [`Allowance::leave`] leaves it.
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

/// The fields that were present, as a bit for each table index.
#[derive(Default)]
pub(crate) struct Seen(u128);

impl Seen {
    /// Marks the field at this table index.
    pub(crate) fn mark(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Whether the field at this table index is marked.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Refuses a message without a required field.
    pub(crate) fn check(&self, message: &dyn crate::message::Message) -> Result<(), Invalid> {
        use crate::message::Label;
        for (index, entry) in message.table().iter().enumerate() {
            let required = || {
                let field = message.field(entry.number);
                field.is_some_and(|field| field.label() == Label::Required)
            };
            if !self.has(index) && required() {
                let expected = "a value, since the field is required";
                return Err(Invalid::new(entry.name, "absent or not known", expected));
            }
        }
        Ok(())
    }
}

/// A map key in an error's path, shortened: clients choose its length.
pub(crate) fn place_of(key: &str) -> String {
    format!("[{}]", excerpt(key))
}

/// Adds the enclosing field to an error's path: a name, or `[index]` of a list or map. A fixed
/// message (neither field nor value) stays as it is.
pub(crate) fn within(mut bad: Invalid, outer: &str) -> Invalid {
    if bad.field.is_empty() && bad.value.is_empty() {
        return bad;
    }
    bad.field = match bad.field.as_str() {
        "" => outer.to_owned(),
        inner if inner.starts_with('[') || outer.is_empty() => format!("{outer}{inner}"),
        inner => format!("{outer}.{inner}"),
    };
    bad
}
