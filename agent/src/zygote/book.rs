//! What a zygote knows of its children: which container each leads, and which processes are strays.
//!
//! Pure. A stray is a process that has lost its executor: it is no child that the zygote made and no descendant of one, or it is
//! in the session of an executor that has ended. An executor that did not clean up is reported only when its strays are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{ContainerId, Termination};

use super::wire::Report;
use crate::procfs::{self, Process};

/// How long a report may wait for strays that do not die, in sweeps.
pub const SWEEPS_MAX: u32 = 500;

/// An executor that the zygote has started.
#[derive(Debug)]
pub struct Child {
    /// The container whose first process it is.
    pub container_id: ContainerId,
    /// Whether its status 0 means that it has left nothing behind.
    pub cleans_up: bool,
    /// How long it may take to stop.
    pub grace: Duration,
}

/// The children and what is held back.
#[derive(Debug, Default)]
pub struct Book {
    children: BTreeMap<i32, Child>,
    ended_leaders: BTreeSet<i32>,
    held: Vec<Report>,
    sweeps: u32,
    sweep_wanted: bool,
}

impl Book {
    /// An executor has been started.
    pub fn started(&mut self, pid: i32, child: Child) {
        self.ended_leaders.remove(&pid);
        self.children.insert(pid, child);
    }

    /// The first process of a container.
    pub fn leader(&self, container_id: &ContainerId) -> Option<i32> {
        let mut children = self.children.iter();
        children
            .find(|(_, child)| child.container_id == *container_id)
            .map(|(&pid, _)| pid)
    }

    /// All containers with a living executor, and how long each may take to stop.
    pub fn graces(&self) -> impl Iterator<Item = (&ContainerId, Duration)> {
        let children = self.children.values();
        children.map(|child| (&child.container_id, child.grace))
    }

    /// Whether no child lives, and none of their descendants that is known of.
    pub fn is_idle(&self) -> bool {
        self.children.is_empty() && self.held.is_empty() && !self.sweep_wanted
    }

    /// A child has been reaped. What is returned can be told at once.
    pub fn reaped(&mut self, pid: i32, termination: Termination) -> Option<Report> {
        let Some(child) = self.children.remove(&pid) else {
            // A stray has ended; its own children are ours now.
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

    /// Whether strays must be looked for.
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

    /// Strays have been looked for and killed. What is returned can be told now.
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
    fn an_executor_that_cleaned_up_is_reported_without_a_look_at_proc() {
        let mut book = Book::default();
        book.started(200, child("c", true));
        let report = book.reaped(200, Termination::Exited(0));
        assert_eq!(
            report,
            Some(Report::Exited {
                container_id: container("c"),
                termination: Termination::Exited(0)
            })
        );
        assert!(!book.must_sweep() && book.is_idle());
    }

    #[test]
    fn a_killed_executor_is_reported_when_what_it_left_behind_is_gone() {
        let mut book = Book::default();
        book.started(200, child("killed", true));
        book.started(300, child("well", true));
        assert_eq!(book.reaped(200, Termination::Signaled(9)), None);
        assert!(book.must_sweep());
        // 201 came to the zygote, 202 left the session, 203 is in the session but has another parent; 301 has its executor.
        let processes = [
            process(OWN, 1, OWN),
            process(201, OWN, 200),
            process(202, 201, 202),
            process(203, 1, 200),
            process(300, OWN, 300),
            process(301, 300, 300),
        ];
        let strays = book.strays(&processes, OWN);
        assert_eq!(strays, BTreeSet::from([201, 202, 203]));
        assert_eq!(book.swept(strays.len()), []);
        assert!(book.must_sweep());
        assert_eq!(book.swept(0).len(), 1);
        assert!(!book.must_sweep());
    }

    #[test]
    fn a_stray_that_cannot_be_killed_delays_a_report_but_not_for_ever() {
        let mut book = Book::default();
        book.started(200, child("c", false));
        book.reaped(200, Termination::Exited(0));
        let told: Vec<_> = (0..SWEEPS_MAX).flat_map(|_| book.swept(1)).collect();
        assert_eq!(told.len(), 1);
        assert!(book.must_sweep(), "the stray is still hunted");
    }

    #[test]
    fn an_ended_stray_makes_the_zygote_look_again() {
        let mut book = Book::default();
        assert_eq!(book.reaped(999, Termination::Exited(0)), None);
        assert!(book.must_sweep());
        assert_eq!(book.swept(0), []);
    }
}
