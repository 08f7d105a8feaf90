//! Agent resources: an agent's reported resources are its configured ones and the results of the
//! operations that it has reported as done, across its crashes.
//!
//! Judged whenever an agent reports its resources or the result of an operation, in its own order.
//! An operation counts as received when the agent receives it, and as done when it reports so, in a
//! status or in the list of statuses with its resources. It never executes an operation for a
//! version of its resources that was replaced before.
//!
//! Sound, because an agent executes one operation at a time, and stores status and result together.
//! An agent that starts anew, without an id, reports no statuses of its former life, and may have
//! done its last operation. An agent that received an operation without a name is no longer judged.

use std::collections::{BTreeMap, BTreeSet};

use protocol::message::operation::{ApplyOperation, OperationUpdated, ResourcesReported};
use protocol::message::registration::{RegisterAgent, ReregisterAgent};
use protocol::{
    AgentInfo, AgentResources, FrameworkId, OperationId, OperationState, OperationUpdate, Uuid,
};
use resources::{Conversion, Resources};

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "agent_resources";

/// The checker.
#[derive(Default)]
pub struct AgentResourcesChecker {
    expected: BTreeMap<String, ExpectedResources>,
    judgements: u64,
}

/// The expected resources of an agent.
struct ExpectedResources {
    total: Resources,
    /// The last reported version.
    version: Uuid,
    /// Received operations without a reported result.
    in_progress: Vec<ReceivedOperation>,
    /// Operations reported as done: a deposed master may send them again.
    done: BTreeSet<(FrameworkId, OperationId)>,
    /// Whether it has ended since its last report: operations not done by then never will be.
    ended: bool,
    /// Whether it received an operation that cannot be followed.
    is_unknown: bool,
}

struct ReceivedOperation {
    key: (FrameworkId, OperationId),
    conversion: Conversion,
    /// Whether it was for a version that the agent had replaced.
    stale: bool,
}

impl ExpectedResources {
    fn new(told: &AgentResources) -> Self {
        Self {
            total: told.total.clone(),
            version: told.version,
            in_progress: Vec::new(),
            done: BTreeSet::new(),
            ended: false,
            is_unknown: false,
        }
    }

    fn on_operation(&mut self, apply: &ApplyOperation) {
        match &apply.feedback {
            Some(key) if self.done.contains(key) => {}
            Some(key) => {
                // An operation that was not done at first is sent again.
                self.in_progress.retain(|heard| heard.key != *key);
                self.in_progress.push(ReceivedOperation {
                    key: key.clone(),
                    conversion: apply.conversion.allocated(None),
                    stale: apply.version != self.version,
                });
            }
            None => self.is_unknown = true,
        }
    }

    /// The agent reports the result of an operation; a repetition is ignored.
    fn on_result(&mut self, update: &OperationUpdate) -> Result<bool, String> {
        let OperationUpdate {
            framework_id,
            status,
        } = update;
        let place = self
            .in_progress
            .iter()
            .position(|heard| heard.key.0 == *framework_id && heard.key.1 == status.operation_id);
        let Some(place) = place.filter(|_| status.state.is_terminal()) else {
            return Ok(false);
        };
        let heard = self.in_progress.remove(place);
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

    fn on_report(&mut self, told: &AgentResources, is_new: bool) -> Result<(), String> {
        let positions: BTreeMap<_, _> = self
            .in_progress
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
            self.on_result(update)?;
        }
        if std::mem::take(&mut self.ended) {
            let silent = std::mem::take(&mut self.in_progress);
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

/// The results of operations on an agent have the amounts of its description.
fn check_results(agent: &AgentInfo, told: &AgentResources) -> Result<(), String> {
    match told.total.without_operations() == agent.resources {
        true => Ok(()),
        false => Err(format!(
            "it describes itself by {}, which operations cannot make {} of",
            agent.resources, told.total
        )),
    }
}

impl AgentResourcesChecker {
    fn on_report(&mut self, node: &str, told: &AgentResources, is_new: bool) -> Result<(), String> {
        let expected = self.expected.get_mut(node);
        let Some(expected) = expected.filter(|expected| !expected.is_unknown) else {
            self.expected
                .insert(node.to_owned(), ExpectedResources::new(told));
            return Ok(());
        };
        self.judgements += 1;
        expected.on_report(told, is_new)
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>) -> Result<(), String> {
        let arrives = observed
            .is::<RegisterAgent>()
            .map(|ask| (&ask.agent, &ask.resources));
        let returns = observed
            .is::<ReregisterAgent>()
            .map(|ask| (&ask.agent, &ask.resources));
        if let Some((agent, Some(told))) = arrives.or(returns) {
            check_results(agent, told)?;
            self.on_report(observed.from, told, agent.id.is_none())
        } else if let Some(report) = observed.is::<ResourcesReported>() {
            self.on_report(observed.from, &report.resources, false)
        } else if let Some(OperationUpdated { update, .. }) = observed.is::<OperationUpdated>()
            && let Some(expected) = self.expected.get_mut(observed.from)
        {
            self.judgements += u64::from(expected.on_result(update)?);
            Ok(())
        } else {
            Ok(())
        }
    }
}

impl Checker for AgentResourcesChecker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::Sent(observed) if !observed.reply => self
                .on_sent(&observed)
                .or_else(|what| broken(NAME, event.at, format!("{}: {what}", observed.from))),
            EventKind::Received(observed) => {
                if let Some(apply) = observed.is::<ApplyOperation>()
                    && let Some(expected) = self.expected.get_mut(observed.to)
                {
                    expected.on_operation(apply);
                }
                Ok(())
            }
            EventKind::NodeEnded { node, .. } => {
                if let Some(expected) = self.expected.get_mut(node) {
                    expected.ended = true;
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
    use super::*;
    use crate::checkers::fixture::{Fixture, agent, arrival, framework, resources};
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

    /// An agent of four cores that has reported version 1.
    fn fixture() -> Fixture<AgentResourcesChecker> {
        let mut fixture = Fixture::new(AgentResourcesChecker::default(), "cpus:4");
        tells(&mut fixture, 1, resources("cpus:4"), Vec::new());
        fixture
    }

    fn tells(
        fixture: &mut Fixture<AgentResourcesChecker>,
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
        fixture.delivered("agent-1", "master", &report);
    }

    fn says(fixture: &mut Fixture<AgentResourcesChecker>, state: OperationState) {
        let updated = OperationUpdated {
            agent_id: agent(),
            update: update(state),
        };
        fixture.delivered("agent-1", "master", &updated);
    }

    fn after() -> Resources {
        resources("cpus:3") + reserved()
    }

    #[test]
    fn completed_operations_survive_the_process() {
        let ends = EventKind::NodeEnded {
            node: "agent-1",
            crashed: true,
        };
        for (total, is_clean) in [(after(), true), (resources("cpus:4"), false)] {
            let mut fixture = fixture();
            fixture.delivered("master", "agent-1", &reserve(1));
            says(&mut fixture, OperationState::Finished);
            fixture.fact(ends);
            tells(&mut fixture, 2, total, Vec::new());
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("it must have"),
            }
        }
    }

    /// Found by a simulation of a group (seed 161): an idle agent crashed while a slow disk wrote
    /// its operation.
    #[test]
    fn new_agent_may_have_done_its_last_operation() {
        for (falls, id, total, is_clean) in [
            (true, None, after(), true),
            (true, None, resources("cpus:4"), true),
            (true, None, resources("cpus:3"), false),
            (false, None, after(), false),
            (true, Some(agent()), after(), false),
        ] {
            let mut fixture = fixture();
            fixture.delivered("master", "agent-1", &reserve(1));
            if falls {
                fixture.fact(EventKind::NodeEnded {
                    node: "agent-1",
                    crashed: true,
                });
            }
            let mut ask = arrival(total.without_operations());
            ask.agent.id = id;
            ask.resources = Some(AgentResources {
                version: uuid(2),
                total,
                operations: Vec::new(),
                settled: None,
            });
            fixture.sent("agent-1", "master", &ask);
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("it must have"),
            }
        }
    }

    #[test]
    fn unreported_operation_is_reported_with_its_status() {
        let finished = || vec![update(OperationState::Finished)];
        for (told, is_clean) in [(finished(), true), (Vec::new(), false)] {
            let mut fixture = fixture();
            fixture.delivered("master", "agent-1", &reserve(1));
            tells(&mut fixture, 2, after(), told);
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("it must have"),
            }
        }
    }

    /// Found by a simulation of a group (seed 5607): a deposed master sent it again, and the agent
    /// repeated its status when it registered.
    #[test]
    fn repeated_operation_is_not_done_twice() {
        let mut fixture = fixture();
        fixture.delivered("master", "agent-1", &reserve(1));
        says(&mut fixture, OperationState::Finished);
        tells(&mut fixture, 2, after(), Vec::new());
        fixture.delivered("master-2", "agent-1", &reserve(1));
        tells(
            &mut fixture,
            3,
            after(),
            vec![update(OperationState::Finished)],
        );
        fixture.is_clean();
        let twice = resources("cpus:2") + &reserved() + &reserved();
        tells(&mut fixture, 4, twice, Vec::new());
        fixture.is_broken("it must have");
    }

    #[test]
    fn operation_for_another_version_is_not_done() {
        for (state, is_clean) in [
            (OperationState::Dropped, true),
            (OperationState::Finished, false),
        ] {
            let mut fixture = fixture();
            tells(&mut fixture, 2, resources("cpus:4"), Vec::new());
            fixture.delivered("master", "agent-1", &reserve(1));
            says(&mut fixture, state);
            match is_clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("meant for what the agent had before"),
            }
        }
    }
}
