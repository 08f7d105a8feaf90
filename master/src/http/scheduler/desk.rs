//! The desk: which stream each framework has, that subscribed over HTTP, and how many there may be.
//!
//! A table behind a lock, which is held for a look-up and never longer. It has no say in who speaks for a framework: the books do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::Declared;
use protocol::FrameworkId;
use runtime::{Handle, Pid};

use super::subscriber::Subscriber;
use crate::master::Master;

/// How many schedulers may be subscribed over HTTP; one more is told to come again.
pub(super) const SUBSCRIBERS_MAX: usize = 10_000;

/// What is known of a framework's newest stream.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// What its calls bear.
    pub stream_id: String,
    /// Whom the master knows as its scheduler.
    pub scheduler: Pid,
    /// The same actor.
    pub subscriber: Handle<Subscriber>,
    /// The master that took the subscription.
    pub master: Handle<Master>,
    /// Its principal, if it has one.
    pub principal: Option<String>,
    /// Set by its TEARDOWN, after which nothing more is written to its stream.
    pub is_over: Arc<AtomicBool>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    lines: Mutex<BTreeMap<FrameworkId, Line>>,
    places: AtomicUsize,
    declared: Declared,
}

impl Desk {
    /// One that writes down there as whom each framework speaks.
    pub fn new(declared: &Declared) -> Self {
        Self(Arc::new(Table {
            declared: declared.clone(),
            ..Table::default()
        }))
    }

    /// Room for one more, until it is dropped.
    pub fn place(&self) -> Option<Place> {
        let taken = self.0.places.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        (taken < SUBSCRIBERS_MAX).then_some(place)
    }

    /// How many are taken.
    #[cfg(test)]
    pub fn places_taken(&self) -> usize {
        self.0.places.load(Ordering::Relaxed)
    }

    /// The framework's newest stream.
    pub fn find(&self, id: &FrameworkId) -> Option<Line> {
        self.change(|lines| lines.get(id).cloned())
    }

    /// The framework has this stream from now on, until what is given is dropped or it has another.
    pub fn open(&self, id: FrameworkId, line: Line) -> Opened {
        let stream_id = line.stream_id.clone();
        let is_over = line.is_over.clone();
        if let Some(principal) = &line.principal {
            self.0.declared.write_down(&stream_id, principal);
        }
        self.change(|lines| lines.insert(id.clone(), line));
        Opened {
            desk: self.clone(),
            id,
            stream_id,
            is_over,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<FrameworkId, Line>) -> T) -> T {
        change(&mut self.0.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One of so many places; given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Desk);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.places.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that is written down; struck off when dropped.
#[derive(Debug)]
pub(super) struct Opened {
    desk: Desk,
    id: FrameworkId,
    stream_id: String,
    is_over: Arc<AtomicBool>,
}

impl Opened {
    /// Whether its framework was torn down on it.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.desk.0.declared.strike_off(&self.stream_id);
        self.desk.change(|lines| {
            if lines
                .get(&self.id)
                .is_some_and(|line| line.stream_id == self.stream_id)
            {
                lines.remove(&self.id);
            }
        });
    }
}
