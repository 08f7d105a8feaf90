//! The sorter of a simulated master: the real one, until a fault makes it give invalid answers.
//!
//! Its invalid answers contain unknown agents and clients, duplicates, the reversed order,
//! everything for one client, nothing, or an error; or it panics. Then it has lost its state and
//! gets it again. The allocator's state must stay consistent in every case.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use module_api::sorter::{Advice, Slate};
use module_api::{AllocatorRef, Fault, Parameters, SorterRef};
use modules::sorter::{Drf, SortPolicy, Sorter};
use protocol::text::duration;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use runtime::{Node, Pid, Supervision};

use crate::checkers::WANTED;
use crate::load;

/// The restart policy of built-in modules.
const SUPERVISION: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};
/// One in this number of invalid answers is a panic.
const ANSWERS_PER_PANIC: u32 = 40;

/// The number of faults that want invalid answers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SorterFaults(Arc<AtomicU32>);

impl SorterFaults {
    /// Adds or removes a fault.
    pub fn change(&self, begins: bool) {
        match begins {
            true => self.0.fetch_add(1, Ordering::Relaxed),
            false => self.0.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn are_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

struct Fickle {
    honest: Drf,
    sorter_faults: SorterFaults,
    lied: bool,
    rng: SmallRng,
}

impl SortPolicy for Fickle {
    fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        if !self.sorter_faults.are_active() {
            if std::mem::take(&mut self.lied) {
                self.honest = Drf::default();
            }
            return self.honest.advise(slate);
        }
        self.lied = true;
        let rooms = u32::try_from(slate.rooms.len()).unwrap_or(u32::MAX);
        let mut advice = self.honest.advise(slate)?;
        self.lie(rooms, &mut advice)?;
        Ok(advice)
    }
}

impl Fickle {
    #[allow(clippy::panic, reason = "a sorter that falls is one of its lies")]
    fn lie(&mut self, rooms: u32, advice: &mut Vec<Advice>) -> Result<(), Fault> {
        let rng = &mut self.rng;
        if rng.random_range(0..ANSWERS_PER_PANIC) == 0 {
            panic!("the sorter falls, {WANTED}");
        }
        match rng.random_range(0..7) {
            0 => {
                let reason = "it does not feel like it".to_owned();
                return Err(Fault::Failed { reason });
            }
            1 => advice.clear(),
            2 => advice.reverse(),
            3 => advice.extend(advice.clone()),
            4 => {
                let client = rng.random_range(0..12);
                advice.iter_mut().for_each(|one| one.client = client);
            }
            5 => advice.shuffle(rng),
            _ => {
                for _ in 0..rng.random_range(0..50) {
                    let room = rng.random_range(0..rooms.saturating_add(3));
                    let client = match rng.random_range(0..10) {
                        0 => u32::MAX,
                        _ => rng.random_range(0..12),
                    };
                    advice.insert(0, Advice { room, client });
                }
            }
        }
        Ok(())
    }
}

/// A master's allocator with a sorter that gives invalid answers during a fault.
pub fn start_allocator(
    node: &Node,
    sorter_faults: &SorterFaults,
) -> Result<AllocatorRef, Box<dyn Error>> {
    let (sorter_faults, home) = (sorter_faults.clone(), node.clone());
    node.supervise("sorter", SUPERVISION, move || {
        Sorter::new(Fickle {
            honest: Drf::default(),
            sorter_faults: sorter_faults.clone(),
            lied: false,
            rng: home.rng(),
        })
    })?;
    let sorter = SorterRef::new(node.refer(Pid::new("sorter", node.id().clone(), 0)));
    let given = Parameters::none("hierarchical")
        .with("revoke_after", duration::format(load::REVOKE_AFTER))
        .with(
            "revocation_grace_period",
            duration::format(load::REVOCATION_GRACE),
        );
    Ok(modules::registry().allocator(node, "hierarchical", sorter, &given)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use module_api::sorter::{Change, Pool, Room, Stage};
    use rand::SeedableRng;
    use resources::{Quantities, Role};

    fn slate(number: u64) -> Slate {
        let joined = |client| {
            let (role, pool) = (Role::STAR, Pool::Regular);
            let framework = protocol::FrameworkId::new(format!("f{client}")).unwrap();
            [
                Change::Joined {
                    client,
                    role,
                    framework,
                },
                Change::Activity {
                    pool,
                    client,
                    active: true,
                },
            ]
        };
        let room = Room {
            free: Quantities::parse("cpus:1").unwrap(),
            reserved: Vec::new(),
        };
        Slate {
            epoch: 1,
            number,
            stage: Stage::Fair,
            changes: match number {
                0 => (0..3).flat_map(joined).collect(),
                _ => Vec::new(),
            },
            sets_min: Vec::new(),
            rooms: vec![room; 6],
            exclusions: Vec::new(),
        }
    }

    #[test]
    fn faulty_sorter_is_the_real_one_outside_faults() {
        let sorter_faults = SorterFaults::default();
        let mut fickle = Fickle {
            honest: Drf::default(),
            sorter_faults: sorter_faults.clone(),
            lied: false,
            rng: SmallRng::seed_from_u64(3),
        };
        let mut honest = Drf::default();
        assert_eq!(fickle.advise(slate(0)), honest.advise(slate(0)));
        sorter_faults.change(true);
        let wrong = (1..20).filter(|number| {
            let (said, right) = (fickle.advise(slate(*number)), honest.advise(slate(*number)));
            said != right
        });
        assert!(wrong.count() > 10);
        sorter_faults.change(false);
        assert!(fickle.advise(slate(20)).is_err(), "it must be told anew");
        assert!(fickle.advise(slate(0)).is_ok());
    }
}
