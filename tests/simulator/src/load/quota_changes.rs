//! Changes of quotas and weights by an operator, from a seed. Pure.
//!
//! Most guarantees are small compared with the agents, one may exceed the free resources, and
//! limits are sometimes below a role's present use.

use std::collections::BTreeMap;

use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{Name, Quantities, Scalar};

/// The roles with quotas. Frameworks are in all but the last one; below the first one is a
/// framework that always wants offers.
const ROLES: [&str; 4] = ["web", "batch", "ads", "nobody/below"];

/// One time in three the first role is guaranteed this number of cores, which requires revocations.
const FULL: u32 = 40;

fn amounts(cpus: u32) -> Quantities {
    let mem = Scalar::whole(cpus * 1024);
    [(Name::Cpus, Scalar::whole(cpus)), (Name::Mem, mem)]
        .into_iter()
        .collect()
}

/// The next quotas of all roles, regardless of their use.
pub fn quotas(rng: &mut SmallRng) -> UpdateQuotas {
    let full = rng.random_range(0..3) == 0;
    let mut one = |at: usize| {
        let mut quota = Quota::default();
        let guaranteed = match full && at == 0 {
            true => FULL,
            false => rng.random_range(0..4),
        };
        if guaranteed > 0 {
            quota.guarantees = amounts(guaranteed);
        }
        if rng.random_range(0..2) == 0 {
            quota.limits = amounts(guaranteed + rng.random_range(0..12));
        }
        (ROLES[at].to_owned(), quota)
    };
    UpdateQuotas {
        quotas: (0..ROLES.len()).map(&mut one).collect(),
        force: true,
    }
}

/// One role's next weight.
pub fn weights(rng: &mut SmallRng) -> UpdateWeights {
    let role = ROLES[rng.random_range(0..ROLES.len())].to_owned();
    let weight = f64::from(rng.random_range(1..=40)) / 10.0;
    UpdateWeights {
        weights: BTreeMap::from([(role, weight)]),
    }
}

/// No quota for any role.
pub fn none() -> UpdateQuotas {
    let roles = ROLES.map(|role| (role.to_owned(), Quota::default()));
    UpdateQuotas {
        quotas: BTreeMap::from(roles),
        force: true,
    }
}
