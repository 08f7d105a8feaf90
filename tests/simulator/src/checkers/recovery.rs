//! Recovery: after the last fault all nodes return and work continues.
//!
//! Judged at the end of a run with at least [`RECOVERY`] after its faults ([`CALM`] without
//! faults):
//!
//! - every master, agent and framework that ever started runs, except a master whose disk was reset
//!   and that has ended by itself since then: its member has forgotten its promises, and ends
//!   whenever its leader sends to it;
//! - every agent that a master holds for connected has answered a ping within the last [`PINGS`];
//! - one master leads, and every framework's scheduler has been subscribed there since its last
//!   start, or stands by there;
//! - no task sent to an agent since the end of the faults has been neither running nor ended for
//!   [`RECOVERY`], as its framework knows;
//! - if frameworks launched tasks, some task runs as far as its framework knows, or one has started
//!   since; if there are at least as many agents as frameworks, so that all have room, this holds
//!   for each framework that launched any.
//!
//! Shorter runs are not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::registration::{PingAgent, Pong};
use protocol::message::scheduler::StatusChanged;
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, TaskId, TaskState};
use runtime::Role;

use super::{UNDER_WAY, broken};
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{Frameworks, Nodes, Subscription};
use crate::event::{Event, EventKind, SeenMessage};
use crate::world::STANDBY;

/// The time in which all nodes return and work continues, after the last fault. Agents notice a
/// silent master after 75 s, and wait up to a minute between two registrations.
pub const RECOVERY: Duration = Duration::from_secs(300);
/// The same without faults.
pub const CALM: Duration = Duration::from_secs(30);
/// A registered agent has answered a ping within this time.
pub const PINGS: Duration = Duration::from_secs(60);

const NAME: &str = "recovery";

/// The checker.
#[derive(Default)]
pub struct Recovery {
    frameworks: Frameworks,
    nodes: Nodes,
    /// Running nodes, and since when.
    up: BTreeMap<String, Duration>,
    /// The nodes with a leading master, and since when.
    acting: BTreeMap<String, Duration>,
    /// Agents that were last pinged as connected.
    connected: BTreeSet<String>,
    /// When each agent last answered such a ping.
    answered: BTreeMap<String, Duration>,
    /// Tasks sent since the end of the faults, until their framework knows them.
    sent: BTreeMap<(FrameworkId, TaskId), Duration>,
    /// The frameworks that launched tasks, and when they last received a running state.
    launched: BTreeMap<FrameworkId, Duration>,
    /// Running tasks, by their frameworks' knowledge.
    running: BTreeSet<(FrameworkId, TaskId)>,
    recovery: Option<Duration>,
    had_faults: bool,
    /// The masters whose disks were reset, and whether each ended by itself the last time.
    put_back: BTreeMap<String, bool>,
    judgements: u64,
}

impl Recovery {
    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if let Some(ping) = observed.is::<PingAgent>() {
            // Nearly always it is the same as before.
            match (ping.connected, self.connected.contains(observed.to)) {
                (true, false) => drop(self.connected.insert(observed.to.to_owned())),
                (false, true) => drop(self.connected.remove(observed.to)),
                _ => {}
            }
        } else if let Some(run) = observed.is::<RunTasks>()
            && let Some(framework) = &run.framework.id
        {
            self.launched.entry(framework.clone()).or_default();
            if self.recovery.is_some() {
                for task in &run.tasks {
                    let key = (framework.clone(), task.task_id.clone());
                    self.sent.insert(key, at);
                }
            }
        }
    }

    fn on_received(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if observed.reply {
            if observed.is::<Pong>().is_some() && self.connected.contains(observed.from) {
                match self.answered.get_mut(observed.from) {
                    Some(answered) => *answered = at,
                    None => drop(self.answered.insert(observed.from.to_owned(), at)),
                }
            }
        } else if let Some(changed) = observed.is::<StatusChanged>()
            && let Some(framework) = self.frameworks.of_node(observed.to)
        {
            let key = (framework.clone(), changed.status.task_id.clone());
            let state = changed.status.state;
            if state == TaskState::Running {
                self.launched.insert(key.0.clone(), at);
                self.running.insert(key.clone());
            } else {
                self.running.remove(&key);
            }
            // An unreachable one cannot report more.
            if !matches!(state, TaskState::Staging | TaskState::Starting) {
                self.sent.remove(&key);
            }
        }
    }

    /// Whether that node may stay down.
    fn has_forgotten(&self, node: &str) -> bool {
        self.put_back.get(node).is_some_and(|ended| *ended)
    }

    /// The first thing that has not recovered, if any.
    fn lacking(&mut self, recovery: Duration, at: Duration) -> Option<String> {
        for role in [Role::Master, Role::Agent, Role::Framework] {
            for node in self.nodes.of(role) {
                self.judgements += 1;
                if !self.up.contains_key(node) && !self.has_forgotten(node) {
                    return Some(format!("{node} has not come back"));
                }
            }
        }
        for node in self.nodes.of(Role::Agent) {
            let answered = self.answered.get(node).copied();
            if answered.is_none_or(|answered| answered + PINGS < at) {
                let last = answered.map_or("never".to_owned(), |at| format!("last at {at:?}"));
                return Some(format!(
                    "{node} is not registered: it has answered a ping of a master that has it {last}"
                ));
            }
        }
        let [(master, since)] = self.acting.iter().collect::<Vec<_>>()[..] else {
            let acting: Vec<_> = self.acting.keys().collect();
            return Some(format!("the masters that act are {acting:?}: expected one"));
        };
        for node in self.nodes.of(Role::Framework) {
            if let Some(framework) = self.frameworks.stands_by(node, master) {
                let leading = self.frameworks.get(framework);
                let leads = |newest: &&Subscription| {
                    newest.master == *master && self.up.contains_key(&newest.node)
                };
                if leading.filter(leads).is_none() {
                    return Some(format!("nobody leads {framework}, and {node} stands by"));
                }
                continue;
            }
            let subscribed = self.frameworks.of_node(node);
            let subscribed = subscribed.and_then(|id| Some((id, self.frameworks.get(id)?)));
            let subscribed =
                subscribed.filter(|(_, newest)| newest.node == node && newest.master == *master);
            let Some((_, newest)) = subscribed else {
                return Some(format!("{node} is not subscribed"));
            };
            let started = self.up.get(node).copied().unwrap_or_default().max(*since);
            if newest.since < started {
                return Some(format!(
                    "{node} is not subscribed: it last was at {:?}, before a start at {started:?}",
                    newest.since
                ));
            }
        }
        if let Some(idle) = self.idle(recovery) {
            return Some(idle);
        }
        self.judgements += self.sent.len() as u64;
        let silent = self.sent.iter().find(|(_, sent)| **sent + RECOVERY <= at);
        silent.map(|((framework, task), sent)| {
            format!("task {task} of {framework}, sent at {sent:?}, neither runs nor has ended")
        })
    }

    /// A framework without progress.
    fn idle(&mut self, recovery: Duration) -> Option<String> {
        let works = |(framework, ran): (&FrameworkId, &Duration)| {
            let runs = self.running.iter().any(|(of, _)| of == framework);
            runs || *ran >= recovery
        };
        if !self.launched.is_empty() && !self.launched.iter().any(works) {
            let ran = self.launched.values().max();
            return Some(format!(
                "no work is done: a task last began to run at {ran:?}"
            ));
        }
        let frameworks = self.nodes.of(Role::Framework);
        let frameworks = frameworks.filter(|node| !node.starts_with(STANDBY));
        if self.nodes.of(Role::Agent).count() < frameworks.count() {
            return None;
        }
        self.judgements += self.launched.len() as u64;
        let there =
            |(framework, _): &(&FrameworkId, &Duration)| self.frameworks.get(framework).is_some();
        let mut launched = self.launched.iter().filter(there);
        let idle = launched.find(|one| !works(*one));
        idle.map(|(framework, ran)| {
            format!("{framework} does no work: a task of it last began to run at {ran:?}")
        })
    }
}

impl Checker for Recovery {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.frameworks.see(event);
        self.nodes.see(event);
        match event.kind {
            EventKind::Sent(observed) => self.on_sent(&observed, event.at),
            EventKind::Received(observed) => self.on_received(&observed, event.at),
            EventKind::NodeStarted { node, .. } => {
                self.up.insert(node.to_owned(), event.at);
            }
            EventKind::NodeEnded { node, crashed } => {
                self.up.remove(node);
                self.answered.remove(node);
                if let Some(ended) = self.put_back.get_mut(node) {
                    *ended = !crashed;
                }
            }
            EventKind::DiskReset { node } => drop(self.put_back.insert(node.to_owned(), false)),
            EventKind::MasterBegan { node } => {
                self.acting.insert(node.to_owned(), event.at);
            }
            EventKind::MasterEnded { node } => {
                self.acting.remove(node);
            }
            EventKind::FaultBegan(_) => self.had_faults = true,
            EventKind::FaultsOver => self.recovery = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let judgements = self.judgements;
        let lacks = self.recovery.and_then(|over| self.lacking(over, at));
        self.judgements = judgements; // nothing was judged
        lacks.is_some() || self.sent.values().any(|sent| *sent + UNDER_WAY < at)
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let needed = if self.had_faults { RECOVERY } else { CALM };
        match self.recovery {
            Some(recovery) if recovery + needed <= at => match self.lacking(recovery, at) {
                Some(what) => broken(NAME, at, what),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, seconds, status, task};
    use super::*;
    use protocol::FrameworkInfo;

    /// An hour, with a running task, up to a minute after the faults.
    fn fixture() -> Fixture<Recovery> {
        let mut fixture = Fixture::new(Recovery::default(), "cpus:4");
        fixture
            .wait(seconds(3600))
            .fact(EventKind::FaultsOver)
            .wait(seconds(60));
        fixture.runs(&[task("t", "cpus:1")]);
        fixture
    }

    fn heard(fixture: &mut Fixture<Recovery>) -> &mut Fixture<Recovery> {
        fixture.changed(&status("t", TaskState::Running, Some(1)))
    }

    /// The rest of the time, with an answered ping.
    fn rest(fixture: &mut Fixture<Recovery>) -> &mut Fixture<Recovery> {
        let ping = PingAgent { connected: true };
        fixture.wait(RECOVERY).delivered("master", "agent-1", &ping);
        fixture.replied::<PingAgent>("agent-1", "master", &Pong)
    }

    #[test]
    fn complete_recovery_is_clean() {
        rest(heard(&mut fixture())).is_clean();
    }

    #[test]
    fn a_node_that_stays_away_is_noticed() {
        let mut fixture = fixture();
        fixture.fact(EventKind::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        rest(heard(&mut fixture)).is_broken("agent-1 has not come back");
    }

    #[test]
    fn only_a_reset_master_may_stay_down() {
        for (disk_of, crashed, excused) in [
            ("master-2", false, true),
            ("master-2", true, false),
            ("master", false, false),
        ] {
            let (node, role) = ("master-2", Role::Master);
            let ends = |crashed| EventKind::NodeEnded { node, crashed };
            let mut fixture = fixture();
            fixture.fact(EventKind::NodeStarted { node, role });
            fixture.fact(ends(false));
            fixture.fact(EventKind::DiskReset { node: disk_of });
            fixture.fact(EventKind::NodeStarted { node, role });
            fixture.fact(ends(crashed));
            rest(heard(&mut fixture));
            match excused {
                true => fixture.is_clean(),
                false => fixture.is_broken("master-2 has not come back"),
            }
        }
    }

    #[test]
    fn end_before_the_disk_reset_is_no_excuse() {
        let (node, role) = ("master-2", Role::Master);
        let mut fixture = fixture();
        fixture.fact(EventKind::NodeStarted { node, role });
        fixture.fact(EventKind::NodeEnded {
            node,
            crashed: false,
        });
        fixture.fact(EventKind::DiskReset { node });
        rest(heard(&mut fixture)).is_broken("master-2 has not come back");
    }

    #[test]
    fn unpinged_agent_is_not_registered() {
        heard(&mut fixture())
            .wait(RECOVERY)
            .is_broken("agent-1 is not registered");
    }

    #[test]
    fn framework_must_be_subscribed_at_the_leader() {
        let mut fixture = fixture();
        let master = "master";
        heard(&mut fixture).fact(EventKind::MasterEnded { node: master });
        fixture.fact(EventKind::MasterBegan { node: master });
        rest(&mut fixture).is_broken("framework-1 is not subscribed");
        let mut fixture = self::fixture();
        heard(&mut fixture).fact(EventKind::NodeStarted {
            node: "framework-1",
            role: Role::Framework,
        });
        fixture.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        rest(&mut fixture).is_clean();
    }

    /// Seed 268 of a group: a master may make a scheduler lead before it has answered that it
    /// stands by.
    #[test]
    fn standby_requires_a_leading_scheduler() {
        for is_told in [false, true] {
            let mut fixture = fixture();
            heard(&mut fixture).fact(EventKind::MasterEnded { node: "master" });
            fixture.fact(EventKind::MasterBegan { node: "master" });
            fixture.asks_to_stand_by("framework-1");
            if is_told {
                fixture.is_told_to_lead("framework-1");
            }
            fixture.answered_that_it_stands_by("framework-1");
            match is_told {
                true => rest(&mut fixture).is_clean(),
                false => rest(&mut fixture).is_broken("nobody leads f"),
            }
        }
    }

    #[test]
    fn one_master_acts_in_the_end() {
        let mut nobody = fixture();
        heard(&mut nobody).fact(EventKind::MasterEnded { node: "master" });
        rest(&mut nobody).is_broken("the masters that act are []");
        let mut two = fixture();
        heard(&mut two).fact(EventKind::MasterBegan { node: "master-2" });
        rest(&mut two).is_broken("expected one");
    }

    #[test]
    fn silent_task_and_idle_framework_are_found() {
        rest(&mut fixture()).is_broken("no work is done");
        for state in [TaskState::Staging, TaskState::Starting] {
            let mut fixture = fixture();
            fixture.changed(&status("other", TaskState::Running, Some(1)));
            fixture.changed(&status("t", state, Some(2)));
            rest(&mut fixture).is_broken("task t of f");
        }
    }

    #[test]
    fn every_framework_works_given_enough_agents() {
        let two = || {
            let mut fixture = fixture();
            let id = Some(FrameworkId::new("g").unwrap());
            let theirs = FrameworkInfo::new("user", "g");
            fixture.subscribe("framework-2", theirs.clone());
            let run = RunTasks {
                framework: FrameworkInfo { id, ..theirs },
                tasks: vec![task("u", "cpus:1")],
            };
            fixture.delivered("master", "agent-1", &run);
            heard(&mut fixture);
            fixture
        };
        rest(&mut two()).is_broken("g does no work");
        let mut crowded = two();
        for node in ["framework-2", "framework-1"] {
            let role = Role::Framework;
            crowded.fact(EventKind::NodeStarted { node, role });
        }
        crowded.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        crowded.subscribe("framework-2", FrameworkInfo::new("user", "g"));
        let status = status("u", TaskState::Failed, Some(3));
        crowded.delivered("master", "framework-2", &StatusChanged { status });
        rest(&mut crowded).is_clean();
    }
}
