//! Operator: what somebody who runs the cluster asks of whichever master acts, while a fault wants it.
//!
//! Asks on the master's own node, so that no network stands between. What it has begun it takes back, for as long as that takes. It sees
//! nothing but answers.

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
use crate::load::rations;

/// An operator changes its mind on average after so long.
const RATION_EVERY: Duration = Duration::from_secs(25);
/// A machine that is to be away is announced for this part of the time.
const ANNOUNCED: f64 = 0.2;
/// An operator waits so long for an answer, and so long before it asks again.
const ASK_PATIENCE: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// So long after it is to be back, an operator believes that a machine is not down.
const SURE_AFTER: Duration = Duration::from_secs(120);

impl World {
    /// Has an operator change quotas and weights until that time, and then take the quotas back.
    pub(super) fn ration(&self, until: Duration) {
        let world = self.clone();
        let mut rng = SmallRng::seed_from_u64(self.0.rng.borrow_mut().random());
        tokio::task::spawn_local(async move {
            let ground = &world.0.ground;
            while ground.now() < until {
                world.operate(rations::quotas(&mut rng)).await;
                world.operate(rations::weights(&mut rng)).await;
                let pause = RATION_EVERY.mul_f64(rng.random_range(0.2..1.8));
                let left = until.saturating_sub(ground.now());
                ground.clock.sleep(pause.min(left)).await;
            }
            // For as long as it takes: what stays guaranteed for ever would stay free for ever.
            while !matches!(world.operate(rations::none()).await, Some(Ok(()))) {
                ground.clock.sleep(ASK_AGAIN).await;
            }
        });
    }

    /// Has an operator announce that the agent's machine will be away, take it down, and bring it back at that time.
    pub(super) fn maintain(&self, agent: &str, until: Duration) {
        let (host, _) = self.0.ground.place(agent);
        let Ok(machine) = MachineId::new(&host, "") else {
            return;
        };
        let world = self.clone();
        tokio::task::spawn_local(async move {
            let ground = &world.0.ground;
            let left = || until.saturating_sub(ground.now());
            while !left().is_zero() {
                if world.announce(&machine, left()).await {
                    ground.clock.sleep(left().mul_f64(ANNOUNCED)).await;
                    let machines = vec![machine.clone()];
                    let down = world.operate(StartMaintenance { machines }).await;
                    if matches!(down, Some(Ok(()))) {
                        ground.clock.sleep(left()).await;
                    }
                }
                ground.clock.sleep(ASK_AGAIN.min(left())).await;
            }
            // For as long as it takes: an agent there is never taken in again. That it is not down may be said by a master of an earlier reign which knows
            // nothing of it, or before a question that nobody answered takes it down.
            loop {
                let machines = vec![machine.clone()];
                let is_over = ground.now() > until + SURE_AFTER;
                match world.operate(StopMaintenance { machines }).await {
                    Some(Ok(())) => break,
                    Some(Err(UpdateRefused::Invalid { .. })) if is_over => break,
                    _ => ground.clock.sleep(ASK_AGAIN).await,
                }
            }
        });
    }

    /// Whether this machine is in the schedule now, beside those that were.
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
                start: self.0.ground.clock.wall(),
                duration: Some(away),
            },
        });
        let scheduled = self.operate(UpdateMaintenanceSchedule { windows }).await;
        matches!(scheduled, Some(Ok(())))
    }

    /// What the master that acts says to an operator; nothing if none does, or in no time.
    async fn operate<M: Remote>(&self, wish: M) -> Option<M::Result> {
        let ground = &self.0.ground;
        let name = ground.watch.acting()?;
        let node = {
            let members = self.0.members.borrow();
            members.get(&name)?.life.as_ref()?.node.clone()
        };
        let asked = node.ask(&node.whereis("master")?, wish, ASK_PATIENCE);
        ground.clock.timeout(ASK_PATIENCE, asked).await.ok()?.ok()
    }
}
