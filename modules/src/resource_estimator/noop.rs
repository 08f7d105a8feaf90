//! The estimator that never has an estimate: oversubscription is off (S20).

use protocol::ResourceUsage;
use resources::Resources;

use super::EstimatorPolicy;

/// Never answers. The default.
#[derive(Clone, Copy, Debug)]
pub struct Noop;

impl EstimatorPolicy for Noop {
    fn has_estimates(&self) -> bool {
        false
    }

    fn estimate(&self, _: &ResourceUsage) -> Resources {
        Resources::new()
    }
}
