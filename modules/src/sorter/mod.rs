//! Sorter: says who is next, over roles and then frameworks (SPEC 4.8): by weighted dominant resource fairness, strict priority, or lottery.
//!
//! Hears slates from the allocator. Remembers clients, weights and holdings of one epoch; a restarted sorter refuses the next slate,
//! upon which the allocator tells it everything anew. Never keeps books: the allocator alone decides what is granted.

mod order;
mod siblings;
mod tree;
mod walk;

pub use order::{Fair, Lottery, Number, Order, Priority};
pub use tree::{Tree, Visit};
pub use walk::{Drf, TreeSorter};

use module_api::Fault;
use module_api::sorter::{Advice, Slate};
use runtime::prelude::*;

/// The decision behind a sorter.
pub trait SortPolicy: Unpin + 'static {
    /// Who should be given the slate's rooms. A slate out of step is refused.
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault>;
}

impl<O: Order> SortPolicy for TreeSorter<O> {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        TreeSorter::advise(self, slate)
    }
}

/// The actor around a policy.
pub struct Sorter<P> {
    policy: P,
}

impl<P: SortPolicy> Sorter<P> {
    /// A sorter that decides by `policy`.
    pub fn new(policy: P) -> Self {
        Self { policy }
    }
}

impl<P: SortPolicy> Actor for Sorter<P> {
    type Context = Context<Self>;
}

impl<P: SortPolicy> Process for Sorter<P> {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Slate>(&[Role::Master]);
    }
}

impl<P: SortPolicy> Handler<Slate> for Sorter<P> {
    type Result = Result<Vec<Advice>, Fault>;

    fn handle(&mut self, slate: Slate, _: &mut Context<Self>) -> Self::Result {
        self.policy.advise(slate)
    }
}
