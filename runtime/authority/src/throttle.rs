//! The throttle: whose turn it is, by rate limits, and what came of each principal's messages (SPEC 3.3, W29).
//!
//! A bucket for each limit fills with permits at its rate, up to those of one second and at least one. Who stands in a line has a place
//! that was booked ahead, so lines are first come, first served. All clones are one throttle, since a principal has one limit whatever door
//! it comes by; limits can be chosen anew. Knows no clock: times are passed in, counted from any beginning. Never keeps a message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::{Lane, Limit, RateLimits};

/// Principals whose traffic is counted; what comes of more is not.
const COUNTED_MAX: usize = 10_000;
/// The most calls or commands of one principal, or calls of all without a limit of their own together, that wait for their turn at once.
pub const LINE_MAX: u64 = 64;
/// The longest that a call or a command waits for its turn.
pub const LINE_PATIENCE: Duration = Duration::from_secs(10);
/// Why a command is refused that would wait for too long.
pub const TOO_MANY_COMMANDS: &str =
    "too many commands of this principal wait for their turn under --rate_limits; try again";
/// The longest wait that is said.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether messages may be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// So many of them, now; at least one.
    Now(u64),
    /// After so long.
    After(Duration),
    /// Never: too many stand in the line already. There is room for one after so long.
    Over(Duration),
}

/// What came of a principal's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Those that came.
    pub received: u64,
    /// Those whose turn came.
    pub processed: u64,
    /// Those that were dropped, since too many waited.
    pub dropped: u64,
}

/// Decides whose turn it is. Clones are the same one.
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

/// Permits. Below zero they are promised to who stands in the line.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    permits: f64,
    filled: Duration,
}

impl Bucket {
    fn full(limit: Limit, now: Duration) -> Self {
        Self {
            permits: most(limit),
            filled: now,
        }
    }

    fn fill(&mut self, limit: Limit, now: Duration) {
        let elapsed = now.saturating_sub(self.filled).as_secs_f64();
        self.permits = (self.permits + elapsed * limit.qps).min(most(limit));
        self.filled = self.filled.max(now);
    }

    /// How many stand in the line.
    fn line(&self) -> u64 {
        (-self.permits).max(0.0).ceil() as u64
    }

    /// How long until there are so many permits.
    fn until(&self, permits: f64, limit: Limit) -> Duration {
        let missing = (permits - self.permits).max(0.0);
        let wait = Duration::try_from_secs_f64(missing / limit.qps);
        wait.map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }
}

/// The most permits that are saved up.
fn most(limit: Limit) -> f64 {
    limit.qps.max(1.0)
}

impl Throttle {
    /// One with these limits.
    pub fn new(limits: RateLimits) -> Self {
        let state = State {
            limits,
            ..State::default()
        };
        Self(Arc::new(Inner(Mutex::new(state))))
    }

    /// From now on these are the limits. Who has another one than before begins with what one second saves up; places that were promised are
    /// kept by those who have them.
    pub fn renew(&self, limits: RateLimits) {
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

    /// One message comes that can stand in a line, of at most `line` for at most `patience`. Told to wait, it has its place.
    pub fn stand_in_line(
        &self,
        principal: Option<&str>,
        line: u64,
        patience: Duration,
        now: Duration,
    ) -> Turn {
        let mut state = self.state();
        let Some((lane, limit)) = state.limits.of(principal) else {
            return Turn::Now(1);
        };
        let bucket = state.bucket(lane, limit, now);
        if bucket.permits >= 1.0 {
            bucket.permits -= 1.0;
            return Turn::Now(1);
        }
        let wait = bucket.until(1.0, limit);
        let places = limit.capacity.unwrap_or(u64::MAX).min(line);
        // Between zero and one permit the line is empty, and whoever comes is its first.
        if bucket.line() >= places || wait > patience {
            return Turn::Over(wait);
        }
        bucket.permits -= 1.0;
        Turn::After(wait)
    }

    /// A call of this principal's that can wait, which is counted.
    pub fn stand_in_line_as_call(&self, principal: Option<&str>, now: Duration) -> Turn {
        let turn = self.stand_in_line(principal, LINE_MAX, LINE_PATIENCE, now);
        self.count(principal, |traffic| {
            traffic.received += 1;
            match turn {
                Turn::Over(_) => traffic.dropped += 1,
                Turn::Now(_) | Turn::After(_) => traffic.processed += 1,
            }
        });
        turn
    }

    /// What an operator's command says over a link, which has a line of its own length. Only a name that has a limit of its own is limited and
    /// counted: whoever asks too much without one does not keep operators out of their cluster, who are called by the number of their process
    /// unless they have a name.
    pub fn stand_in_line_as_command(&self, name: &str, now: Duration) -> Turn {
        if !self.state().limits.is_named(name) {
            return Turn::Now(1);
        }
        self.stand_in_line_as_call(Some(name), now)
    }

    /// So many messages wait at their sender's, however many those are; how many of them may be handled now? Told to wait, ask again then.
    pub fn take(&self, principal: Option<&str>, waiting: u64, now: Duration) -> Turn {
        self.take_or(principal, waiting, now, |_| {})
    }

    /// As [`Self::take`]; but told to wait, the first of them has its place in the line, and may be handled then without asking again. So those
    /// who stand in the line meanwhile cannot keep it waiting.
    pub fn take_or_book(&self, principal: Option<&str>, waiting: u64, now: Duration) -> Turn {
        self.take_or(principal, waiting, now, |bucket| bucket.permits -= 1.0)
    }

    fn take_or(
        &self,
        principal: Option<&str>,
        waiting: u64,
        now: Duration,
        told_to_wait: impl FnOnce(&mut Bucket),
    ) -> Turn {
        let mut state = self.state();
        let Some((lane, limit)) = state.limits.of(principal) else {
            return Turn::Now(waiting);
        };
        let bucket = state.bucket(lane, limit, now);
        if bucket.permits >= 1.0 {
            let taken = waiting.min(bucket.permits.floor() as u64);
            bucket.permits -= taken as f64;
            return Turn::Now(taken);
        }
        let wait = bucket.until(1.0, limit);
        told_to_wait(bucket);
        Turn::After(wait)
    }

    /// Whether this principal is named among the limits: it has one of its own, or none.
    pub fn is_named(&self, principal: &str) -> bool {
        self.state().limits.is_named(principal)
    }

    /// The limit of this principal's messages, if there is one.
    pub fn limit(&self, principal: Option<&str>) -> Option<Limit> {
        self.state().limits.of(principal).map(|(_, limit)| limit)
    }

    /// Counts what has come of messages of a principal. Those of nobody in particular are not counted.
    pub fn count(&self, principal: Option<&str>, change: impl FnOnce(&mut Traffic)) {
        let Some(principal) = principal else { return };
        let mut state = self.state();
        if let Some(traffic) = state.traffic.get_mut(principal) {
            change(traffic);
        } else if state.traffic.len() < COUNTED_MAX {
            change(state.traffic.entry(principal.to_owned()).or_default());
        }
    }

    /// What has come of the messages of each principal: a few thousand at most.
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        self.state().traffic.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers only: whatever fell while it held them, they are as good as before.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bucket of a lane, filled up to now.
    fn bucket(&mut self, lane: Lane<'_>, limit: Limit, now: Duration) -> &mut Bucket {
        let full = || Bucket::full(limit, now);
        let bucket = match lane {
            Lane::Others => self.others.get_or_insert_with(full),
            // There are as many as the operator has named.
            Lane::Of(name) => self.named.entry(name.to_owned()).or_insert_with(full),
        };
        bucket.fill(limit, now);
        bucket
    }
}

/// Two are the same choice if their limits are.
impl PartialEq for Throttle {
    fn eq(&self, other: &Self) -> bool {
        // One after the other: they may be the same one.
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
    fn a_line_is_served_at_the_rate_and_whoever_is_over_the_capacity_is_dropped() {
        let throttle = throttle(r#"{"limits":[{"principal":"p","qps":2,"capacity":3}]}"#);
        let come = |at_ms| {
            let now = Duration::from_millis(at_ms);
            throttle.stand_in_line(Some("p"), 64, 10 * SECOND, now)
        };
        let turns: Vec<Turn> = (0..6).map(|_| come(0)).collect();
        let after = |ms| Turn::After(Duration::from_millis(ms));
        // Two were saved up, three wait.
        let expected = [
            Turn::Now(1),
            Turn::Now(1),
            after(500),
            after(1000),
            after(1500),
            Turn::Over(Duration::from_millis(2000)),
        ];
        assert_eq!(turns, expected);
        assert_eq!(come(500), after(1500));
        // All others have none of it.
        let other = throttle.stand_in_line(Some("q"), 64, SECOND, Duration::ZERO);
        assert_eq!(other, Turn::Now(1));
        assert_eq!(throttle.take(None, 1000, Duration::ZERO), Turn::Now(1000));
        // Much later one second's worth is there, and no more.
        assert_eq!(throttle.take(Some("p"), 9, 1000 * SECOND), Turn::Now(2));
        let rest = throttle.take(Some("p"), 7, 1000 * SECOND);
        assert_eq!(rest, after(500), "what waits at its sender is in no line");
    }

    /// W29: who says little natively has its turn, however many stand in the line over HTTP.
    #[test]
    fn a_place_that_is_booked_is_kept_from_those_who_come_later() {
        let throttle = throttle(r#"{"limits":[{"principal":"p","qps":2,"capacity":3}]}"#);
        let stand = |at| throttle.stand_in_line(Some("p"), 64, 10 * SECOND, at);
        while stand(Duration::ZERO) != Turn::Over(2 * SECOND) {}
        // Without a place it would ask in vain as long as there is a line.
        let waits = Turn::After(2 * SECOND);
        assert_eq!(throttle.take(Some("p"), 9, Duration::ZERO), waits);
        assert_eq!(throttle.take_or_book(Some("p"), 9, Duration::ZERO), waits);
        let behind = Duration::from_millis(1500);
        assert_eq!(stand(SECOND), Turn::After(behind), "it comes after that");
    }

    /// W29: what all others share is not about commands, each of which has another name.
    #[test]
    fn commands_have_the_limit_of_their_name_and_are_counted_if_that_is_known() {
        let throttle = throttle(
            r#"{"limits":[{"principal":"ops","qps":1,"capacity":1},{"principal":"free"},{"principal":"patient","qps":1}],
                "aggregate_default_qps":1,"aggregate_default_capacity":0}"#,
        );
        let come = |name: &str| throttle.stand_in_line_as_command(name, Duration::ZERO);
        let turns = [Turn::Now(1), Turn::After(SECOND), Turn::Over(2 * SECOND)];
        assert_eq!([come("ops"), come("ops"), come("ops")], turns);
        assert_eq!([come("free"), come("free")], [Turn::Now(1); 2]);
        assert_eq!([come("operator-1"), come("operator-1")], [Turn::Now(1); 2]);
        // They wait for as long as a call over HTTP does.
        let waits: Vec<Turn> = (0..12).map(|_| come("patient")).collect();
        let after = |seconds| Turn::After(seconds * SECOND);
        assert_eq!(waits[..2], [Turn::Now(1), after(1)]);
        assert_eq!(waits[10..], [after(10), Turn::Over(11 * SECOND)]);
        let traffic = throttle.traffic();
        assert_eq!(
            traffic.keys().collect::<Vec<_>>(),
            ["free", "ops", "patient"]
        );
        let ops = traffic["ops"];
        assert_eq!((ops.received, ops.processed, ops.dropped), (3, 2, 1));
    }

    #[test]
    fn without_a_capacity_they_wait_as_far_as_the_door_lets_them() {
        let throttle = throttle(r#"{"aggregate_default_qps":0.5}"#);
        let now = Duration::ZERO;
        assert_eq!(throttle.take(None, 1_000_000, now), Turn::Now(1));
        assert_eq!(throttle.take(None, 1_000_000, now), Turn::After(2 * SECOND));
        let line = |line, patience| throttle.stand_in_line(Some("x"), line, patience, now);
        assert_eq!(line(9, SECOND), Turn::Over(2 * SECOND));
        assert_eq!(line(9, 2 * SECOND), Turn::After(2 * SECOND));
        assert_eq!(line(1, 9 * SECOND), Turn::Over(4 * SECOND));
        // Whatever the rate, a wait can be said.
        let slow = self::throttle(r#"{"aggregate_default_qps":1e-300}"#);
        assert_eq!(slow.take(None, 1, now), Turn::Now(1));
        assert_eq!(slow.take(None, 1, now), Turn::After(WAIT_MAX));
    }

    #[test]
    fn traffic_is_counted_for_who_has_a_name() {
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
    fn limits_that_are_chosen_anew_hold_for_all_clones_and_leave_the_others_as_they_were() {
        let throttle =
            throttle(r#"{"limits":[{"principal":"p","qps":1},{"principal":"q","qps":1}]}"#);
        let now = Duration::ZERO;
        for name in ["p", "q"] {
            assert_eq!(throttle.take(Some(name), 9, now), Turn::Now(1));
        }
        let anew = r#"{"limits":[{"principal":"p","qps":5},{"principal":"q","qps":1}],"aggregate_default_qps":2}"#;
        throttle.clone().renew(RateLimits::parse(anew).unwrap());
        assert_eq!(throttle.take(Some("p"), 9, now), Turn::Now(5));
        assert_eq!(throttle.take(Some("q"), 9, now), Turn::After(SECOND));
        assert_eq!(throttle.take(None, 9, now), Turn::Now(2));
        throttle.renew(RateLimits::default());
        assert_eq!(throttle.take(Some("q"), 9, now), Turn::Now(9));
        assert_eq!(throttle, Throttle::default());
    }

    proptest! {
        /// W29: in no time is more handled than the rate allows, beside what one second saves up; and no message waits longer than
        /// those before it need.
        #[test]
        fn never_more_is_handled_than_the_rate_allows(
            qps in 0.1f64..50.0,
            capacity in prop::option::of(0u64..20),
            steps in prop::collection::vec((0u64..400, any::<bool>(), 1u64..30), 1..60),
        ) {
            let capacity_text = capacity.map_or(String::new(), |c| format!(r#","capacity":{c}"#));
            let text = format!(r#"{{"limits":[{{"principal":"p","qps":{qps}{capacity_text}}}]}}"#);
            let throttle = throttle(&text);
            let mut now = Duration::ZERO;
            // When each was handled, or will be.
            let mut handled: Vec<f64> = Vec::new();
            for (gap, stands, count) in steps {
                now += Duration::from_millis(gap);
                let books = !stands && count % 2 == 0;
                let turn = match (stands, books) {
                    (true, _) => throttle.stand_in_line(Some("p"), 64, 1000 * SECOND, now),
                    (false, true) => throttle.take_or_book(Some("p"), count, now),
                    (false, false) => throttle.take(Some("p"), count, now),
                };
                match turn {
                    Turn::Now(taken) => {
                        prop_assert!(taken >= 1 && taken <= count.max(1));
                        handled.extend(std::iter::repeat_n(now.as_secs_f64(), taken as usize));
                    }
                    Turn::After(wait) if stands || books => handled.push((now + wait).as_secs_f64()),
                    Turn::After(wait) => prop_assert!(!wait.is_zero()),
                    Turn::Over(_) => {
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
