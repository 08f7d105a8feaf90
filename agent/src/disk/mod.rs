//! Disk watch: removes the leftovers of ended executors, bounds the output of live ones, and notices a work directory that takes no writes.
//!
//! Handles [`RunEnded`] and [`WriteFailed`] from the containerizer; asks it for the sandboxes in use. Reports to the agent whether the work
//! directory takes writes, once for each change. Keeps the [`RemovalSchedule`], which the next process makes anew from the directories it
//! finds, so nothing of it is stored. Decides nothing about tasks: a sandbox is a leftover once its executor has ended and every terminal
//! update is acknowledged.

pub mod leftovers;
pub mod output;
pub mod schedule;
pub mod space;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime::prelude::*;
use runtime::{Instant, Process};

use self::leftovers::Leftover;
use self::schedule::{RemovalSchedule, max_age};
use crate::agent::{Agent, WorkDirWrites};
use crate::config::Config;
use crate::container::Containerizer;
use crate::container::events::SandboxesInUse;
use crate::sandboxes::Sandboxes;

/// Directories removed in one go.
const REMOVALS_AT_ONCE: usize = 64;
/// Time between two looks at the output of live executors: a task may exceed its bound by what it writes in this time.
const OUTPUT_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two test writes while they fail, and the least time between two that failed sandboxes give rise to.
const TEST_INTERVAL: Duration = Duration::from_secs(1);
/// A look that takes so many intervals, or as many of this least one, has failed: a disk that hangs takes no writes.
const LOOK_INTERVALS_MAX: u32 = 3;
const LOOK_INTERVAL_LEAST: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// This run of an executor is over: its sandbox is a leftover.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct RunEnded(pub PathBuf);

/// Something could not be written to the work directory.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct WriteFailed;

/// Requests a report of each change from now on.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ReportWrites(pub Handle<Agent>);

/// Requests the counts of removals.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "DiskFigures")]
pub struct CountRemovals;

/// Counts for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFigures {
    /// Leftovers removed.
    pub removals_succeeded: u64,
    /// Leftovers that could not be removed; they are tried again by the next process.
    pub removals_failed: u64,
    /// Leftovers that wait for their age.
    pub removals_pending: u64,
    /// The greatest age of a leftover at present.
    pub max_age: Duration,
}

/// The actor.
pub struct DiskWatch {
    work_dir: PathBuf,
    gc_delay: Duration,
    headroom: f64,
    watch_interval: Duration,
    /// In bytes; zero is no bound.
    output_max: u64,
    sandboxes: Arc<dyn Sandboxes>,
    containerizer: Handle<Containerizer>,
    agent: Option<Handle<Agent>>,
    found: Vec<Leftover>,
    schedule: RemovalSchedule,
    max_age: Duration,
    succeeded: u64,
    failed: u64,
    is_removing: bool,
    /// Ended runs whose sandboxes are to be touched.
    ended: Vec<PathBuf>,
    is_touching: bool,
    /// Whether a look at the disk is under way.
    is_looking: bool,
    looked: Option<Instant>,
    /// Whether a look at the output is under way.
    is_bounding: bool,
    /// Why the work directory takes no writes, if it takes none.
    write_error: Option<String>,
    /// Whether the next test write is scheduled while they fail.
    is_retesting: bool,
}

impl DiskWatch {
    /// A disk watch that begins with these leftovers.
    pub fn new(
        config: &Config,
        sandboxes: Arc<dyn Sandboxes>,
        containerizer: Handle<Containerizer>,
        found: Vec<Leftover>,
    ) -> Self {
        let settings = config.settings();
        Self {
            work_dir: settings.work_dir.clone(),
            gc_delay: settings.gc_delay,
            headroom: settings.gc_disk_headroom,
            watch_interval: settings.disk_watch_interval,
            output_max: settings.max_output_size,
            sandboxes,
            containerizer,
            agent: None,
            found,
            schedule: RemovalSchedule::new(settings.gc_delay, settings.max_completed_sandboxes),
            max_age: settings.gc_delay,
            succeeded: 0,
            failed: 0,
            is_removing: false,
            ended: Vec::new(),
            is_touching: false,
            is_looking: false,
            looked: None,
            is_bounding: false,
            write_error: None,
            is_retesting: false,
        }
    }

    /// Looks how full the disk is and whether it takes writes, and has old leftovers removed.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        if std::mem::replace(&mut self.is_looking, true) {
            if is_hanging(self.looked, now, self.watch_interval) {
                self.note_write(Err("a test write does not end".to_owned()), ctx);
            }
            return;
        }
        self.looked = Some(now);
        let (sandboxes, work_dir) = (self.sandboxes.clone(), self.work_dir.clone());
        let look = move || {
            let written = sandboxes.test_write(&work_dir);
            (sandboxes.usage(&work_dir), written)
        };
        let looked = ctx.node().blocking(look);
        ctx.then(looked, |this, looked, ctx| {
            this.is_looking = false;
            let Ok((usage, written)) = looked else { return };
            match usage {
                Ok(usage) => this.max_age = max_age(this.gc_delay, this.headroom, usage),
                Err(error) => tracing::warn!(%error, "disk usage of the work directory unknown"),
            }
            this.schedule.expire(this.max_age, ctx.clock().now());
            this.remove(ctx);
            this.note_write(written.map_err(|error| error.to_string()), ctx);
        });
    }

    /// Reports whether the work directory takes writes, if that has changed.
    fn note_write(&mut self, written: Result<(), String>, ctx: &mut Context<Self>) {
        let work_dir = self.work_dir.display();
        match (&written, &self.write_error) {
            (Err(error), None) => {
                tracing::error!(%work_dir, error, "work directory takes no writes: agent suspended");
            }
            (Ok(()), Some(_)) => {
                tracing::info!(%work_dir, "work directory takes writes again: agent resumed");
            }
            _ => {}
        }
        let changed = written.is_err() != self.write_error.is_some();
        self.write_error = written.err();
        if changed {
            self.report();
        }
        if self.write_error.is_some() && !std::mem::replace(&mut self.is_retesting, true) {
            ctx.after(TEST_INTERVAL, |this, ctx| {
                this.is_retesting = false;
                this.look(ctx);
            });
        }
    }

    fn report(&self) {
        if let Some(agent) = &self.agent {
            agent.tell_always(WorkDirWrites(self.write_error.clone().map_or(Ok(()), Err)));
        }
    }

    /// Removes what is due, some at a time.
    fn remove(&mut self, ctx: &mut Context<Self>) {
        if self.is_removing {
            return;
        }
        let due = self.schedule.take_due(REMOVALS_AT_ONCE);
        if due.is_empty() {
            return;
        }
        self.is_removing = true;
        let (sandboxes, work_dir) = (self.sandboxes.clone(), self.work_dir.clone());
        let remove = move || {
            let removed = sandboxes.remove(&work_dir, &due);
            due.into_iter().zip(removed).collect::<Vec<_>>()
        };
        let removed = ctx.node().blocking(remove);
        ctx.then(removed, |this, removed, ctx| {
            this.is_removing = false;
            for (path, removed) in removed.into_iter().flatten() {
                let path = path.display();
                match removed {
                    Ok(()) => {
                        this.succeeded += 1;
                        tracing::debug!(%path, "leftover removed");
                    }
                    Err(error) => {
                        this.failed += 1;
                        tracing::warn!(%path, error, "leftover not removed");
                    }
                }
            }
            this.remove(ctx);
        });
    }

    /// Has the ages of ended runs count from their end, also for the next process.
    fn touch(&mut self, ctx: &mut Context<Self>) {
        if self.ended.is_empty() || std::mem::replace(&mut self.is_touching, true) {
            return;
        }
        let (sandboxes, now) = (self.sandboxes.clone(), ctx.clock().wall());
        let ended = std::mem::take(&mut self.ended);
        let touch = move || {
            for sandbox in ended {
                // One that cannot be touched is as old as its last change.
                let _ = sandboxes.touch(&sandbox, now);
            }
        };
        let touched = ctx.node().blocking(touch);
        ctx.then(touched, |this, _, ctx| {
            this.is_touching = false;
            this.touch(ctx);
        });
    }

    /// Keeps the output of live executors within its bound.
    fn bound_output(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.is_bounding, true) {
            return;
        }
        let in_use = self.containerizer.ask(SandboxesInUse, PATIENCE);
        let (node, sandboxes, max) = (ctx.node().clone(), self.sandboxes.clone(), self.output_max);
        let bounding = async move {
            let in_use = in_use.await.unwrap_or_default();
            let bound = move || {
                for sandbox in in_use {
                    if let Err(error) = sandboxes.bound_output(&sandbox, max) {
                        let sandbox = sandbox.display();
                        tracing::warn!(%sandbox, %error, "cannot rotate the output of a task");
                    }
                }
            };
            let _ = node.blocking(bound).await;
        };
        ctx.then(bounding, |this, (), _| this.is_bounding = false);
    }
}

/// Whether a look that began then, and is still under way, has failed.
fn is_hanging(began: Option<Instant>, now: Instant, interval: Duration) -> bool {
    let patience = interval.max(LOOK_INTERVAL_LEAST) * LOOK_INTERVALS_MAX;
    began.is_some_and(|began| now - began >= patience)
}

impl Actor for DiskWatch {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let now = ctx.clock().now();
        for Leftover { path, age } in std::mem::take(&mut self.found) {
            self.schedule.add(path, age, now);
        }
        self.look(ctx);
        ctx.every(self.watch_interval, Self::look);
        if self.output_max > 0 {
            ctx.every(OUTPUT_INTERVAL, Self::bound_output);
        }
    }
}

impl Process for DiskWatch {}

impl Handler<RunEnded> for DiskWatch {
    type Result = ();
    fn handle(&mut self, RunEnded(path): RunEnded, ctx: &mut Context<Self>) {
        self.schedule
            .add(path.clone(), Duration::ZERO, ctx.clock().now());
        self.remove(ctx);
        self.ended.push(path);
        self.touch(ctx);
    }
}

impl Handler<WriteFailed> for DiskWatch {
    type Result = ();
    fn handle(&mut self, _: WriteFailed, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        if self
            .looked
            .is_none_or(|looked| now - looked >= TEST_INTERVAL)
        {
            self.look(ctx);
        }
    }
}

impl Handler<ReportWrites> for DiskWatch {
    type Result = ();
    fn handle(&mut self, ReportWrites(agent): ReportWrites, _: &mut Context<Self>) {
        self.agent = Some(agent);
        if self.write_error.is_some() {
            self.report();
        }
    }
}

impl Handler<CountRemovals> for DiskWatch {
    type Result = MessageResult<CountRemovals>;
    fn handle(&mut self, _: CountRemovals, _: &mut Context<Self>) -> Self::Result {
        MessageResult(DiskFigures {
            removals_succeeded: self.succeeded,
            removals_failed: self.failed,
            removals_pending: self.schedule.pending() as u64,
            max_age: self.max_age,
        })
    }
}
