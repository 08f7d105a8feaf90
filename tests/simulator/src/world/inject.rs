//! Inject: faults, done to the world at their times and undone afterwards.
//!
//! Remembers nothing: what a fault changes is in the weather or in the member it concerns, which count the faults that are
//! under way, so that two of a kind may overlap. A fault of a node that does not exist changes nothing.

use std::time::Duration;

use super::World;
use crate::event::What;
use crate::network::weather::Sky;
use crate::scenario::{Fault, FaultKind};

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
                world.begin_fault(&fault);
                ground.clock.sleep(fault.lasts).await;
                world.end_fault(&fault);
                ground.watch.fact(What::FaultEnded(&fault));
            });
        }
    }

    fn begin_fault(&self, fault: &Fault) {
        let (ground, kind) = (&self.0.ground, &fault.kind);
        let until = fault.at + fault.lasts;
        match kind {
            FaultKind::Weather { node, .. } => {
                ground.air.change(|weather| weather.cloud(node, sky(kind)));
            }
            FaultKind::Partition { one, other } => {
                ground.air.change(|weather| {
                    weather.block(one, other);
                    weather.block(other, one);
                });
                ground.local.watch_silence(one, other);
                ground.local.watch_silence(other, one);
            }
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
            FaultKind::Restart { node } => {
                self.with_member(node, |member| member.held_down += 1);
                self.stop(node);
            }
            FaultKind::SlowDisk { node, by } => self.slow_disk(node, *by),
            FaultKind::FailingDisk { node } => self.with_member(node, |member| member.disk.fail()),
            FaultKind::WallJump { node, seconds } => self.jump(node, *seconds),
        }
    }

    fn end_fault(&self, fault: &Fault) {
        let (ground, kind) = (&self.0.ground, &fault.kind);
        let until = fault.at + fault.lasts;
        match kind {
            FaultKind::Weather { node, .. } => {
                ground.air.change(|weather| weather.clear(node, sky(kind)));
            }
            FaultKind::Partition { one, other } => ground.air.change(|weather| {
                weather.open(one, other);
                weather.open(other, one);
            }),
            FaultKind::OneWay { from, to } => ground.air.change(|weather| weather.open(from, to)),
            FaultKind::SlowReader { node } => {
                ground.air.change(|weather| weather.hear_again(node, until));
            }
            FaultKind::Crash { node } | FaultKind::Restart { node } => {
                self.with_member(node, |member| member.held_down -= 1);
                self.start(node);
            }
            FaultKind::SlowDisk { node, .. } => self.slow_disk(node, Duration::ZERO),
            FaultKind::FailingDisk { node } => self.with_member(node, |member| member.disk.mend()),
            FaultKind::WallJump { node, .. } => self.jump(node, 0),
        }
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
