//! Recovery (invariant 7): when no fault comes any more, everybody is back before long and work goes on.
//!
//! Judged at the end of a run that went on for at least [`RECOVERY`] after its faults ([`CALM`] if it had none):
//!
//! - every master, agent and framework that ever started runs, but a master whose disk was put back to an old copy and that has ended by
//!   itself since then: its member has forgotten what it had promised, and ends whenever its leader speaks to it;
//! - every agent has answered a ping of a master that holds it for connected, within the last [`PINGS`];
//! - one master acts, and every framework's scheduler has been subscribed there since it last started, or stands by there;
//! - no task that was sent to an agent since the faults ended has been for [`RECOVERY`] without running or having ended, as its framework
//!   knows;
//! - if there are frameworks that launched tasks, some task runs as far as its framework knows, or one has begun to run since; where there
//!   are as many agents as frameworks, so that there is room for all, that is so for each framework that launched any.
//!
//! It says nothing about runs that end earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::registration::{PingAgent, Pong};
use protocol::message::scheduler::StatusChanged;
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, TaskId, TaskState};
use runtime::Role;

use super::census::{Frameworks, Nodes, Subscription};
use super::{UNDER_WAY, broken};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};
use crate::world::STANDBY;

/// The stated time within which everybody is back and work goes on, once no fault comes any more. Agents notice a silent master
/// after 75 s, and wait up to a minute between two tries to register.
pub const RECOVERY: Duration = Duration::from_secs(300);
/// The same where there was no fault to recover from.
pub const CALM: Duration = Duration::from_secs(30);
/// An agent that is registered has answered a ping within this time.
pub const PINGS: Duration = Duration::from_secs(60);

const NAME: &str = "recovery";

/// The checker.
#[derive(Default)]
pub struct Recovery {
    frameworks: Frameworks,
    nodes: Nodes,
    /// Since when each node that runs has run.
    up: BTreeMap<String, Duration>,
    /// The nodes where a master acts, and since when.
    acting: BTreeMap<String, Duration>,
    /// Agents that were last pinged as connected.
    connected: BTreeSet<String>,
    /// When each agent last answered such a ping.
    answered: BTreeMap<String, Duration>,
    /// Tasks sent since the faults ended, until their framework hears of them.
    sent: BTreeMap<(FrameworkId, TaskId), Duration>,
    /// The frameworks that launched tasks, and when they last heard that one runs.
    launched: BTreeMap<FrameworkId, Duration>,
    /// Tasks that run, as their frameworks last heard.
    running: BTreeSet<(FrameworkId, TaskId)>,
    recovery: Option<Duration>,
    had_faults: bool,
    /// The masters whose disks were put back to an old copy, and whether each has ended by itself, the last time that it ended.
    put_back: BTreeMap<String, bool>,
    judgements: u64,
}

impl Recovery {
    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) {
        if let Some(ping) = spoken.is::<PingAgent>() {
            // Nearly always it was said before.
            match (ping.connected, self.connected.contains(spoken.to)) {
                (true, false) => drop(self.connected.insert(spoken.to.to_owned())),
                (false, true) => drop(self.connected.remove(spoken.to)),
                _ => {}
            }
        } else if let Some(run) = spoken.is::<RunTasks>()
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

    fn heard(&mut self, spoken: &Spoken<'_>, at: Duration) {
        if spoken.reply {
            if spoken.is::<Pong>().is_some() && self.connected.contains(spoken.from) {
                match self.answered.get_mut(spoken.from) {
                    Some(answered) => *answered = at,
                    None => drop(self.answered.insert(spoken.from.to_owned(), at)),
                }
            }
        } else if let Some(changed) = spoken.is::<StatusChanged>()
            && let Some(framework) = self.frameworks.of_node(spoken.to)
        {
            let key = (framework.clone(), changed.status.task_id.clone());
            let state = changed.status.state;
            if state == TaskState::Running {
                self.launched.insert(key.0.clone(), at);
                self.running.insert(key.clone());
            } else {
                self.running.remove(&key);
            }
            // Of one that is out of reach no more can be told.
            if !matches!(state, TaskState::Staging | TaskState::Starting) {
                self.sent.remove(&key);
            }
        }
    }

    /// Whether that node is away as it should be.
    fn has_forgotten(&self, node: &str) -> bool {
        self.put_back.get(node).is_some_and(|ended| *ended)
    }

    /// What has not recovered, if anything.
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

    /// Whose work does not go on.
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
        match event.what {
            What::Said(spoken) => self.said(&spoken, event.at),
            What::Heard(spoken) => self.heard(&spoken, event.at),
            What::NodeStarted { node, .. } => {
                self.up.insert(node.to_owned(), event.at);
            }
            What::NodeEnded { node, crashed } => {
                self.up.remove(node);
                self.answered.remove(node);
                if let Some(ended) = self.put_back.get_mut(node) {
                    *ended = !crashed;
                }
            }
            What::DiskPutBack { node } => drop(self.put_back.insert(node.to_owned(), false)),
            What::MasterBegan { node } => {
                self.acting.insert(node.to_owned(), event.at);
            }
            What::MasterEnded { node } => {
                self.acting.remove(node);
            }
            What::FaultBegan(_) => self.had_faults = true,
            What::FaultsOver => self.recovery = Some(event.at),
            _ => {}
        }
        Ok(())
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        let judgements = self.judgements;
        let lacks = self.recovery.and_then(|over| self.lacking(over, at));
        self.judgements = judgements; // Nothing was judged.
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
    use super::super::stage::{Stage, seconds, status, task};
    use super::*;
    use protocol::FrameworkInfo;

    /// An hour, with a task that runs, up to a minute after the faults.
    fn stage() -> Stage<Recovery> {
        let mut stage = Stage::new(Recovery::default(), "cpus:4");
        stage
            .wait(seconds(3600))
            .fact(What::FaultsOver)
            .wait(seconds(60));
        stage.runs(&[task("t", "cpus:1")]);
        stage
    }

    fn heard(stage: &mut Stage<Recovery>) -> &mut Stage<Recovery> {
        stage.changed(&status("t", TaskState::Running, Some(1)))
    }

    /// The rest of the time, with an answered ping.
    fn rest(stage: &mut Stage<Recovery>) -> &mut Stage<Recovery> {
        let ping = PingAgent { connected: true };
        stage.wait(RECOVERY).told("master", "agent-1", &ping);
        stage.replied::<PingAgent>("agent-1", "master", &Pong)
    }

    #[test]
    fn all_is_well_when_everybody_is_back_and_works() {
        rest(heard(&mut stage())).is_clean();
    }

    #[test]
    fn a_node_that_stays_away_is_noticed() {
        let mut stage = stage();
        stage.fact(What::NodeEnded {
            node: "agent-1",
            crashed: true,
        });
        rest(heard(&mut stage)).is_broken("agent-1 has not come back");
    }

    #[test]
    fn only_a_master_that_ends_by_itself_over_an_old_copy_of_its_disk_may_stay_away() {
        for (disk_of, crashed, excused) in [
            ("master-2", false, true),
            ("master-2", true, false),
            ("master", false, false),
        ] {
            let (node, role) = ("master-2", Role::Master);
            let ends = |crashed| What::NodeEnded { node, crashed };
            let mut stage = stage();
            stage.fact(What::NodeStarted { node, role });
            stage.fact(ends(false));
            stage.fact(What::DiskPutBack { node: disk_of });
            stage.fact(What::NodeStarted { node, role });
            stage.fact(ends(crashed));
            rest(heard(&mut stage));
            match excused {
                true => stage.is_clean(),
                false => stage.is_broken("master-2 has not come back"),
            }
        }
    }

    #[test]
    fn what_ended_before_its_disk_was_put_back_has_no_excuse() {
        let (node, role) = ("master-2", Role::Master);
        let mut stage = stage();
        stage.fact(What::NodeStarted { node, role });
        stage.fact(What::NodeEnded {
            node,
            crashed: false,
        });
        stage.fact(What::DiskPutBack { node });
        rest(heard(&mut stage)).is_broken("master-2 has not come back");
    }

    #[test]
    fn an_agent_that_is_not_pinged_as_connected_is_not_registered() {
        heard(&mut stage())
            .wait(RECOVERY)
            .is_broken("agent-1 is not registered");
    }

    #[test]
    fn a_framework_must_be_subscribed_with_the_master_that_lives() {
        let mut stage = stage();
        let master = "master";
        heard(&mut stage).fact(What::MasterEnded { node: master });
        stage.fact(What::MasterBegan { node: master });
        rest(&mut stage).is_broken("framework-1 is not subscribed");
        let mut stage = self::stage();
        heard(&mut stage).fact(What::NodeStarted {
            node: "framework-1",
            role: Role::Framework,
        });
        stage.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        rest(&mut stage).is_clean();
    }

    /// Seed 268 of a group's: a master may have one lead before it has answered that it stands by.
    #[test]
    fn somebody_must_lead_where_somebody_stands_by() {
        for is_told in [false, true] {
            let mut stage = stage();
            heard(&mut stage).fact(What::MasterEnded { node: "master" });
            stage.fact(What::MasterBegan { node: "master" });
            stage.asks_to_stand_by("framework-1");
            if is_told {
                stage.told_to_lead("framework-1");
            }
            stage.answered_that_it_stands_by("framework-1");
            match is_told {
                true => rest(&mut stage).is_clean(),
                false => rest(&mut stage).is_broken("nobody leads f"),
            }
        }
    }

    #[test]
    fn one_master_acts_in_the_end() {
        let mut nobody = stage();
        heard(&mut nobody).fact(What::MasterEnded { node: "master" });
        rest(&mut nobody).is_broken("the masters that act are []");
        let mut two = stage();
        heard(&mut two).fact(What::MasterBegan { node: "master-2" });
        rest(&mut two).is_broken("expected one");
    }

    #[test]
    fn a_task_without_a_word_and_a_framework_without_a_task_are_noticed() {
        rest(&mut stage()).is_broken("no work is done");
        for state in [TaskState::Staging, TaskState::Starting] {
            let mut stage = stage();
            stage.changed(&status("other", TaskState::Running, Some(1)));
            stage.changed(&status("t", state, Some(2)));
            rest(&mut stage).is_broken("task t of f");
        }
    }

    #[test]
    fn each_framework_works_where_there_is_room_for_all() {
        let two = || {
            let mut stage = stage();
            let id = Some(FrameworkId::new("g").unwrap());
            let theirs = FrameworkInfo::new("user", "g");
            stage.subscribe("framework-2", theirs.clone());
            let run = RunTasks {
                framework: FrameworkInfo { id, ..theirs },
                tasks: vec![task("u", "cpus:1")],
            };
            stage.told("master", "agent-1", &run);
            heard(&mut stage);
            stage
        };
        rest(&mut two()).is_broken("g does no work");
        let mut crowded = two();
        for node in ["framework-2", "framework-1"] {
            let role = Role::Framework;
            crowded.fact(What::NodeStarted { node, role });
        }
        crowded.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        crowded.subscribe("framework-2", FrameworkInfo::new("user", "g"));
        let status = status("u", TaskState::Failed, Some(3));
        crowded.told("master", "framework-2", &StatusChanged { status });
        rest(&mut crowded).is_clean();
    }
}
