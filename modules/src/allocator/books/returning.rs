//! The books' part on who takes part again: which agents have been looked at without that client, and so must be looked at for it.
//!
//! Pure, like all of the books. Remembers of each agent which run looked at it last, and of a client that takes no part since which run
//! that is so. What no run has looked at since needs no look: the client was asked about it last time, and nothing there has changed. So a
//! framework that suppresses and revives, subscribes again, or comes and goes without end costs others looks at what has changed meanwhile. Who
//! wants or understands something else was asked about nothing of it yet, and who does so without end costs one look at all at once and one
//! in each batch: it has only so much [`Haste`].

use module_api::sorter::Client;
use rustc_hash::FxHashSet;

use super::Books;
use super::filters::Mark;

/// Agents that one framework may have looked at at once between two batches, if there are no more: so few are looked at in no time.
const AT_ONCE_MIN: usize = 1_000;

/// Runs, as far as it matters who was looked at in them.
#[derive(Clone, Debug, Default)]
pub(super) struct Looked {
    /// How many have begun, and how many of them were batches.
    begun: u64,
    batches: u64,
    /// The last one has not ended.
    under_way: bool,
    /// By slot, the last run that looked at the agent there.
    last: Vec<u64>,
}

/// Since when a client takes no part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Away {
    /// The first run that may have missed it; that of a client that was asked about nothing yet is 0.
    since: u64,
    /// That run was under way when it left, and so many batches had begun.
    amid: Option<u64>,
    /// By slot, the agents of which it refused something when its refusals were forgotten: it was not asked about them.
    unasked: FxHashSet<u32>,
}

/// How many agents a framework has had looked at at once since a batch, because it came back or wants something else.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Haste {
    /// So many batches had begun.
    batches: u64,
    agents: usize,
}

impl Haste {
    /// Whether so many more may be looked at at once; if so they count.
    fn allows(&mut self, more: usize, most: usize, batches: u64) -> bool {
        if self.batches != batches {
            *self = Self { batches, agents: 0 };
        }
        let sum = self.agents.saturating_add(more);
        let allowed = sum <= most;
        if allowed {
            self.agents = sum;
        }
        allowed
    }
}

impl Looked {
    /// A run begins.
    pub(super) fn begin(&mut self, batch: bool) {
        self.begun += 1;
        self.batches += u64::from(batch);
        self.under_way = true;
    }

    /// The run that has begun looks at the agent in this slot.
    pub(super) fn look(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.last.len() <= slot {
            self.last.resize(slot + 1, 0);
        }
        self.last[slot] = self.begun;
    }

    /// Since when somebody is away who leaves now.
    fn leave(&self) -> Away {
        let (since, amid) = match self.under_way {
            true => (self.begun, Some(self.batches)),
            false => (self.begun + 1, None),
        };
        Away {
            since,
            amid,
            ..Away::default()
        }
    }

    /// The agents that were looked at without who was away, each with when it is to be looked at. Of a run that it left amid, by the next batch
    /// at the earliest: whoever leaves amid each run and comes back would keep all agents in the next one.
    fn missed(&self, away: &Away) -> Vec<(u32, Mark)> {
        if away.since > self.begun {
            return Vec::new();
        }
        let amid = match away.amid {
            Some(batches) if batches == self.batches => Mark::Batch,
            _ => Mark::Run,
        };
        let all = (0..).zip(&self.last).map(|(slot, run)| (slot, *run));
        let missed = all.filter(|(_, run)| *run >= away.since);
        missed
            .map(|(slot, run)| match run == away.since {
                true => (slot, amid),
                false => (slot, Mark::Run),
            })
            .collect()
    }
}

impl Books {
    /// The run that began last has ended: who leaves now was asked about all that it looked at.
    pub fn run_ended(&mut self) {
        self.looked.under_way = false;
    }

    /// A client takes part, or no longer. If it does again, what was looked at without it is looked at for it.
    pub(super) fn come_or_go(&mut self, client: Client, active: bool) {
        let Some(member) = self.clients.get_mut(client) else {
            return;
        };
        match (&mut member.away, active) {
            (away @ None, false) => *away = Some(self.looked.leave()),
            (away @ Some(_), true) => {
                let away = away.take().unwrap_or_default();
                self.look_for(client, &away);
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// A client would take what it would not before: whatever it was asked about, that was not it. Followed by whether it takes part.
    pub(super) fn forget_looks(&mut self, client: Client) {
        if let Some(member) = self.clients.get_mut(client) {
            let away = member.away.get_or_insert_default();
            (away.since, away.amid) = (0, None);
        }
    }

    /// A client refuses nothing any more. What its filters hid is looked at for it, once it takes part.
    pub(super) fn refuse_nothing(&mut self, client: Client) {
        let refused = self.drop_filters(client);
        let Some(member) = self.clients.get_mut(client) else {
            return;
        };
        match &mut member.away {
            Some(away) => away.unasked.extend(refused),
            None => refused
                .into_iter()
                .for_each(|slot| self.mark(slot, Mark::Run)),
        }
    }

    /// Has looked at for a client what it was not asked about: at once, unless its framework was in so much haste since the last batch that
    /// this one has to wait for the next. What its filters hid is never that much: it has answered an offer for each.
    fn look_for(&mut self, client: Client, away: &Away) {
        let mut unasked: Vec<u32> = away.unasked.iter().copied().collect();
        unasked.sort_unstable();
        unasked
            .into_iter()
            .for_each(|slot| self.mark(slot, Mark::Run));
        if self.everybody == Mark::Run {
            return;
        }
        let all = self.by_id.len();
        let missed = (away.since > 0).then(|| self.looked.missed(away));
        let soon =
            |(slot, mark): &&(u32, Mark)| *mark == Mark::Run && self.would_mark(*slot, *mark);
        let more = missed
            .as_ref()
            .map_or(all, |missed| missed.iter().filter(soon).count());
        let batches = self.looked.batches;
        let member = self.clients.get(client);
        let framework = member.and_then(|member| self.frameworks.get_mut(&member.framework));
        let at_once = framework
            .is_none_or(|framework| framework.haste.allows(more, all.max(AT_ONCE_MIN), batches));
        let most = if at_once { Mark::Run } else { Mark::Batch };
        match missed {
            None => self.mark_everybody(most),
            Some(missed) => missed
                .into_iter()
                .for_each(|(slot, mark)| self.mark(slot, mark.min(most))),
        }
    }
}
