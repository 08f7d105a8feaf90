//! One run as written in SPEC 4.5: stages in loops over agents and clients, with every sum
//! recomputed from the allocations. Revocable resources come last, by separate shares (SPEC 4.9).
//!
//! Independent of the allocator's state, slates, budgets and trees. Amounts are in thousandths.
//! Quotas only for top-level roles, as in SPEC 4.5; a limit applies to all roles below it.

use std::collections::{BTreeMap, BTreeSet};

pub type Amounts = BTreeMap<String, i64>;
/// A framework in a role.
pub type Who = (String, String);

/// Smallest amounts worth an offer, one of each.
const WORTH: [(&str, i64); 2] = [("cpus", 10), ("mem", 32_000)];

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its total, including reservations.
    pub total: Amounts,
    /// Its reserved amounts by role.
    pub reserved: BTreeMap<String, Amounts>,
    /// Its free amounts: unreserved, and reserved by role.
    pub free: Amounts,
    pub idle: BTreeMap<String, Amounts>,
    /// Its oversubscribed amounts, and the free part of them.
    pub lends: Amounts,
    pub lent_free: Amounts,
    pub ports: bool,
    pub has_gpus: bool,
    pub remote: bool,
    pub active: bool,
    pub listed: bool,
    /// Allocations: client, whether revocable, and amounts.
    pub refused: Vec<(Who, bool, Amounts)>,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    pub active: bool,
    pub suppressed: bool,
    pub takes_gpus: bool,
    pub takes_remote: bool,
    pub takes_revocable: bool,
    /// The only accepted hosts, if there is a constraint.
    pub hosts: Option<BTreeSet<String>>,
    pub unreserved: Amounts,
    pub reserved: Amounts,
    pub revocable: Amounts,
    /// Number of regular and of revocable grants.
    pub chosen: [u64; 2],
}

#[derive(Clone, Debug, Default)]
pub struct Quota {
    pub guarantee: Amounts,
    pub limit: Option<Amounts>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    pub who: Who,
    pub host: String,
    pub free: Amounts,
    pub reserved: BTreeMap<String, Amounts>,
    pub ports: bool,
    pub revocable: Amounts,
}

/// The stages of a run.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Guarantees,
    Fair,
    Revocable,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Guarantees, Self::Fair, Self::Revocable];

    /// The kind of shares that it uses.
    fn pool(self) -> usize {
        usize::from(self == Self::Revocable)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Naive {
    pub hosts: BTreeMap<String, Host>,
    pub clients: BTreeMap<Who, Client>,
    pub quotas: BTreeMap<String, Quota>,
    pub weights: BTreeMap<String, f64>,
}

fn get(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).copied().unwrap_or(0)
}

pub fn add(sum: &mut Amounts, part: &Amounts, sign: i64) {
    for (name, amount) in part {
        *sum.entry(name.clone()).or_default() += sign * amount;
    }
    sum.retain(|_, amount| *amount != 0);
}

fn is_within(role: &str, above: &str) -> bool {
    role == above
        || role
            .strip_prefix(above)
            .is_some_and(|rest| rest.starts_with('/'))
}

fn top(role: &str) -> &str {
    role.split('/').next().unwrap_or(role)
}

impl Naive {
    pub fn run(&mut self, order: &[String]) -> Vec<Grant> {
        let mut grants = Vec::new();
        for stage in Stage::ALL {
            for host in order {
                while let Some(grant) = self.next(stage, host) {
                    self.book(&grant);
                    grants.push(grant);
                }
            }
        }
        grants
    }

    /// The grant of this host's rest to the first suitable client, if there is one.
    fn next(&self, stage: Stage, name: &str) -> Option<Grant> {
        let host = &self.hosts[name];
        if !host.active || !host.listed {
            return None;
        }
        let order = self.order(stage.pool(), "");
        let mut offers = order.into_iter().filter_map(|who| {
            let client = &self.clients[&who];
            let elsewhere = client.hosts.as_ref();
            let blind = host.has_gpus && !client.takes_gpus
                || host.remote && !client.takes_remote
                || elsewhere.is_some_and(|hosts| !hosts.contains(name));
            let mut grant = Grant {
                who: who.clone(),
                host: name.to_owned(),
                ..Grant::default()
            };
            match stage {
                Stage::Revocable if !client.takes_revocable => return None,
                Stage::Revocable => grant.revocable = host.lent_free.clone(),
                _ => {
                    let guarantees = stage == Stage::Guarantees;
                    (grant.free, grant.reserved) = self.offer(guarantees, &who.1, host)?;
                    grant.ports = host.ports;
                }
            }
            let mut all = grant.free.clone();
            add(&mut all, &grant.revocable, 1);
            grant
                .reserved
                .values()
                .for_each(|part| add(&mut all, part, 1));
            let worth = WORTH.iter().any(|(name, least)| get(&all, name) >= *least);
            let hides = |(by, revocable, refused): &(Who, bool, Amounts)| {
                *by == who
                    && *revocable == (stage == Stage::Revocable)
                    && all
                        .iter()
                        .all(|(name, amount)| get(refused, name) >= *amount)
            };
            let hidden = host.refused.iter().any(hides);
            (worth && !blind && !hidden).then_some(grant)
        });
        offers.next()
    }

    /// The offer to a client of this role: unreserved amounts, and reserved ones.
    fn offer(
        &self,
        guarantees: bool,
        role: &str,
        host: &Host,
    ) -> Option<(Amounts, BTreeMap<String, Amounts>)> {
        let quota = self.quotas.get(top(role));
        let (mut free, mut met) = (Amounts::new(), false);
        for (name, there) in &host.free {
            let consumed = self.consumed(top(role), name);
            let limit = quota.and_then(|quota| quota.limit.as_ref()?.get(name));
            let mut left = limit.map_or(i64::MAX, |limit| (limit - consumed).max(0));
            let mut given = 0;
            if guarantees {
                let guarantee = quota.map_or(0, |quota| get(&quota.guarantee, name));
                given = (guarantee - consumed).max(0).min(left).min(*there);
                met |= given > 0;
                left -= given;
            }
            let required = self.required(name);
            let spare = match required {
                0 => i64::MAX,
                required => (self.headroom(name) - required).max(0),
            };
            given += (there - given).min(left).min(spare);
            if given > 0 {
                free.insert(name.clone(), given);
            }
        }
        if guarantees && !met {
            return None;
        }
        let own = |owner: &str| match guarantees {
            true => owner == role,
            false => is_within(role, owner),
        };
        let reserved = host.idle.iter().filter(|(owner, _)| own(owner));
        let reserved = reserved.map(|(owner, part)| (owner.clone(), part.clone()));
        Some((free, reserved.collect()))
    }

    fn book(&mut self, grant: &Grant) {
        let Some(host) = self.hosts.get_mut(&grant.host) else {
            return;
        };
        add(&mut host.free, &grant.free, -1);
        add(&mut host.lent_free, &grant.revocable, -1);
        host.ports &= !grant.ports;
        let Some(client) = self.clients.get_mut(&grant.who) else {
            return;
        };
        client.chosen[usize::from(!grant.revocable.is_empty())] += 1;
        add(&mut client.revocable, &grant.revocable, 1);
        add(&mut client.unreserved, &grant.free, 1);
        for owner in grant.reserved.keys() {
            if let Some(part) = host.idle.remove(owner) {
                add(&mut client.reserved, &part, 1);
            }
        }
    }

    /// Recovers a whole grant.
    pub fn give_back(&mut self, grant: &Grant) {
        let Some(host) = self.hosts.get_mut(&grant.host) else {
            return;
        };
        add(&mut host.free, &grant.free, 1);
        add(&mut host.lent_free, &grant.revocable, 1);
        host.ports |= grant.ports;
        let Some(client) = self.clients.get_mut(&grant.who) else {
            return;
        };
        add(&mut client.revocable, &grant.revocable, -1);
        add(&mut client.unreserved, &grant.free, -1);
        for (owner, part) in &grant.reserved {
            add(host.idle.entry(owner.clone()).or_default(), part, 1);
            add(&mut client.reserved, part, -1);
        }
    }

    /// Amounts that count for a role with a quota: its reservations, used or not, and its other
    /// allocations.
    fn consumed(&self, role: &str, name: &str) -> i64 {
        let reserved = self.hosts.values().flat_map(|host| &host.reserved);
        let reserved = reserved.filter(|(owner, _)| is_within(owner, role));
        let held = self
            .clients
            .iter()
            .filter(|((_, own), _)| is_within(own, role));
        let held = held.map(|(_, client)| get(&client.unreserved, name));
        reserved.map(|(_, part)| get(part, name)).sum::<i64>() + held.sum::<i64>()
    }

    /// Amounts that must stay free for guarantees.
    fn required(&self, name: &str) -> i64 {
        let lacks = |(role, quota): (&String, &Quota)| {
            (get(&quota.guarantee, name) - self.consumed(role, name)).max(0)
        };
        self.quotas.iter().map(lacks).sum()
    }

    /// Unreserved free amounts of all agents that may be offered.
    fn headroom(&self, name: &str) -> i64 {
        let hosts = self
            .hosts
            .values()
            .filter(|host| host.active && host.listed);
        hosts.map(|host| get(&host.free, name)).sum()
    }

    /// The active clients at or below a role, by fair shares (SPEC 4.8).
    fn order(&self, pool: usize, above: &str) -> Vec<Who> {
        let below: BTreeSet<&str> = self.clients.keys().map(|(_, role)| role.as_str()).collect();
        let step = |role: &&str| match above {
            "" => Some(top(role).to_owned()),
            _ if !is_within(role, above) || **role == *above => None,
            _ => Some(format!("{above}/{}", top(&role[above.len() + 1..]))),
        };
        let roles: BTreeSet<String> = below.iter().filter_map(step).collect();
        // The frameworks directly in a role count as one sibling of the roles below it, named by a
        // dot.
        let own: Vec<&Who> = self
            .clients
            .keys()
            .filter(|(_, role)| role == above)
            .collect();
        let mut nodes: Vec<(f64, u64, String, Option<String>)> = Vec::new();
        for role in roles {
            let weight = self.weights.get(&role).copied().unwrap_or(1.0);
            let (share, chosen) = self.rank(pool, |own| is_within(&own.1, &role));
            nodes.push((share / weight, chosen, role.clone(), Some(role)));
        }
        if !own.is_empty() {
            let (share, chosen) = self.rank(pool, |who| who.1 == above);
            nodes.push((share, chosen, format!("{above}/."), None));
        }
        nodes.sort_by(|one, other| {
            let share = one.0.total_cmp(&other.0);
            share.then_with(|| (one.1, &one.2).cmp(&(other.1, &other.2)))
        });
        let mut order = Vec::new();
        for (_, _, _, role) in nodes {
            match role {
                Some(role) => order.extend(self.order(pool, &role)),
                None => order.extend(self.records(pool, &own)),
            }
        }
        order
    }

    fn records(&self, pool: usize, own: &[&Who]) -> Vec<Who> {
        let mut own: Vec<_> = own
            .iter()
            .map(|who| (self.rank(pool, |one| one == *who), *who))
            .collect();
        own.sort_by(|(one, a), (other, b)| {
            let share = one.0.total_cmp(&other.0);
            share.then_with(|| (one.1, *a).cmp(&(other.1, *b)))
        });
        let active = |who: &&Who| self.clients[*who].active && !self.clients[*who].suppressed;
        own.into_iter()
            .map(|(_, who)| who)
            .filter(active)
            .cloned()
            .collect()
    }

    /// The dominant share of these clients together, and the number of times they were chosen.
    fn rank(&self, pool: usize, which: impl Fn(&Who) -> bool) -> (f64, u64) {
        let (mut held, mut total, mut chosen) = (Amounts::new(), Amounts::new(), 0);
        for (_, client) in self.clients.iter().filter(|(who, _)| which(who)) {
            let parts = match pool {
                0 => [&client.unreserved, &client.reserved].to_vec(),
                _ => [&client.revocable].to_vec(),
            };
            parts.into_iter().for_each(|part| add(&mut held, part, 1));
            chosen += client.chosen[pool];
        }
        for host in self.hosts.values() {
            add(&mut total, [&host.total, &host.lends][pool], 1);
        }
        let shares = held.iter().filter(|(name, _)| get(&total, name) > 0);
        let shares = shares.map(|(name, held)| *held as f64 / get(&total, name) as f64);
        (shares.fold(0.0, f64::max), chosen)
    }
}
