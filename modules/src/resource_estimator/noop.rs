//! The estimator without estimates: oversubscription is off.

use protocol::ResourceUsage;
use resources::Resources;

use super::EstimatorPolicy;

/// Never replies. The default.
#[derive(Clone, Copy, Debug)]
pub struct Noop;

impl EstimatorPolicy for Noop {
    fn has_estimates(&self) -> bool {
        false
    }

    fn lendable(&self, _: &ResourceUsage) -> Resources {
        Resources::new()
    }
}
