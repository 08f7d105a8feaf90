//! What an operator has chosen, in one place for all who ask it, so that it can be chosen anew while a service runs.
//!
//! Pure, but for the change itself: whoever takes what is chosen [`now`](Shared::now) decides all of one thing by it.

use std::sync::{Arc, PoisonError, RwLock};

/// A choice. Clones are the same one.
#[derive(Debug)]
pub struct Shared<T>(Arc<RwLock<Arc<T>>>);

impl<T> Shared<T> {
    /// This choice, for a start.
    pub fn new(chosen: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(chosen))))
    }

    /// What is chosen now.
    pub fn now(&self) -> Arc<T> {
        // It is replaced whole, so whoever fell has left it as it was.
        let chosen = self.0.read().unwrap_or_else(PoisonError::into_inner);
        chosen.clone()
    }

    /// From now on it is this.
    pub fn renew(&self, chosen: T) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(chosen);
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Shared<T> {
    fn from(chosen: T) -> Self {
        Self::new(chosen)
    }
}

/// Two are the same choice if what is chosen is.
impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_anew_holds_for_all_but_for_whoever_is_deciding() {
        let one = Shared::new("old");
        let (other, deciding) = (one.clone(), one.now());
        other.renew("new");
        assert_eq!((*one.now(), *deciding), ("new", "old"));
        assert_eq!(one, Shared::from("new"));
    }
}
