//! The corrections that were carried out or failed, for metrics and pages. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::view::oversubscription::{CorrectionCounts, CorrectionKind, CorrectionView};

/// Corrections that are kept; earlier ones are only counted.
pub const KEPT_MAX: usize = 64;
/// Characters of a reason that are kept: a controller may be foreign.
const REASON_MAX: usize = 200;
/// Tasks of a correction that are kept.
const TASKS_MAX: usize = 100;

/// The newest corrections, and the number of all. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct CorrectionLog {
    /// Those that were carried out since the agent's start.
    pub counts: CorrectionCounts,
    newest: VecDeque<Arc<CorrectionView>>,
}

impl CorrectionLog {
    /// Adds a correction.
    pub fn note(&mut self, mut correction: CorrectionView) {
        if correction.problem.is_none() {
            let count = match correction.kind {
                CorrectionKind::Kill => &mut self.counts.kill,
                CorrectionKind::Throttle(_) => &mut self.counts.throttle,
                CorrectionKind::Restore => &mut self.counts.restore,
            };
            *count += 1;
        }
        correction.reason = correction.reason.chars().take(REASON_MAX).collect();
        correction.tasks.truncate(TASKS_MAX);
        if self.newest.len() == KEPT_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(Arc::new(correction));
    }

    /// The newest corrections, oldest first.
    pub fn newest(&self) -> impl Iterator<Item = &CorrectionView> {
        self.newest.iter().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ContainerId, ExecutorId, FrameworkId, TaskId};
    use runtime::Timestamp;

    #[test]
    fn log_is_bounded_and_counts_what_was_done() {
        let mut log = CorrectionLog::default();
        for n in 0..100_u64 {
            log.note(CorrectionView {
                at: Timestamp::from_nanos(n),
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                container_id: ContainerId::new("c").unwrap(),
                tasks: vec![TaskId::new("t").unwrap(); 200],
                kind: CorrectionKind::Kill,
                reason: "\u{fc}".repeat(1_001),
                problem: (n >= 90).then(|| "disk".to_owned()),
            });
        }
        assert_eq!(log.counts.kill, 90);
        let kept: Vec<_> = log.newest().map(|one| one.at.as_nanos()).collect();
        assert_eq!(kept, (36..100).collect::<Vec<_>>());
        assert!(
            log.newest()
                .all(|one| one.reason.chars().count() == REASON_MAX && one.tasks.len() == 100)
        );
    }
}
