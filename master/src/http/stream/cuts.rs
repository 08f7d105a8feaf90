//! Why streams of operator events were cut off: logged with who has subscribed, and counted, since few tools show the last event of a stream, which says
//! it too (SPEC 2.6).
//!
//! Plain counters that only grow, shared by the actor that cuts and the page that shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::viewer::Viewer;

/// Why a stream ends that its reader has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Too much waits to be read, or for too long.
    Slow,
    /// A newer subscriber needs its place.
    Oldest,
    /// By other ACLs it sees something else.
    Sight,
    /// What has changed cannot be told: the master is another one, or was late.
    Missed,
}

impl Cut {
    const ALL: [Self; 4] = [Self::Slow, Self::Oldest, Self::Sight, Self::Missed];

    /// Its name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Slow => "too_slow",
            Self::Oldest => "too_many",
            Self::Sight => "other_acls",
            Self::Missed => "missed_changes",
        }
    }
}

/// How many were cut off, by reason. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuts(Arc<[AtomicU64; 4]>);

impl Cuts {
    /// The subscriber of that number was cut off; `details` says more than the kind of reason.
    pub fn note(&self, cut: Cut, subscriber: u64, viewer: &Viewer, details: &str) {
        self.0[cut as usize].fetch_add(1, Ordering::Relaxed);
        let (principal, reason) = (viewer.principal(), cut.name());
        tracing::info!(
            subscriber,
            principal,
            reason,
            details,
            "a subscriber of operator events is cut off"
        );
    }

    /// All of them, under the names of their metrics.
    pub fn metrics(&self) -> impl Iterator<Item = (String, f64)> + use<> {
        let counts = self.0.clone();
        Cut::ALL.into_iter().map(move |cut| {
            let name = format!("master/operator_event_streams_cut/{}", cut.name());
            (name, counts[cut as usize].load(Ordering::Relaxed) as f64)
        })
    }
}
