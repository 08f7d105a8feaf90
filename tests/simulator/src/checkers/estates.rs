//! Estates: what an agent says that it has is what it was given by its operator and what the operations have made of it that it
//! has said it did, over all its crashes.
//!
//! Judged whenever an agent tells a master all that it has, and whenever it says how an operation went, by that agent's own order:
//! what it was told to do counts from when it hears it, and what it did from when it says so, in a status or in the list of
//! statuses that it tells with its resources. It never does what was meant for a version of its resources that it had replaced before.
//!
//! Sound, because an agent does one operation at a time, and its status is on the same disk as what it has done: neither is ever
//! there alone; one that begins anew, with no id, tells no statuses of its former life, and may have done what it had been told last. An agent that was
//! told to do something without a name cannot be followed, and is looked at no more.

use std::collections::{BTreeMap, BTreeSet};

use protocol::message::operation::{ApplyOperation, OperationUpdated, ResourcesReported};
use protocol::message::registration::{RegisterAgent, ReregisterAgent};
use protocol::{
    AgentInfo, AgentResources, FrameworkId, OperationId, OperationState, OperationUpdate, Uuid,
};
use resources::{Conversion, Resources};

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

const NAME: &str = "estates";

/// The checker.
#[derive(Default)]
pub struct Estates {
    estates: BTreeMap<String, Estate>,
    judgements: u64,
}

/// What an agent must have.
struct Estate {
    total: Resources,
    /// The version that it told last.
    version: Uuid,
    /// What it has heard, and has not said how it went.
    under_way: Vec<Heard>,
    /// What it has said that it has done: what a deposed master says of that again is nothing new.
    done: BTreeSet<(FrameworkId, OperationId)>,
    /// Whether it has ended since it told last: what it had not done then, it never will.
    ended: bool,
    /// Whether it was told something that cannot be followed.
    lost_sight: bool,
}

struct Heard {
    key: (FrameworkId, OperationId),
    conversion: Conversion,
    /// Whether it was meant for a version that the agent had replaced.
    stale: bool,
}

impl Estate {
    fn new(told: &AgentResources) -> Self {
        Self {
            total: told.total.clone(),
            version: told.version,
            under_way: Vec::new(),
            done: BTreeSet::new(),
            ended: false,
            lost_sight: false,
        }
    }

    fn hear(&mut self, apply: &ApplyOperation) {
        match &apply.feedback {
            Some(key) if self.done.contains(key) => {}
            Some(key) => {
                // What it did not do the first time it is told again.
                self.under_way.retain(|heard| heard.key != *key);
                self.under_way.push(Heard {
                    key: key.clone(),
                    conversion: apply.conversion.allocated(None),
                    stale: apply.version != self.version,
                });
            }
            None => self.lost_sight = true,
        }
    }

    /// The agent says how an operation went; a second time, it says nothing new.
    fn went(&mut self, update: &OperationUpdate) -> Result<bool, String> {
        let OperationUpdate {
            framework_id,
            status,
        } = update;
        let place = self
            .under_way
            .iter()
            .position(|heard| heard.key.0 == *framework_id && heard.key.1 == status.operation_id);
        let Some(place) = place.filter(|_| status.state.is_terminal()) else {
            return Ok(false);
        };
        let heard = self.under_way.remove(place);
        if status.state != OperationState::Finished {
            return Ok(true);
        }
        let id = &status.operation_id;
        self.done.insert(heard.key);
        if heard.stale {
            return Err(format!(
                "operation {id} was done, though it was meant for what the agent had before"
            ));
        }
        let before = self.total.clone();
        match heard.conversion.apply(&mut self.total, &before) {
            Ok(_) => Ok(true),
            Err(error) => Err(format!("operation {id} was done, which cannot be: {error}")),
        }
    }

    fn told(&mut self, told: &AgentResources, is_new: bool) -> Result<(), String> {
        let positions: BTreeMap<_, _> = self
            .under_way
            .iter()
            .enumerate()
            .map(|(place, heard)| (heard.key.clone(), place))
            .collect();
        let place = |update: &&OperationUpdate| {
            let key = (
                update.framework_id.clone(),
                update.status.operation_id.clone(),
            );
            positions.get(&key).copied()
        };
        let mut went: Vec<&OperationUpdate> = told.operations.iter().collect();
        went.sort_by_key(place);
        for update in went {
            self.went(update)?;
        }
        if std::mem::take(&mut self.ended) {
            let silent = std::mem::take(&mut self.under_way);
            let mut silent = silent.iter().filter(|heard| is_new && !heard.stale);
            while self.total != told.total
                && let Some(heard) = silent.next()
            {
                let before = self.total.clone();
                if heard.conversion.apply(&mut self.total, &before).is_err() {
                    self.total = before;
                }
            }
        }
        self.version = told.version;
        match self.total == told.total {
            true => Ok(()),
            false => Err(format!(
                "it says that it has {}, and by what it has done it must have {}",
                told.total, self.total
            )),
        }
    }
}

/// What operations have made of an agent cannot be more or less than what it describes.
fn come_of(agent: &AgentInfo, told: &AgentResources) -> Result<(), String> {
    match told.total.before_operations() == agent.resources {
        true => Ok(()),
        false => Err(format!(
            "it describes itself by {}, which operations cannot make {} of",
            agent.resources, told.total
        )),
    }
}

impl Estates {
    fn told(&mut self, node: &str, told: &AgentResources, is_new: bool) -> Result<(), String> {
        let estate = self.estates.get_mut(node);
        let Some(estate) = estate.filter(|estate| !estate.lost_sight) else {
            self.estates.insert(node.to_owned(), Estate::new(told));
            return Ok(());
        };
        self.judgements += 1;
        estate.told(told, is_new)
    }

    fn said(&mut self, spoken: &Spoken<'_>) -> Result<(), String> {
        let arrives = spoken
            .is::<RegisterAgent>()
            .map(|ask| (&ask.agent, &ask.resources));
        let returns = spoken
            .is::<ReregisterAgent>()
            .map(|ask| (&ask.agent, &ask.resources));
        if let Some((agent, Some(told))) = arrives.or(returns) {
            come_of(agent, told)?;
            self.told(spoken.from, told, agent.id.is_none())
        } else if let Some(report) = spoken.is::<ResourcesReported>() {
            self.told(spoken.from, &report.resources, false)
        } else if let Some(OperationUpdated { update, .. }) = spoken.is::<OperationUpdated>()
            && let Some(estate) = self.estates.get_mut(spoken.from)
        {
            self.judgements += u64::from(estate.went(update)?);
            Ok(())
        } else {
            Ok(())
        }
    }
}

impl Checker for Estates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::Said(spoken) if !spoken.reply => self
                .said(&spoken)
                .or_else(|what| broken(NAME, event.at, format!("{}: {what}", spoken.from))),
            What::Heard(spoken) => {
                if let Some(apply) = spoken.is::<ApplyOperation>()
                    && let Some(estate) = self.estates.get_mut(spoken.to)
                {
                    estate.hear(apply);
                }
                Ok(())
            }
            What::NodeEnded { node, .. } => {
                if let Some(estate) = self.estates.get_mut(node) {
                    estate.ended = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, agent, arrival, framework, resources};
    use super::*;
    use protocol::OperationStatus;
    use resources::{Reservation, Role};

    fn uuid(byte: u8) -> Uuid {
        Uuid([byte; 16])
    }

    fn reserved() -> Resources {
        let web = Reservation::dynamic(Role::new("web").unwrap(), None);
        resources("cpus:1").push_reservation(&web).unwrap()
    }

    fn reserve(version: u8) -> ApplyOperation {
        ApplyOperation {
            feedback: Some((framework(), OperationId::new("o").unwrap())),
            conversion: Conversion::Reserve {
                resources: reserved(),
            },
            version: uuid(version),
            serial: None,
        }
    }

    fn update(state: OperationState) -> OperationUpdate {
        OperationUpdate {
            framework_id: framework(),
            status: OperationStatus::new(OperationId::new("o").unwrap(), state, ""),
        }
    }

    /// An agent of four cores that has told of itself under version 1.
    fn stage() -> Stage<Estates> {
        let mut stage = Stage::new(Estates::default(), "cpus:4");
        tells(&mut stage, 1, resources("cpus:4"), Vec::new());
        stage
    }

    fn tells(
        stage: &mut Stage<Estates>,
        version: u8,
        total: Resources,
        operations: Vec<OperationUpdate>,
    ) {
        let resources = AgentResources {
            version: uuid(version),
            total,
            operations,
            settled: None,
        };
        let report = ResourcesReported {
            agent_id: agent(),
            resources,
        };
        stage.told("agent-1", "master", &report);
    }

    fn says(stage: &mut Stage<Estates>, state: OperationState) {
        let updated = OperationUpdated {
            agent_id: agent(),
            update: update(state),
        };
        stage.told("agent-1", "master", &updated);
    }

    fn after() -> Resources {
        resources("cpus:3") + reserved()
    }

    #[test]
    fn what_an_agent_has_done_it_has_after_its_end() {
        let ends = What::NodeEnded {
            node: "agent-1",
            crashed: true,
        };
        for (total, is_clean) in [(after(), true), (resources("cpus:4"), false)] {
            let mut stage = stage();
            stage.told("master", "agent-1", &reserve(1));
            says(&mut stage, OperationState::Finished);
            stage.fact(ends);
            tells(&mut stage, 2, total, Vec::new());
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("it must have"),
            }
        }
    }

    /// Found by a rehearsal of a group (seed 161): an agent on which nothing ran fell while a slow disk took what it did.
    #[test]
    fn one_that_begins_anew_may_have_done_what_it_was_told_last() {
        for (falls, id, total, is_clean) in [
            (true, None, after(), true),
            (true, None, resources("cpus:4"), true),
            (true, None, resources("cpus:3"), false),
            (false, None, after(), false),
            (true, Some(agent()), after(), false),
        ] {
            let mut stage = stage();
            stage.told("master", "agent-1", &reserve(1));
            if falls {
                stage.fact(What::NodeEnded {
                    node: "agent-1",
                    crashed: true,
                });
            }
            let mut ask = arrival(total.before_operations());
            ask.agent.id = id;
            ask.resources = Some(AgentResources {
                version: uuid(2),
                total,
                operations: Vec::new(),
                settled: None,
            });
            stage.said("agent-1", "master", &ask);
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("it must have"),
            }
        }
    }

    #[test]
    fn what_was_done_and_not_said_is_told_with_its_status() {
        let finished = || vec![update(OperationState::Finished)];
        for (told, is_clean) in [(finished(), true), (Vec::new(), false)] {
            let mut stage = stage();
            stage.told("master", "agent-1", &reserve(1));
            tells(&mut stage, 2, after(), told);
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("it must have"),
            }
        }
    }

    /// Found by a rehearsal of a group (seed 5607): a deposed master said it once more, and the agent told its status again when it registered.
    #[test]
    fn what_was_done_is_not_done_again_because_it_is_said_again() {
        let mut stage = stage();
        stage.told("master", "agent-1", &reserve(1));
        says(&mut stage, OperationState::Finished);
        tells(&mut stage, 2, after(), Vec::new());
        stage.told("master-2", "agent-1", &reserve(1));
        tells(
            &mut stage,
            3,
            after(),
            vec![update(OperationState::Finished)],
        );
        stage.is_clean();
        let twice = resources("cpus:2") + &reserved() + &reserved();
        tells(&mut stage, 4, twice, Vec::new());
        stage.is_broken("it must have");
    }

    #[test]
    fn what_was_meant_for_another_version_is_not_done() {
        for (state, is_clean) in [
            (OperationState::Dropped, true),
            (OperationState::Finished, false),
        ] {
            let mut stage = stage();
            tells(&mut stage, 2, resources("cpus:4"), Vec::new());
            stage.told("master", "agent-1", &reserve(1));
            says(&mut stage, state);
            match is_clean {
                true => stage.is_clean(),
                false => stage.is_broken("meant for what the agent had before"),
            }
        }
    }
}
