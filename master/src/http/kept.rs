//! Kept: what was written of pages that are asked for again and again, so that the next one costs a copy and what has changed (W15).
//!
//! Of each page that shows everything the newest is kept, with the books that it was made of, so that what is the same value there is the same
//! in memory. Who does not see everything gets pages of their own, of which nothing is kept. What nobody has asked for in a while is let go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::prelude::*;
use runtime::{Clock, Instant};
use v1::Form;
use v1::parts::Parts;
use v1::pieces::{self, Keeper};

use super::page::{Entries, page};
use crate::books::Books;

/// How long a page is kept that nobody asks for.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// What is asked, and in which form.
type Name = (&'static str, Form);

/// All pages that are kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pages: Arc<Mutex<Vec<Page>>>,
    clock: Clock,
}

#[derive(Debug)]
struct Page {
    name: Name,
    pieces: pieces::Kept,
    /// What it was made of.
    books: Arc<Books>,
    made: Instant,
}

impl Kept {
    /// None yet.
    pub fn new(node: &Node) -> Self {
        Self {
            pages: Arc::default(),
            clock: node.clock().clone(),
        }
    }

    /// The same, and a small actor on this node that lets go of what nobody asks for. Without it nothing is let go.
    pub fn open(node: &Node) -> Self {
        let kept = Self::new(node);
        if let Err(error) = node.spawn_unnamed("http-kept", Sweeper(kept.clone())) {
            tracing::warn!(%error, "what is kept of pages stays kept");
        }
        kept
    }

    /// A page of these books, whose text is written by `write`.
    pub fn make(
        &self,
        name: Name,
        books: &Arc<Books>,
        write: impl FnOnce(Option<&mut Keeper>) -> Vec<u8>,
    ) -> Parts {
        if !books.is_whole() {
            return write(None).into();
        }
        let old = self.change(|pages| take(pages, name));
        let (pieces, before) = match old {
            Some(page) => (page.pieces, Some(page.books)),
            None => (pieces::Kept::default(), None),
        };
        let mut keeper = Keeper::of(pieces);
        let text = write(Some(&mut keeper));
        let (parts, pieces) = keeper.done(text);
        // Until here, what was copied was the same value.
        drop(before);
        let page = Page {
            name,
            pieces,
            books: books.clone(),
            made: self.clock.now(),
        };
        let other = self.change(|pages| {
            let other = take(pages, name);
            pages.push(page);
            other
        });
        // One that was made meanwhile. Freeing it takes a while, so not under the lock.
        drop(other);
        parts
    }

    /// A page of these books that is this object.
    pub fn page(&self, name: &'static str, books: &Arc<Books>, entries: &impl Entries) -> Parts {
        self.make((name, Form::Json), books, |keeper| page(entries, keeper))
    }

    fn sweep(&self) {
        let now = self.clock.now();
        let old: Vec<Page> = self.change(|pages| {
            let is_old = |page: &Page| now - page.made > KEPT_MAX;
            let all = std::mem::take(pages).into_iter();
            let (old, kept) = all.partition(is_old);
            *pages = kept;
            old
        });
        drop(old);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Page>) -> T) -> T {
        change(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn take(pages: &mut Vec<Page>, name: Name) -> Option<Page> {
    let place = pages.iter().position(|page| page.name == name)?;
    Some(pages.swap_remove(place))
}

/// Lets go of what nobody asks for.
struct Sweeper(Kept);

impl Actor for Sweeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.every(KEPT_MAX / 4, |this, ctx| {
            let kept = this.0.clone();
            // Whoever makes a page may be put off while it changes what is kept, and freeing one takes a while: neither is for this thread.
            let swept = ctx.node().blocking_behind(move || kept.sweep());
            ctx.spawn(swept.into_actor(this).map(|_, _, _| ()));
        });
    }
}

impl Process for Sweeper {
    fn hears(_: &mut Ears<Self>) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use runtime::rehearsal::rehearse;
    use v1::schema::master::CallType;

    use super::super::Chosen;
    use super::super::operator::answer;
    use super::super::shown::Shown;
    use super::super::state::{Frameworks, Slaves, Whole};
    use super::*;
    use crate::mirror::tests::laws::{Event, books, events, happen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever happens between two pages.
        #[test]
        fn a_page_of_which_some_was_kept_is_the_page(rounds in events()) {
            rehearse(|node| async move { check(&Kept::new(&node), rounds) })?;
        }
    }

    fn check(kept: &Kept, rounds: Vec<Vec<Event>>) -> Result<(), TestCaseError> {
        let (mut now, mut time) = (Arc::new(books()), 10);
        for round in rounds {
            for event in round {
                time += 1;
                happen(Arc::make_mut(&mut now), event, time);
            }
            let (shown, chosen) = (Shown::of(&now), &Chosen::default());
            let whole = Whole { shown, chosen };
            prop_assert_eq!(kept.page("state", &now, &whole).whole(), page(&whole, None));
            let slaves = Slaves(shown);
            prop_assert_eq!(
                kept.page("slaves", &now, &slaves).whole(),
                page(&slaves, None)
            );
            let all = Frameworks(shown);
            prop_assert_eq!(
                kept.page("frameworks", &now, &all).whole(),
                page(&all, None)
            );
            for form in [Form::Json, Form::Protobuf] {
                let kind = CallType::GetState;
                let made = kept.make((kind.name(), form), &now, |keeper| {
                    answer(form, kind, shown, chosen, keeper)
                });
                prop_assert_eq!(made.whole(), answer(form, kind, shown, chosen, None));
            }
        }
        Ok(())
    }

    #[test]
    fn what_nobody_asks_for_is_let_go() {
        rehearse(|node| async move {
            let kept = Kept::open(&node);
            let books = Arc::new(books());
            let whole = Slaves(Shown::of(&books));
            drop(kept.page("slaves", &books, &whole));
            node.clock().advance(KEPT_MAX / 2).await;
            assert_eq!(Arc::strong_count(&books), 2);
            node.clock().advance(KEPT_MAX).await;
            assert_eq!(Arc::strong_count(&books), 1);
        });
    }
}
