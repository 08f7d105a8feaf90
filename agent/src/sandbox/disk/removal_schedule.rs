//! Removal schedule: when each leftover is removed.
//!
//! Pure. Ages are bounded by `--gc_delay`, less when the disk is full; their number by
//! `--max_completed_sandboxes`.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use runtime::Instant;

/// Maximum age of a leftover at this disk usage (0 to 1), by Mesos' formula.
pub fn max_age(gc_delay: Duration, headroom: f64, usage: f64) -> Duration {
    let share = (1.0 - headroom - usage).clamp(0.0, 1.0);
    gc_delay.mul_f64(share)
}

/// Waiting and due leftovers.
#[derive(Debug)]
pub struct RemovalSchedule {
    gc_delay: Duration,
    leftovers_max: usize,
    /// Keyed by the time at which each reaches `gc_delay`, then by number: oldest first.
    waiting: BTreeMap<(Instant, u64), PathBuf>,
    next: u64,
    due: VecDeque<PathBuf>,
}

impl RemovalSchedule {
    /// An empty schedule.
    pub fn new(gc_delay: Duration, leftovers_max: usize) -> Self {
        Self {
            gc_delay,
            leftovers_max,
            waiting: BTreeMap::new(),
            next: 0,
            due: VecDeque::new(),
        }
    }

    /// Adds a leftover of this age. If there are too many, the oldest are due.
    pub fn add(&mut self, path: PathBuf, age: Duration, now: Instant) {
        let at = now + self.gc_delay.saturating_sub(age);
        self.waiting.insert((at, self.next), path);
        self.next += 1;
        while self.waiting.len() > self.leftovers_max
            && let Some((_, oldest)) = self.waiting.pop_first()
        {
            self.due.push_back(oldest);
        }
    }

    /// Makes leftovers of at least this age due.
    pub fn expire(&mut self, max_age: Duration, now: Instant) {
        let latest = now + self.gc_delay.saturating_sub(max_age);
        while let Some(oldest) = self.waiting.first_entry()
            && oldest.key().0 <= latest
        {
            self.due.push_back(oldest.remove());
        }
    }

    /// Takes up to `at_most` due leftovers.
    pub fn take_due(&mut self, at_most: usize) -> Vec<PathBuf> {
        let count = at_most.min(self.due.len());
        self.due.drain(..count).collect()
    }

    /// Number of leftovers not yet taken.
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn due(schedule: &mut RemovalSchedule) -> Vec<String> {
        let due = schedule.take_due(usize::MAX).into_iter();
        due.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_greatest_age_shrinks_with_disk_usage() {
        for (usage, headroom, share) in [
            (0.0, 0.1, 0.9),
            (0.4, 0.1, 0.5),
            (0.9, 0.1, 0.0),
            (1.0, 0.1, 0.0),
            (0.5, 0.0, 0.5),
            (0.0, 2.0, 0.0),
        ] {
            let (age, expected) = (max_age(WEEK, headroom, usage), WEEK.mul_f64(share));
            let off = age.abs_diff(expected);
            assert!(off < Duration::from_millis(1), "{usage}: {age:?}");
        }
    }

    #[test]
    fn leftovers_are_due_at_their_age_oldest_first() {
        let hour = Duration::from_secs(3600);
        let mut schedule = RemovalSchedule::new(hour, 10);
        schedule.add("new".into(), Duration::ZERO, at(0));
        schedule.add("old".into(), hour / 2, at(0));
        schedule.add("ancient".into(), WEEK, at(0));
        schedule.expire(hour, at(0));
        assert_eq!(due(&mut schedule), ["ancient"]);
        schedule.expire(hour, at(1799));
        assert_eq!(due(&mut schedule), Vec::<String>::new());
        schedule.expire(hour, at(1800));
        assert_eq!(due(&mut schedule), ["old"]);
        // Under disk pressure: everything at least half an hour old.
        schedule.expire(hour / 2, at(1800));
        assert_eq!(
            (due(&mut schedule), schedule.pending()),
            (vec!["new".into()], 0)
        );
    }

    #[test]
    fn a_full_disk_keeps_no_leftover() {
        let mut schedule = RemovalSchedule::new(WEEK, 10);
        schedule.add("a".into(), Duration::ZERO, at(5));
        schedule.expire(max_age(WEEK, 0.1, 0.95), at(5));
        assert_eq!(due(&mut schedule), ["a"]);
    }

    #[test]
    fn of_too_many_leftovers_the_oldest_are_due() {
        let mut schedule = RemovalSchedule::new(WEEK, 2);
        for (number, age) in [(0, 10), (1, 30), (2, 20), (3, 0)] {
            let age = Duration::from_secs(age);
            schedule.add(number.to_string().into(), age, at(100));
        }
        assert_eq!(schedule.pending(), 4);
        assert_eq!(schedule.take_due(1), [PathBuf::from("1")]);
        assert_eq!(
            (due(&mut schedule), schedule.pending()),
            (vec!["2".into()], 2)
        );
        let mut none = RemovalSchedule::new(WEEK, 0);
        none.add("a".into(), Duration::ZERO, at(0));
        assert_eq!(due(&mut none), ["a"]);
    }
}
