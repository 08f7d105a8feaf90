//! Isolation: each isolator prepares a container before its start and cleans up once after its end.
//!
//! Judged by the machines and their isolators, for each process of an agent:
//!
//! - The first request of an isolator names the containers of earlier processes. It names only
//!   containers that it had prepared, and no container of its own process; one that still runs and
//!   is not named ends at once, since its isolation is removed.
//! - A container is prepared once, by all isolators before its process starts, and starts once. It
//!   is cleaned up once, and only when it has no process. One that was refused by an isolator, or
//!   was not started, may be cleaned up too.
//! - A nested container starts while its parent runs, and ends before its parent does.
//! - At the end of the recovery an isolator has nothing of a container that has had no process for
//!   [`LEFT_MAX`].
//!
//! The next process of an agent may not know that its predecessor has cleaned up, and may do it
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::IsolatorRef;
use protocol::ContainerId;

use crate::checkers::checker::{Checker, Violation};
use crate::checkers::{UNDER_WAY, broken};
use crate::event::{Event, EventKind, IsolationStep};
use crate::world::isolator::NAMES;

/// Maximum time between the end of a container and its clean-up, and between its preparation and
/// its start: each isolator may answer as late as its agent waits.
const LEFT_MAX: Duration = Duration::from_secs(IsolatorRef::PATIENCE.as_secs() * 3);
/// Maximum time until a container that its agent does not know is killed.
const UNKNOWN_MAX: Duration = Duration::from_secs(1);

const NAME: &str = "isolation";

/// One isolator of one agent.
#[derive(Default)]
struct IsolatorRecord {
    /// Whether it was told the containers of earlier processes.
    is_recovered: bool,
    /// What it has prepared and not removed, and since when that has had no process.
    prepared: BTreeMap<ContainerId, Duration>,
    /// Everything that it ever prepared.
    known: BTreeSet<ContainerId>,
    /// What it has cleaned up in this process of the agent.
    cleaned: BTreeSet<ContainerId>,
}

/// The checker.
#[derive(Default)]
pub struct ContainerIsolation {
    isolators: BTreeMap<(String, String), IsolatorRecord>,
    /// The agents of running containers.
    running: BTreeMap<ContainerId, String>,
    started: BTreeSet<ContainerId>,
    /// Running containers without isolation, and when they have to be gone.
    unknown: BTreeMap<ContainerId, Duration>,
    judgements: u64,
}

impl ContainerIsolation {
    fn of_agent(&mut self, agent: &str) -> impl Iterator<Item = (&str, &mut IsolatorRecord)> {
        let all = self.isolators.iter_mut();
        all.filter_map(move |((of, name), one)| (of == agent).then_some((name.as_str(), one)))
    }

    fn isolator(&mut self, agent: &str, name: &str) -> &mut IsolatorRecord {
        let key = (agent.to_owned(), name.to_owned());
        self.isolators.entry(key).or_default()
    }

    fn recovered(
        &mut self,
        agent: &str,
        name: &str,
        named: &BTreeSet<ContainerId>,
        at: Duration,
    ) -> Result<(), String> {
        self.judgements += 1;
        let running = self.running.iter().filter(|(_, of)| *of == agent);
        let unknown = running.filter(|(container, _)| !named.contains(*container));
        let unknown: Vec<ContainerId> = unknown.map(|(container, _)| container.clone()).collect();
        let isolator = self.isolator(agent, name);
        if let Some(stranger) = named.difference(&isolator.known).next() {
            return Err(format!(
                "{agent} tells {name} that {stranger} runs, which it has never prepared"
            ));
        }
        let prepared = std::mem::take(&mut isolator.prepared).into_iter();
        isolator.prepared = prepared.filter(|(one, _)| named.contains(one)).collect();
        for container in named {
            isolator.prepared.entry(container.clone()).or_insert(at);
            isolator.cleaned.remove(container);
        }
        isolator.is_recovered = true;
        for container in unknown {
            self.unknown.entry(container).or_insert(at + UNKNOWN_MAX);
        }
        Ok(())
    }

    fn prepared(
        &mut self,
        agent: &str,
        name: &str,
        container: &ContainerId,
        at: Duration,
    ) -> Result<(), String> {
        self.judgements += 1;
        let has_started = self.started.contains(container);
        let isolator = self.isolator(agent, name);
        let problem = if has_started {
            "has started before"
        } else if !isolator.is_recovered {
            "is prepared before the running ones are known"
        } else if !isolator.known.insert(container.clone()) {
            "is prepared again"
        } else {
            isolator.prepared.insert(container.clone(), at);
            return Ok(());
        };
        Err(format!("{container} on {agent} {problem}, by {name}"))
    }

    fn cleaned_up(
        &mut self,
        agent: &str,
        name: &str,
        container: &ContainerId,
    ) -> Result<(), String> {
        self.judgements += 1;
        let runs = self.running.contains_key(container);
        let isolator = self.isolator(agent, name);
        isolator.prepared.remove(container);
        let is_first = isolator.cleaned.insert(container.clone());
        match (runs, is_first) {
            (true, _) => Err(format!(
                "{name} of {agent} cleans up after {container}, which runs"
            )),
            (_, false) => Err(format!(
                "{name} of {agent} cleans up after {container} a second time"
            )),
            _ => Ok(()),
        }
    }

    fn started(&mut self, agent: &str, container: &ContainerId) -> Result<(), String> {
        self.judgements += 1;
        self.running.insert(container.clone(), agent.to_owned());
        if !self.started.insert(container.clone()) {
            return Err(format!("{container} on {agent} starts a second time"));
        }
        let parent = container.parent();
        if let Some(parent) = parent.filter(|parent| !self.running.contains_key(parent)) {
            return Err(format!(
                "{container} on {agent} starts, but its parent {parent} does not run"
            ));
        }
        for name in NAMES {
            let isolator = self.isolator(agent, name);
            if !isolator.prepared.contains_key(container) {
                return Err(format!(
                    "{container} on {agent} starts, but {name} has not prepared it"
                ));
            }
        }
        Ok(())
    }

    fn ended(&mut self, agent: &str, container: &ContainerId, at: Duration) -> Result<(), String> {
        self.running.remove(container);
        self.unknown.remove(container);
        for (_, isolator) in self.of_agent(agent) {
            if let Some(since) = isolator.prepared.get_mut(container) {
                *since = at;
            }
        }
        let mut running = self.running.keys();
        match running.find(|one| one.is_inside(container)) {
            Some(nested) => Err(format!(
                "{container} on {agent} has ended, but {nested} in it runs"
            )),
            None => Ok(()),
        }
    }

    /// What isolators have of containers without a process, and since when.
    fn left(&self) -> impl Iterator<Item = (&(String, String), &ContainerId, Duration)> {
        let all = self.isolators.iter().flat_map(|(key, isolator)| {
            let prepared = isolator.prepared.iter();
            prepared.map(move |(container, since)| (key, container, *since))
        });
        all.filter(|(_, container, _)| !self.running.contains_key(*container))
    }
}

impl Checker for ContainerIsolation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let at = event.at;
        let late = self.unknown.iter().find(|(_, due)| **due < at);
        if let Some((container, _)) = late {
            let what = format!("{container} runs on, but its isolation was removed");
            return broken(NAME, at, what);
        }
        let judged = match event.kind {
            EventKind::IsolatorRecovered {
                agent,
                isolator,
                containers,
            } => self.recovered(agent, isolator, containers, at),
            EventKind::Isolated {
                agent,
                isolator,
                container,
                step,
            } => match step {
                IsolationStep::Prepared => self.prepared(agent, isolator, container, at),
                IsolationStep::CleanedUp => self.cleaned_up(agent, isolator, container),
                IsolationStep::Updated | IsolationStep::Limited => Ok(()),
            },
            EventKind::ProcessStarted { agent, container } => self.started(agent, container),
            EventKind::ProcessEnded { agent, container } => self.ended(agent, container, at),
            EventKind::NodeEnded { node, .. } => {
                for (_, isolator) in self.of_agent(node) {
                    isolator.is_recovered = false;
                    isolator.cleaned.clear();
                }
                Ok(())
            }
            _ => Ok(()),
        };
        judged.or_else(|what| broken(NAME, at, what))
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        self.left().any(|(_, _, since)| since + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let late = self.left().find(|(_, _, since)| *since + LEFT_MAX <= at);
        let Some(((agent, name), container, since)) = late else {
            return Ok(());
        };
        let what = format!(
            "{name} of {agent} has not cleaned up after {container}, which has had no process since {since:?}"
        );
        broken(NAME, at, what)
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::fixture::Fixture;

    const AGENT: &str = "agent-1";

    fn id(name: &str) -> ContainerId {
        ContainerId::new(name).unwrap()
    }

    /// An agent without containers.
    fn fixture() -> Fixture<ContainerIsolation> {
        let mut fixture = Fixture::new(ContainerIsolation::default(), "cpus:4");
        recovers(&mut fixture, &[]);
        fixture
    }

    fn recovers<'a>(
        fixture: &'a mut Fixture<ContainerIsolation>,
        named: &[&str],
    ) -> &'a mut Fixture<ContainerIsolation> {
        let containers = &named.iter().map(|name| id(name)).collect();
        for isolator in NAMES {
            fixture.fact(EventKind::IsolatorRecovered {
                agent: AGENT,
                isolator,
                containers,
            });
        }
        fixture
    }

    /// Events as words: `prepare`, `start`, `end`, `clean` and a container, or `restart`.
    fn play<'a>(
        fixture: &'a mut Fixture<ContainerIsolation>,
        events: &str,
    ) -> &'a mut Fixture<ContainerIsolation> {
        for event in events.split(", ") {
            let (what, name) = event.split_once(' ').unwrap_or((event, "none"));
            let (agent, container) = (AGENT, &id(name));
            let step = match what {
                "start" => {
                    fixture.fact(EventKind::ProcessStarted { agent, container });
                    continue;
                }
                "end" => {
                    fixture.fact(EventKind::ProcessEnded { agent, container });
                    continue;
                }
                "restart" => {
                    let (node, crashed) = (AGENT, true);
                    fixture.fact(EventKind::NodeEnded { node, crashed });
                    continue;
                }
                "prepare" => IsolationStep::Prepared,
                "clean" => IsolationStep::CleanedUp,
                _ => panic!("{what}"),
            };
            for isolator in NAMES {
                fixture.fact(EventKind::Isolated {
                    agent,
                    isolator,
                    container,
                    step,
                });
            }
        }
        fixture
    }

    #[test]
    fn each_container_is_prepared_once_and_cleaned_up_once() {
        play(&mut fixture(), "prepare a, start a, end a, clean a").is_clean();
        play(&mut fixture(), "prepare a, clean a").is_clean();
        for (events, words) in [
            ("start a", "has not prepared it"),
            ("prepare a, prepare a", "is prepared again"),
            ("prepare a, start a, prepare a", "has started before"),
            ("prepare a, start a, clean a", "which runs"),
            ("prepare a, start a, start a", "starts a second time"),
            ("prepare a, start a, end a, clean a, clean a", "second time"),
            ("restart, prepare a", "before the running ones are known"),
            ("prepare a.b, start a.b", "its parent a does not run"),
        ] {
            play(&mut fixture(), events).is_broken(words);
        }
    }

    #[test]
    fn missed_clean_up_is_found_after_a_while() {
        for events in ["prepare a, start a, end a", "prepare a"] {
            let mut fixture = fixture();
            play(&mut fixture, events).wait(LEFT_MAX / 2);
            assert_eq!(fixture.checker.finish(LEFT_MAX / 2), Ok(()));
            fixture
                .wait(LEFT_MAX / 2)
                .is_broken("has not cleaned up after a");
        }
        let mut running = fixture();
        play(&mut running, "prepare a, start a")
            .wait(LEFT_MAX)
            .is_clean();
    }

    #[test]
    fn nested_container_ends_before_its_parent() {
        let events = "prepare a, start a, prepare a.b, start a.b";
        let nested = || {
            let mut fixture = fixture();
            play(&mut fixture, events);
            fixture
        };
        play(&mut nested(), "end a.b, end a, clean a, clean a.b").is_clean();
        play(&mut nested(), "end a").is_broken("a.b in it runs");
    }

    #[test]
    fn next_process_names_the_running_containers() {
        let restarted = || {
            let mut fixture = fixture();
            play(&mut fixture, "prepare a, start a, restart");
            fixture
        };
        let mut kept = restarted();
        play(recovers(&mut kept, &["a"]), "end a, clean a").is_clean();
        recovers(&mut restarted(), &["a", "b"]).is_broken("never prepared");
        let second = Duration::from_secs(1);
        let mut lost = restarted();
        recovers(&mut lost, &[])
            .wait(second * 2)
            .fact(EventKind::FaultsOver)
            .is_broken("runs on");
        let mut killed = restarted();
        play(recovers(&mut killed, &[]), "end a")
            .wait(LEFT_MAX)
            .is_clean();
        let mut again = fixture();
        play(&mut again, "prepare a, start a, end a, clean a, restart");
        play(recovers(&mut again, &["a"]), "clean a").is_clean();
    }
}
