//! Reasons for which streams of operator events are cut off: logged with the subscriber and
//! counted, because few tools show a stream's last event, which also has the reason.
//!
//! Plain counters, shared by the actor that cuts off and the page that shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::viewer::Viewer;

/// The reason of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Too many unread bytes, or unread for too long.
    Slow,
    /// A newer subscriber needs its place.
    Oldest,
    /// The ACLs have changed its visibility.
    Visibility,
    /// Changes were missed: another master, or a late answer.
    Missed,
}

impl Cut {
    const ALL: [Self; 4] = [Self::Slow, Self::Oldest, Self::Visibility, Self::Missed];

    /// Its name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Slow => "too_slow",
            Self::Oldest => "too_many",
            Self::Visibility => "other_acls",
            Self::Missed => "missed_changes",
        }
    }
}

/// Numbers of cuts by reason. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts(Arc<[AtomicU64; 4]>);

impl Cuts {
    /// Records a cut; `details` extends the reason.
    pub fn note(&self, cut: Cut, subscriber: u64, viewer: &Viewer, details: &str) {
        self.0[cut as usize].fetch_add(1, Ordering::Relaxed);
        let (principal, reason) = (viewer.principal(), cut.name());
        tracing::info!(
            subscriber,
            principal,
            reason,
            details,
            "cutting off a subscriber of operator events"
        );
    }

    /// All numbers under the names of their metrics.
    pub fn metrics(&self) -> impl Iterator<Item = (String, f64)> + use<> {
        let counts = self.0.clone();
        Cut::ALL.into_iter().map(move |cut| {
            let name = format!("master/operator_event_streams_cut/{}", cut.name());
            (name, counts[cut as usize].load(Ordering::Relaxed) as f64)
        })
    }
}
