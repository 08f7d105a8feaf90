//! Interned text: equal texts that exist at the same time share one allocation, so that equality is
//! a pointer comparison.
//!
//! The table is weak: unused texts are freed at the next sweep, so that a peer with invented names
//! cannot let it grow beyond twice the number of used texts. Symbols are ordered by their text, so
//! that the order is the same in every process.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Below this number of texts the table is not swept.
const SWEEP_MIN: usize = 256;

/// A thin pointer needs a sized target.
struct Text(Box<str>);

/// One interned text.
#[derive(Clone)]
pub(crate) struct Symbol(Arc<Text>);

struct Table {
    texts: BTreeMap<Box<str>, Weak<Text>>,
    sweep_at: usize,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    texts: BTreeMap::new(),
    sweep_at: SWEEP_MIN,
});

impl Symbol {
    /// The symbol of `text`, shared if there is one.
    pub(crate) fn new(text: &str) -> Self {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(alive) = table.texts.get(text).and_then(Weak::upgrade) {
            return Self(alive);
        }
        if table.texts.len() >= table.sweep_at {
            table.texts.retain(|_, text| text.strong_count() > 0);
            table.sweep_at = SWEEP_MIN.max(table.texts.len() * 2);
        }
        let minted = Arc::new(Text(text.into()));
        table.texts.insert(text.into(), Arc::downgrade(&minted));
        Self(minted)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0.0
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        // The table has at most one allocation per text.
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Symbol {}

impl PartialOrd for Symbol {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Symbol {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            Ordering::Equal
        } else {
            self.as_str().cmp(other.as_str())
        }
    }
}

impl Hash for Symbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_allocation() {
        let (a, b, c) = (Symbol::new("ads"), Symbol::new("ads"), Symbol::new("web"));
        assert!(Arc::ptr_eq(&a.0, &b.0));
        assert!(a == b && a != c && a < c);
    }

    #[test]
    fn what_nobody_uses_is_let_go() {
        for n in 0..10_000 {
            Symbol::new(&format!("passing-by-{n}"));
        }
        let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            table.texts.len() < 2_000,
            "{} texts are kept",
            table.texts.len()
        );
    }
}
