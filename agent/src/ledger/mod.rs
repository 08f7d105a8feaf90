//! The ledger: keeps on the disk what the next process of the agent must know to go on with what runs (SPEC 5.3).
//!
//! Hears from the containerizer what containers and tasks are, before it starts anything, and from the status updates what is on its way, before
//! it is sent. Says when it is on the disk, in the order in which it was asked. Remembers what waits to be written: all of it is the next
//! write, so that a slow disk costs each asker one write and not one each. What the disk has refused is remembered too, and written before
//! anything later: so the next process of the agent finds what was so at one moment, and nothing of later without what was before it. Never
//! reads: that was done before the agent began ([`plan`]).

pub mod book;
pub mod plan;
pub mod reconfiguration;
pub mod record;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use runtime::prelude::*;

use self::book::Book;
use self::record::Entry;

/// How many may wait; one more is refused.
const WAITING_MAX: usize = 65_536;
/// How many entries that the disk has refused are remembered; while there are more, nothing new is taken.
const REFUSED_MAX: usize = 65_536;
/// How long after a write that failed it is tried again, if nobody has asked for another one.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Bytes that are written at once, about.
const TURN_BYTES: usize = 4 * 1024 * 1024;

/// What is called with the outcome once it is on the disk, or cannot be: also if the ledger falls before, or does not even hear.
pub struct Then(Option<Continuation>);

type Continuation = Box<dyn FnOnce(Result<(), Unwritten>) + Send>;

/// Why something is not on the disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unwritten {
    /// The disk has refused it, and will be asked again before anything later is written.
    #[error("{0}")]
    Refused(String),
    /// It has not been taken, and will not be written.
    #[error("{0}")]
    NotTaken(String),
}

impl Then {
    /// Calls this.
    pub fn new(then: impl FnOnce(Result<(), Unwritten>) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    fn tell(mut self, outcome: Result<(), Unwritten>) {
        if let Some(then) = self.0.take() {
            then(outcome);
        }
    }
}

impl Drop for Then {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            let problem = "the agent's ledger has fallen".to_owned();
            then(Err(Unwritten::NotTaken(problem)));
        }
    }
}

/// Keep this, and forget that, in this order. Nothing at all is on the disk once all that was to be kept before is.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Keep {
    /// What.
    pub entries: Vec<Entry>,
    /// Who wants to know when it is on the disk.
    pub then: Option<Then>,
}

/// Forget everything: the agent will not come back as itself. What is to be kept from now on is not, and whoever wants that hears when everything
/// is forgotten. Answered with what the disk says to it: as long as it has not agreed, a next process may find what was kept.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Result<(), Unwritten>")]
pub struct ForgetEverything;

/// All is written that was to be written. Answered once that is so.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct AllWritten;

/// The actor.
pub struct Ledger {
    /// Away while it is written.
    book: Option<Book>,
    waiting: VecDeque<Keep>,
    /// What the disk has refused, or may have: the beginning of the next write.
    refused: Vec<Entry>,
    /// Whether that is to be written although nothing else is.
    again: bool,
    /// Whether a timer runs that sees to that.
    timer_runs: bool,
    /// Whether everything is to be forgotten before anything else is written.
    to_forget: bool,
    forgotten: bool,
    /// Who waits until the disk has, or has refused.
    forgetting: Vec<Promise<Result<(), Unwritten>>>,
    /// Who wanted something kept meanwhile: what that follows from would be found by a next process that finds what was kept before.
    let_go: Vec<Then>,
    idle: Vec<Promise<()>>,
}

impl Ledger {
    /// A ledger that writes into this book.
    pub fn new(book: Book) -> Self {
        Self {
            book: Some(book),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            again: false,
            timer_runs: false,
            to_forget: false,
            forgotten: false,
            forgetting: Vec::new(),
            let_go: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Writes what waits, unless something is being written.
    fn write(&mut self, ctx: &mut Context<Self>) {
        let Some(mut book) = self.book.take() else {
            return;
        };
        let again = std::mem::take(&mut self.again);
        let forget = self.to_forget && (again || !self.waiting.is_empty());
        let (mut fresh, mut told, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < TURN_BYTES
            && let Some(keep) = self.waiting.pop_front()
        {
            let size = |entry: &Entry| match entry {
                Entry::Put(_, value) => value.len(),
                Entry::Remove(_) => 0,
            };
            bytes += keep.entries.iter().map(size).sum::<usize>() + 1;
            fresh.extend(keep.entries);
            told.extend(keep.then);
        }
        let anew = again && !self.refused.is_empty();
        if bytes == 0 && !forget && !anew {
            self.book = Some(book);
            for idle in self.idle.drain(..) {
                idle.answer(());
            }
            return;
        }
        let forgetting = match forget {
            true => std::mem::take(&mut self.forgetting),
            false => Vec::new(),
        };
        let mut entries = std::mem::take(&mut self.refused);
        entries.append(&mut fresh);
        let written = ctx.node().blocking(move || {
            let written = match forget {
                true => book.clear(),
                false => Ok(()),
            };
            let written = written.and_then(|()| book.write(&entries));
            let refused = |error: storage::StoreError| Unwritten::Refused(error.to_string());
            (book, entries, written.map_err(refused))
        });
        ctx.then(written, move |this, written, ctx| {
            let outcome = match written {
                Ok((book, entries, outcome)) => {
                    this.book = Some(book);
                    match &outcome {
                        Ok(()) => this.to_forget &= !forget,
                        Err(_) => this.write_again(entries, ctx),
                    }
                    outcome
                }
                Err(interrupted) => Err(Unwritten::NotTaken(interrupted.to_string())),
            };
            if let Err(problem) = &outcome {
                tracing::error!(
                    %problem,
                    "what runs is not kept for the next process of this agent"
                );
            }
            if forget {
                told.append(&mut this.let_go);
            }
            for then in told {
                then.tell(outcome.clone());
            }
            for asked in forgetting {
                asked.answer(outcome.clone());
            }
            match this.book {
                Some(_) => this.write(ctx),
                // The book is lost for good, and with this actor ends its agent.
                None => ctx.stop(),
            }
        });
    }

    /// What the disk has not taken is the beginning of the next write, which comes before long.
    fn write_again(&mut self, entries: Vec<Entry>, ctx: &mut Context<Self>) {
        // Whatever was to be kept before everything is forgotten need not be.
        if !self.forgotten {
            self.refused = entries;
        }
        if !std::mem::replace(&mut self.timer_runs, true) {
            ctx.after(AGAIN_AFTER, |this, ctx| {
                (this.timer_runs, this.again) = (false, true);
                this.write(ctx);
            });
        }
    }
}

impl Actor for Ledger {
    type Context = Context<Self>;
}

impl Process for Ledger {}

impl Handler<Keep> for Ledger {
    type Result = ();
    fn handle(&mut self, keep: Keep, ctx: &mut Context<Self>) {
        if self.forgotten && !self.to_forget {
            return keep.then.into_iter().for_each(|then| then.tell(Ok(())));
        }
        let waiting = self.waiting.len() + self.let_go.len();
        if waiting >= WAITING_MAX || self.refused.len() >= REFUSED_MAX {
            let problem = Unwritten::NotTaken("too much waits for the agent's disk".to_owned());
            let told = keep.then.into_iter();
            return told.for_each(|then| then.tell(Err(problem.clone())));
        }
        if self.forgotten {
            return self.let_go.extend(keep.then);
        }
        self.waiting.push_back(keep);
        self.write(ctx);
    }
}

impl Handler<ForgetEverything> for Ledger {
    type Result = Reply<Result<(), Unwritten>>;
    fn handle(&mut self, _: ForgetEverything, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.forgetting.push(promise);
        self.forgotten = true;
        self.to_forget = true;
        self.again = true;
        self.refused.clear();
        let waiting = self.waiting.drain(..);
        self.let_go.extend(waiting.filter_map(|keep| keep.then));
        self.write(ctx);
        reply
    }
}

impl Handler<AllWritten> for Ledger {
    type Result = Reply<()>;
    fn handle(&mut self, _: AllWritten, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.idle.push(promise);
        // Once more, what was refused too; then it is as it is.
        self.again = true;
        self.write(ctx);
        reply
    }
}
