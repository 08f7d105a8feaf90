//! Standbys: the schedulers of one framework that wait for their turn, and what of its state each may see (S134, DESIGN section 9).
//!
//! Pure decisions on [`Books`]. A scheduler that comes leads if nobody does; otherwise it waits, first come, first to lead, until the
//! leading one's link ends. The registry stands between the choice and its announcement, as everywhere. It knows who led last, so after a
//! failover of the master that one is waited for, for a while, before a standby is chosen. It never chooses for a framework whose schedulers
//! do not stand by for each other: there the newest wins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use protocol::message::scheduler::{FrameworkFailed, Subscribe, Subscribed, SubscriptionRefused};
use protocol::message::standby::{StandBy, StandingBy, YouLead};
use protocol::message::state::StateRefused;
use protocol::{FrameworkId, FrameworkInfo, Wants};
use resources::Invalid;
use runtime::{Pid, Timestamp};

use crate::books::Books;
use crate::effects::{Due, Effect, Effects, Tell, ToScheduler};
use crate::registry::RegistryOperation;
use crate::subscription::FrameworkPrepared;

/// How many standbys one framework may have.
pub const STANDBYS_MAX: usize = 8;
/// How long after its election a master waits for the scheduler that led before it chooses a standby.
pub const LEADER_PREFERRED: Duration = Duration::from_secs(10);

/// Who leads and who waits, of each framework whose schedulers stand by for each other.
#[derive(Clone, Debug, Default)]
pub struct Standbys {
    /// Who led last, as the registry knows it.
    appointed: BTreeMap<FrameworkId, Pid>,
    waiting: BTreeMap<FrameworkId, VecDeque<Waiting>>,
    /// Whose leaders have led under an earlier master, and still have time to come back.
    awaited: BTreeSet<FrameworkId>,
    /// Of whom the registry is being told that it leads.
    choosing: BTreeMap<FrameworkId, Pid>,
}

/// One that waits.
#[derive(Clone, Debug)]
struct Waiting {
    scheduler: Pid,
    info: FrameworkInfo,
    wants: Wants,
}

/// What a scheduler that would lead is to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// The leader, once the registry knows it.
    Leads(Box<FrameworkPrepared>),
    /// A standby.
    StandsBy(StandingBy),
}

impl Standbys {
    /// Who waits for that framework, in the order of their turns.
    pub fn of(&self, id: &FrameworkId) -> impl Iterator<Item = &Pid> {
        let waiting = self.waiting.get(id).into_iter().flatten();
        waiting.map(|waiting| &waiting.scheduler)
    }

    /// For which framework that scheduler waits.
    pub fn at(&self, scheduler: &Pid) -> Option<&FrameworkId> {
        let waits = |waiting: &VecDeque<Waiting>| waiting.iter().any(|w| w.scheduler == *scheduler);
        let mut waiting = self.waiting.iter();
        waiting.find_map(|(id, waiting)| waits(waiting).then_some(id))
    }

    /// Whether anybody waits for that framework.
    pub fn has(&self, id: &FrameworkId) -> bool {
        self.waiting.contains_key(id)
    }

    /// Takes over what the registry holds.
    pub(crate) fn recover(&mut self, leading: BTreeMap<FrameworkId, Pid>) {
        self.awaited = leading.keys().cloned().collect();
        self.appointed = leading;
    }

    /// That scheduler waits no more.
    pub(crate) fn forget(&mut self, scheduler: &Pid) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|waiting| waiting.scheduler != *scheduler);
            !waiting.is_empty()
        });
    }

    /// That scheduler speaks for the framework from now on.
    pub(crate) fn subscribed(&mut self, id: &FrameworkId, scheduler: &Pid) {
        self.awaited.remove(id);
        self.forget(scheduler);
    }

    /// Whether that scheduler leads if it comes now, given who does.
    fn leads(&self, id: &FrameworkId, scheduler: &Pid, leader: Option<&Pid>) -> bool {
        match leader {
            Some(leader) => leader == scheduler,
            None if self.choosing.contains_key(id) => false,
            None if self.appointed.get(id) == Some(scheduler) => true,
            None => !self.awaited.contains(id) && !self.has(id),
        }
    }

    /// That scheduler waits from now on, or still, in its place. Refused when there are too many.
    fn wait(&mut self, id: &FrameworkId, standby: Waiting) -> Result<(), SubscriptionRefused> {
        let waiting = self.waiting.entry(id.clone()).or_default();
        let same = |other: &&mut Waiting| other.scheduler == standby.scheduler;
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

impl Books {
    /// What this scheduler is to be: a standby from now on, or the leader once the registry knows it.
    pub fn stand_by(
        &mut self,
        message: &StandBy,
        out: &mut Effects,
    ) -> Result<Turn, SubscriptionRefused> {
        let mut framework = message.framework.clone();
        framework.id = self.meant(message)?;
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
            return Ok(Turn::Leads(Box::new(prepared)));
        }
        let standby = Waiting {
            scheduler: scheduler.clone(),
            info: prepared.info.clone(),
            wants: subscribe.wants,
        };
        let new = self.standbys.at(scheduler).is_none();
        self.standbys.wait(id, standby)?;
        if new {
            out.push(Effect::Link(scheduler.clone()));
        }
        Ok(Turn::StandsBy(StandingBy {
            framework_id: prepared.framework_id,
            master: self.master.clone(),
        }))
    }

    /// Which framework a scheduler means: the one it names by id, speaks or waits for, or the one of its name and principal.
    fn meant(&self, message: &StandBy) -> Result<Option<FrameworkId>, SubscriptionRefused> {
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

    /// The registry knows who leads: the framework is subscribed through that scheduler.
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

    /// The registry does not know that a scheduler leads: another may be chosen.
    pub fn not_led(&mut self, id: &FrameworkId, out: &mut Effects) {
        self.standbys.choosing.remove(id);
        if self.standbys.has(id) {
            out.push(Effect::Choose(id.clone()));
        }
    }

    /// The first standby's turn has come, if the framework has nobody who leads and nobody is being chosen.
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
                // What was fit when it came is unfit now: the next one's turn.
                self.standbys.forget(&next.scheduler);
                continue;
            };
            self.standbys.choosing.insert(id.clone(), next.scheduler);
            return Some((appointment(prepared, &message.scheduler), message));
        }
        None
    }

    /// The registry knows, or has refused, who was chosen. One that still waits is told that it leads; otherwise it is the next one's turn.
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
                let lead = ToScheduler::Lead(YouLead { subscribed });
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

    /// The link to a scheduler broke. Of one that leads the framework is without a scheduler; one that waited is forgotten.
    pub fn scheduler_gone(&mut self, scheduler: &Pid, out: &mut Effects) {
        self.standbys.forget(scheduler);
        self.framework_disconnected(scheduler, out);
    }

    /// The schedulers that led under the master before have had their time.
    pub(crate) fn leaders_awaited(&mut self, out: &mut Effects) {
        self.standbys.awaited.clear();
        for id in self.standbys.waiting.keys() {
            out.push(Effect::Choose(id.clone()));
        }
    }

    /// The framework is over, and with it whoever waits for it.
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

    /// Takes over from the registry who led, and gives them their time to come back.
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

    /// Whether that scheduler may change what this framework keeps.
    pub fn may_change(&self, id: &FrameworkId, scheduler: &Pid) -> Result<(), StateRefused> {
        if self.frameworks.scheduler(id) == Some(scheduler) {
            return Ok(());
        }
        let reason =
            format!("scheduler is `{scheduler}`: expected the one that leads framework `{id}`");
        Err(StateRefused::NotLeading { reason })
    }

    /// Whether that scheduler may read what this framework keeps.
    pub fn may_read(&self, id: &FrameworkId, scheduler: &Pid) -> Result<(), StateRefused> {
        if self.standbys.at(scheduler) == Some(id) {
            return Ok(());
        }
        self.may_change(id, scheduler)
    }
}

/// The same preparation, but the registry is also told who leads.
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
