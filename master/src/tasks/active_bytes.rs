//! Bytes of active tasks and executors by framework: a running sum, so that a launch needs no scan.
//!
//! Plain data, updated by [`super::Tasks`] with each task and executor. [`crate::validation`]
//! refuses a launch beyond [`ACTIVE_BYTES_MAX`].

use protocol::FrameworkId;
use rustc_hash::FxHashMap;

/// Maximum bytes of a framework's active tasks and executors, less [`FREE_BYTES`] of each.
pub const ACTIVE_BYTES_MAX: usize = 64 << 20;

/// Uncounted bytes of each task and executor: about the memory of a task without any text. The
/// number of tasks is bounded by the agents' resources, so a framework with many small tasks never
/// reaches the bound.
pub const FREE_BYTES: usize = 4 << 10;

/// The counted part of a task's or an executor's bytes.
pub fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

/// Counted bytes of each framework that has any.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveBytes(FxHashMap<FrameworkId, usize>);

impl ActiveBytes {
    /// The counted bytes of this framework.
    pub fn of(&self, framework: &FrameworkId) -> usize {
        self.0.get(framework).copied().unwrap_or(0)
    }

    /// Adds an active task or executor of this size.
    pub fn add(&mut self, framework: &FrameworkId, bytes: usize) {
        let bytes = counted(bytes);
        if bytes > 0 {
            *self.0.entry(framework.clone()).or_default() += bytes;
        }
    }

    /// Subtracts a task or executor of this size.
    pub fn subtract(&mut self, framework: &FrameworkId, bytes: usize) {
        let bytes = counted(bytes);
        if bytes == 0 {
            return;
        }
        if let Some(sum) = self.0.get_mut(framework) {
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.0.remove(framework);
            }
        }
    }
}
