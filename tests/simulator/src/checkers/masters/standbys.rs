//! Standbys: only the scheduler that the registry has appointed is told that it leads (S134).
//!
//! Judged whenever a master tells a scheduler to lead a framework with standbys: by then its
//! registry has recorded this one as the last of that master's appointments for the framework. So
//! no appointment is told to two schedulers; an appointment by a deposed master is older than the
//! next master's and has a lower term. `subscriptions` checks that the previous scheduler receives
//! nothing more.

use std::collections::BTreeMap;

use master::registry::RegistryOperation;
use protocol::FrameworkId;
use protocol::message::scheduler::SubscriptionRefused;
use protocol::message::standby::{SchedulerElected, StandbyReply};
use runtime::Pid;

use super::records::{Answered, Questions};
use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};
use crate::linear::{RegistryAnswer, RegistryRequest};

const NAME: &str = "standbys";

/// The checker.
#[derive(Default)]
pub struct Standbys {
    questions: Questions,
    /// The last appointment that the registry has recorded for the master on each node, by
    /// framework.
    appointed: BTreeMap<String, BTreeMap<FrameworkId, Pid>>,
    judgements: u64,
}

impl Standbys {
    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        let told = match observed.is::<SchedulerElected>() {
            Some(lead) => &lead.subscribed,
            None => match observed.is::<Result<StandbyReply, SubscriptionRefused>>() {
                Some(Ok(StandbyReply::Leads(subscribed))) if observed.reply => subscribed,
                _ => return Ok(()),
            },
        };
        self.judgements += 1;
        let framework = &told.framework_id;
        let of_master = self.appointed.get(observed.from);
        let appointed = of_master.and_then(|appointed| appointed.get(framework));
        let is_it = |pid: &Pid| {
            let same = observed.actor.is_none_or(|actor| actor == pid);
            pid.node().name() == observed.to && same
        };
        if appointed.is_some_and(is_it) {
            return Ok(());
        }
        let appointed = appointed.map_or("nobody".to_owned(), ToString::to_string);
        Err(format!(
            "{} tells a scheduler on {} that it leads {framework}, but the registry has appointed {appointed}",
            observed.from, observed.to
        ))
    }

    fn answered(&mut self, answered: Answered<'_>) {
        let (RegistryRequest::Apply(operation), RegistryAnswer::Applied(_)) =
            (answered.request, answered.answer)
        else {
            return;
        };
        if let RegistryOperation::AppointScheduler { info, scheduler } = *operation
            && let Some(framework) = info.id
        {
            let of_master = self.appointed.entry(answered.node.to_owned()).or_default();
            of_master.insert(framework, scheduler);
        }
    }
}

impl Checker for Standbys {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(answered) = self.questions.see(event) {
            self.answered(answered);
        }
        match event.kind {
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            // The previous master had its own; its decisions may leave it after it is deposed.
            EventKind::MasterBegan { node } => drop(self.appointed.remove(node)),
            _ => {}
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::{Fixture, framework, master, pid};
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::Subscribed;
    use protocol::message::standby::StandBy;

    fn fixture() -> Fixture<Standbys> {
        let mut fixture = Fixture::bare(Standbys::default());
        for node in ["framework-1", "standby-1"] {
            appoints(&mut fixture, node);
        }
        fixture
    }

    /// The registry records that the scheduler on that node leads.
    fn appoints(fixture: &mut Fixture<Standbys>, node: &str) {
        let info = FrameworkInfo {
            id: Some(framework()),
            ..FrameworkInfo::new("user", "f")
        };
        let scheduler = pid(node);
        fixture.recorded(RegistryOperation::AppointScheduler { info, scheduler });
    }

    fn subscribed() -> Subscribed {
        Subscribed {
            framework_id: framework(),
            master: master(),
        }
    }

    #[test]
    fn only_the_last_appointed_scheduler_leads() {
        let lead = SchedulerElected {
            subscribed: subscribed(),
        };
        fixture().delivered("master", "standby-1", &lead).is_clean();
        let mut two = fixture();
        two.delivered("master", "standby-1", &lead);
        two.delivered("master", "framework-1", &lead);
        two.is_broken("has appointed someone@standby-1");
        let leads = Ok(StandbyReply::Leads(subscribed()));
        let mut asks = fixture();
        asks.replied::<StandBy>("master", "framework-1", &leads);
        asks.is_broken("framework-1 that it leads");
    }

    #[test]
    fn another_masters_appointment_does_not_count() {
        let lead = SchedulerElected {
            subscribed: subscribed(),
        };
        let mut ended = fixture();
        ended.fact(EventKind::MasterEnded { node: "master" });
        ended.delivered("master", "standby-1", &lead).is_clean();
        ended.fact(EventKind::MasterBegan { node: "master" });
        ended.delivered("master", "standby-1", &lead);
        ended.is_broken("has appointed nobody");
    }
}
