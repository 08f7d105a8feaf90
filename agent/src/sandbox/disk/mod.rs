//! Disk watch: removes leftovers of ended executors, bounds the output of live ones, and detects a
//! work directory that takes no writes.
//!
//! Handles [`RunEnded`] and [`WriteFailed`] from the containerizer and asks it for the sandboxes in
//! use. Reports each change of the work directory's state to the agent. Owns the
//! [`RemovalSchedule`], which each process rebuilds from the directories that it finds. A sandbox
//! is a leftover once its executor has ended and every terminal update is acknowledged.

pub mod leftovers;
pub mod output;
pub mod removal_schedule;
pub mod space;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime::prelude::*;
use runtime::{Instant, Process};

use self::leftovers::Leftover;
use crate::agent::{Agent, WorkDirWrites};
use crate::config::Config;
use crate::container::Containerizer;
use crate::container::events::SandboxesInUse;
use crate::sandbox::disk::removal_schedule::{RemovalSchedule, max_age};
use crate::sandbox::kept::Sandboxes;

/// Directories removed in one blocking job.
const REMOVALS_AT_ONCE: usize = 64;
/// Interval of output checks; a task may exceed its bound in between.
const OUTPUT_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of test writes while they fail, and minimum interval of those requested by failed
/// sandboxes.
const TEST_INTERVAL: Duration = Duration::from_secs(1);
/// A test write that takes this many intervals, of at least this length, has failed: the disk
/// hangs.
const CHECK_INTERVALS_MAX: u32 = 3;
const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// An executor run is over; its sandbox is a leftover.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct RunEnded(pub PathBuf);

/// A write to the work directory failed.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct WriteFailed;

/// Requests a report of each change from now on.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ReportWrites(pub Handle<Agent>);

/// Requests the counts of removals.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "DiskMetrics")]
pub struct CountRemovals;

/// Counts for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskMetrics {
    /// Removed leftovers.
    pub removals_succeeded: u64,
    /// Failed removals; the next process retries them.
    pub removals_failed: u64,
    /// Leftovers that are not due.
    pub removals_pending: u64,
    /// The present maximum age of a leftover.
    pub max_age: Duration,
}

/// The disk watch actor.
pub struct DiskWatch {
    work_dir: PathBuf,
    gc_delay: Duration,
    headroom: f64,
    watch_interval: Duration,
    /// In bytes; zero for no bound.
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
    /// Ended runs that need a new modification time.
    ended: Vec<PathBuf>,
    is_touching: bool,
    /// Whether a disk check is running.
    is_checking: bool,
    checked: Option<Instant>,
    /// Whether an output check is running.
    is_bounding: bool,
    /// Why the work directory takes no writes, if so.
    write_error: Option<String>,
    /// Whether the next test write is scheduled.
    is_retesting: bool,
}

impl DiskWatch {
    /// A disk watch with these initial leftovers.
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
            is_checking: false,
            checked: None,
            is_bounding: false,
            write_error: None,
            is_retesting: false,
        }
    }

    /// Checks disk usage and writability, then removes leftovers that are due.
    fn check(&mut self, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        if std::mem::replace(&mut self.is_checking, true) {
            if is_hanging(self.checked, now, self.watch_interval) {
                self.record_write(Err("a test write hangs".to_owned()), ctx);
            }
            return;
        }
        self.checked = Some(now);
        let (sandboxes, work_dir) = (self.sandboxes.clone(), self.work_dir.clone());
        let check = move || {
            let written = sandboxes.test_write(&work_dir);
            (sandboxes.usage(&work_dir), written)
        };
        let checked = ctx.node().blocking(check);
        ctx.then(checked, |this, checked, ctx| {
            this.is_checking = false;
            let Ok((usage, written)) = checked else {
                return;
            };
            match usage {
                Ok(usage) => this.max_age = max_age(this.gc_delay, this.headroom, usage),
                Err(error) => tracing::warn!(%error, "disk usage of the work directory unknown"),
            }
            this.schedule.expire(this.max_age, ctx.clock().now());
            this.remove(ctx);
            this.record_write(written.map_err(|error| error.to_string()), ctx);
        });
    }

    /// Reports whether the work directory takes writes, if that has changed.
    fn record_write(&mut self, written: Result<(), String>, ctx: &mut Context<Self>) {
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
                this.check(ctx);
            });
        }
    }

    fn report(&self) {
        if let Some(agent) = &self.agent {
            agent.tell_always(WorkDirWrites(self.write_error.clone().map_or(Ok(()), Err)));
        }
    }

    /// Removes due leftovers in batches.
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

    /// Sets the modification time of ended runs, from which their age counts.
    fn touch(&mut self, ctx: &mut Context<Self>) {
        if self.ended.is_empty() || std::mem::replace(&mut self.is_touching, true) {
            return;
        }
        let (sandboxes, now) = (self.sandboxes.clone(), ctx.clock().wall());
        let ended = std::mem::take(&mut self.ended);
        let touch = move || {
            for sandbox in ended {
                // On failure the age counts from the last change.
                let _ = sandboxes.touch(&sandbox, now);
            }
        };
        let touched = ctx.node().blocking(touch);
        ctx.then(touched, |this, _, ctx| {
            this.is_touching = false;
            this.touch(ctx);
        });
    }

    /// Bounds the output of live executors.
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

/// Whether a disk check that is still running has taken too long.
fn is_hanging(began: Option<Instant>, now: Instant, interval: Duration) -> bool {
    let patience = interval.max(CHECK_INTERVAL_MIN) * CHECK_INTERVALS_MAX;
    began.is_some_and(|began| now - began >= patience)
}

impl Actor for DiskWatch {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let now = ctx.clock().now();
        for Leftover { path, age } in std::mem::take(&mut self.found) {
            self.schedule.add(path, age, now);
        }
        self.check(ctx);
        ctx.every(self.watch_interval, Self::check);
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
            .checked
            .is_none_or(|checked| now - checked >= TEST_INTERVAL)
        {
            self.check(ctx);
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
        MessageResult(DiskMetrics {
            removals_succeeded: self.succeeded,
            removals_failed: self.failed,
            removals_pending: self.schedule.pending() as u64,
            max_age: self.max_age,
        })
    }
}
