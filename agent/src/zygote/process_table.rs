//! The zygote's process table: the containers of its children, and stray processes.
//!
//! Pure. A stray is a process without its container's leader: a child of the zygote that it did not
//! start, a descendant of such a child, or a member of an ended leader's session. The end of a
//! container whose leader has not cleaned up is reported only after its strays are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{ContainerId, Termination};
use runtime::Instant;

use super::wire::{ContainerEnd, InitEvent, InitReport, Report};
use crate::host::procfs::{self, Process};

/// Sweeps after which a report no longer waits for strays that do not die.
pub const SWEEPS_MAX: u32 = 500;

/// A container init.
#[derive(Debug)]
pub struct Child {
    /// Its container.
    pub container_id: ContainerId,
    /// Whether it runs the command of a task, otherwise an executor.
    pub is_command: bool,
    /// How long it may take to stop.
    pub grace: Duration,
    /// Whether it was asked to stop.
    pub kill_wanted: bool,
    /// When it was started.
    pub since: Instant,
    /// Its last report, without those of further programs.
    pub event: Option<InitEvent>,
}

/// A nested container.
#[derive(Debug)]
struct Nested {
    child: Child,
    /// Its init, once started.
    pid: Option<i32>,
}

/// The children and the delayed reports.
#[derive(Debug, Default)]
pub struct ProcessTable {
    children: BTreeMap<i32, Child>,
    leaders: BTreeMap<ContainerId, i32>,
    /// Nested containers, whose inits are children of other inits.
    nested: BTreeMap<ContainerId, Nested>,
    ended_leaders: BTreeSet<i32>,
    held: Vec<Report>,
    sweeps: u32,
    sweep_wanted: bool,
}

impl ProcessTable {
    /// Adds the leader of a container.
    pub fn started(&mut self, pid: i32, child: Child) {
        self.ended_leaders.remove(&pid);
        self.leaders.insert(child.container_id.clone(), pid);
        self.children.insert(pid, child);
    }

    /// Adds a nested container.
    pub fn nested(&mut self, child: Child) {
        let container_id = child.container_id.clone();
        self.nested
            .insert(container_id, Nested { child, pid: None });
    }

    /// The session leader of a container that is not nested: a child that is not reaped.
    pub fn leader(&self, container_id: &ContainerId) -> Option<i32> {
        self.leaders.get(container_id).copied()
    }

    /// The session leader of any container, once started.
    pub fn any_leader(&self, container_id: &ContainerId) -> Option<i32> {
        let nested = self.nested.get(container_id);
        self.leader(container_id).or_else(|| nested?.pid)
    }

    /// The session leader of any container whose program has been started and not ended.
    pub fn started_leader(&self, container_id: &ContainerId) -> Option<i32> {
        let is_started = |pid: &i32| {
            let child = self.children.get(pid);
            child.is_none_or(|child| child.event == Some(InitEvent::Started))
        };
        self.any_leader(container_id).filter(is_started)
    }

    /// Whether a container lives.
    pub fn has(&self, container_id: &ContainerId) -> bool {
        self.leaders.contains_key(container_id) || self.nested.contains_key(container_id)
    }

    /// A container, if it lives.
    pub fn child(&mut self, container_id: &ContainerId) -> Option<&mut Child> {
        match self.leader(container_id) {
            Some(pid) => self.children.get_mut(&pid),
            None => Some(&mut self.nested.get_mut(container_id)?.child),
        }
    }

    /// The time since the start of a container; zero if it has ended.
    pub fn age(&self, container_id: &ContainerId, now: Instant) -> Duration {
        let child = self.leader(container_id);
        let child = child.and_then(|pid| self.children.get(&pid));
        let child = child.or_else(|| Some(&self.nested.get(container_id)?.child));
        child.map_or(Duration::ZERO, |child| now - child.since)
    }

    /// The container of an init.
    pub fn container_of(&self, pid: i32) -> Option<&ContainerId> {
        self.children.get(&pid).map(|child| &child.container_id)
    }

    /// The living containers.
    pub fn children(&self) -> impl Iterator<Item = &Child> {
        let nested = self.nested.values().map(|nested| &nested.child);
        self.children.values().chain(nested)
    }

    /// Whether no child and no stray is left.
    pub fn is_idle(&self) -> bool {
        self.children.is_empty() && self.held.is_empty() && !self.sweep_wanted
    }

    /// Handles a report of the init `pid`. Returns the reports that the agent needs at once.
    pub fn note(&mut self, report: InitReport, pid: i32) -> Vec<Report> {
        let InitReport {
            container_id,
            event,
        } = report;
        let Some(child) = self.child(&container_id) else {
            return Vec::new();
        };
        match event {
            InitEvent::ProgramEnded { program, end } => {
                return vec![Report::ProgramEnded {
                    container_id,
                    program,
                    end,
                }];
            }
            InitEvent::Gone(termination) => {
                let mut reports = self.end_inside(&container_id);
                if let Some(nested) = self.nested.remove(&container_id) {
                    // The init of its parent inherits what it left behind.
                    reports.push(end_of(nested.child, termination).0);
                }
                return reports;
            }
            _ => {}
        }
        let is_started = event == InitEvent::Started;
        child.event = Some(event);
        if is_started && let Some(nested) = self.nested.get_mut(&container_id) {
            nested.pid = Some(pid);
        }
        let pid = self.leader(&container_id).unwrap_or(pid);
        let started = is_started.then_some(Report::Started { container_id, pid });
        started.into_iter().collect()
    }

    /// The ends of the containers nested in one that has ended, the innermost first.
    fn end_inside(&mut self, container_id: &ContainerId) -> Vec<Report> {
        let nested = self.nested.keys();
        let nested = nested.filter(|nested| nested.is_inside(container_id));
        let nested: Vec<ContainerId> = nested.rev().cloned().collect();
        let nested = nested.iter().filter_map(|id| self.nested.remove(id));
        let killed = Termination::Signaled(nix::libc::SIGKILL);
        nested.map(|one| end_of(one.child, killed).0).collect()
    }

    /// Handles a reaped child. Returns the reports that need not wait for a sweep: those of nested
    /// containers, which end with it, before its own.
    pub fn reaped(&mut self, pid: i32, termination: Termination) -> Vec<Report> {
        let Some(child) = self.children.remove(&pid) else {
            // A stray ended; its children were reparented to the zygote.
            self.sweep_wanted = true;
            return Vec::new();
        };
        self.leaders.remove(&child.container_id);
        let mut reports = self.end_inside(&child.container_id);
        let (report, is_clean) = end_of(child, termination);
        reports.push(report);
        if is_clean {
            return reports;
        }
        self.ended_leaders.insert(pid);
        self.held.extend(reports);
        self.sweep_wanted = true;
        self.sweeps = 0;
        Vec::new()
    }

    /// Whether a sweep for strays is needed.
    pub fn must_sweep(&self) -> bool {
        self.sweep_wanted
    }

    /// The processes to kill now.
    pub fn strays(&self, processes: &[Process], own: i32) -> BTreeSet<i32> {
        let alive = || processes.iter().filter(|process| !process.zombie);
        let unknown: Vec<i32> = alive()
            .filter(|process| process.parent == own && !self.children.contains_key(&process.pid))
            .map(|process| process.pid)
            .collect();
        let mut strays = procfs::descendants(processes, &unknown);
        strays.extend(unknown);
        strays.extend(
            alive()
                .filter(|process| self.ended_leaders.contains(&process.session))
                .map(|process| process.pid),
        );
        strays.remove(&own);
        strays
    }

    /// Handles a finished sweep. Returns the reports that are due.
    pub fn swept(&mut self, found: usize) -> Vec<Report> {
        self.sweeps += 1;
        if found > 0 && self.sweeps < SWEEPS_MAX {
            return Vec::new();
        }
        self.sweep_wanted = found > 0;
        if found == 0 {
            self.ended_leaders.clear();
        }
        std::mem::take(&mut self.held)
    }
}

/// The report of a container whose init has ended, and whether it has killed all its processes.
fn end_of(child: Child, termination: Termination) -> (Report, bool) {
    let container_id = child.container_id;
    let exited = |end| Report::Exited {
        container_id: container_id.clone(),
        end,
    };
    let failed = |reason| Report::Failed {
        container_id: container_id.clone(),
        reason,
    };
    match child.event {
        Some(InitEvent::Ended {
            termination,
            kill_wanted,
            is_clean,
        }) => {
            let end = match child.is_command {
                true => ContainerEnd::Command {
                    termination,
                    kill_wanted,
                },
                false => ContainerEnd::Leader(termination),
            };
            (exited(end), is_clean)
        }
        Some(InitEvent::NotStarted(reason)) if child.is_command => {
            (exited(ContainerEnd::CommandNotStarted(reason)), true)
        }
        Some(InitEvent::NotStarted(reason) | InitEvent::NotIsolated(reason)) => {
            (failed(reason), true)
        }
        Some(InitEvent::Started) if child.kill_wanted && child.is_command => {
            let end = ContainerEnd::Command {
                termination,
                kill_wanted: true,
            };
            (exited(end), false)
        }
        // The reports about others are not kept.
        Some(InitEvent::Started | InitEvent::ProgramEnded { .. } | InitEvent::Gone(_)) | None => {
            (exited(ContainerEnd::Leader(termination)), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: i32 = 100;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process {
            pid,
            parent,
            group: session,
            session,
            zombie: false,
            user_ticks: 0,
            system_ticks: 0,
            threads: 1,
            resident_pages: 0,
        }
    }

    fn child(name: &str, is_command: bool) -> Child {
        Child {
            container_id: container(name),
            is_command,
            grace: Duration::from_secs(5),
            kill_wanted: false,
            since: Instant::default(),
            event: None,
        }
    }

    fn container(name: &str) -> ContainerId {
        ContainerId::new(name).unwrap()
    }

    fn exited(name: &str, end: ContainerEnd) -> Report {
        Report::Exited {
            container_id: container(name),
            end,
        }
    }

    fn note(table: &mut ProcessTable, name: &str, event: InitEvent) -> Vec<Report> {
        let container_id = container(name);
        let report = InitReport {
            container_id,
            event,
        };
        table.note(report, 7)
    }

    #[test]
    fn end_of_a_command_is_reported_without_a_sweep() {
        let mut table = ProcessTable::default();
        table.started(200, child("c", true));
        let started = Report::Started {
            container_id: container("c"),
            pid: 200,
        };
        assert_eq!(table.started_leader(&container("c")), None);
        let event = note(&mut table, "c", InitEvent::Started);
        assert_eq!(event, [started]);
        assert_eq!(table.started_leader(&container("c")), Some(200));
        let ended = InitEvent::Ended {
            termination: Termination::Exited(3),
            kill_wanted: false,
            is_clean: true,
        };
        assert_eq!(note(&mut table, "c", ended), [], "its init still lives");
        let end = ContainerEnd::Command {
            termination: Termination::Exited(3),
            kill_wanted: false,
        };
        let report = table.reaped(200, Termination::Exited(0));
        assert_eq!(report, [exited("c", end)]);
        assert!(!table.must_sweep() && table.is_idle());
        assert_eq!(table.leader(&container("c")), None);
    }

    #[test]
    fn a_command_that_cannot_start_ends_with_its_reason() {
        let mut table = ProcessTable::default();
        table.started(200, child("c", true));
        note(&mut table, "c", InitEvent::NotStarted("no file".into()));
        let end = ContainerEnd::CommandNotStarted("no file".into());
        let report = table.reaped(200, Termination::Exited(0));
        assert_eq!(report, [exited("c", end)]);
    }

    #[test]
    fn an_init_that_is_killed_has_left_processes() {
        for kill_wanted in [true, false] {
            let mut table = ProcessTable::default();
            table.started(200, child("c", true));
            note(&mut table, "c", InitEvent::Started);
            let child = table.child(&container("c")).unwrap();
            child.kill_wanted = kill_wanted;
            let termination = Termination::Signaled(9);
            assert_eq!(table.reaped(200, termination), []);
            assert!(table.must_sweep());
            let end = match kill_wanted {
                true => ContainerEnd::Command {
                    termination,
                    kill_wanted,
                },
                false => ContainerEnd::Leader(termination),
            };
            assert_eq!(table.swept(0), [exited("c", end)]);
        }
    }

    #[test]
    fn executor_ends_as_its_program_ends() {
        let mut table = ProcessTable::default();
        table.started(200, child("c", false));
        assert_eq!(note(&mut table, "c", InitEvent::Started).len(), 1);
        assert_eq!(note(&mut table, "d", InitEvent::Started), [], "unknown");
        let ended = InitEvent::Ended {
            termination: Termination::Exited(3),
            kill_wanted: true,
            is_clean: true,
        };
        note(&mut table, "c", ended);
        let end = ContainerEnd::Leader(Termination::Exited(3));
        let report = table.reaped(200, Termination::Exited(0));
        assert_eq!(report, [exited("c", end)]);
    }

    #[test]
    fn a_container_that_cannot_be_isolated_or_executed_is_not_launched() {
        for (is_command, event) in [
            (true, InitEvent::NotIsolated("no".into())),
            (false, InitEvent::NotIsolated("no".into())),
            (false, InitEvent::NotStarted("no".into())),
        ] {
            let mut table = ProcessTable::default();
            table.started(200, child("c", is_command));
            note(&mut table, "c", event);
            let failed = Report::Failed {
                container_id: container("c"),
                reason: "no".into(),
            };
            let report = table.reaped(200, Termination::Exited(0));
            assert_eq!(report, [failed]);
        }
    }

    #[test]
    fn killed_executor_is_reported_after_its_strays() {
        let mut table = ProcessTable::default();
        table.started(200, child("killed", true));
        table.started(300, child("well", true));
        assert_eq!(table.reaped(200, Termination::Signaled(9)), []);
        assert!(table.must_sweep());
        // 201 was reparented to the zygote, 202 left the session, 203 is in the session with
        // another parent; 301 still has its executor.
        let processes = [
            process(OWN, 1, OWN),
            process(201, OWN, 200),
            process(202, 201, 202),
            process(203, 1, 200),
            process(300, OWN, 300),
            process(301, 300, 300),
        ];
        let strays = table.strays(&processes, OWN);
        assert_eq!(strays, BTreeSet::from([201, 202, 203]));
        assert_eq!(table.swept(strays.len()), []);
        assert!(table.must_sweep());
        assert_eq!(table.swept(0).len(), 1);
        assert!(!table.must_sweep());
    }

    #[test]
    fn undying_stray_delays_a_report_only_for_a_time() {
        let mut table = ProcessTable::default();
        table.started(200, child("c", false));
        table.reaped(200, Termination::Exited(0));
        let told: Vec<_> = (0..SWEEPS_MAX).flat_map(|_| table.swept(1)).collect();
        assert_eq!(told.len(), 1);
        assert!(table.must_sweep(), "the stray is still hunted");
    }

    #[test]
    fn nested_container_ends_by_itself_or_with_its_parent() {
        let mut table = ProcessTable::default();
        table.started(200, child("a", false));
        for name in ["a.b", "a.c", "a.c.d"] {
            table.nested(child(name, true));
            let started = Report::Started {
                container_id: container(name),
                pid: 7,
            };
            assert_eq!(note(&mut table, name, InitEvent::Started), [started]);
        }
        assert_eq!(table.leader(&container("a.b")), None, "not a child");
        assert_eq!(table.any_leader(&container("a.b")), Some(7));
        let ended = InitEvent::Ended {
            termination: Termination::Exited(3),
            kill_wanted: false,
            is_clean: true,
        };
        assert_eq!(note(&mut table, "a.b", ended.clone()), []);
        let gone = note(&mut table, "a.b", InitEvent::Gone(Termination::Exited(0)));
        let end = ContainerEnd::Command {
            termination: Termination::Exited(3),
            kill_wanted: false,
        };
        assert_eq!(gone, [exited("a.b", end)]);
        assert!(!table.has(&container("a.b")) && table.has(&container("a.c.d")));
        note(&mut table, "a", ended);
        let killed = ContainerEnd::Leader(Termination::Signaled(9));
        let own = ContainerEnd::Leader(Termination::Exited(3));
        let reports = table.reaped(200, Termination::Exited(0));
        let expected = [
            exited("a.c.d", killed.clone()),
            exited("a.c", killed),
            exited("a", own),
        ];
        assert_eq!(reports, expected);
        assert!(table.is_idle());
    }

    #[test]
    fn ended_stray_triggers_a_sweep() {
        let mut table = ProcessTable::default();
        assert_eq!(table.reaped(999, Termination::Exited(0)), []);
        assert!(table.must_sweep());
        assert_eq!(table.swept(0), []);
    }
}
