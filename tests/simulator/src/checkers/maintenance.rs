//! Maintenance: nothing is offered or launched on a machine that is down (SPEC 3.6).
//!
//! Judged in each master's own order: from the moment after its registry has recorded that a
//! machine is down until it has recorded that it is up, the master makes no offer of an agent there
//! and sends it no task. The registry's content at the master's begin counts too. Agents are found
//! by the host names in their registrations.

use std::collections::BTreeMap;
use std::time::Duration;

use master::registry::RegistryOperation;
use protocol::message::scheduler::OffersMade;
use protocol::message::task::RunTasks;
use protocol::{AgentId, MachineId};

use super::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::Registrations;
use crate::checkers::masters::records::{Learned, Records};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "maintenance";

/// The checker.
#[derive(Default)]
pub struct Maintenance {
    registrations: Registrations,
    records: Records,
    /// The machines that are down, and since when.
    down: BTreeMap<MachineId, Duration>,
    /// The host names of agents.
    hosts: BTreeMap<AgentId, String>,
    judgements: u64,
}

impl Maintenance {
    fn learned(&mut self, learned: Learned<'_>, at: Duration) {
        match learned {
            Learned::Found(content) => {
                let down = content.machines.iter().filter(|(_, machine)| machine.down);
                self.down.extend(down.map(|(id, _)| (id.clone(), at)));
            }
            Learned::Changed(operation) => match *operation {
                RegistryOperation::StartMaintenance { machines } => {
                    for machine in machines {
                        self.down.entry(machine).or_insert(at);
                    }
                }
                RegistryOperation::StopMaintenance { machines } => {
                    self.down.retain(|machine, _| !machines.contains(machine));
                }
                _ => {}
            },
        }
    }

    /// Judges an offer or launch for an agent on this host.
    fn judge(
        &mut self,
        host: &str,
        what: &str,
        agent: &AgentId,
        at: Duration,
    ) -> Result<(), String> {
        if self.down.is_empty() {
            return Ok(());
        }
        self.judgements += 1;
        let mut down = self.down.iter();
        let away = down.find(|(machine, since)| **since < at && machine.names(host, None));
        away.map_or(Ok(()), |(machine, since)| {
            Err(format!(
                "{what} agent {agent}, whose machine {machine} is away since {since:?}"
            ))
        })
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), String> {
        if let Some(made) = observed.is::<OffersMade>() {
            for offer in &made.offers {
                let what = format!("offer {} is of", offer.id);
                self.judge(&offer.hostname, &what, &offer.agent_id, at)?;
            }
        } else if let Some(run) = observed.is::<RunTasks>() {
            for task in &run.tasks {
                if let Some(host) = self.hosts.get(&task.agent_id).cloned() {
                    let what = format!("task {} is sent to", task.task_id);
                    self.judge(&host, &what, &task.agent_id, at)?;
                }
            }
        }
        Ok(())
    }
}

impl Checker for Maintenance {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(registration) = self.registrations.see(event) {
            let host = registration.arrival.agent.hostname;
            self.hosts.insert(registration.agent_id, host);
            return Ok(());
        }
        if let Some(learned) = self.records.see(event) {
            self.learned(learned, event.at);
        }
        match event.kind {
            EventKind::Sent(observed) => self
                .on_sent(&observed, event.at)
                .or_else(|what| broken(NAME, event.at, what)),
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, offer, resources, seconds, task};
    use super::*;
    use master::registry::RegistryState;
    use protocol::maintenance::Window;
    use protocol::{Offer, Unavailability};

    fn machines() -> Vec<MachineId> {
        vec![MachineId::new("host", "").unwrap()]
    }

    fn fixture() -> Fixture<Maintenance> {
        Fixture::new(Maintenance::default(), "cpus:4")
    }

    fn starts(fixture: &mut Fixture<Maintenance>) {
        let machines = machines();
        fixture.recorded(RegistryOperation::StartMaintenance { machines });
    }

    fn on(host: &str) -> Offer {
        Offer {
            hostname: host.to_owned(),
            ..offer("o", "f", &resources("cpus:1"))
        }
    }

    #[test]
    fn nothing_is_offered_or_launched_on_a_down_machine() {
        let mut offered = fixture();
        starts(&mut offered);
        offered
            .wait(seconds(1))
            .offers("framework-1", &[on("host")]);
        offered.is_broken("offer o is of");
        let mut launched = fixture();
        starts(&mut launched);
        launched.wait(seconds(1)).runs(&[task("t", "cpus:1")]);
        launched.is_broken("task t is sent to");
        let mut elsewhere = fixture();
        starts(&mut elsewhere);
        elsewhere
            .wait(seconds(1))
            .offers("framework-1", &[on("other")]);
        elsewhere.is_clean();
    }

    #[test]
    fn offer_at_the_moment_of_the_record_is_allowed() {
        let mut fixture = fixture();
        starts(&mut fixture);
        fixture.runs(&[task("t", "cpus:1")]).wait(seconds(1));
        let machines = machines();
        fixture.recorded(RegistryOperation::StopMaintenance { machines });
        fixture.offers("framework-1", &[on("host")]).is_clean();
    }

    #[test]
    fn new_master_knows_down_machines() {
        let mut content = RegistryState::default();
        let unavailability = Unavailability {
            start: Default::default(),
            duration: None,
        };
        let windows = vec![Window {
            machines: machines(),
            unavailability,
        }];
        let start = RegistryOperation::StartMaintenance {
            machines: machines(),
        };
        for operation in [
            RegistryOperation::UpdateMaintenanceSchedule { windows },
            start,
        ] {
            content.change(&operation).unwrap();
        }
        let mut fixture = fixture();
        fixture.reads(content);
        fixture.wait(seconds(1)).runs(&[task("t", "cpus:1")]);
        fixture.is_broken("is away");
    }
}
