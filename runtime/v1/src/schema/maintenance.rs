//! Maintenance schedules and states.

use crate::message::messages;
use crate::schema::{MachineID, Unavailability, allocator};

messages! {
    /// Machines with the same unavailability.
    Window {
        1 machine_ids: Vec<MachineID>,
        2 unavailability: Unavailability,
    }

    /// All scheduled unavailability.
    Schedule {
        1 windows: Vec<Window>,
    }

    /// Machines that are draining or down.
    ClusterStatus {
        1 draining_machines: Vec<ClusterStatusDrainingMachine>,
        2 down_machines: Vec<MachineID>,
    }

    /// A draining machine.
    ClusterStatusDrainingMachine {
        1 id: MachineID,
        /// Frameworks' answers to inverse offers.
        2 statuses: Vec<allocator::InverseOfferStatus>,
    }
}
