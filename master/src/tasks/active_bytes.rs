//! Bytes of active tasks and executors by framework: a running sum, so that a launch costs no scan.
//!
//! Plain data. [`super::Tasks`] changes it with each task and executor. A launch beyond [`ACTIVE_BYTES_MAX`] is refused in
//! [`crate::validation`].

use protocol::FrameworkId;
use rustc_hash::FxHashMap;

/// The most bytes of a framework's active tasks and executors together, without [`FREE_BYTES`] of each.
pub const ACTIVE_BYTES_MAX: usize = 64 << 20;

/// Bytes of each task and executor that do not count: about the memory that a task takes without any text. The number of tasks is
/// bounded by the resources of agents, so a framework with very many small tasks never meets the bound.
pub const FREE_BYTES: usize = 4 << 10;

/// The part of a task's or an executor's bytes that counts.
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

    /// A task or executor of so many bytes is active from now on.
    pub fn add(&mut self, framework: &FrameworkId, bytes: usize) {
        let bytes = counted(bytes);
        if bytes > 0 {
            *self.0.entry(framework.clone()).or_default() += bytes;
        }
    }

    /// One of so many bytes is not active any more.
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
