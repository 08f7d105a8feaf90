//! Standbys: schedulers of one framework that wait to lead it, and their access to its state.
//!
//! Pure decisions on [`MasterState`]. A new scheduler leads if no other does; otherwise it waits,
//! first come first served, until the leader's link ends. The choice is recorded in the registry
//! before it is announced. The registry has the last leader, so after a failover of the master that
//! scheduler has some time to return before a standby is chosen. Frameworks whose schedulers are
//! not standbys are not handled here: their newest scheduler wins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::message::scheduler::{FrameworkFailed, Subscribe, Subscribed, SubscriptionRefused};
use protocol::message::standby::{SchedulerElected, StandBy, StandingBy};
use protocol::message::state::StateRefused;
use protocol::{FrameworkId, FrameworkInfo, Wants};
use resources::Invalid;
use runtime::{Pid, Timestamp};

use crate::frameworks::subscription::FrameworkPrepared;
use crate::registry::RegistryOperation;
use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToScheduler};

/// Maximum standbys per framework.
pub const STANDBYS_MAX: usize = 8;
/// Time after an election for the previous leader of a framework to return before a standby is
/// chosen.
pub const LEADER_PREFERRED: Duration = Duration::from_secs(10);

/// Leading and waiting schedulers of the frameworks with standbys.
#[derive(Clone, Debug, Default)]
pub struct Standbys {
    /// The last leaders, as the registry has them.
    appointed: BTreeMap<FrameworkId, Pid>,
    waiting: BTreeMap<FrameworkId, VecDeque<WaitingScheduler>>,
    /// Frameworks with a leader under an earlier master that still has time to return.
    awaited: BTreeSet<FrameworkId>,
    /// Schedulers, while the registry records their leadership.
    choosing: BTreeMap<FrameworkId, Pid>,
}

/// A waiting scheduler.
#[derive(Clone, Debug)]
struct WaitingScheduler {
    scheduler: Pid,
    info: FrameworkInfo,
    wants: Wants,
}

/// The outcome for a scheduler that offers to lead.
#[derive(Clone, Debug, PartialEq)]
pub enum StandbyOutcome {
    /// It leads, once the registry has recorded it.
    Leads(Box<FrameworkPrepared>),
    /// It is a standby.
    StandsBy(StandingBy),
}

impl Standbys {
    /// The standbys of that framework, in order.
    pub fn of(&self, id: &FrameworkId) -> impl Iterator<Item = &Pid> {
        let waiting = self.waiting.get(id).into_iter().flatten();
        waiting.map(|waiting| &waiting.scheduler)
    }

    /// The framework that the scheduler waits for.
    pub fn at(&self, scheduler: &Pid) -> Option<&FrameworkId> {
        let waits = |waiting: &VecDeque<WaitingScheduler>| {
            waiting.iter().any(|w| w.scheduler == *scheduler)
        };
        let mut waiting = self.waiting.iter();
        waiting.find_map(|(id, waiting)| waits(waiting).then_some(id))
    }

    /// Whether that framework has standbys.
    pub fn has(&self, id: &FrameworkId) -> bool {
        self.waiting.contains_key(id)
    }

    /// Takes over the registry's state.
    pub(crate) fn recover(&mut self, leading: BTreeMap<FrameworkId, Pid>) {
        self.awaited = leading.keys().cloned().collect();
        self.appointed = leading;
    }

    /// Removes a standby.
    pub(crate) fn forget(&mut self, scheduler: &Pid) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|waiting| waiting.scheduler != *scheduler);
            !waiting.is_empty()
        });
    }

    /// The scheduler leads the framework now.
    pub(crate) fn subscribed(&mut self, id: &FrameworkId, scheduler: &Pid) {
        self.awaited.remove(id);
        self.forget(scheduler);
    }

    /// Whether that scheduler would lead, given the current leader.
    fn leads(&self, id: &FrameworkId, scheduler: &Pid, leader: Option<&Pid>) -> bool {
        match leader {
            Some(leader) => leader == scheduler,
            None if self.choosing.contains_key(id) => false,
            None if self.appointed.get(id) == Some(scheduler) => true,
            None => !self.awaited.contains(id) && !self.has(id),
        }
    }

    /// Adds a standby, or updates it in its position. Fails above the bound.
    fn wait(
        &mut self,
        id: &FrameworkId,
        standby: WaitingScheduler,
    ) -> Result<(), SubscriptionRefused> {
        let waiting = self.waiting.entry(id.clone()).or_default();
        let same = |other: &&mut WaitingScheduler| other.scheduler == standby.scheduler;
        if let Some(before) = waiting.iter_mut().find(same) {
            *before = standby;
        } else if waiting.len() < STANDBYS_MAX {
            waiting.push_back(standby);
        } else {
            let reason = format!(
                "framework `{id}` has {STANDBYS_MAX} standbys: expected at most {STANDBYS_MAX}"
            );
            return Err(SubscriptionRefused::NotNow { reason });
        }
        Ok(())
    }
}

impl MasterState {
    /// The role of this scheduler: standby at once, or leader once the registry has recorded it.
    pub fn stand_by(
        &mut self,
        message: &StandBy,
        out: &mut Effects,
    ) -> Result<StandbyOutcome, SubscriptionRefused> {
        let mut framework = message.framework.clone();
        framework.id = self.named_framework(message)?;
        let subscribe = Subscribe {
            framework,
            scheduler: message.scheduler.clone(),
            wants: message.wants.clone(),
        };
        let prepared = self.prepare_framework(&subscribe)?;
        let (id, scheduler) = (&prepared.framework_id, &message.scheduler);
        let leader = self.frameworks.scheduler(id);
        if self.frameworks.get(id).is_none() && self.standbys.choosing.contains_key(id) {
            let reason = "the registry is being asked about this framework".to_owned();
            return Err(SubscriptionRefused::NotNow { reason });
        }
        if self.standbys.leads(id, scheduler, leader) {
            self.standbys.choosing.insert(id.clone(), scheduler.clone());
            let prepared = appointment(prepared, scheduler);
            return Ok(StandbyOutcome::Leads(Box::new(prepared)));
        }
        let standby = WaitingScheduler {
            scheduler: scheduler.clone(),
            info: prepared.info.clone(),
            wants: subscribe.wants,
        };
        let new = self.standbys.at(scheduler).is_none();
        self.standbys.wait(id, standby)?;
        if new {
            out.push(Effect::Link(scheduler.clone()));
        }
        Ok(StandbyOutcome::StandsBy(StandingBy {
            framework_id: prepared.framework_id,
            master: self.master.clone(),
        }))
    }

    /// The framework that a scheduler means: the one that it names by id, leads or waits for, or
    /// else the one with its name and principal.
    fn named_framework(
        &self,
        message: &StandBy,
    ) -> Result<Option<FrameworkId>, SubscriptionRefused> {
        let info = &message.framework;
        let waits_for = self.standbys.at(&message.scheduler);
        if let (Some(named), Some(waits_for)) = (&info.id, waits_for)
            && named != waits_for
        {
            let expected =
                format!("the framework that this scheduler stands by for, `{waits_for}`");
            return Err(never(Invalid::new("framework.id", named, expected)));
        }
        let speaks_for = self.frameworks.at(&message.scheduler).map(|f| &f.id);
        if let Some(id) = info.id.as_ref().or(waits_for).or(speaks_for) {
            return Ok(Some(id.clone()));
        }
        let known = self.standbys.appointed.keys();
        let known = known.filter_map(|id| self.frameworks.get(id));
        let mut same = known
            .filter(|known| known.info.name == info.name && known.info.principal == info.principal);
        match (same.next(), same.next()) {
            (Some(_), Some(_)) => {
                let expected = "a name that one framework has, or the framework's id";
                Err(never(Invalid::new("framework.name", &info.name, expected)))
            }
            (found, _) => Ok(found.map(|found| found.id.clone())),
        }
    }

    /// The leader is recorded: subscribes the framework through that scheduler.
    pub fn lead(
        &mut self,
        prepared: FrameworkPrepared,
        message: StandBy,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<Subscribed, SubscriptionRefused> {
        let scheduler = message.scheduler.clone();
        self.standbys.choosing.remove(&prepared.framework_id);
        let subscribe = Subscribe {
            framework: prepared.info.clone(),
            scheduler: message.scheduler,
            wants: message.wants,
        };
        let subscribed = self.subscribe(prepared, subscribe, now, out)?;
        let id = subscribed.framework_id.clone();
        self.standbys.appointed.insert(id, scheduler);
        Ok(subscribed)
    }

    /// The leader was not recorded: another may be chosen.
    pub fn not_appointed(&mut self, id: &FrameworkId, out: &mut Effects) {
        self.standbys.choosing.remove(id);
        if self.standbys.has(id) {
            out.push(Effect::Choose(id.clone()));
        }
    }

    /// Chooses the first standby, unless the framework has a leader or one is being chosen.
    pub fn choose(&mut self, id: &FrameworkId) -> Option<(FrameworkPrepared, StandBy)> {
        if self.frameworks.get(id)?.is_connected() || self.standbys.choosing.contains_key(id) {
            return None;
        }
        while let Some(next) = self.standbys.waiting.get(id)?.front().cloned() {
            let message = StandBy {
                framework: next.info,
                scheduler: next.scheduler.clone(),
                wants: next.wants,
            };
            let subscribe = Subscribe {
                framework: message.framework.clone(),
                scheduler: message.scheduler.clone(),
                wants: message.wants.clone(),
            };
            let Ok(prepared) = self.prepare_framework(&subscribe) else {
                // No longer valid: try the next one.
                self.standbys.forget(&next.scheduler);
                continue;
            };
            self.standbys.choosing.insert(id.clone(), next.scheduler);
            return Some((appointment(prepared, &message.scheduler), message));
        }
        None
    }

    /// The choice was recorded or refused. A standby that still waits is told to lead; otherwise
    /// the next one is chosen.
    pub fn chosen(
        &mut self,
        prepared: FrameworkPrepared,
        message: StandBy,
        recorded: bool,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let id = prepared.framework_id.clone();
        let scheduler = message.scheduler.clone();
        self.standbys.choosing.remove(&id);
        let Some(framework) = self.frameworks.get(&id).filter(|f| !f.is_connected()) else {
            return;
        };
        let timeout = framework.info.failover_timeout;
        if recorded && self.standbys.at(&scheduler) == Some(&id) {
            if let Ok(subscribed) = self.lead(prepared, message, now, out) {
                let lead = ToScheduler::Lead(SchedulerElected { subscribed });
                out.scheduler(Some(&scheduler), lead);
                self.warn_again(&id, now, out);
            }
        } else if self.standbys.has(&id) {
            out.push(Effect::Choose(id));
        } else if timeout.is_zero() {
            out.push(Effect::RemoveFramework(id));
        } else {
            out.push(Effect::RecordDeadline(id));
        }
    }

    /// The link to a scheduler broke. A leader disconnects its framework; a standby is forgotten.
    pub fn scheduler_gone(&mut self, scheduler: &Pid, out: &mut Effects) {
        self.standbys.forget(scheduler);
        self.framework_disconnected(scheduler, out);
    }

    /// The time of the previous leaders is over.
    pub(crate) fn leaders_awaited(&mut self, out: &mut Effects) {
        self.standbys.awaited.clear();
        for id in self.standbys.waiting.keys() {
            out.push(Effect::Choose(id.clone()));
        }
    }

    /// The framework is over: dismisses its standbys.
    pub(crate) fn dismiss_standbys(&mut self, id: &FrameworkId, out: &mut Effects) {
        self.standbys.appointed.remove(id);
        self.standbys.awaited.remove(id);
        self.standbys.choosing.remove(id);
        for waiting in self.standbys.waiting.remove(id).unwrap_or_default() {
            let failed = FrameworkFailed {
                message: "the framework is over".to_owned(),
            };
            out.scheduler(Some(&waiting.scheduler), ToScheduler::Failed(failed));
            out.push(Effect::Unlink(waiting.scheduler));
        }
    }

    /// Takes over the previous leaders from the registry, and gives them time to return.
    pub(crate) fn recover_leaders(
        &mut self,
        leading: BTreeMap<FrameworkId, Pid>,
        out: &mut Effects,
    ) {
        if !leading.is_empty() {
            out.push(Effect::Later(LEADER_PREFERRED, Due::LeadersAwaited));
        }
        self.standbys.recover(leading);
    }

    /// Whether that scheduler may change the framework's state.
    pub fn may_change(&self, id: &FrameworkId, scheduler: &Pid) -> Result<(), StateRefused> {
        if self.frameworks.scheduler(id) == Some(scheduler) {
            return Ok(());
        }
        let reason =
            format!("scheduler is `{scheduler}`: expected the one that leads framework `{id}`");
        Err(StateRefused::NotLeading { reason })
    }

    /// Whether that scheduler may read the framework's state.
    pub fn may_read(&self, id: &FrameworkId, scheduler: &Pid) -> Result<(), StateRefused> {
        if self.standbys.at(scheduler) == Some(id) {
            return Ok(());
        }
        self.may_change(id, scheduler)
    }
}

/// The same preparation with the leader in the registry operation.
fn appointment(prepared: FrameworkPrepared, scheduler: &Pid) -> FrameworkPrepared {
    let operation = RegistryOperation::AppointScheduler {
        info: prepared.info.clone(),
        scheduler: scheduler.clone(),
    };
    FrameworkPrepared {
        operation,
        ..prepared
    }
}

fn never(invalid: Invalid) -> SubscriptionRefused {
    let reason = invalid.to_string();
    SubscriptionRefused::Never { reason }
}
