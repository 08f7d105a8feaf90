//! Random values for operators' calls: maintenance, drains, masters.

use std::net::Ipv4Addr;

use protocol::agent::Drain;
use protocol::maintenance::{DrainingMachine, InverseAnswer, MaintenanceStatus, Window};
use protocol::{InverseOffer, MachineId, MasterInfo};
use runtime::Timestamp;

use crate::chance::Chance;

impl Chance {
    /// An inverse offer.
    pub fn inverse_offer(&mut self) -> InverseOffer {
        let endpoint = self.some(Self::endpoint);
        InverseOffer {
            id: self.id(),
            framework_id: self.id(),
            agent_id: self.id(),
            unavailability: self.unavailability(),
            hostname: endpoint.map(|_| self.text()).unwrap_or_default(),
            endpoint,
        }
    }

    fn machine(&mut self) -> MachineId {
        let hostname = self.pick(&["", "a.example", "b-1"]);
        let ip = match hostname {
            "" => "10.0.0.7",
            _ => self.pick(&["", "10.0.0.8", "::1"]),
        };
        MachineId::new(hostname, ip).unwrap()
    }

    /// Windows of a schedule.
    pub fn windows(&mut self) -> Vec<Window> {
        self.list(|chance| Window {
            machines: chance.list(Self::machine),
            unavailability: chance.unavailability(),
        })
    }

    /// A framework's answer to an inverse offer.
    pub fn inverse_answer(&mut self) -> InverseAnswer {
        InverseAnswer {
            framework_id: self.id(),
            accepted: self.half(),
            at: self.moment(),
        }
    }

    /// A maintenance status.
    pub fn maintenance_status(&mut self) -> MaintenanceStatus {
        MaintenanceStatus {
            draining: self.list(|chance| DrainingMachine {
                id: chance.machine(),
                answers: chance.list(Self::inverse_answer),
            }),
            down: self.list(Self::machine),
        }
    }

    /// A drain without its start, which no message has.
    pub fn drain(&mut self) -> Drain {
        Drain {
            max_grace_period: self.some(Self::duration),
            mark_gone: self.half(),
            since: Timestamp::from_nanos(0),
            drained: self.half(),
        }
    }

    /// A master without its term, which no message has.
    pub fn master(&mut self) -> MasterInfo {
        let bits = self.next();
        MasterInfo {
            id: self.id(),
            hostname: self.text(),
            port: bits as u16,
            version: self.text(),
            term: 0,
            domain: self.some(|chance| chance.domain().into()),
            address: self.some(|_| Ipv4Addr::from_bits((bits >> 32) as u32)),
        }
    }
}
