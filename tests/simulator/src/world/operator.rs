//! An operator's requests to the leading master during a fault.
//!
//! They are sent on the master's own node, independent of the network. Every change is undone, for
//! as long as that takes.

use std::time::Duration;

use protocol::maintenance::Window;
use protocol::message::operator::{
    StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule, UpdateRefused,
    ViewMaintenanceSchedule,
};
use protocol::{MachineId, Unavailability};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::Remote;

use super::World;
use crate::load::quota_changes;

/// Average interval between an operator's changes.
const RATION_EVERY: Duration = Duration::from_secs(25);
/// Share of the time in which maintenance is announced before the machine goes down.
const ANNOUNCED: f64 = 0.2;
/// Timeout of a request, and the pause before it is repeated.
const ASK_PATIENCE: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Time after the end of the maintenance until the operator assumes that a machine is up.
const SURE_AFTER: Duration = Duration::from_secs(120);

impl World {
    /// Changes quotas and weights until that time, and then removes the quotas.
    pub(super) fn ration(&self, until: Duration) {
        let world = self.clone();
        let mut rng = SmallRng::seed_from_u64(self.0.rng.borrow_mut().random());
        tokio::task::spawn_local(async move {
            let env = &world.0.env;
            while env.now() < until {
                world.operate(quota_changes::quotas(&mut rng)).await;
                world.operate(quota_changes::weights(&mut rng)).await;
                let pause = RATION_EVERY.mul_f64(rng.random_range(0.2..1.8));
                let left = until.saturating_sub(env.now());
                env.clock.sleep(pause.min(left)).await;
            }
            // Repeated until it succeeds: a guarantee that stays would be kept free for ever.
            while !matches!(world.operate(quota_changes::none()).await, Some(Ok(()))) {
                env.clock.sleep(ASK_AGAIN).await;
            }
        });
    }

    /// Announces maintenance of the agent's machine, takes it down, and brings it up at that time.
    pub(super) fn maintain(&self, agent: &str, until: Duration) {
        let (host, _) = self.0.env.place(agent);
        let Ok(machine) = MachineId::new(&host, "") else {
            return;
        };
        let world = self.clone();
        tokio::task::spawn_local(async move {
            let env = &world.0.env;
            let left = || until.saturating_sub(env.now());
            while !left().is_zero() {
                if world.announce(&machine, left()).await {
                    env.clock.sleep(left().mul_f64(ANNOUNCED)).await;
                    let machines = vec![machine.clone()];
                    let down = world.operate(StartMaintenance { machines }).await;
                    if matches!(down, Some(Ok(()))) {
                        env.clock.sleep(left()).await;
                    }
                }
                env.clock.sleep(ASK_AGAIN.min(left())).await;
            }
            // Repeated until it succeeds: otherwise an agent there never registers again. A master
            // of an earlier term, or one that has not taken the machine down yet, may answer that
            // the machine is not down.
            loop {
                let machines = vec![machine.clone()];
                let is_over = env.now() > until + SURE_AFTER;
                match world.operate(StopMaintenance { machines }).await {
                    Some(Ok(())) => break,
                    Some(Err(UpdateRefused::Invalid { .. })) if is_over => break,
                    _ => env.clock.sleep(ASK_AGAIN).await,
                }
            }
        });
    }

    /// Whether this machine is in the schedule now, beside the previous ones.
    async fn announce(&self, machine: &MachineId, away: Duration) -> bool {
        let Some(Ok(mut windows)) = self.operate(ViewMaintenanceSchedule).await else {
            return false;
        };
        if windows
            .iter()
            .any(|window| window.machines.contains(machine))
        {
            return true;
        }
        windows.push(Window {
            machines: vec![machine.clone()],
            unavailability: Unavailability {
                start: self.0.env.clock.wall(),
                duration: Some(away),
            },
        });
        let scheduled = self.operate(UpdateMaintenanceSchedule { windows }).await;
        matches!(scheduled, Some(Ok(())))
    }

    /// The leading master's reply to an operator; none if there is no leader, or no reply in time.
    async fn operate<M: Remote>(&self, wish: M) -> Option<M::Result> {
        let env = &self.0.env;
        let name = env.watch.acting()?;
        let node = {
            let members = self.0.members.borrow();
            members.get(&name)?.life.as_ref()?.node.clone()
        };
        let asked = node.ask(&node.whereis("master")?, wish, ASK_PATIENCE);
        env.clock.timeout(ASK_PATIENCE, asked).await.ok()?.ok()
    }
}
