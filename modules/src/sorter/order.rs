//! Orders: which sibling comes first, among the roles below a role or the frameworks in one.
//!
//! Deterministic except for the lottery. An order sees only the share and the weight of each
//! sibling.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::fmt::{self, Debug};

use rand::Rng;
use rand::rngs::SmallRng;

/// An order of siblings.
pub trait Order: Clone + Debug + Unpin + 'static {
    /// The sort key. Of equal ranks, the less often chosen sibling comes first, then the smaller
    /// name.
    type Rank: Ord + Copy + Debug + Unpin;

    /// The rank of a sibling with this dominant share and weight.
    fn rank(&self, share: f64, weight: f64) -> Self::Rank;

    /// The order in which siblings are tried this time, from the sorted ones.
    fn turns<'a, T>(
        &self,
        kept: impl Iterator<Item = (&'a Self::Rank, T)>,
    ) -> impl Iterator<Item = T> {
        kept.map(|(_, sibling)| sibling)
    }
}

/// Weighted dominant resource fairness: the smallest share divided by weight comes first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Order for Fair {
    type Rank = OrderedF64;

    fn rank(&self, share: f64, weight: f64) -> OrderedF64 {
        OrderedF64::of(share / weight)
    }
}

/// Strict priorities: a role's weight is its priority among its siblings. A higher priority comes
/// first, whatever its share; equal ones are ordered by dominant share, like the frameworks in one
/// role. A role's own frameworks have priority 1 among the roles below it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priority;

impl Order for Priority {
    type Rank = (Reverse<OrderedF64>, OrderedF64);

    fn rank(&self, share: f64, weight: f64) -> Self::Rank {
        (Reverse(OrderedF64::of(weight)), OrderedF64::of(share))
    }
}

/// Lottery: each sibling that can get something comes first with a probability proportional to its
/// weight, whatever its share. Draws again for each portion, at the cost of one random number for
/// each sibling.
#[derive(Clone, Debug)]
pub struct Lottery(RefCell<SmallRng>);

impl Lottery {
    /// A lottery with this random generator.
    pub fn new(dice: SmallRng) -> Self {
        Self(RefCell::new(dice))
    }
}

impl Order for Lottery {
    type Rank = OrderedF64;

    fn rank(&self, _: f64, weight: f64) -> OrderedF64 {
        OrderedF64::of(weight)
    }

    fn turns<'a, T>(
        &self,
        kept: impl Iterator<Item = (&'a OrderedF64, T)>,
    ) -> impl Iterator<Item = T> {
        let mut dice = self.0.borrow_mut();
        // Exponential race: a sibling of rate r has the smallest draw with probability r / sum of
        // rates, and likewise among the rest.
        let mut ring = |rate: f64| OrderedF64::of(-(1.0 - dice.random::<f64>()).ln() / rate);
        let mut drawn: Vec<(OrderedF64, T)> = kept
            .map(|(weight, sibling)| (ring(weight.get()), sibling))
            .collect();
        drawn.sort_by_key(|(ring, _)| *ring);
        drawn.into_iter().map(|(_, sibling)| sibling)
    }
}

/// A float with a total order, stored as an integer of the same order, since a run compares ranks
/// thousands of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderedF64(i64);

impl OrderedF64 {
    /// Converts a float.
    pub fn of(number: f64) -> Self {
        Self(Self::flip(number.to_bits().cast_signed()))
    }

    /// The original float.
    pub fn get(self) -> f64 {
        f64::from_bits(Self::flip(self.0).cast_unsigned())
    }

    /// The bits of negative floats increase with their distance from zero, so all bits but the sign
    /// are inverted. The function is its own inverse.
    fn flip(bits: i64) -> i64 {
        bits ^ ((bits >> 63) & i64::MAX)
    }
}

impl Debug for OrderedF64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// How often each of these weights came first, as a fraction of 10,000 draws.
    fn firsts(weights: &[f64], seed: u64) -> Vec<f64> {
        let lottery = Lottery::new(SmallRng::seed_from_u64(seed));
        let ranks: Vec<OrderedF64> = weights
            .iter()
            .map(|weight| lottery.rank(0.5, *weight))
            .collect();
        let mut firsts = vec![0.0; weights.len()];
        for _ in 0..10_000 {
            let mut turns = lottery.turns(ranks.iter().zip(0..));
            let first: usize = turns.next().unwrap();
            firsts[first] += 1.0;
            assert_eq!(turns.count(), weights.len() - 1, "nobody is left out");
        }
        firsts
    }

    /// SPEC 4.8: within four standard deviations of the weights, for a few seeds.
    #[test]
    fn lottery_probability_is_proportional_to_weight() {
        let weights = [1.0, 2.0, 5.0, 0.5];
        for seed in 0..5 {
            for (weight, firsts) in weights.iter().zip(firsts(&weights, seed)) {
                let chance = weight / weights.iter().sum::<f64>();
                let deviation = (10_000.0 * chance * (1.0 - chance)).sqrt();
                let off = (firsts - 10_000.0 * chance).abs();
                assert!(off < 4.0 * deviation, "seed {seed}: {weight}: {firsts}");
            }
        }
        assert_eq!(
            firsts(&weights, 3),
            firsts(&weights, 3),
            "one seed, one run"
        );
    }

    #[test]
    fn weights_divide_shares_unless_they_are_priorities() {
        assert_eq!(Fair.rank(0.4, 2.0), Fair.rank(0.2, 1.0));
        assert!(Fair.rank(0.3, 2.0) < Fair.rank(0.2, 1.0));
        assert!(Priority.rank(0.9, 2.0) < Priority.rank(0.0, 1.0));
        assert!(Priority.rank(0.1, 2.0) < Priority.rank(0.2, 2.0));
    }

    #[test]
    fn ordered_floats_keep_the_order_of_floats() {
        let all = [
            f64::NEG_INFINITY,
            -2.5,
            -1.0,
            -1e-300,
            -0.0,
            0.0,
            1e-300,
            0.1,
            0.1 + 1e-17 + f64::EPSILON,
            1.0,
            7e300,
            f64::INFINITY,
        ];
        for (one, other) in all
            .iter()
            .flat_map(|one| all.iter().map(move |own| (*one, *own)))
        {
            let order = OrderedF64::of(one).cmp(&OrderedF64::of(other));
            assert_eq!(order, one.total_cmp(&other), "{one} beside {other}");
            assert_eq!(OrderedF64::of(one).get().to_bits(), one.to_bits());
        }
        assert!(OrderedF64::of(f64::NAN) > OrderedF64::of(f64::INFINITY));
    }
}
