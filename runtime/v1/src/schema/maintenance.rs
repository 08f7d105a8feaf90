//! Maintenance: which machines will be away, and when.

use crate::message::messages;
use crate::schema::{MachineID, Unavailability, allocator};

messages! {
    /// Machines that will be away together.
    Window {
        1 machine_ids: Vec<MachineID>,
        2 unavailability: Unavailability,
    }

    /// All that will be away.
    Schedule {
        1 windows: Vec<Window>,
    }

    /// Machines that are being left or are away.
    ClusterStatus {
        1 draining_machines: Vec<ClusterStatusDrainingMachine>,
        2 down_machines: Vec<MachineID>,
    }

    /// A machine that is being left.
    ClusterStatusDrainingMachine {
        1 id: MachineID,
        /// What frameworks said.
        2 statuses: Vec<allocator::InverseOfferStatus>,
    }
}
