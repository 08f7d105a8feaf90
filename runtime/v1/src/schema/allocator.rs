//! What frameworks said about leaving machines.

use crate::message::{enums, messages};
use crate::schema::{FrameworkID, TimeInfo};

messages! {
    /// What a framework said to an inverse offer.
    InverseOfferStatus {
        1 status: InverseOfferStatusStatus,
        2 framework_id: FrameworkID,
        3 timestamp: TimeInfo,
    }
}

enums! {
    /// What a framework said.
    InverseOfferStatusStatus {
        Unknown = 1 "UNKNOWN",
        Accept = 2 "ACCEPT",
        Decline = 3 "DECLINE",
    }
}
