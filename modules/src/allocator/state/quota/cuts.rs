//! Shared quota results: the part of an offer that quota leaves, computed once for all clients to
//! whom it leaves the same.
//!
//! Valid for one slate, during which budgets do not change. Only for offers without reservations
//! and shared volumes: for those the part depends only on unmet guarantees and remaining limits.

use std::sync::Arc;

use module_api::sorter::{BudgetIndex, Budgets, Client, Room, Stage, is_allocatable};
use resources::{Quantities, Resources, Role};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Parts, Quotas};

/// Size of the cache, a power of two.
const VERDICTS: usize = 256;

/// Clients with equal keys get equal parts of any offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum QuotaCutKey {
    /// No limit applies. The unmet guarantees by level; empty in stages without guarantees.
    Lacking(SmallVec<[Quantities; 1]>),
    /// A limit applies to this budget.
    Within(BudgetIndex),
}

/// Clients that get equal parts of any offer.
#[derive(Clone, Debug)]
struct Class {
    index: Option<BudgetIndex>,
    /// Number of the offer, and their part of it.
    part: Option<(u32, Option<Parts>)>,
}

/// Whether a refusal covers a class's part of an offer.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    refused: *const Resources,
    class: usize,
    offer: u32,
    covers: bool,
}

/// The class of a client, as far as it is known.
#[derive(Clone, Copy, Debug)]
enum KnownClass {
    Nothing,
    /// It gets nothing of any offer.
    Out,
    In(usize),
}

/// The parts that quota leaves of offers in one stage.
#[derive(Clone, Debug)]
pub(in crate::allocator::state) struct Cuts {
    stage: Stage,
    /// By client number.
    clients: Vec<KnownClass>,
    classes: Vec<Class>,
    by_key: FxHashMap<QuotaCutKey, usize>,
    /// The current offer and its number.
    offer: (Resources, u32),
    verdicts: Vec<Option<Verdict>>,
}

impl Quotas {
    /// Whether no client gets any of it in this stage: no guarantee lacks any of it, or guarantees
    /// need all of it. Must be settled.
    pub(in crate::allocator::state) fn keeps_back(
        &self,
        stage: Stage,
        room: &Room,
        sets_min: &[Quantities],
    ) -> bool {
        if self.is_empty() || !room.reserved.is_empty() {
            return false;
        }
        match stage {
            Stage::Guarantees => room.free.lesser(self.budgets.required()).is_empty(),
            Stage::Fair => !is_allocatable(&self.budgets.spare(&room.free), sets_min),
            Stage::Revocable => false,
        }
    }
}

impl QuotaCutKey {
    /// `None` for a client that gets nothing of any offer.
    fn of(budgets: &Budgets, stage: Stage, index: Option<BudgetIndex>) -> Option<Self> {
        let guarantees = stage == Stage::Guarantees;
        if guarantees && !budgets.is_needy(index) {
            return None;
        }
        if let Some(index) = index.filter(|_| budgets.is_limited(index)) {
            return Some(Self::Within(index));
        }
        let chain = budgets.chain(index).filter(|_| guarantees);
        let lacking = chain.map(|(index, _)| budgets.lacking(index));
        Some(Self::Lacking(lacking.collect()))
    }
}

impl Cuts {
    /// An empty state for clients with numbers below this.
    pub(in crate::allocator::state) fn of(stage: Stage, clients: usize) -> Self {
        Self {
            stage,
            clients: vec![KnownClass::Nothing; clients],
            classes: Vec::new(),
            by_key: FxHashMap::default(),
            offer: (Resources::new(), 0),
            verdicts: vec![None; VERDICTS],
        }
    }

    /// Sets the current offer.
    pub(in crate::allocator::state) fn offer(&mut self, offered: &Resources) {
        // Equal agents are frequent.
        if self.offer.0 != *offered {
            self.offer = (offered.clone(), self.offer.1.wrapping_add(1));
        }
    }

    /// The class of this client in its role; `None` if it gets nothing.
    pub(in crate::allocator::state) fn class_of(
        &mut self,
        quotas: &mut Quotas,
        client: Client,
        role: impl FnOnce() -> Option<Role>,
    ) -> Option<usize> {
        match self.clients.get(client as usize) {
            Some(KnownClass::In(class)) => return Some(*class),
            Some(KnownClass::Nothing) => {}
            Some(KnownClass::Out) | None => return None,
        }
        let index = quotas.budget_of(&role()?);
        let key = QuotaCutKey::of(&quotas.budgets, self.stage, index);
        let classes = &mut self.classes;
        let class = key.map(|key| {
            *self.by_key.entry(key).or_insert_with(|| {
                classes.push(Class { index, part: None });
                classes.len() - 1
            })
        });
        self.clients[client as usize] = class.map_or(KnownClass::Out, KnownClass::In);
        class
    }

    /// Whether the refusal covers the whole part of this class. The refusal must outlive this
    /// value, since the cache compares addresses.
    pub(in crate::allocator::state) fn covers(
        &mut self,
        quotas: &Quotas,
        class: usize,
        refused: &Arc<Resources>,
    ) -> bool {
        let (address, offer) = (Arc::as_ptr(refused), self.offer.1);
        let at = (address as usize >> 6) ^ class.wrapping_mul(37);
        let verdict = &mut self.verdicts[at % VERDICTS];
        if let Some(known) = verdict
            && std::ptr::eq(known.refused, address)
            && (known.class, known.offer) == (class, offer)
        {
            return known.covers;
        }
        let Some(Class { index, part }) = self.classes.get_mut(class) else {
            return false;
        };
        let whole = &self.offer.0;
        if part.as_ref().is_none_or(|(of, _)| *of != offer) {
            // The role matters only for reservations.
            let left = quotas.parts_at(self.stage, *index, &Role::STAR, whole);
            *part = Some((offer, left));
        }
        let covers = match part.as_ref().and_then(|(_, part)| part.as_ref()) {
            Some(part) => part.iter().all(|own| refused.contains_resource(own)),
            None => refused.contains(whole),
        };
        *verdict = Some(Verdict {
            refused: address,
            class,
            offer,
            covers,
        });
        covers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::Quota;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::allocator::state::quota::room;

    const ROLES: [&str; 6] = ["a", "a/b", "a/c", "d", "e", "*"];

    fn amounts(dice: &mut SmallRng) -> String {
        let (cpus, mem) = (dice.random_range(0..4), dice.random_range(0..3));
        format!("cpus:{cpus};mem:{mem}")
    }

    /// Random quotas, some of them partly met, with random free resources.
    fn quotas(dice: &mut SmallRng) -> Quotas {
        let (mut quotas, mut all) = (Quotas::default(), BTreeMap::new());
        for role in &ROLES[..dice.random_range(1..5)] {
            let limits = match dice.random_range(0..3) {
                0 => amounts(dice),
                _ => String::new(),
            };
            let quota = Quota {
                guarantees: amounts(dice).parse().unwrap(),
                limits: limits.parse().unwrap(),
            };
            all.insert((*role).to_owned(), quota);
        }
        quotas.change(&all);
        quotas.rebuild(0);
        quotas.budgets.set_headroom(amounts(dice).parse().unwrap());
        for index in (0..).take(quotas.table.len()) {
            quotas.consumed[index as usize] = amounts(dice).parse().unwrap();
            quotas.refresh(index);
        }
        quotas
    }

    /// The shared result equals the one computed for each client alone, whatever was computed
    /// before.
    #[test]
    fn shared_cuts_equal_individual_cuts() {
        let mut dice = SmallRng::seed_from_u64(43);
        let offers = [
            "cpus:2;mem:2",
            "cpus:3;mem:1;ports:[1-9]",
            "cpus:1;disk:7",
            "gpus:2;cpus:1",
        ];
        let offers = offers.map(|text| Resources::parse(text).unwrap());
        let texts = ["cpus:1", "cpus:9;mem:9;ports:[1-9]", "cpus:9;mem:1;disk:9"];
        let refusals = texts.map(|text| Arc::new(Resources::parse(text).unwrap()));
        let (mut seen, mut together) = ([0; 2], 0);
        for _ in 0..300 {
            let mut quotas = quotas(&mut dice);
            for stage in [Stage::Guarantees, Stage::Fair] {
                let mut cuts = Cuts::of(stage, ROLES.len());
                for _ in 0..30 {
                    let offered = &offers[dice.random_range(0..offers.len())];
                    let client = dice.random_range(0..ROLES.len());
                    let role = Role::new(ROLES[client]).unwrap();
                    let refused = &refusals[dice.random_range(0..refusals.len())];
                    cuts.offer(offered);
                    let own = || Some(role.clone());
                    let class = cuts.class_of(&mut quotas, client as Client, own);
                    let left = quotas.parts(stage, &role, offered);
                    let Some(class) = class else {
                        assert_eq!(left, None, "{role} in {stage:?} of {offered}");
                        continue;
                    };
                    let left =
                        left.map_or_else(|| offered.clone(), |left| left.into_iter().collect());
                    let covers = cuts.covers(&quotas, class, refused);
                    let expected = refused.contains(&left);
                    assert_eq!(covers, expected, "{role} in {stage:?} of {offered}");
                    seen[usize::from(covers)] += 1;
                }
                assert_eq!(cuts.class_of(&mut quotas, 99, || None), None);
                together += usize::from(cuts.classes.len() < 3);
            }
        }
        assert!(seen.iter().all(|seen| *seen > 1_000), "{seen:?}");
        assert!(together > 100, "many are alike: {together}");
    }

    /// If an offer is reported as kept back, no role could get any of the sets.
    #[test]
    fn kept_back_offers_fit_no_role() {
        let mut dice = SmallRng::seed_from_u64(44);
        let sets = ["cpus:1", "mem:2"].map(|text| Quantities::parse(text).unwrap());
        let mut seen = [0; 2];
        for _ in 0..3_000 {
            let quotas = quotas(&mut dice);
            let room = room(&Resources::parse(&amounts(&mut dice)).unwrap());
            for stage in [Stage::Guarantees, Stage::Fair] {
                let kept = quotas.keeps_back(stage, &room, &sets);
                seen[usize::from(kept)] += 1;
                for role in ROLES
                    .map(|role| Role::new(role).unwrap())
                    .iter()
                    .filter(|_| kept)
                {
                    let index = quotas.budgets.find(role);
                    let amount = quotas.budgets.amount(stage, index, role, None, &room);
                    assert!(
                        !is_allocatable(&amount, &sets),
                        "{role}: {amount} in {stage:?}"
                    );
                }
            }
            assert!(!quotas.keeps_back(Stage::Revocable, &room, &sets));
        }
        assert!(seen.iter().all(|seen| *seen > 500), "{seen:?}");
    }
}
