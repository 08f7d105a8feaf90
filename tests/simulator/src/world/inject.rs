//! Inject: faults, done to the world at their times and undone afterwards.
//!
//! Remembers nothing: what a fault changes is in the weather or in the member it concerns, which count the faults that are
//! under way, so that two of a kind may overlap. A fault of a node that does not exist changes nothing.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::rehearsal::let_fall;

use super::roles::Present;
use super::{Kind, World};
use crate::checkers::WANTED;
use crate::event::What;
use crate::network::weather::Sky;
use crate::scenario::{Fault, FaultKind, Step};

/// A process that hears nothing more has handled everything after so long.
const SETTLED_AFTER: Duration = Duration::from_millis(1);
/// Masters that are to panic do so on average after so long.
const PANIC_EVERY: Duration = Duration::from_secs(2);

impl World {
    /// Lets every fault of the plan happen at its time. To be called at the start of the run.
    pub fn inject(&self, faults: &[Fault]) {
        for fault in faults {
            let (world, fault) = (self.clone(), fault.clone());
            tokio::task::spawn_local(async move {
                let ground = &world.0.ground;
                ground
                    .clock
                    .sleep(fault.at.saturating_sub(ground.now()))
                    .await;
                ground.watch.fact(What::FaultBegan(&fault));
                let meant = world.meant(&fault.kind);
                let until = fault.at + fault.lasts;
                meant.iter().for_each(|kind| world.begin_fault(kind, until));
                ground.clock.sleep(fault.lasts).await;
                meant.iter().for_each(|kind| world.end_fault(kind, until));
                ground.watch.fact(What::FaultEnded(&fault));
            });
        }
    }

    /// The faults of single nodes that this one means now.
    fn meant(&self, kind: &FaultKind) -> Vec<FaultKind> {
        let everyone: Vec<String> = self.0.members.borrow().keys().cloned().collect();
        let leader = self.0.ground.watch.acting();
        let present = Present {
            masters: &self.0.masters,
            leader: leader.as_deref(),
            everyone: &everyone,
        };
        present.meant(kind)
    }

    fn begin_fault(&self, kind: &FaultKind, until: Duration) {
        let ground = &self.0.ground;
        match kind {
            FaultKind::Weather { node, .. } => {
                ground.air.change(|weather| weather.cloud(node, sky(kind)));
            }
            FaultKind::Partition { one, other } => self.cut(one, other),
            FaultKind::OneWay { from, to } => {
                ground.air.change(|weather| weather.block(from, to));
                ground.local.watch_silence(from, to);
            }
            FaultKind::SlowReader { node } => {
                ground.air.change(|weather| weather.deafen(node, until));
            }
            FaultKind::Crash { node } => {
                self.with_member(node, |member| member.held_down += 1);
                self.crash(node);
            }
            FaultKind::Fall { node } if self.is_agent(node) => {
                self.with_member(node, |member| member.held_down += 1);
                self.fall(node);
            }
            FaultKind::Fall { .. } => {}
            FaultKind::CrashAt { node, step, count } => self.set_snare(node, *step, *count),
            FaultKind::Pause { node } => {
                ground.air.change(|weather| weather.deafen(node, until));
                self.pause(node, until);
            }
            FaultKind::Flap { node, every } => self.flap(node, *every, until),
            FaultKind::Restart { node } => {
                self.with_member(node, |member| member.held_down += 1);
                self.stop(node);
            }
            FaultKind::SlowDisk { node, by } => self.slow_disk(node, *by),
            FaultKind::Rewind { node } if self.is_of_group(node) => {
                self.with_member(node, |member| member.disk.copy());
            }
            FaultKind::Rewind { .. } => {}
            FaultKind::FailingDisk { node } => self.with_member(node, |member| member.disk.fail()),
            FaultKind::WallJump { node, seconds } => self.jump(node, *seconds),
            FaultKind::Drift { node, ppm } => self.drift(node, *ppm),
            FaultKind::KillExecutor { node } => self.kill_executor(node),
            FaultKind::Busy { node } => self.occupy(node, true),
            FaultKind::Lie { node } => self.with_member(node, |member| member.lies.change(true)),
            FaultKind::Panic { node } if self.is_of_group(node) => self.panic(node, until),
            FaultKind::Panic { .. } => {}
            FaultKind::Ration { .. } => self.ration(until),
            FaultKind::Maintain { node } if self.is_agent(node) => self.maintain(node, until),
            FaultKind::Maintain { .. } => {}
        }
    }

    fn end_fault(&self, kind: &FaultKind, until: Duration) {
        let ground = &self.0.ground;
        match kind {
            FaultKind::Weather { node, .. } => {
                ground.air.change(|weather| weather.clear(node, sky(kind)));
            }
            FaultKind::Partition { one, other } => self.mend(one, other),
            FaultKind::OneWay { from, to } => ground.air.change(|weather| weather.open(from, to)),
            FaultKind::SlowReader { node } | FaultKind::Pause { node } => {
                ground.air.change(|weather| weather.hear_again(node, until));
            }
            FaultKind::Crash { node } | FaultKind::Restart { node } => {
                self.with_member(node, |member| member.held_down -= 1);
                self.start(node);
            }
            FaultKind::Fall { node } if self.is_agent(node) => {
                self.with_member(node, |member| member.held_down -= 1);
                self.start(node);
            }
            FaultKind::Fall { .. } => {}
            FaultKind::CrashAt { node, .. } => {
                ground.watch.spare(node);
                self.with_member(node, |member| {
                    member.disk.clear_snares();
                    member.snares -= 1;
                    member.held_down -= u32::from(std::mem::take(&mut member.sprung));
                });
                self.start(node);
            }
            // They end by themselves.
            FaultKind::Flap { .. }
            | FaultKind::Panic { .. }
            | FaultKind::Ration { .. }
            | FaultKind::Maintain { .. } => {}
            FaultKind::SlowDisk { node, .. } => self.slow_disk(node, Duration::ZERO),
            FaultKind::Rewind { node } if self.is_of_group(node) => {
                self.crash(node);
                self.with_member(node, |member| {
                    if let Some(old) = member.disk.put_back() {
                        member.disk = old;
                        ground.watch.fact(What::DiskPutBack { node });
                    }
                });
                self.start(node);
            }
            FaultKind::Rewind { .. } => {}
            FaultKind::FailingDisk { node } => self.with_member(node, |member| member.disk.mend()),
            FaultKind::WallJump { node, .. } => self.jump(node, 0),
            FaultKind::Drift { node, .. } => self.drift(node, 0),
            FaultKind::KillExecutor { node } => self.with_member(node, |member| {
                member.doomed.set(member.doomed.get().saturating_sub(1));
            }),
            FaultKind::Busy { node } => self.occupy(node, false),
            FaultKind::Lie { node } => self.with_member(node, |member| member.lies.change(false)),
        }
    }

    fn is_agent(&self, name: &str) -> bool {
        let members = self.0.members.borrow();
        let member = members.get(name);
        member.is_some_and(|member| matches!(member.kind, Kind::Agent { .. }))
    }

    fn is_of_group(&self, name: &str) -> bool {
        let masters = &self.0.masters;
        masters.len() > 1 && masters.iter().any(|master| master == name)
    }

    fn cut(&self, one: &str, other: &str) {
        let ground = &self.0.ground;
        ground.air.change(|weather| {
            weather.block(one, other);
            weather.block(other, one);
        });
        ground.local.watch_silence(one, other);
        ground.local.watch_silence(other, one);
    }

    fn mend(&self, one: &str, other: &str) {
        self.0.ground.air.change(|weather| {
            weather.open(one, other);
            weather.open(other, one);
        });
    }

    /// Waits for a step of the node, at which it is crashed.
    fn set_snare(&self, name: &str, step: Step, count: u32) {
        let watch = self.0.ground.watch.clone();
        self.with_member(name, |member| member.snares += 1);
        match step {
            Step::Packet => watch.doom_after(name, count),
            Step::Write => self.with_member(name, |member| {
                let name = name.to_owned();
                member.disk.snare(count, move || watch.doom(&name));
            }),
        }
    }

    /// Pauses the node's process from the next millisecond on, when it has handled all that it has heard, until that time.
    fn pause(&self, name: &str, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            let ground = &world.0.ground;
            ground.clock.sleep(SETTLED_AFTER).await;
            let process = world.process(&name);
            process.iter().for_each(|process| process.pause());
            ground.clock.sleep(until.saturating_sub(ground.now())).await;
            process.iter().for_each(|process| process.resume());
        });
    }

    /// Cuts the node off the masters and lets it back, again and again.
    fn flap(&self, name: &str, every: Duration, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            let ground = &world.0.ground;
            let others: Vec<&String> = world.0.masters.iter().filter(|one| **one != name).collect();
            while ground.now() < until {
                let left = until.saturating_sub(ground.now());
                others.iter().for_each(|other| world.cut(&name, other));
                ground.clock.sleep(every.min(left)).await;
                others.iter().for_each(|other| world.mend(&name, other));
                ground.clock.sleep(every).await;
            }
        });
    }

    /// The master that acts there panics now, and so does each that follows it there until that time.
    fn panic(&self, name: &str, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        let mut rng = SmallRng::seed_from_u64(self.0.rng.borrow_mut().random());
        let words = format!("a fault lets it panic, {WANTED}");
        tokio::task::spawn_local(async move {
            let ground = &world.0.ground;
            while ground.now() < until {
                world.with_member(&name, |member| {
                    if let Some(life) = &member.life {
                        let_fall(&life.node, "master", &words);
                    }
                });
                let pause = PANIC_EVERY.mul_f64(rng.random_range(0.1..1.9));
                let left = until.saturating_sub(ground.now());
                ground.clock.sleep(pause.min(left)).await;
            }
        });
    }

    fn slow_disk(&self, name: &str, by: Duration) {
        self.with_member(name, |member| {
            member.slow = by;
            if let Some(life) = &member.life {
                life.node.slow_blocking(by);
            }
        });
    }

    fn jump(&self, name: &str, seconds: i64) {
        let ground = self.0.ground.clone();
        self.with_member(name, |member| {
            member.wall = seconds;
            if let Some(life) = &member.life {
                ground.set_wall(&life.clock, seconds);
            }
        });
    }

    /// Lets the node's clock drift; one that does so no more has its wall time set, as a time server would.
    fn drift(&self, name: &str, ppm: i32) {
        let ground = self.0.ground.clone();
        self.with_member(name, |member| {
            member.drift = ppm;
            if let Some(life) = &member.life {
                life.clock.set_drift(ppm);
                if ppm == 0 {
                    ground.set_wall(&life.clock, member.wall);
                }
            }
        });
    }

    /// An executor of the agent dies: one that runs now, or else the first that starts before the fault is over.
    fn kill_executor(&self, name: &str) {
        let chance = self.0.rng.borrow_mut().random();
        self.with_member(name, |member| {
            let machine = member.machine.as_ref();
            let killed = machine.is_some_and(|one| one.kill_one(chance));
            member.doomed.set(member.doomed.get() + u32::from(!killed));
        });
    }

    /// One fault more, or less, that keeps the agent's machine busy.
    fn occupy(&self, name: &str, begins: bool) {
        let mut changed = false;
        self.with_member(name, |member| {
            if !matches!(member.kind, Kind::Agent { .. }) {
                return;
            }
            let before = member.busy > 0;
            match begins {
                true => member.busy += 1,
                false => member.busy -= 1,
            }
            let busy = member.busy > 0;
            changed = before != busy;
            if let Some(machine) = &member.machine {
                machine.set_busy(busy);
            }
        });
        if changed {
            let busy = What::MachineBusy {
                agent: name,
                busy: begins,
            };
            self.0.ground.watch.fact(busy);
        }
    }
}

fn sky(kind: &FaultKind) -> Sky {
    match kind {
        FaultKind::Weather {
            loss,
            duplication,
            latency_max,
            ..
        } => Sky {
            loss: *loss,
            duplication: *duplication,
            latency_max: *latency_max,
        },
        _ => Sky::default(),
    }
}
