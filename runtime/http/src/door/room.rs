//! Who is inside: so many connections at once, and which of them makes room for one more.
//!
//! A connection that is idle may be of one who says something in half an hour and takes its end for the end of the service, as executors on
//! Mesos' own library do. So none is ended for the time that passes, but only where its place is needed ([`who_makes_room`]).
//!
//! Beside these places a few are for health checks: who finds no place may still ask for `/health`, and is told 503 to all else.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime::{Clock, Instant};

use super::Figures;
use super::source::{Source, who_makes_room};
use super::watch::Patience;
use super::watched::Watching;

/// Connections beyond all others, which may ask for `/health`. One more ends the oldest of the source that has most of them.
const CHECKS_MAX: usize = 64;

/// All who are inside. Clones are the same one.
#[derive(Clone)]
pub(super) struct Room {
    most: usize,
    patience: Patience,
    clock: Clock,
    figures: Figures,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    entered: u64,
    all: BTreeMap<u64, (Source, Watching)>,
    /// How many of them come from where.
    of: BTreeMap<Source, usize>,
    /// Those that are for health checks.
    checks: BTreeMap<u64, (Source, Watching)>,
}

/// A connection that is inside until this is dropped.
pub(super) struct Open {
    /// Which of all that have ever been inside.
    pub number: u64,
    room: Room,
    /// Where it comes from.
    pub source: Source,
    /// Its watch.
    pub watching: Watching,
    /// Whether it may ask for `/health` alone.
    pub is_check: bool,
}

impl Room {
    /// For so many.
    pub fn new(most: usize, patience: Patience, clock: &Clock, figures: &Figures) -> Self {
        Self {
            most,
            patience,
            clock: clock.clone(),
            figures: figures.clone(),
            inside: Arc::default(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more from there, unless there are so many already and none of them makes room.
    pub fn enter(&self, source: Source) -> Option<Open> {
        let mut inside = self.inside();
        let is_full = inside.all.len() >= self.most;
        if is_full && !inside.makes_room(source, self.most, self.clock.now()) {
            return None;
        }
        let (number, watching) = self.begin(&mut inside);
        inside.all.insert(number, (source, watching.clone()));
        *inside.of.entry(source).or_default() += 1;
        Some(self.open(number, source, watching, false))
    }

    /// One more from there, which may ask for `/health` alone.
    pub fn enter_for_check(&self, source: Source) -> Open {
        let mut inside = self.inside();
        if inside.checks.len() >= CHECKS_MAX {
            inside.evict_check();
        }
        let (number, watching) = self.begin(&mut inside);
        inside.checks.insert(number, (source, watching.clone()));
        self.open(number, source, watching, true)
    }

    fn begin(&self, inside: &mut Inside) -> (u64, Watching) {
        let figures = &self.figures.0;
        figures.open.fetch_add(1, Ordering::Relaxed);
        figures.accepted.fetch_add(1, Ordering::Relaxed);
        inside.entered += 1;
        (inside.entered, Watching::new(self.patience, &self.clock))
    }

    fn open(&self, number: u64, source: Source, watching: Watching, is_check: bool) -> Open {
        Open {
            number,
            room: self.clone(),
            source,
            watching,
            is_check,
        }
    }
}

impl Inside {
    /// Ends one of them for one more from there, if one may be ended so. What is idle leaves soon, and is not told twice; what is busy has left.
    fn makes_room(&mut self, newcomer: Source, most: usize, now: Instant) -> bool {
        let all = self.all.iter().filter_map(|(number, (source, watching))| {
            let activity = watching.activity()?;
            Some((*number, *source, activity))
        });
        let Some(number) = who_makes_room(newcomer, most, &self.of, all, now) else {
            return false;
        };
        let Some((_, watching)) = self.all.get(&number) else {
            return false;
        };
        if !watching.end() {
            watching.evict();
            self.leaves(number);
        }
        true
    }

    /// Ends the oldest health check of the source that has most of them.
    fn evict_check(&mut self) {
        let mut of = BTreeMap::<Source, usize>::new();
        for (source, _) in self.checks.values() {
            *of.entry(*source).or_default() += 1;
        }
        let has = |source: &Source| of.get(source).copied().unwrap_or(0);
        let checks = self.checks.iter();
        let first = checks.max_by_key(|(number, (source, _))| (has(source), Reverse(**number)));
        if let Some(number) = first.map(|(number, _)| *number)
            && let Some((_, watching)) = self.checks.remove(&number)
        {
            watching.evict();
        }
    }

    fn leaves(&mut self, number: u64) {
        self.checks.remove(&number);
        let Some((source, _)) = self.all.remove(&number) else {
            return;
        };
        if let Entry::Occupied(mut of) = self.of.entry(source) {
            *of.get_mut() -= 1;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.room.inside().leaves(self.number);
        let open = &self.room.figures.0.open;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}
