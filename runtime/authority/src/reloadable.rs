//! A setting that can be reloaded while a service runs.
//!
//! Take [`current`](Reloadable::current) once per decision, so that the decision uses one version.

use std::sync::{Arc, PoisonError, RwLock};

/// A reloadable setting. Clones share it.
#[derive(Debug)]
pub struct Reloadable<T>(Arc<RwLock<Arc<T>>>);

impl<T> Reloadable<T> {
    /// With this initial value.
    pub fn new(chosen: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(chosen))))
    }

    /// The current value.
    pub fn current(&self) -> Arc<T> {
        // It is replaced as a whole, so a panic of a holder leaves it consistent.
        let chosen = self.0.read().unwrap_or_else(PoisonError::into_inner);
        chosen.clone()
    }

    /// Replaces the value.
    pub fn replace(&self, chosen: T) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(chosen);
    }
}

impl<T> Clone for Reloadable<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Default> Default for Reloadable<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Reloadable<T> {
    fn from(chosen: T) -> Self {
        Self::new(chosen)
    }
}

/// Compares the current values.
impl<T: PartialEq> PartialEq for Reloadable<T> {
    fn eq(&self, other: &Self) -> bool {
        self.current() == other.current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_value_reaches_clones_but_not_held_copies() {
        let one = Reloadable::new("old");
        let (other, deciding) = (one.clone(), one.current());
        other.replace("new");
        assert_eq!((*one.current(), *deciding), ("new", "old"));
        assert_eq!(one, Reloadable::from("new"));
    }
}
