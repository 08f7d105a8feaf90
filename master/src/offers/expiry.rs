//! Offer expiry and offer budgets: how long offers stay unanswered, when they are rescinded, and
//! how many a framework may hold.
//!
//! Pure. Ages are kept with the offers ([`crate::offers`]): each check looks at the oldest ones
//! only, so an offer answered in time costs no timer. A framework that lets an offer expire is
//! filtered for as long as it held the offer, at most a minute. Otherwise a framework that uses
//! nothing, and so is always next, would get it again at once and others never.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use module_api::allocator::OfferBudgetSpent;
use protocol::FrameworkId;
use resources::Invalid;
use runtime::{Statistics, Timestamp};

use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAllocator};
use crate::tasks::Freed;

/// Maximum filter after an expired offer. Longer than the usual filter of a declined offer, so that
/// others see the resources first.
const HIDDEN_MAX: Duration = Duration::from_secs(60);
/// Minimum time between two expiry checks: offers arrive every few milliseconds.
const LOOKS_APART: Duration = Duration::from_millis(10);
/// Filter for grants over the budget: the shortest filter, which ends with the next batch.
const OVER_BUDGET: Duration = Duration::from_millis(1);

/// Histogram of the times for which offers were held; each bucket is at most an eighth longer than
/// the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldTimes {
    counts: [u64; BUCKETS],
    longest: Duration,
    shortest: Duration,
    sum: Duration,
}

/// Buckets per power of two of milliseconds.
const PARTS: u64 = 8;
/// Up to 2^33 ms, a hundred days; longer times fall into the last bucket.
const BUCKETS: usize = 31 * PARTS as usize;

impl Default for HoldTimes {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            longest: Duration::ZERO,
            shortest: Duration::MAX,
            sum: Duration::ZERO,
        }
    }
}

/// The bucket of a time; below 8 ms each millisecond has its own.
fn bucket(held: Duration) -> usize {
    let ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    let shift = (ms | 1).ilog2().saturating_sub(PARTS.ilog2());
    let n = u64::from(shift) * PARTS + (ms >> shift);
    usize::try_from(n).map_or(BUCKETS - 1, |n| n.min(BUCKETS - 1))
}

/// The lower bound of a bucket in milliseconds.
fn beginning(bucket: usize) -> f64 {
    let (shift, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    match shift {
        0 => part as f64,
        shift => (part + PARTS) as f64 * 2_f64.powi(shift as i32 - 1),
    }
}

impl HoldTimes {
    /// Adds one time.
    pub fn record(&mut self, held: Duration) {
        self.counts[bucket(held)] += 1;
        self.longest = self.longest.max(held);
        self.shortest = self.shortest.min(held);
        self.sum = self.sum.saturating_add(held);
    }

    /// The sum of all times, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum.as_secs_f64()
    }

    /// Statistics in seconds; `None` for fewer than two values. Percentiles are accurate to a
    /// sixteenth.
    pub fn statistics(&self) -> Option<Statistics> {
        let count = self.counts.iter().sum::<u64>();
        if count < 2 {
            return None;
        }
        let (min, max) = (self.shortest.as_secs_f64(), self.longest.as_secs_f64());
        let at = |part: f64| {
            let rank = part * (count - 1) as f64;
            let mut before = 0;
            let within = self.counts.iter().position(|count| {
                before += count;
                before as f64 > rank
            });
            let n = within.unwrap_or(BUCKETS - 1);
            (beginning(n) + beginning(n + 1)) / 2.0 / 1000.0
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(Statistics::by(count, |part| match part {
            0.0 => min,
            1.0 => max,
            part => at(part).clamp(min, max),
        }))
    }
}

/// Maximum unanswered offers of a framework, in all its roles together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferBudget {
    /// A number of offers.
    Offers(u64),
    /// A percentage of the registered agents.
    Percent(u8),
}

impl OfferBudget {
    /// The number of offers for this number of agents: at least one, or a framework could get none
    /// at all.
    pub fn most(self, agents: usize) -> usize {
        let most = match self {
            Self::Offers(most) => usize::try_from(most).unwrap_or(usize::MAX),
            Self::Percent(percent) => agents.saturating_mul(usize::from(percent)) / 100,
        };
        most.max(1)
    }
}

impl FromStr for OfferBudget {
    type Err = Invalid;

    /// Parses a number above zero, or a percentage such as `25%`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let read = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Offers),
        };
        let sound = |budget: &Self| match budget {
            Self::Offers(most) => *most > 0,
            Self::Percent(percent) => (1..=100).contains(percent),
        };
        read.filter(sound).ok_or_else(|| {
            let expected = "a number of offers from 1 on, or 1% to 100% of the agents";
            Invalid::new("offer_budget", text, expected)
        })
    }
}

impl fmt::Display for OfferBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offers(most) => write!(f, "{most}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The delay to the next expiry check, if there is an offer: when the oldest expires, not too soon
/// after the last check, and within the timeout even if the clock was set back.
pub fn next_look(oldest: Option<Timestamp>, timeout: Duration, now: Timestamp) -> Option<Duration> {
    let due = (oldest? + timeout).saturating_since(now);
    Some(due.clamp(LOOKS_APART.min(timeout), timeout))
}

/// The filter after an expired offer.
pub fn expiry_filter(timeout: Duration) -> Duration {
    timeout.min(HIDDEN_MAX)
}

impl MasterState {
    /// Schedules an expiry check, unless one is scheduled.
    pub(crate) fn plan_expiry(&mut self, now: Timestamp, out: &mut Effects) {
        let Some(timeout) = self.policy.offer_timeout else {
            return;
        };
        if !self.expiry_planned
            && let Some(wait) = next_look(self.offers.oldest(), timeout, now)
        {
            self.expiry_planned = true;
            out.push(Effect::Later(wait, Due::OffersToExpire));
        }
    }

    /// Rescinds expired offers, and filters their resources for the holders.
    pub fn expire_offers(&mut self, now: Timestamp, out: &mut Effects) {
        self.expiry_planned = false;
        let Some(timeout) = self.policy.offer_timeout else {
            return;
        };
        let late = self.offers.made_until(now, timeout);
        self.counters.add("master/offers_expired", late.len());
        self.rescind_refused(late, Some(expiry_filter(timeout)), out);
        self.plan_expiry(now, out);
    }

    /// Whether the framework may get one more offer.
    pub(crate) fn has_budget(&self, framework: &FrameworkId, most: Option<usize>) -> bool {
        most.is_none_or(|most| self.offers.count_of(framework) < most)
    }

    /// The current maximum of offers per framework, if bounded.
    pub(crate) fn offers_max(&self) -> Option<usize> {
        let budget = self.policy.offer_budget?;
        Some(budget.most(self.agents.known()))
    }

    /// A grant to a framework at its budget: reports that to the allocator, and returns the
    /// resources for others.
    pub(crate) fn refuse_over_budget(&mut self, freed: Freed, most: usize, out: &mut Effects) {
        self.counters.count("master/offers_over_budget");
        if self.over_budget.insert(freed.framework_id.clone()) {
            out.allocator(ToAllocator::OfferBudgetSpent(OfferBudgetSpent {
                framework_id: freed.framework_id.clone(),
                most: Some(most as u64),
            }));
        }
        self.recovered(freed, Some(OVER_BUDGET), out);
    }

    /// Reports frameworks that hold at most half of their budget as available again. Not at the
    /// first answer, which would cost an allocator run for a single offer.
    pub(crate) fn renew_budgets(&mut self, out: &mut Effects) {
        if self.over_budget.is_empty() {
            return;
        }
        let most = self.offers_max().unwrap_or(usize::MAX);
        let offers = &self.offers;
        let is_spent = |id: &FrameworkId| offers.count_of(id) > most / 2;
        let all = std::mem::take(&mut self.over_budget).into_iter();
        let (over_budget, renewed): (BTreeSet<_>, BTreeSet<_>) = all.partition(is_spent);
        self.over_budget = over_budget;
        for framework_id in renewed {
            out.allocator(ToAllocator::OfferBudgetSpent(OfferBudgetSpent {
                framework_id,
                most: None,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(milliseconds: &[u64]) -> HoldTimes {
        let mut held = HoldTimes::default();
        for ms in milliseconds {
            held.record(Duration::from_millis(*ms));
        }
        held
    }

    // Covers W8.
    #[test]
    fn hold_times_are_accurate_to_a_sixteenth() {
        assert_eq!(held(&[5]).statistics(), None);
        let few = held(&[0, 1_000]).statistics().unwrap();
        assert_eq!((few.count, few.min, few.max), (2, 0.0, 1.0));
        for ms in [1, 7, 8, 9, 100, 4_321, 600_000, 86_400_000] {
            let exact = ms as f64 / 1000.0;
            let mut many = held(&[ms; 98]);
            many.record(Duration::ZERO);
            many.record(Duration::from_secs(10_000_000_000));
            let found = many.statistics().unwrap();
            let off = (found.p50 - exact).abs() / exact;
            assert!(
                off <= 0.0625 || found.p50 - exact < 0.000_501,
                "{ms}: {found:?}"
            );
            assert!(found.p99 >= found.p50 && found.max == 10_000_000_000.0);
        }
        let beginnings: Vec<f64> = (0..=BUCKETS).map(beginning).collect();
        assert!(beginnings.is_sorted_by(|one, next| one < next));
        assert_eq!(held(&[250, 750]).sum(), 1.0);
    }

    // Covers W8.
    #[test]
    fn offer_budgets_are_counts_or_percentages_above_zero() {
        for (text, agents, most) in [
            ("1", 10_000, 1),
            ("500", 10, 500),
            ("25%", 1_000, 250),
            ("25%", 3, 1),
            ("1%", 0, 1),
            ("100%", 7, 7),
        ] {
            let budget: OfferBudget = text.parse().unwrap();
            assert_eq!(budget.most(agents), most, "{text} of {agents}");
            assert_eq!(budget.to_string(), text);
        }
        for wrong in ["0", "0%", "101%", "-1", "", "%", "many", "2.5", "300%"] {
            let error = wrong.parse::<OfferBudget>().unwrap_err().to_string();
            let names = error.starts_with(&format!("offer_budget is `{wrong}`: expected "));
            assert!(names, "{error}");
        }
    }

    // Covers S129.
    #[test]
    fn next_expiry_check_is_when_the_oldest_offer_expires() {
        let at = |secs: u64| Timestamp::from_nanos(secs * 1_000_000_000);
        let timeout = Duration::from_secs(30);
        assert_eq!(next_look(None, timeout, at(5)), None);
        let look = |oldest, now| next_look(Some(at(oldest)), timeout, at(now));
        assert_eq!(look(5, 5), Some(timeout));
        assert_eq!(look(5, 34), Some(Duration::from_secs(1)));
        assert_eq!(look(5, 99), Some(LOOKS_APART));
        assert_eq!(look(5_000, 5), Some(timeout), "the clock was set back");
        let short = Duration::from_millis(1);
        assert_eq!(next_look(Some(at(5)), short, at(99)), Some(short));
        assert_eq!(
            expiry_filter(Duration::from_secs(7)),
            Duration::from_secs(7)
        );
        assert_eq!(expiry_filter(Duration::from_secs(600)), HIDDEN_MAX);
    }
}
