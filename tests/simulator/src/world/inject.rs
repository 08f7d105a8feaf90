//! Applies faults to the world at their times and undoes them.
//!
//! The state of faults is in the network or the affected member, which count active faults, so that
//! two of a kind may overlap. A fault of an unknown node has no effect.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::testing::inject_panic;

use super::roles::Present;
use super::{Kind, World};
use crate::checkers::WANTED;
use crate::event::EventKind;
use crate::scenario::{Fault, FaultKind, Step};
use crate::world::network::faults::PacketFaults;

/// A process that receives nothing more has handled everything after this time.
const SETTLED_AFTER: Duration = Duration::from_millis(1);
/// Average interval of injected panics.
const PANIC_EVERY: Duration = Duration::from_secs(2);

impl World {
    /// Schedules every fault of the plan. Call it at the start of the run.
    pub fn inject(&self, faults: &[Fault]) {
        for fault in faults {
            let (world, fault) = (self.clone(), fault.clone());
            tokio::task::spawn_local(async move {
                let env = &world.0.env;
                env.clock.sleep(fault.at.saturating_sub(env.now())).await;
                env.watch.fact(EventKind::FaultBegan(&fault));
                let resolved = world.resolved(&fault.kind);
                let until = fault.at + fault.lasts;
                resolved
                    .iter()
                    .for_each(|kind| world.begin_fault(kind, until));
                env.clock.sleep(fault.lasts).await;
                resolved
                    .iter()
                    .for_each(|kind| world.end_fault(kind, until));
                env.watch.fact(EventKind::FaultEnded(&fault));
            });
        }
    }

    /// The faults of single nodes that this one stands for now.
    fn resolved(&self, kind: &FaultKind) -> Vec<FaultKind> {
        let everyone: Vec<String> = self.0.members.borrow().keys().cloned().collect();
        let leader = self.0.env.watch.acting();
        let present = Present {
            masters: &self.0.masters,
            leader: leader.as_deref(),
            everyone: &everyone,
        };
        present.resolved(kind)
    }

    fn begin_fault(&self, kind: &FaultKind, until: Duration) {
        let env = &self.0.env;
        match kind {
            FaultKind::PacketFaults { node, .. } => {
                env.shared_network
                    .change(|faults| faults.add_packet_faults(node, packet_faults(kind)));
            }
            FaultKind::Partition { one, other } => self.cut(one, other),
            FaultKind::OneWay { from, to } => {
                env.shared_network.change(|faults| faults.block(from, to));
                env.local.watch_silence(from, to);
            }
            FaultKind::SlowReader { node } => {
                env.shared_network
                    .change(|faults| faults.stop_reading(node, until));
            }
            FaultKind::Crash { node } => {
                self.with_member(node, |member| member.held_down += 1);
                self.crash(node);
            }
            FaultKind::CrashProcess { node } if self.is_agent(node) => {
                self.with_member(node, |member| member.held_down += 1);
                self.crash_agent_process(node);
            }
            FaultKind::CrashProcess { .. } => {}
            FaultKind::CrashAt { node, step, count } => {
                self.wait_for_crash_point(node, *step, *count)
            }
            FaultKind::Pause { node } => {
                env.shared_network
                    .change(|faults| faults.stop_reading(node, until));
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
            FaultKind::Isolation { node } => self.disturb_isolation(node, 1),
            FaultKind::Lie { node } => {
                self.with_member(node, |member| member.sorter_faults.change(true))
            }
            FaultKind::Panic { node } if self.is_of_group(node) => self.panic(node, until),
            FaultKind::Panic { .. } => {}
            FaultKind::ChangeQuotas { .. } => self.ration(until),
            FaultKind::Maintain { node } if self.is_agent(node) => self.maintain(node, until),
            FaultKind::Maintain { .. } => {}
        }
    }

    fn end_fault(&self, kind: &FaultKind, until: Duration) {
        let env = &self.0.env;
        match kind {
            FaultKind::PacketFaults { node, .. } => {
                env.shared_network
                    .change(|faults| faults.remove_packet_faults(node, packet_faults(kind)));
            }
            FaultKind::Partition { one, other } => self.mend(one, other),
            FaultKind::OneWay { from, to } => {
                env.shared_network.change(|faults| faults.open(from, to))
            }
            FaultKind::SlowReader { node } | FaultKind::Pause { node } => {
                env.shared_network
                    .change(|faults| faults.resume_reading(node, until));
            }
            FaultKind::Crash { node } | FaultKind::Restart { node } => {
                self.with_member(node, |member| member.held_down -= 1);
                self.start(node);
            }
            FaultKind::CrashProcess { node } if self.is_agent(node) => {
                self.with_member(node, |member| member.held_down -= 1);
                self.start(node);
            }
            FaultKind::CrashProcess { .. } => {}
            FaultKind::CrashAt { node, .. } => {
                env.watch.spare(node);
                self.with_member(node, |member| {
                    member.disk.clear_crash_points();
                    member.crash_points -= 1;
                    member.held_down -= u32::from(std::mem::take(&mut member.reached));
                });
                self.start(node);
            }
            // They end by themselves.
            FaultKind::Flap { .. }
            | FaultKind::Panic { .. }
            | FaultKind::ChangeQuotas { .. }
            | FaultKind::Maintain { .. } => {}
            FaultKind::SlowDisk { node, .. } => self.slow_disk(node, Duration::ZERO),
            FaultKind::Rewind { node } if self.is_of_group(node) => {
                self.crash(node);
                self.with_member(node, |member| {
                    if member.disk.put_back() {
                        env.watch.fact(EventKind::DiskReset { node });
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
            FaultKind::Isolation { node } => self.disturb_isolation(node, -1),
            FaultKind::Lie { node } => {
                self.with_member(node, |member| member.sorter_faults.change(false))
            }
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
        let env = &self.0.env;
        env.shared_network.change(|faults| {
            faults.block(one, other);
            faults.block(other, one);
        });
        env.local.watch_silence(one, other);
        env.local.watch_silence(other, one);
    }

    fn mend(&self, one: &str, other: &str) {
        self.0.env.shared_network.change(|faults| {
            faults.open(one, other);
            faults.open(other, one);
        });
    }

    /// Waits for a step of the node, at which it crashes.
    fn wait_for_crash_point(&self, name: &str, step: Step, count: u32) {
        let watch = self.0.env.watch.clone();
        self.with_member(name, |member| member.crash_points += 1);
        match step {
            Step::Packet => watch.doom_after(name, count),
            Step::Write => self.with_member(name, |member| {
                let name = name.to_owned();
                member
                    .disk
                    .set_crash_point(count, false, move || watch.doom(&name));
            }),
        }
    }

    /// Pauses the node's process until that time, from the next millisecond on, when it has handled
    /// all received messages.
    fn pause(&self, name: &str, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            let env = &world.0.env;
            env.clock.sleep(SETTLED_AFTER).await;
            let process = world.process(&name);
            process.iter().for_each(|process| process.pause());
            env.clock.sleep(until.saturating_sub(env.now())).await;
            process.iter().for_each(|process| process.resume());
        });
    }

    /// Cuts the node off from the masters and reconnects it, repeatedly.
    fn flap(&self, name: &str, every: Duration, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            let env = &world.0.env;
            let others: Vec<&String> = world.0.masters.iter().filter(|one| **one != name).collect();
            while env.now() < until {
                let left = until.saturating_sub(env.now());
                others.iter().for_each(|other| world.cut(&name, other));
                env.clock.sleep(every.min(left)).await;
                others.iter().for_each(|other| world.mend(&name, other));
                env.clock.sleep(every).await;
            }
        });
    }

    /// Makes the node's leading master panic now, and each of its successors there until that time.
    fn panic(&self, name: &str, until: Duration) {
        let (world, name) = (self.clone(), name.to_owned());
        let mut rng = SmallRng::seed_from_u64(self.0.rng.borrow_mut().random());
        let words = format!("a fault lets it panic, {WANTED}");
        tokio::task::spawn_local(async move {
            let env = &world.0.env;
            while env.now() < until {
                world.with_member(&name, |member| {
                    if let Some(life) = &member.life {
                        inject_panic(&life.node, "master", &words);
                    }
                });
                let pause = PANIC_EVERY.mul_f64(rng.random_range(0.1..1.9));
                let left = until.saturating_sub(env.now());
                env.clock.sleep(pause.min(left)).await;
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
        let env = self.0.env.clone();
        self.with_member(name, |member| {
            member.wall = seconds;
            if let Some(life) = &member.life {
                env.set_wall(&life.clock, seconds);
            }
        });
    }

    /// Sets the drift of the node's clock; at the end its wall time is corrected, as by a time
    /// server.
    fn drift(&self, name: &str, ppm: i32) {
        let env = self.0.env.clone();
        self.with_member(name, |member| {
            member.drift = ppm;
            if let Some(life) = &member.life {
                life.clock.set_drift(ppm);
                if ppm == 0 {
                    env.set_wall(&life.clock, member.wall);
                }
            }
        });
    }

    /// Kills an executor of the agent: a running one, or else the first one started before the
    /// fault ends.
    fn kill_executor(&self, name: &str) {
        let chance = self.0.rng.borrow_mut().random();
        self.with_member(name, |member| {
            let machine = member.machine.as_ref();
            let killed = machine.is_some_and(|one| one.kill_one(chance));
            member.doomed.set(member.doomed.get() + u32::from(!killed));
        });
    }

    /// Adds or removes a fault of the isolators on the agent's machine.
    fn disturb_isolation(&self, name: &str, more: i32) {
        self.with_member(name, |member| {
            member.isolation_faults += more;
            if let Some(machine) = &member.machine {
                machine.isolation().set_faulty(member.isolation_faults > 0);
            }
        });
    }

    /// Adds or removes a fault that keeps the agent's machine busy.
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
            let busy = EventKind::MachineBusy {
                agent: name,
                busy: begins,
            };
            self.0.env.watch.fact(busy);
        }
    }
}

fn packet_faults(kind: &FaultKind) -> PacketFaults {
    match kind {
        FaultKind::PacketFaults {
            loss,
            duplication,
            latency_max,
            ..
        } => PacketFaults {
            loss: *loss,
            duplication: *duplication,
            latency_max: *latency_max,
        },
        _ => PacketFaults::default(),
    }
}
