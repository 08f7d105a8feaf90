//! Receiver: a follower's side of a mirror, from pieces to a state for pages.
//!
//! A plain state machine. Keeps the last complete batch, and the one that is arriving. A batch
//! becomes visible when it is complete. A piece that does not fit is answered with a request for
//! the whole, so that nothing is guessed.

use std::sync::Arc;

use runtime::Instant;

use super::{Base, MirrorUpdate, Mirrored, PIECES_MAX, UpdateReply};
use crate::config::Config;
use crate::state::MasterState;

/// The follower's side.
#[derive(Debug)]
pub struct Receiver {
    /// This master's own configuration, for the bounds on remembered objects.
    config: Config,
    latest: Option<(Mark, Arc<Mirrored>)>,
    arriving: Option<Arriving>,
}

/// A batch: the leader's term, and its number.
type Mark = (u64, u64);

/// A batch that is not complete.
#[derive(Debug)]
struct Arriving {
    mark: Mark,
    next: u32,
    mirrored: Mirrored,
}

impl Receiver {
    /// An empty receiver.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            latest: None,
            arriving: None,
        }
    }

    /// Handles a piece from the leader of `term` at time `now`. Pieces of another term are refused:
    /// one side is not up to date.
    pub fn receive(&mut self, update: MirrorUpdate, term: u64, now: Instant) -> UpdateReply {
        if update.term != term || update.pieces > PIECES_MAX {
            return UpdateReply::Refused { term };
        }
        let mark = (update.term, update.sequence);
        let arriving = match self.arriving.take() {
            Some(arriving) if update.piece > 0 => {
                Some(arriving).filter(|one| (one.mark, one.next) == (mark, update.piece))
            }
            _ if update.piece == 0 => self.begin(mark, &update.base),
            _ => None,
        };
        let Some(mut arriving) = arriving else {
            return UpdateReply::WantsWhole;
        };
        if !update.changes.is_empty() {
            let state = Arc::make_mut(&mut arriving.mirrored.state);
            update.changes.into_iter().for_each(|one| one.apply(state));
        }
        arriving.next += 1;
        if arriving.next < update.pieces {
            self.arriving = Some(arriving);
        } else {
            arriving.mirrored.taken = now - update.age;
            self.latest = Some((mark, Arc::new(arriving.mirrored)));
        }
        UpdateReply::Taken
    }

    /// The state before the first piece; `None` if the base is missing.
    fn begin(&self, mark: Mark, base: &Base) -> Option<Arriving> {
        let mirrored = match base {
            Base::Nothing(words) => {
                let mut state = MasterState::new(words.master.clone(), &self.config, words.started);
                // The leader's weights, not this master's flags.
                state.weights = Arc::default();
                state.elected = words.elected;
                Mirrored {
                    state: Arc::new(state),
                    published: Arc::new(words.published.clone()),
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

    /// The last complete copy.
    pub fn latest(&self) -> Option<&Arc<Mirrored>> {
        self.latest.as_ref().map(|(_, mirrored)| mirrored)
    }
}
