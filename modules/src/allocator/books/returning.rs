//! The books' part on who takes part again: which agents have been looked at without that client, and so must be looked at for it.
//!
//! Pure, like all of the books. Remembers of each agent which run looked at it last, and of a client that takes no part since which run
//! that is so. What no run has looked at since needs no look: the client was asked about it last time, and nothing there has changed. So a
//! framework that suppresses and revives without end costs others looks at what has changed meanwhile, and a full run in each interval at most.

use module_api::sorter::Client;

use super::Books;
use super::filters::Mark;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Away {
    /// The first run that may have missed it; that of a client that never took part is 0.
    since: u64,
    /// That run was under way when it left, and so many batches had begun.
    amid: Option<u64>,
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
        match self.under_way {
            true => Away {
                since: self.begun,
                amid: Some(self.batches),
            },
            false => Away {
                since: self.begun + 1,
                amid: None,
            },
        }
    }

    /// The agents that were looked at without who was away, each with when it is to be looked at. Of a run that it left amid, by the next batch
    /// at the earliest: whoever leaves amid each run and comes back would keep all agents in the next one.
    fn missed(&self, away: Away) -> Vec<(u32, Mark)> {
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
        match (member.away, active) {
            (None, false) => member.away = Some(self.looked.leave()),
            (Some(away), true) => {
                member.away = None;
                for (slot, mark) in self.looked.missed(away) {
                    self.mark(slot, mark);
                }
            }
            (None, true) | (Some(_), false) => {}
        }
    }
}
