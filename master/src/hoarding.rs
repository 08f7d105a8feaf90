//! Hoarding: how long offers are held unanswered, when they are taken back for that, and how many a framework may hold at a time (W8, S129).
//!
//! Pure. Ages are kept with the offers themselves ([`crate::offers`]): each look is at the oldest ones alone, so that what is answered in time
//! costs no timer. Whoever lets an offer expire is not offered that again for as long as it held it, at most a minute: or whoever is always
//! next because it uses nothing would have it again at once, and others never.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use module_api::allocator::OfferBudgetSpent;
use protocol::FrameworkId;
use resources::Invalid;
use runtime::{Statistics, Timestamp};

use crate::books::Books;
use crate::effects::{Due, Effect, Effects, Tell, ToAllocator};
use crate::tasks::Freed;

/// The longest that what somebody let expire is kept from it. Longer than most schedulers refuse what they do not want at present, so that others
/// who have just declined it see it again first.
const HIDDEN_MAX: Duration = Duration::from_secs(60);
/// Two looks at what has expired are at least so far apart: offers come every few milliseconds.
const LOOKS_APART: Duration = Duration::from_millis(10);
/// What went over a budget is offered to its framework again with the next batch at the soonest, which is the shortest that a filter lasts.
const OVER_BUDGET: Duration = Duration::from_millis(1);

/// How long offers have been held that are not out any more: counts by length, each an eighth longer than the one before at most.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldFor {
    counts: [u64; BUCKETS],
    longest: Duration,
    shortest: Duration,
    sum: Duration,
}

/// Of each power of two in milliseconds so many parts.
const PARTS: u64 = 8;
/// Up to 2^33 ms, a hundred days; what is longer counts as that.
const BUCKETS: usize = 31 * PARTS as usize;

impl Default for HeldFor {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            longest: Duration::ZERO,
            shortest: Duration::MAX,
            sum: Duration::ZERO,
        }
    }
}

/// Which count a time belongs to: below 8 ms each millisecond has its own.
fn bucket(held: Duration) -> usize {
    let ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    let shift = (ms | 1).ilog2().saturating_sub(PARTS.ilog2());
    let n = u64::from(shift) * PARTS + (ms >> shift);
    usize::try_from(n).map_or(BUCKETS - 1, |n| n.min(BUCKETS - 1))
}

/// Where that count begins, in milliseconds.
fn beginning(bucket: usize) -> f64 {
    let (shift, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    match shift {
        0 => part as f64,
        shift => (part + PARTS) as f64 * 2_f64.powi(shift as i32 - 1),
    }
}

impl HeldFor {
    /// One more, held for so long.
    pub fn record(&mut self, held: Duration) {
        self.counts[bucket(held)] += 1;
        self.longest = self.longest.max(held);
        self.shortest = self.shortest.min(held);
        self.sum = self.sum.saturating_add(held);
    }

    /// All of them together, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum.as_secs_f64()
    }

    /// What can be said of them, in seconds; nothing of fewer than two. Percentiles are a sixteenth too long or too short at most.
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

/// How many unanswered offers a framework may hold at a time, in all its roles together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferBudget {
    /// So many.
    Offers(u64),
    /// As many as this part of the agents that are registered, in hundredths.
    Percent(u8),
}

impl OfferBudget {
    /// How many that is of so many agents: never none, or a framework could hold nothing at all.
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

    /// A number above zero, or hundredths as in `25%`.
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

/// When to look for the first time, or again, if that is to be: when the oldest offer expires, not too soon after the last look, and no later
/// than after the timeout, whatever the clock was set to since the offer was made.
pub fn next_look(oldest: Option<Timestamp>, timeout: Duration, now: Timestamp) -> Option<Duration> {
    let due = (oldest? + timeout).saturating_since(now);
    Some(due.clamp(LOOKS_APART.min(timeout), timeout))
}

/// For how long what a framework let expire is kept from it.
pub fn hidden(timeout: Duration) -> Duration {
    timeout.min(HIDDEN_MAX)
}

impl Books {
    /// Offers are out: a look at them is planned, unless one is.
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

    /// Takes back what has been unanswered for too long, and hides it from whoever did not answer for a while.
    pub fn expire_offers(&mut self, now: Timestamp, out: &mut Effects) {
        self.expiry_planned = false;
        let Some(timeout) = self.policy.offer_timeout else {
            return;
        };
        let late = self.offers.made_until(now, timeout);
        self.counters.add("master/offers_expired", late.len());
        self.rescind_refused(late, Some(hidden(timeout)), out);
        self.plan_expiry(now, out);
    }

    /// Whether the framework may be offered one more.
    pub(crate) fn has_budget(&self, framework: &FrameworkId, most: Option<usize>) -> bool {
        most.is_none_or(|most| self.offers.count_of(framework) < most)
    }

    /// How many offers a framework may hold at present, if that is bounded.
    pub(crate) fn offers_max(&self) -> Option<usize> {
        let budget = self.policy.offer_budget?;
        Some(budget.most(self.agents.known()))
    }

    /// This was granted to somebody who holds all that it may: the allocator hears so, and then has it again for others at once.
    pub(crate) fn over_budget(&mut self, freed: Freed, most: usize, out: &mut Effects) {
        self.counters.count("master/offers_over_budget");
        if self.spent.insert(freed.framework_id.clone()) {
            out.allocator(ToAllocator::OfferBudgetSpent(OfferBudgetSpent {
                framework_id: freed.framework_id.clone(),
                most: Some(most as u64),
            }));
        }
        self.recovered(freed, Some(OVER_BUDGET), out);
    }

    /// Offers may have been answered: who holds no more than half of its budget may be granted more. Not from the first answer on, or each
    /// would cost a run that finds one offer for it.
    pub(crate) fn renew_budgets(&mut self, out: &mut Effects) {
        if self.spent.is_empty() {
            return;
        }
        let most = self.offers_max().unwrap_or(usize::MAX);
        let offers = &self.offers;
        let is_spent = |id: &FrameworkId| offers.count_of(id) > most / 2;
        let all = std::mem::take(&mut self.spent).into_iter();
        let (spent, renewed): (BTreeSet<_>, BTreeSet<_>) = all.partition(is_spent);
        self.spent = spent;
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

    fn held(milliseconds: &[u64]) -> HeldFor {
        let mut held = HeldFor::default();
        for ms in milliseconds {
            held.record(Duration::from_millis(*ms));
        }
        held
    }

    /// W8.
    #[test]
    fn how_long_offers_were_held_is_known_to_a_sixteenth_whatever_the_length() {
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

    /// W8.
    #[test]
    fn a_budget_is_a_number_of_offers_or_a_part_of_the_agents_and_never_nothing() {
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

    /// S129.
    #[test]
    fn the_next_look_is_when_the_oldest_offer_expires_and_never_at_once() {
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
        assert_eq!(hidden(Duration::from_secs(7)), Duration::from_secs(7));
        assert_eq!(hidden(Duration::from_secs(600)), HIDDEN_MAX);
    }
}
