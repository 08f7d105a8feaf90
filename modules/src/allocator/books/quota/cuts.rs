//! Cuts: what quota leaves of an offer, worked out once for all clients to whom it leaves the same.
//!
//! Pure. Lives as long as one slate is made, in which no budget changes. Only for offers without reservations and shared volumes: of those it
//! depends on nothing of a client but what its guarantees lack and its limits leave.

use std::sync::Arc;

use module_api::sorter::{Budgets, Client, Place, Room, Stage, is_allocatable};
use resources::{Quantities, Resources, Role};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Parts, Quotas};

/// How many verdicts are remembered, a power of two.
const VERDICTS: usize = 256;

/// Whose part of any offer is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Likeness {
    /// No limit holds, and this is what guarantees lack, level by level; in a stage that meets none, that does not count.
    Lacking(SmallVec<[Quantities; 1]>),
    /// What the limits of this place leave.
    Within(Place),
}

/// Clients whose part of any offer is the same.
#[derive(Clone, Debug)]
struct Class {
    place: Option<Place>,
    /// Their part of an offer, by the offer's number.
    part: Option<(u32, Option<Parts>)>,
}

/// Whether a refusal covers a class' part of an offer.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    refused: *const Resources,
    class: usize,
    offer: u32,
    covers: bool,
}

/// What is known of a client.
#[derive(Clone, Copy, Debug)]
enum Known {
    Nothing,
    /// It is given nothing, whatever is offered.
    Out,
    In(usize),
}

/// What quota leaves of offers in one stage.
#[derive(Clone, Debug)]
pub(in crate::allocator::books) struct Cuts {
    stage: Stage,
    /// By the clients' numbers.
    clients: Vec<Known>,
    classes: Vec<Class>,
    by_likeness: FxHashMap<Likeness, usize>,
    /// What is offered, and how many offers there were before.
    offer: (Resources, u32),
    verdicts: Vec<Option<Verdict>>,
}

impl Quotas {
    /// Whether nobody is given any of this in this stage, because guarantees lack none of it, or need all of it to stay free. Must be settled.
    pub(in crate::allocator::books) fn keeps_back(
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

impl Likeness {
    /// None for whoever is given nothing, whatever is offered.
    fn of(budgets: &Budgets, stage: Stage, place: Option<Place>) -> Option<Self> {
        let guarantees = stage == Stage::Guarantees;
        if guarantees && !budgets.is_needy(place) {
            return None;
        }
        if let Some(place) = place.filter(|_| budgets.is_limited(place)) {
            return Some(Self::Within(place));
        }
        let chain = budgets.chain(place).filter(|_| guarantees);
        let lacking = chain.map(|(place, _)| budgets.lacking(place));
        Some(Self::Lacking(lacking.collect()))
    }
}

impl Cuts {
    /// Nothing is known yet of clients whose numbers are below this.
    pub(in crate::allocator::books) fn of(stage: Stage, clients: usize) -> Self {
        Self {
            stage,
            clients: vec![Known::Nothing; clients],
            classes: Vec::new(),
            by_likeness: FxHashMap::default(),
            offer: (Resources::new(), 0),
            verdicts: vec![None; VERDICTS],
        }
    }

    /// This is what is offered from now on.
    pub(in crate::allocator::books) fn offer(&mut self, offered: &Resources) {
        // Agents are often alike.
        if self.offer.0 != *offered {
            self.offer = (offered.clone(), self.offer.1.wrapping_add(1));
        }
    }

    /// The class of this client, who is in this role; none if it is given nothing.
    pub(in crate::allocator::books) fn class_of(
        &mut self,
        quotas: &mut Quotas,
        client: Client,
        role: impl FnOnce() -> Option<Role>,
    ) -> Option<usize> {
        match self.clients.get(client as usize) {
            Some(Known::In(class)) => return Some(*class),
            Some(Known::Nothing) => {}
            Some(Known::Out) | None => return None,
        }
        let place = quotas.place(&role()?);
        let likeness = Likeness::of(&quotas.budgets, self.stage, place);
        let classes = &mut self.classes;
        let class = likeness.map(|likeness| {
            *self.by_likeness.entry(likeness).or_insert_with(|| {
                classes.push(Class { place, part: None });
                classes.len() - 1
            })
        });
        self.clients[client as usize] = class.map_or(Known::Out, Known::In);
        class
    }

    /// Whether what was refused covers all that is left of the offer to clients of this class. What was refused must live as long as this.
    pub(in crate::allocator::books) fn covers(
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
        let Some(Class { place, part }) = self.classes.get_mut(class) else {
            return false;
        };
        let whole = &self.offer.0;
        if part.as_ref().is_none_or(|(of, _)| *of != offer) {
            // The role counts only for what is reserved.
            let left = quotas.parts_at(self.stage, *place, &Role::STAR, whole);
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
    use crate::allocator::books::quota::room;

    const ROLES: [&str; 6] = ["a", "a/b", "a/c", "d", "e", "*"];

    fn amounts(dice: &mut SmallRng) -> String {
        let (cpus, mem) = (dice.random_range(0..4), dice.random_range(0..3));
        format!("cpus:{cpus};mem:{mem}")
    }

    /// Some quotas, of which some are met in part, in a cluster in which so much is free.
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
        quotas.begin_anew(0);
        quotas.budgets.set_headroom(amounts(dice).parse().unwrap());
        for place in (0..).take(quotas.table.len()) {
            quotas.consumed[place as usize] = amounts(dice).parse().unwrap();
            quotas.refresh(place);
        }
        quotas
    }

    /// What is worked out for many at once is what would be worked out for each alone, whatever was looked at before.
    #[test]
    fn a_refusal_covers_for_each_of_a_class_what_it_covers_for_one_alone() {
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

    /// Where an offer is said to be kept back, no role could be given any of the sets.
    #[test]
    fn what_is_kept_back_is_for_nobody() {
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
                    let place = quotas.budgets.find(role);
                    let amount = quotas.budgets.amount(stage, place, role, None, &room);
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
