//! The throttle: admission of messages by rate limits, and traffic counts by principal.
//!
//! Each limit has a token bucket that fills at its rate, up to the permits of one second and at
//! least one. Queued messages have reserved permits, so queues are first come, first served. All
//! clones are one throttle, since a principal has one limit for all entrances; limits can be
//! replaced. It reads no clock: times are arguments, counted from any origin. It holds no messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::{Lane, Limit, RateLimits};

/// Maximum number of principals with traffic counts; further ones are not counted.
const COUNTED_MAX: usize = 10_000;
/// Maximum number of calls or commands that wait at once, per principal, or for all without a limit
/// of their own together.
pub const THROTTLE_QUEUE_MAX: u64 = 64;
/// Maximum time that a call or a command waits.
pub const THROTTLE_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// The error for a command that would wait too long.
pub const TOO_MANY_COMMANDS: &str =
    "too many commands of this principal wait for their turn under --rate_limits; try again";
/// Upper bound of returned waits.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The decision about messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    /// This many may be handled now; at least one.
    Now(u64),
    /// After this wait.
    After(Duration),
    /// Refused: the queue is full. There is room for one after this wait.
    Rejected(Duration),
}

/// The traffic of a principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages received.
    pub received: u64,
    /// Messages admitted.
    pub processed: u64,
    /// Messages dropped, because too many waited.
    pub dropped: u64,
}

/// Decides on the admission of messages. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct Throttle(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limits: RateLimits,
    named: BTreeMap<String, Bucket>,
    others: Option<Bucket>,
    traffic: BTreeMap<String, Traffic>,
}

/// A token bucket. Negative permits are reserved by queued messages.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    permits: f64,
    filled: Duration,
}

impl Bucket {
    fn full(limit: Limit, now: Duration) -> Self {
        Self {
            permits: capacity(limit),
            filled: now,
        }
    }

    fn fill(&mut self, limit: Limit, now: Duration) {
        let elapsed = now.saturating_sub(self.filled).as_secs_f64();
        self.permits = (self.permits + elapsed * limit.qps).min(capacity(limit));
        self.filled = self.filled.max(now);
    }

    /// The length of the queue.
    fn queue_length(&self) -> u64 {
        (-self.permits).max(0.0).ceil() as u64
    }

    /// The time until there are this many permits.
    fn until(&self, permits: f64, limit: Limit) -> Duration {
        let missing = (permits - self.permits).max(0.0);
        let wait = Duration::try_from_secs_f64(missing / limit.qps);
        wait.map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }
}

/// The capacity of the bucket.
fn capacity(limit: Limit) -> f64 {
    limit.qps.max(1.0)
}

impl Throttle {
    /// A throttle with these limits.
    pub fn new(limits: RateLimits) -> Self {
        let state = State {
            limits,
            ..State::default()
        };
        Self(Arc::new(Inner(Mutex::new(state))))
    }

    /// Replaces the limits. A changed limit starts with a full bucket; existing reservations stay
    /// valid.
    pub fn set_limits(&self, limits: RateLimits) {
        let mut state = self.state();
        let old = std::mem::replace(&mut state.limits, limits);
        let State {
            limits,
            named,
            others,
            ..
        } = &mut *state;
        named.retain(|name, _| limits.of(Some(name)) == old.of(Some(name)));
        if limits.of(None) != old.of(None) {
            *others = None;
        }
    }

    /// Admits one message that can be queued, with at most `queue_max` in the queue and a wait of
    /// at most `patience`. If it must wait, its permit is reserved.
    pub fn admit(
        &self,
        principal: Option<&str>,
        queue_max: u64,
        patience: Duration,
        now: Duration,
    ) -> RateDecision {
        let mut state = self.state();
        let Some((lane, limit)) = state.limits.of(principal) else {
            return RateDecision::Now(1);
        };
        let bucket = state.bucket(lane, limit, now);
        if bucket.permits >= 1.0 {
            bucket.permits -= 1.0;
            return RateDecision::Now(1);
        }
        let wait = bucket.until(1.0, limit);
        let places = limit.capacity.unwrap_or(u64::MAX).min(queue_max);
        // Between zero and one permit the queue is empty, and the next message is its first.
        if bucket.queue_length() >= places || wait > patience {
            return RateDecision::Rejected(wait);
        }
        bucket.permits -= 1.0;
        RateDecision::After(wait)
    }

    /// Admits and counts an HTTP call of this principal, which can be queued.
    pub fn admit_call(&self, principal: Option<&str>, now: Duration) -> RateDecision {
        let turn = self.admit(principal, THROTTLE_QUEUE_MAX, THROTTLE_QUEUE_TIMEOUT, now);
        self.count(principal, |traffic| {
            traffic.received += 1;
            match turn {
                RateDecision::Rejected(_) => traffic.dropped += 1,
                RateDecision::Now(_) | RateDecision::After(_) => traffic.processed += 1,
            }
        });
        turn
    }

    /// Admits an operator's command over a link, with a queue of its own length. Only names with
    /// their own limit are limited and counted: a flood of unnamed callers must not lock out
    /// operators, who are named by their process number unless they have a name.
    pub fn admit_command(&self, name: &str, now: Duration) -> RateDecision {
        if !self.state().limits.is_named(name) {
            return RateDecision::Now(1);
        }
        self.admit_call(Some(name), now)
    }

    /// How many of `waiting` messages, held by their sender, may be handled now. If it must wait,
    /// ask again then.
    pub fn take(&self, principal: Option<&str>, waiting: u64, now: Duration) -> RateDecision {
        self.take_or(principal, waiting, now, |_| {})
    }

    /// As [`Self::take`], but if it must wait, a permit is reserved for the first message, which
    /// may be handled then without another call. So later messages in the queue cannot starve it.
    pub fn take_or_reserve(
        &self,
        principal: Option<&str>,
        waiting: u64,
        now: Duration,
    ) -> RateDecision {
        self.take_or(principal, waiting, now, |bucket| bucket.permits -= 1.0)
    }

    fn take_or(
        &self,
        principal: Option<&str>,
        waiting: u64,
        now: Duration,
        told_to_wait: impl FnOnce(&mut Bucket),
    ) -> RateDecision {
        let mut state = self.state();
        let Some((lane, limit)) = state.limits.of(principal) else {
            return RateDecision::Now(waiting);
        };
        let bucket = state.bucket(lane, limit, now);
        if bucket.permits >= 1.0 {
            let taken = waiting.min(bucket.permits.floor() as u64);
            bucket.permits -= taken as f64;
            return RateDecision::Now(taken);
        }
        let wait = bucket.until(1.0, limit);
        told_to_wait(bucket);
        RateDecision::After(wait)
    }

    /// Whether this principal is named in the limits, with or without a limit of its own.
    pub fn is_named(&self, principal: &str) -> bool {
        self.state().limits.is_named(principal)
    }

    /// The limit of this principal's messages, if there is one.
    pub fn limit(&self, principal: Option<&str>) -> Option<Limit> {
        self.state().limits.of(principal).map(|(_, limit)| limit)
    }

    /// Counts traffic of a principal. Callers without a principal are not counted.
    pub fn count(&self, principal: Option<&str>, change: impl FnOnce(&mut Traffic)) {
        let Some(principal) = principal else { return };
        let mut state = self.state();
        if let Some(traffic) = state.traffic.get_mut(principal) {
            change(traffic);
        } else if state.traffic.len() < COUNTED_MAX {
            change(state.traffic.entry(principal.to_owned()).or_default());
        }
    }

    /// The traffic of each principal: a few thousand at most.
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        self.state().traffic.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers only, so a panic of a holder leaves them valid.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bucket of a lane, filled up to now.
    fn bucket(&mut self, lane: Lane<'_>, limit: Limit, now: Duration) -> &mut Bucket {
        let full = || Bucket::full(limit, now);
        let bucket = match lane {
            Lane::Others => self.others.get_or_insert_with(full),
            // Bounded by the configured names.
            Lane::Of(name) => self.named.entry(name.to_owned()).or_insert_with(full),
        };
        bucket.fill(limit, now);
        bucket
    }
}

/// Compares the limits.
impl PartialEq for Throttle {
    fn eq(&self, other: &Self) -> bool {
        // One after the other: they may be the same throttle.
        let own = self.state().limits.clone();
        own == other.state().limits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn throttle(text: &str) -> Throttle {
        Throttle::new(RateLimits::parse(text).unwrap())
    }

    /// SPEC 3.3, W29.
    #[test]
    fn queue_drains_at_the_rate_and_drops_beyond_capacity() {
        let throttle = throttle(r#"{"limits":[{"principal":"p","qps":2,"capacity":3}]}"#);
        let come = |at_ms| {
            let now = Duration::from_millis(at_ms);
            throttle.admit(Some("p"), 64, 10 * SECOND, now)
        };
        let turns: Vec<RateDecision> = (0..6).map(|_| come(0)).collect();
        let after = |ms| RateDecision::After(Duration::from_millis(ms));
        // Two permits were saved up, three messages wait.
        let expected = [
            RateDecision::Now(1),
            RateDecision::Now(1),
            after(500),
            after(1000),
            after(1500),
            RateDecision::Rejected(Duration::from_millis(2000)),
        ];
        assert_eq!(turns, expected);
        assert_eq!(come(500), after(1500));
        // Others are not affected.
        let other = throttle.admit(Some("q"), 64, SECOND, Duration::ZERO);
        assert_eq!(other, RateDecision::Now(1));
        assert_eq!(
            throttle.take(None, 1000, Duration::ZERO),
            RateDecision::Now(1000)
        );
        // Much later there are the permits of one second, and no more.
        assert_eq!(
            throttle.take(Some("p"), 9, 1000 * SECOND),
            RateDecision::Now(2)
        );
        let rest = throttle.take(Some("p"), 7, 1000 * SECOND);
        assert_eq!(rest, after(500), "what waits at its sender is in no line");
    }

    /// W29: a native sender with few messages is not starved by a queue of HTTP calls.
    #[test]
    fn reserved_permit_is_kept_from_later_messages() {
        let throttle = throttle(r#"{"limits":[{"principal":"p","qps":2,"capacity":3}]}"#);
        let stand = |at| throttle.admit(Some("p"), 64, 10 * SECOND, at);
        while stand(Duration::ZERO) != RateDecision::Rejected(2 * SECOND) {}
        // Without a reservation it would fail as long as there is a queue.
        let waits = RateDecision::After(2 * SECOND);
        assert_eq!(throttle.take(Some("p"), 9, Duration::ZERO), waits);
        assert_eq!(
            throttle.take_or_reserve(Some("p"), 9, Duration::ZERO),
            waits
        );
        let behind = Duration::from_millis(1500);
        assert_eq!(
            stand(SECOND),
            RateDecision::After(behind),
            "it comes after that"
        );
    }

    /// W29: the shared limit does not apply to commands, each of which has another name.
    // Covers W29.
    #[test]
    fn commands_use_and_count_the_limit_of_their_name() {
        let throttle = throttle(
            r#"{"limits":[{"principal":"ops","qps":1,"capacity":1},{"principal":"free"},{"principal":"patient","qps":1}],
                "aggregate_default_qps":1,"aggregate_default_capacity":0}"#,
        );
        let come = |name: &str| throttle.admit_command(name, Duration::ZERO);
        let turns = [
            RateDecision::Now(1),
            RateDecision::After(SECOND),
            RateDecision::Rejected(2 * SECOND),
        ];
        assert_eq!([come("ops"), come("ops"), come("ops")], turns);
        assert_eq!([come("free"), come("free")], [RateDecision::Now(1); 2]);
        assert_eq!(
            [come("operator-1"), come("operator-1")],
            [RateDecision::Now(1); 2]
        );
        // They wait as long as an HTTP call does.
        let waits: Vec<RateDecision> = (0..12).map(|_| come("patient")).collect();
        let after = |seconds| RateDecision::After(seconds * SECOND);
        assert_eq!(waits[..2], [RateDecision::Now(1), after(1)]);
        assert_eq!(
            waits[10..],
            [after(10), RateDecision::Rejected(11 * SECOND)]
        );
        let traffic = throttle.traffic();
        assert_eq!(
            traffic.keys().collect::<Vec<_>>(),
            ["free", "ops", "patient"]
        );
        let ops = traffic["ops"];
        assert_eq!((ops.received, ops.processed, ops.dropped), (3, 2, 1));
    }

    #[test]
    fn without_capacity_the_callers_bounds_apply() {
        let throttle = throttle(r#"{"aggregate_default_qps":0.5}"#);
        let now = Duration::ZERO;
        assert_eq!(throttle.take(None, 1_000_000, now), RateDecision::Now(1));
        assert_eq!(
            throttle.take(None, 1_000_000, now),
            RateDecision::After(2 * SECOND)
        );
        let line = |line, patience| throttle.admit(Some("x"), line, patience, now);
        assert_eq!(line(9, SECOND), RateDecision::Rejected(2 * SECOND));
        assert_eq!(line(9, 2 * SECOND), RateDecision::After(2 * SECOND));
        assert_eq!(line(1, 9 * SECOND), RateDecision::Rejected(4 * SECOND));
        // Any rate yields a finite wait.
        let slow = self::throttle(r#"{"aggregate_default_qps":1e-300}"#);
        assert_eq!(slow.take(None, 1, now), RateDecision::Now(1));
        assert_eq!(slow.take(None, 1, now), RateDecision::After(WAIT_MAX));
    }

    #[test]
    fn traffic_is_counted_for_named_principals() {
        let throttle = Throttle::default();
        throttle.count(Some("p"), |traffic| traffic.received += 2);
        throttle
            .clone()
            .count(Some("p"), |traffic| traffic.dropped += 1);
        throttle.count(None, |traffic| traffic.received += 1);
        let p = Traffic {
            received: 2,
            processed: 0,
            dropped: 1,
        };
        assert_eq!(throttle.traffic(), [("p".to_owned(), p)].into());
    }

    #[test]
    fn replaced_limits_reach_clones_and_keep_unchanged_buckets() {
        let throttle =
            throttle(r#"{"limits":[{"principal":"p","qps":1},{"principal":"q","qps":1}]}"#);
        let now = Duration::ZERO;
        for name in ["p", "q"] {
            assert_eq!(throttle.take(Some(name), 9, now), RateDecision::Now(1));
        }
        let anew = r#"{"limits":[{"principal":"p","qps":5},{"principal":"q","qps":1}],"aggregate_default_qps":2}"#;
        throttle
            .clone()
            .set_limits(RateLimits::parse(anew).unwrap());
        assert_eq!(throttle.take(Some("p"), 9, now), RateDecision::Now(5));
        assert_eq!(
            throttle.take(Some("q"), 9, now),
            RateDecision::After(SECOND)
        );
        assert_eq!(throttle.take(None, 9, now), RateDecision::Now(2));
        throttle.set_limits(RateLimits::default());
        assert_eq!(throttle.take(Some("q"), 9, now), RateDecision::Now(9));
        assert_eq!(throttle, Throttle::default());
    }

    proptest! {
        /// W29: in no time is more handled than the rate allows, beside what one second saves up;
        /// and no message waits longer than those before it need.
        // Covers W29.
        #[test]
        fn admitted_messages_never_exceed_the_rate(
            qps in 0.1f64..50.0,
            capacity in prop::option::of(0u64..20),
            steps in prop::collection::vec((0u64..400, any::<bool>(), 1u64..30), 1..60),
        ) {
            let capacity_text = capacity.map_or(String::new(), |c| format!(r#","capacity":{c}"#));
            let text = format!(r#"{{"limits":[{{"principal":"p","qps":{qps}{capacity_text}}}]}}"#);
            let throttle = throttle(&text);
            let mut now = Duration::ZERO;
            // The time when each was or will be handled.
            let mut handled: Vec<f64> = Vec::new();
            for (gap, stands, count) in steps {
                now += Duration::from_millis(gap);
                let books = !stands && count % 2 == 0;
                let turn = match (stands, books) {
                    (true, _) => throttle.admit(Some("p"), 64, 1000 * SECOND, now),
                    (false, true) => throttle.take_or_reserve(Some("p"), count, now),
                    (false, false) => throttle.take(Some("p"), count, now),
                };
                match turn {
                    RateDecision::Now(taken) => {
                        prop_assert!(taken >= 1 && taken <= count.max(1));
                        handled.extend(std::iter::repeat_n(now.as_secs_f64(), taken as usize));
                    }
                    RateDecision::After(wait) if stands || books => handled.push((now + wait).as_secs_f64()),
                    RateDecision::After(wait) => prop_assert!(!wait.is_zero()),
                    RateDecision::Rejected(_) => {
                        let waits = handled.iter().filter(|at| **at > now.as_secs_f64()).count() as u64;
                        prop_assert!(stands && waits + 1 > capacity.unwrap_or(64).min(64));
                    }
                }
            }
            handled.sort_by(f64::total_cmp);
            for (first, from) in handled.iter().enumerate() {
                for (last, to) in handled.iter().enumerate().skip(first) {
                    let most = (to - from) * qps + qps.max(1.0) + 1e-6;
                    prop_assert!((last - first + 1) as f64 <= most, "{} in {}", last - first + 1, to - from);
                }
            }
        }
    }
}
