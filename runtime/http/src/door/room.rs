//! Who is inside: so many connections at once, and which of them makes room for one more.
//!
//! A connection that is idle may be of one who says something in half an hour and takes its end for the end of the service, as executors on
//! Mesos' own library do. So none is ended for the time that passes, but only where its place is needed ([`who_makes_room`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime::{Clock, Instant};

use super::Figures;
use super::source::{Source, who_makes_room};
use super::watch::Patience;
use super::watched::Watching;

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
        let figures = &self.figures.0;
        let mut inside = self.inside();
        if inside.all.len() >= self.most && !inside.makes_room(source, self.clock.now()) {
            figures.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        figures.open.fetch_add(1, Ordering::Relaxed);
        figures.accepted.fetch_add(1, Ordering::Relaxed);
        inside.entered += 1;
        let number = inside.entered;
        let watching = Watching::new(self.patience, &self.clock);
        inside.all.insert(number, (source, watching.clone()));
        *inside.of.entry(source).or_default() += 1;
        Some(Open {
            number,
            room: self.clone(),
            source,
            watching,
        })
    }
}

impl Inside {
    /// Tells one of them to end for one more from there, if one may be told so. It leaves soon, and is not told twice.
    fn makes_room(&self, newcomer: Source, now: Instant) -> bool {
        let idle = self.all.values().filter_map(|(source, watching)| {
            let since = watching.idle_since()?;
            Some((watching, *source, since))
        });
        who_makes_room(newcomer, &self.of, idle, now).is_some_and(Watching::end)
    }

    fn leaves(&mut self, number: u64) {
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
