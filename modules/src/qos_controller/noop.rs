//! The QoS controller without corrections: regular tasks have no protection.

use protocol::{QosCorrection, ResourceUsage};
use runtime::Instant;

use super::QosPolicy;

/// Never replies. The default.
#[derive(Clone, Copy, Debug)]
pub struct Noop;

impl QosPolicy for Noop {
    fn is_alarmed(&mut self) -> bool {
        false
    }

    fn corrections(&mut self, _: &ResourceUsage, _: Instant) -> Vec<QosCorrection> {
        Vec::new()
    }

    fn has_corrections(&self) -> bool {
        false
    }
}
