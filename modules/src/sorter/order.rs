//! Orders: who of the roles below a role, or of the frameworks in one, comes first when something is to be given (SPEC 4.8, S113).
//!
//! Pure, but for the dice of the lottery. An order sees of each its share and its weight and nothing else; the tree keeps the places.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::fmt::{self, Debug};

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
        Number::of(share / weight)
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
        (Reverse(Number::of(weight)), Number::of(share))
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
        Number::of(weight)
    }

    fn turns<'a, T>(&self, kept: impl Iterator<Item = (&'a Number, T)>) -> impl Iterator<Item = T> {
        let mut dice = self.0.borrow_mut();
        // The first of several alarm clocks to ring is each with a chance of its rate, and so is the next of those left.
        let mut ring = |rate: f64| Number::of(-(1.0 - dice.random::<f64>()).ln() / rate);
        let mut drawn: Vec<(Number, T)> = kept
            .map(|(weight, sibling)| (ring(weight.get()), sibling))
            .collect();
        drawn.sort_by_key(|(ring, _)| *ring);
        drawn.into_iter().map(|(_, sibling)| sibling)
    }
}

/// A number to put things in order by. It is kept as an integer of the same order, because two of them are compared thousands of times in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(i64);

impl Number {
    /// This number.
    pub fn of(number: f64) -> Self {
        Self(Self::turn(number.to_bits().cast_signed()))
    }

    /// What it was made of.
    pub fn get(self) -> f64 {
        f64::from_bits(Self::turn(self.0).cast_unsigned())
    }

    /// Bits of numbers below zero rise with their distance from it: all but the sign is turned round, there and back.
    fn turn(bits: i64) -> i64 {
        bits ^ ((bits >> 63) & i64::MAX)
    }
}

impl Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

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

    #[test]
    fn numbers_have_the_order_of_what_they_were_made_of() {
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
            let order = Number::of(one).cmp(&Number::of(other));
            assert_eq!(order, one.total_cmp(&other), "{one} beside {other}");
            assert_eq!(Number::of(one).get().to_bits(), one.to_bits());
        }
        assert!(Number::of(f64::NAN) > Number::of(f64::INFINITY));
    }
}
