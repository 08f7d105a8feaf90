//! Standbys: of the schedulers of one framework, the one that the registry has appointed is told that it leads, and no other (S134).
//!
//! Judged whenever a master tells a scheduler that it leads a framework whose schedulers stand by for each other: by then its registry has
//! taken that this one leads, as the last of that master's appointments for the framework. So no appointment, of which the registry has one
//! at a time, is ever told to two; what a deposed master tells was appointed before the next one's, and bears the older term.
//! That the one before is spoken to no more is `subscriptions`' business.

use std::collections::BTreeMap;

use master::registry::RegistryOperation;
use protocol::FrameworkId;
use protocol::message::scheduler::SubscriptionRefused;
use protocol::message::standby::{Standing, YouLead};
use runtime::Pid;

use super::broken;
use super::records::{Answered, Questions};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::linear::{RegistryAnswer, RegistryRequest};

const NAME: &str = "standbys";

/// The checker.
#[derive(Default)]
pub struct Standbys {
    questions: Questions,
    /// The last that the registry has taken from the master on each node, by framework.
    appointed: BTreeMap<String, BTreeMap<FrameworkId, Pid>>,
    judgements: u64,
}

impl Standbys {
    fn said(&mut self, spoken: &Spoken<'_>) -> Result<(), String> {
        let told = match spoken.is::<YouLead>() {
            Some(lead) => &lead.subscribed,
            None => match spoken.is::<Result<Standing, SubscriptionRefused>>() {
                Some(Ok(Standing::Leads(subscribed))) if spoken.reply => subscribed,
                _ => return Ok(()),
            },
        };
        self.judgements += 1;
        let framework = &told.framework_id;
        let of_master = self.appointed.get(spoken.from);
        let appointed = of_master.and_then(|appointed| appointed.get(framework));
        let is_it = |pid: &Pid| {
            let same = spoken.actor.is_none_or(|actor| actor == pid);
            pid.node().name() == spoken.to && same
        };
        if appointed.is_some_and(is_it) {
            return Ok(());
        }
        let appointed = appointed.map_or("nobody".to_owned(), ToString::to_string);
        Err(format!(
            "{} tells a scheduler on {} that it leads {framework}, but the registry has appointed {appointed}",
            spoken.from, spoken.to
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
        match event.what {
            What::Said(spoken) => {
                return self
                    .said(&spoken)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            // The one before had its own; what it has decided may leave it when it acts no more.
            What::MasterBegan { node } => drop(self.appointed.remove(node)),
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
    use super::super::stage::{Stage, framework, master, pid};
    use super::*;
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::Subscribed;
    use protocol::message::standby::StandBy;

    fn stage() -> Stage<Standbys> {
        let mut stage = Stage::bare(Standbys::default());
        for node in ["framework-1", "standby-1"] {
            appoints(&mut stage, node);
        }
        stage
    }

    /// The registry takes that the scheduler on that node leads.
    fn appoints(stage: &mut Stage<Standbys>, node: &str) {
        let info = FrameworkInfo {
            id: Some(framework()),
            ..FrameworkInfo::new("user", "f")
        };
        let scheduler = pid(node);
        stage.recorded(RegistryOperation::AppointScheduler { info, scheduler });
    }

    fn subscribed() -> Subscribed {
        Subscribed {
            framework_id: framework(),
            master: master(),
        }
    }

    #[test]
    fn who_was_appointed_last_is_told_that_it_leads_and_nobody_else() {
        let lead = YouLead {
            subscribed: subscribed(),
        };
        stage().told("master", "standby-1", &lead).is_clean();
        let mut two = stage();
        two.told("master", "standby-1", &lead);
        two.told("master", "framework-1", &lead);
        two.is_broken("has appointed someone@standby-1");
        let leads = Ok(Standing::Leads(subscribed()));
        let mut asks = stage();
        asks.replied::<StandBy>("master", "framework-1", &leads);
        asks.is_broken("framework-1 that it leads");
    }

    #[test]
    fn what_another_master_has_recorded_is_not_this_ones_appointment() {
        let lead = YouLead {
            subscribed: subscribed(),
        };
        let mut ended = stage();
        ended.fact(What::MasterEnded { node: "master" });
        ended.told("master", "standby-1", &lead).is_clean();
        ended.fact(What::MasterBegan { node: "master" });
        ended.told("master", "standby-1", &lead);
        ended.is_broken("has appointed nobody");
    }
}
