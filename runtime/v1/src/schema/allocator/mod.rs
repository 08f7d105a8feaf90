//! Messages of Mesos' allocator: frameworks' answers to inverse offers, and quota.

pub mod quota;

use crate::message::{enums, messages};
use crate::schema::{FrameworkID, TimeInfo};

messages! {
    /// A framework's answer to an inverse offer.
    InverseOfferStatus {
        1 status: InverseOfferStatusStatus,
        2 framework_id: FrameworkID,
        3 timestamp: TimeInfo,
    }
}

enums! {
    /// The answer.
    InverseOfferStatusStatus {
        Unknown = 1 "UNKNOWN",
        Accept = 2 "ACCEPT",
        Decline = 3 "DECLINE",
    }
}
