//! The log level of this process: shown, and changed for some time (`SET_LOGGING_LEVEL`).
//!
//! A process has one log, so its nodes share the level; the program installs the function that
//! changes it ([`install`]). The last change decides the duration; then the level of the program's
//! start applies again. Writes no log output itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime::{Clock, Node};
use tracing::level_filters::LevelFilter;
use v1::schema::DurationInfo;

use crate::api::Refusal;

/// Maximum duration of a change.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Sets the log level; `None` restores that of the program's start.
pub type SetLevel = Box<dyn Fn(Option<LevelFilter>) -> Result<(), String> + Send + Sync>;

static LOG: OnceLock<SetLevel> = OnceLock::new();
/// Number of changes: the end of an earlier change is ignored.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Installs the function that changes the level. Later calls are ignored.
pub fn install(set: SetLevel) {
    let _ = LOG.set(set);
}

/// The log level as Mesos counts: 0 is normal, 1 debugging, 2 everything.
pub fn level() -> u32 {
    match LevelFilter::current() {
        LevelFilter::TRACE => 2,
        LevelFilter::DEBUG => 1,
        _ => 0,
    }
}

/// Changes the log level for a duration; a negative one is zero, as in Mesos. Level 0 restores that
/// of the program's start; levels above 2 equal 2.
pub fn change(node: &Node, level: u32, duration: &DurationInfo) -> Result<(), Refusal> {
    let duration = Duration::try_from(duration).unwrap_or_default();
    let duration = duration.min(DURATION_MAX);
    let set = LOG.get().ok_or_else(|| {
        Refusal::not_served(
            "SET_LOGGING_LEVEL: this process has no log whose level can be changed".to_owned(),
        )
    })?;
    let filter = match level {
        0 => None,
        1 => Some(LevelFilter::DEBUG),
        _ => Some(LevelFilter::TRACE),
    };
    set(filter).map_err(Refusal::not_now)?;
    let change = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::warn!(level, ?duration, "log level changed");
    if filter.is_some() {
        tokio::spawn(end(change, node.clock().clone(), duration));
    }
    Ok(())
}

async fn end(change: u64, clock: Clock, duration: Duration) {
    clock.sleep(duration).await;
    if CHANGES.load(Ordering::Relaxed) != change {
        return;
    }
    if let Some(Err(problem)) = LOG.get().map(|set| set(None)) {
        tracing::error!(problem, "cannot restore the log level");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use runtime::testing::{node, run_simulated};

    use super::*;

    #[test]
    fn the_last_level_change_decides_and_expires() {
        let set = Arc::new(Mutex::new(Vec::new()));
        let seen = set.clone();
        install(Box::new(move |filter| {
            seen.lock().map_err(|error| error.to_string())?.push(filter);
            Ok(())
        }));
        run_simulated(async move {
            let node = node("node").build();
            let second = Duration::from_secs(1);
            let seconds = |seconds: i64| DurationInfo {
                nanoseconds: seconds * 1_000_000_000,
            };
            change(&node, 1, &seconds(10)).unwrap();
            change(&node, 7, &seconds(20)).unwrap();
            node.clock().sleep(second * 15).await;
            assert_eq!(
                set.lock().unwrap().len(),
                2,
                "the first change has ended without a word"
            );
            node.clock().sleep(second * 10).await;
            let all = [Some(LevelFilter::DEBUG), Some(LevelFilter::TRACE), None];
            assert_eq!(*set.lock().unwrap(), all);
            // Any time is valid, as in Mesos.
            for taken in [25 * 60 * 60, i64::MAX / 1_000_000_000, -1] {
                change(&node, 1, &seconds(taken)).unwrap();
            }
            node.clock().sleep(second).await;
            assert_eq!(
                set.lock().unwrap().last(),
                Some(&None),
                "a negative time is over at once"
            );
        });
    }
}
