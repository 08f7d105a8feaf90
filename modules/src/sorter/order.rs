//! Orders: who of the roles below a role, or of the frameworks in one, comes first when something is to be given (SPEC 4.8, S113).
//!
//! Pure, but for the dice of the lottery. An order sees of each its share and its weight and nothing else; the tree keeps the places.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::fmt::Debug;

use rand::Rng;
use rand::rngs::SmallRng;

/// How siblings stand to each other.
pub trait Order: Clone + Debug + Unpin + 'static {
    /// What siblings are kept in order of. Of equal ranks, who was chosen less often comes first, and then the lesser name.
    type Rank: Ord + Copy + Debug + Unpin;

    /// The rank of one that holds this dominant share and has this weight.
    fn rank(&self, share: f64, weight: f64) -> Self::Rank;

    /// The order in which siblings are asked this time, of those that are kept in order.
    fn turns<'a, T>(
        &self,
        kept: impl Iterator<Item = (&'a Self::Rank, T)>,
    ) -> impl Iterator<Item = T> {
        kept.map(|(_, sibling)| sibling)
    }
}

/// Weighted dominant resource fairness: whose share, divided by its weight, is smallest (S78, S88).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Order for Fair {
    type Rank = Number;

    fn rank(&self, share: f64, weight: f64) -> Number {
        Number(share / weight)
    }
}

/// Strict priorities (S113): a role's weight is its priority among the roles beside it, and whoever has a higher one is asked first, however
/// much it holds. Equals share by dominant share, as frameworks in one role do. A role's own frameworks have priority 1 beside the roles
/// below it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priority;

impl Order for Priority {
    type Rank = (Reverse<Number>, Number);

    fn rank(&self, share: f64, weight: f64) -> Self::Rank {
        (Reverse(Number(weight)), Number(share))
    }
}

/// A lottery: of those that can be given something, each is first with a chance of its weight, whatever it holds. Drawn anew for each portion
/// that is given, so it costs a draw for each sibling where the others cost nothing.
#[derive(Clone, Debug)]
pub struct Lottery(RefCell<SmallRng>);

impl Lottery {
    /// A lottery that draws with these dice.
    pub fn new(dice: SmallRng) -> Self {
        Self(RefCell::new(dice))
    }
}

impl Order for Lottery {
    type Rank = Number;

    fn rank(&self, _: f64, weight: f64) -> Number {
        Number(weight)
    }

    fn turns<'a, T>(&self, kept: impl Iterator<Item = (&'a Number, T)>) -> impl Iterator<Item = T> {
        let mut dice = self.0.borrow_mut();
        // The first of several alarm clocks to ring is each with a chance of its rate, and so is the next of those left.
        let mut ring = |rate: f64| Number(-(1.0 - dice.random::<f64>()).ln() / rate);
        let mut drawn: Vec<(Number, T)> = kept
            .map(|(weight, sibling)| (ring(weight.0), sibling))
            .collect();
        drawn.sort_by_key(|(ring, _)| *ring);
        drawn.into_iter().map(|(_, sibling)| sibling)
    }
}

/// A number to put things in order by.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f64);

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// How often each of those with these weights was first in 10,000 draws.
    fn firsts(weights: &[f64], seed: u64) -> Vec<f64> {
        let lottery = Lottery::new(SmallRng::seed_from_u64(seed));
        let ranks: Vec<Number> = weights
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

    /// SPEC 4.8: within four standard deviations of what the weights say, for a few seeds.
    #[test]
    fn in_a_lottery_each_is_first_with_a_chance_of_its_weight() {
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
    fn a_share_counts_by_weight_only_where_weights_are_no_priorities() {
        assert_eq!(Fair.rank(0.4, 2.0), Fair.rank(0.2, 1.0));
        assert!(Fair.rank(0.3, 2.0) < Fair.rank(0.2, 1.0));
        assert!(Priority.rank(0.9, 2.0) < Priority.rank(0.0, 1.0));
        assert!(Priority.rank(0.1, 2.0) < Priority.rank(0.2, 2.0));
    }
}
