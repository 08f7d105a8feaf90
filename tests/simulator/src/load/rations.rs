//! Rations: what quotas and weights an operator gives the roles of the load while a fault wants it, from a seed. Pure.
//!
//! Guarantees are small beside what agents have, and limits sometimes below what a role holds already.

use std::collections::BTreeMap;

use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{Name, Quantities, Scalar};

/// The roles that are given quotas; frameworks are in the first three.
const ROLES: [&str; 4] = ["web", "batch", "ads", "nobody/below"];

fn amounts(cpus: u32) -> Quantities {
    let mem = Scalar::whole(cpus * 1024);
    [(Name::Cpus, Scalar::whole(cpus)), (Name::Mem, mem)]
        .into_iter()
        .collect()
}

/// One role's next quota, given whatever it holds.
pub fn quotas(rng: &mut SmallRng) -> UpdateQuotas {
    let mut quota = Quota::default();
    let guaranteed = rng.random_range(0..4);
    if guaranteed > 0 {
        quota.guarantees = amounts(guaranteed);
    }
    if rng.random_range(0..2) == 0 {
        quota.limits = amounts(guaranteed + rng.random_range(0..12));
    }
    let role = ROLES[rng.random_range(0..ROLES.len())].to_owned();
    UpdateQuotas {
        quotas: BTreeMap::from([(role, quota)]),
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

/// No role has a quota any more.
pub fn none() -> UpdateQuotas {
    let roles = ROLES.map(|role| (role.to_owned(), Quota::default()));
    UpdateQuotas {
        quotas: BTreeMap::from(roles),
        force: true,
    }
}
