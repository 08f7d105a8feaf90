//! The zygote's process table: the containers of its children, and stray processes.
//!
//! Pure. A stray is a process without its executor: a child of the zygote that it did not start, a
//! descendant of such a child, or a member of an ended executor's session. The exit of an executor
//! that did not clean up is reported only after its strays are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{ContainerId, Termination};

use super::wire::Report;
use crate::host::procfs::{self, Process};

/// Sweeps after which a report no longer waits for strays that do not die.
pub const SWEEPS_MAX: u32 = 500;

/// An executor started by the zygote.
#[derive(Debug)]
pub struct Child {
    /// The container that it leads.
    pub container_id: ContainerId,
    /// Whether exit status 0 means that it left no processes behind.
    pub cleans_up: bool,
    /// How long it may take to stop.
    pub grace: Duration,
}

/// The children and the delayed reports.
#[derive(Debug, Default)]
pub struct ProcessTable {
    children: BTreeMap<i32, Child>,
    ended_leaders: BTreeSet<i32>,
    held: Vec<Report>,
    sweeps: u32,
    sweep_wanted: bool,
}

impl ProcessTable {
    /// Adds a started executor.
    pub fn started(&mut self, pid: i32, child: Child) {
        self.ended_leaders.remove(&pid);
        self.children.insert(pid, child);
    }

    /// The session leader of a container.
    pub fn leader(&self, container_id: &ContainerId) -> Option<i32> {
        let mut children = self.children.iter();
        children
            .find(|(_, child)| child.container_id == *container_id)
            .map(|(&pid, _)| pid)
    }

    /// Containers with a living executor, with their grace periods.
    pub fn graces(&self) -> impl Iterator<Item = (&ContainerId, Duration)> {
        let children = self.children.values();
        children.map(|child| (&child.container_id, child.grace))
    }

    /// Whether no child and no stray is left.
    pub fn is_idle(&self) -> bool {
        self.children.is_empty() && self.held.is_empty() && !self.sweep_wanted
    }

    /// Handles a reaped child. Returns the report if it need not wait for a sweep.
    pub fn reaped(&mut self, pid: i32, termination: Termination) -> Option<Report> {
        let Some(child) = self.children.remove(&pid) else {
            // A stray ended; its children were reparented to the zygote.
            self.sweep_wanted = true;
            return None;
        };
        let report = Report::Exited {
            container_id: child.container_id,
            termination,
        };
        if child.cleans_up && termination == Termination::Exited(0) {
            return Some(report);
        }
        self.ended_leaders.insert(pid);
        self.held.push(report);
        self.sweep_wanted = true;
        self.sweeps = 0;
        None
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

    fn child(name: &str, cleans_up: bool) -> Child {
        Child {
            container_id: container(name),
            cleans_up,
            grace: Duration::from_secs(5),
        }
    }

    fn container(name: &str) -> ContainerId {
        ContainerId::new(name).unwrap()
    }

    #[test]
    fn clean_executor_is_reported_without_a_sweep() {
        let mut table = ProcessTable::default();
        table.started(200, child("c", true));
        let report = table.reaped(200, Termination::Exited(0));
        assert_eq!(
            report,
            Some(Report::Exited {
                container_id: container("c"),
                termination: Termination::Exited(0)
            })
        );
        assert!(!table.must_sweep() && table.is_idle());
    }

    #[test]
    fn killed_executor_is_reported_after_its_strays() {
        let mut table = ProcessTable::default();
        table.started(200, child("killed", true));
        table.started(300, child("well", true));
        assert_eq!(table.reaped(200, Termination::Signaled(9)), None);
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
    fn ended_stray_triggers_a_sweep() {
        let mut table = ProcessTable::default();
        assert_eq!(table.reaped(999, Termination::Exited(0)), None);
        assert!(table.must_sweep());
        assert_eq!(table.swept(0), []);
    }
}
