//! Receiver: a follower's side of a mirror, from what the leader's mirror says to books that pages can be made from.
//!
//! A plain state machine. Remembers the last batch that arrived whole, and the one that is arriving. A batch is seen by nobody before all
//! of it is there. What does not fit to what is here is answered with the wish for the whole, so that nothing is ever guessed.

use std::sync::Arc;

use runtime::Instant;

use super::{Base, BooksChanged, Heard, Mirrored, PIECES_MAX};
use crate::books::Books;
use crate::config::Config;

/// The follower's side.
#[derive(Debug)]
pub struct Receiver {
    /// This master's own: how much is remembered of what is over.
    config: Config,
    latest: Option<(Mark, Arc<Mirrored>)>,
    arriving: Option<Arriving>,
}

/// A batch: the leader's term, and its number.
type Mark = (u64, u64);

/// A batch of which more is to come.
#[derive(Debug)]
struct Arriving {
    mark: Mark,
    next: u32,
    mirrored: Mirrored,
}

impl Receiver {
    /// Has received nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            latest: None,
            arriving: None,
        }
    }

    /// The leader of `term` says this, and it is `now`. Anything of another term is refused: then either side is not up to date.
    pub fn hear(&mut self, said: BooksChanged, term: u64, now: Instant) -> Heard {
        if said.term != term || said.pieces > PIECES_MAX {
            return Heard::Refused { term };
        }
        let mark = (said.term, said.sequence);
        let arriving = match self.arriving.take() {
            Some(arriving) if said.piece > 0 => {
                Some(arriving).filter(|one| (one.mark, one.next) == (mark, said.piece))
            }
            _ if said.piece == 0 => self.begin(mark, &said.base),
            _ => None,
        };
        let Some(mut arriving) = arriving else {
            return Heard::WantsWhole;
        };
        if !said.changes.is_empty() {
            let books = Arc::make_mut(&mut arriving.mirrored.books);
            said.changes.into_iter().for_each(|one| one.apply(books));
        }
        arriving.next += 1;
        if arriving.next < said.pieces {
            self.arriving = Some(arriving);
        } else {
            arriving.mirrored.taken = now - said.age;
            self.latest = Some((mark, Arc::new(arriving.mirrored)));
        }
        Heard::Taken
    }

    /// The books as they are before the first piece is applied; none if they are not here.
    fn begin(&self, mark: Mark, base: &Base) -> Option<Arriving> {
        let mirrored = match base {
            Base::Nothing(words) => {
                let mut books = Books::new(words.master.clone(), &self.config, words.started);
                // The leader's, not those of a flag here.
                books.weights = Arc::default();
                books.elected = words.elected;
                Mirrored {
                    books: Arc::new(books),
                    chosen: Arc::new(words.chosen.clone()),
                    taken: Instant::default(),
                }
            }
            Base::Batch(sequence) => {
                let (latest, mirrored) = self.latest.as_ref()?;
                (*latest == (mark.0, *sequence)).then(|| Mirrored::clone(mirrored))?
            }
        };
        Some(Arriving {
            mark,
            next: 0,
            mirrored,
        })
    }

    /// What arrived last.
    pub fn latest(&self) -> Option<&Arc<Mirrored>> {
        self.latest.as_ref().map(|(_, mirrored)| mirrored)
    }
}
