//! Who is inside: so many connections at once, and which of them makes room for one more.
//!
//! A connection that is idle may be of one who says something in half an hour and takes its end for the end of the service, as executors on
//! Mesos' own library do. So none is ended for the time that passes, but only where its place is needed: the one that is idle for longest.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::{Clock, Instant};

use super::Figures;
use super::watch::Patience;
use super::watched::Watching;

/// A connection that is idle for less is not ended to make room: what it says may be on its way.
const IDLE_MIN: Duration = Duration::from_secs(5);

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
    all: BTreeMap<u64, Watching>,
}

/// A connection that is inside until this is dropped.
pub(super) struct Open {
    number: u64,
    room: Room,
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

    /// One more, unless there are so many already and none of them makes room.
    pub fn enter(&self) -> Option<Open> {
        let figures = &self.figures.0;
        let mut inside = self.inside();
        if inside.all.len() >= self.most && !inside.makes_room(self.clock.now()) {
            figures.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        figures.open.fetch_add(1, Ordering::Relaxed);
        figures.accepted.fetch_add(1, Ordering::Relaxed);
        inside.entered += 1;
        let number = inside.entered;
        let watching = Watching::new(self.patience, &self.clock);
        inside.all.insert(number, watching.clone());
        Some(Open {
            number,
            room: self.clone(),
            watching,
        })
    }
}

impl Inside {
    /// Tells the one that is idle for longest to end, if there is one. It leaves soon, and is not told twice.
    fn makes_room(&self, now: Instant) -> bool {
        let idle = self.all.values().filter_map(|watching| {
            let since = watching.idle_since()?;
            (since + IDLE_MIN <= now).then_some((since, watching))
        });
        let longest = idle.min_by_key(|(since, _)| *since);
        longest.is_some_and(|(_, watching)| watching.end())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.room.inside().all.remove(&self.number);
        let open = &self.room.figures.0.open;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}
