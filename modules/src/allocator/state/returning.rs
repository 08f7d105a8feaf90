//! Clients that become active again: selects the agents that runs considered without them.
//!
//! Keeps the last run that considered each agent, and for each inactive client the run since which
//! it is inactive. Agents that no run has considered since then need no new look: the client was
//! considered for them last time, and nothing has changed there. So a framework that suppresses and
//! revives, or resubscribes, again and again costs only looks at agents that have changed. A client
//! whose demand or capabilities change must be considered for all agents; [`RescanBudget`] bounds
//! this to one look at all agents at once, and then one in each batch.

use module_api::sorter::Client;
use rustc_hash::FxHashSet;

use super::AllocatorState;
use super::filters::Mark;

/// Agents that a framework may have rescanned at once between two batches, even in a smaller
/// cluster: the cost is negligible.
const AT_ONCE_MIN: usize = 1_000;

/// The history of runs, as far as missed agents depend on it.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanHistory {
    /// Number of runs begun, and of batches among them.
    begun: u64,
    batches: u64,
    /// The last run has not ended.
    running: bool,
    /// By slot, the last run that considered the agent.
    last: Vec<u64>,
}

/// State of an inactive client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbsentClient {
    /// The first run that may have missed it; 0 if it was never considered.
    since: u64,
    /// If it left during that run: the number of batches begun by then.
    left_during: Option<u64>,
    /// By slot, the agents whose filters were dropped meanwhile: the client was not considered for
    /// them.
    hidden: FxHashSet<u32>,
}

/// Agents that a framework has had rescanned at once since the last batch, after it returned or
/// changed its demand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RescanBudget {
    /// Number of batches at that time.
    batches: u64,
    agents: usize,
}

impl RescanBudget {
    /// Whether `more` agents may be rescanned at once; if so, counts them.
    fn allows(&mut self, more: usize, limit: usize, batches: u64) -> bool {
        if self.batches != batches {
            *self = Self { batches, agents: 0 };
        }
        let sum = self.agents.saturating_add(more);
        let allowed = sum <= limit;
        if allowed {
            self.agents = sum;
        }
        allowed
    }
}

impl ScanHistory {
    /// A run begins.
    pub(super) fn begin(&mut self, batch: bool) {
        self.begun += 1;
        self.batches += u64::from(batch);
        self.running = true;
    }

    /// The current run considers the agent in this slot.
    pub(super) fn scan(&mut self, slot: u32) {
        let slot = slot as usize;
        if self.last.len() <= slot {
            self.last.resize(slot + 1, 0);
        }
        self.last[slot] = self.begun;
    }

    /// State of a client that becomes inactive now.
    fn leave(&self) -> AbsentClient {
        let (since, left_during) = match self.running {
            true => (self.begun, Some(self.batches)),
            false => (self.begun + 1, None),
        };
        AbsentClient {
            since,
            left_during,
            ..AbsentClient::default()
        }
    }

    /// Agents that were considered without an inactive client, each with the time of its rescan.
    /// Agents of the run during which it left wait for the next batch: otherwise a client that
    /// leaves during each run and returns would keep all agents in the next one.
    fn missed(&self, absent: &AbsentClient) -> Vec<(u32, Mark)> {
        if absent.since > self.begun {
            return Vec::new();
        }
        let left_during = match absent.left_during {
            Some(batches) if batches == self.batches => Mark::Batch,
            _ => Mark::Run,
        };
        let all = (0..).zip(&self.last).map(|(slot, run)| (slot, *run));
        let missed = all.filter(|(_, run)| *run >= absent.since);
        missed
            .map(|(slot, run)| match run == absent.since {
                true => (slot, left_during),
                false => (slot, Mark::Run),
            })
            .collect()
    }
}

impl AllocatorState {
    /// Ends the current run: it considered all its agents for clients that leave from now on.
    pub fn run_ended(&mut self) {
        self.scans.running = false;
    }

    /// Updates whether a client is active. When it becomes active, marks the agents that it missed.
    pub(super) fn update_presence(&mut self, client: Client, active: bool) {
        let Some(record) = self.clients.get_mut(client) else {
            return;
        };
        match (&mut record.absent, active) {
            (absent @ None, false) => *absent = Some(self.scans.leave()),
            (absent @ Some(_), true) => {
                let absent = absent.take().unwrap_or_default();
                self.rescan_for(client, &absent);
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// The client accepts more than before, so it must be considered for all agents again. The
    /// caller then updates whether it is active.
    pub(super) fn reset_scans(&mut self, client: Client) {
        if let Some(record) = self.clients.get_mut(client) {
            let absent = record.absent.get_or_insert_default();
            (absent.since, absent.left_during) = (0, None);
        }
    }

    /// Drops all filters of a client. Agents that they hid are marked for it, once it is active.
    pub(super) fn clear_filters(&mut self, client: Client) {
        let refused = self.drop_filters(client);
        let Some(record) = self.clients.get_mut(client) else {
            return;
        };
        match &mut record.absent {
            Some(absent) => absent.hidden.extend(refused),
            None => refused
                .into_iter()
                .for_each(|slot| self.mark(slot, Mark::Run)),
        }
    }

    /// Marks the agents that a client missed: for the next run, or for the next batch if its
    /// framework has used up its rescans. Agents hidden by filters are not limited, since the
    /// client has answered an offer for each.
    fn rescan_for(&mut self, client: Client, absent: &AbsentClient) {
        let mut hidden: Vec<u32> = absent.hidden.iter().copied().collect();
        hidden.sort_unstable();
        hidden
            .into_iter()
            .for_each(|slot| self.mark(slot, Mark::Run));
        if self.all_agents == Mark::Run {
            return;
        }
        let all = self.by_id.len();
        let missed = (absent.since > 0).then(|| self.scans.missed(absent));
        let soon =
            |(slot, mark): &&(u32, Mark)| *mark == Mark::Run && self.would_mark(*slot, *mark);
        let more = missed
            .as_ref()
            .map_or(all, |missed| missed.iter().filter(soon).count());
        let batches = self.scans.batches;
        let record = self.clients.get(client);
        let framework = record.and_then(|record| self.frameworks.get_mut(&record.framework));
        let at_once = framework.is_none_or(|framework| {
            framework
                .rescans
                .allows(more, all.max(AT_ONCE_MIN), batches)
        });
        let limit = if at_once { Mark::Run } else { Mark::Batch };
        match missed {
            None => self.mark_all(limit),
            Some(missed) => missed
                .into_iter()
                .for_each(|(slot, mark)| self.mark(slot, mark.min(limit))),
        }
    }
}
