//! How much this process logs: told, and changed for a while (SPEC 2.6, `SET_LOGGING_LEVEL`).
//!
//! A process has one log, so this is one for all its nodes: the program says how its log is changed ([`install`]). Whoever changes it last
//! decides until when; after that it is as it was when the program began. Nothing here writes a log.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime::{Clock, Node};
use tracing::level_filters::LevelFilter;
use v1::schema::DurationInfo;

use crate::api::Refusal;

/// The longest that a level stays changed, whatever is asked for.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Lets the log have everything of this level and above, or what it had when the program began.
pub type SetLevel = Box<dyn Fn(Option<LevelFilter>) -> Result<(), String> + Send + Sync>;

static LOG: OnceLock<SetLevel> = OnceLock::new();
/// How often the level was changed: an earlier change ends without a word.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// This is how the log is changed. A second one is not taken.
pub fn install(set: SetLevel) {
    let _ = LOG.set(set);
}

/// How much is logged, as Mesos counts: 0 is what is usual, 1 debugging, 2 everything.
pub fn level() -> u32 {
    match LevelFilter::current() {
        LevelFilter::TRACE => 2,
        LevelFilter::DEBUG => 1,
        _ => 0,
    }
}

/// Logs this much for so long, as a call asks; a negative time is none, as in Mesos. Level 0 is what was logged when the program began; above 2 there is no more than at 2.
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
    tracing::warn!(level, ?duration, "the logging level is changed for a while");
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
        tracing::error!(problem, "the logging level stays as it was changed");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use runtime::rehearsal::{node, stage};

    use super::*;

    #[test]
    fn a_level_is_changed_for_a_while_and_whoever_changes_it_last_decides() {
        let set = Arc::new(Mutex::new(Vec::new()));
        let seen = set.clone();
        install(Box::new(move |filter| {
            seen.lock().map_err(|error| error.to_string())?.push(filter);
            Ok(())
        }));
        stage(async move {
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
            // Any time is taken, as by Mesos.
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
