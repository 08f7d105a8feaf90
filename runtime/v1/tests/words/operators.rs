//! Words of operators, made by chance: maintenance, drains, masters.

use std::net::Ipv4Addr;

use protocol::agent::Drain;
use protocol::maintenance::{DrainingMachine, InverseAnswer, MaintenanceStatus, Window};
use protocol::{InverseOffer, MachineId, MasterInfo};
use runtime::Timestamp;

use crate::chance::Chance;

impl Chance {
    /// An inverse offer; where its agent is stands in one place.
    pub fn inverse_offer(&mut self) -> InverseOffer {
        let served = self.some(Self::served);
        InverseOffer {
            id: self.id(),
            framework_id: self.id(),
            agent_id: self.id(),
            unavailability: self.unavailability(),
            hostname: served.map(|_| self.text()).unwrap_or_default(),
            served,
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

    /// What a framework has said to an inverse offer.
    pub fn inverse_answer(&mut self) -> InverseAnswer {
        InverseAnswer {
            framework_id: self.id(),
            accepted: self.half(),
            at: self.moment(),
        }
    }

    /// How maintenance stands.
    pub fn maintenance_status(&mut self) -> MaintenanceStatus {
        MaintenanceStatus {
            draining: self.list(|chance| DrainingMachine {
                id: chance.machine(),
                answers: chance.list(Self::inverse_answer),
            }),
            down: self.list(Self::machine),
        }
    }

    /// How an agent is drained; since when is in no message.
    pub fn drain(&mut self) -> Drain {
        Drain {
            max_grace_period: self.some(Self::duration),
            mark_gone: self.half(),
            since: Timestamp::from_nanos(0),
            drained: self.half(),
        }
    }

    /// A master; its term is in no message.
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
