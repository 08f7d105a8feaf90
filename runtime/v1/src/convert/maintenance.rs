//! Maintenance: machines, windows, inverse offers and their answers.

use std::time::Duration;

use protocol::maintenance::{InverseAnswer, MaintenanceStatus, Window};
use protocol::{InverseOffer, MachineId, Unavailability};
use resources::Invalid;

use super::offer::{read_url, url};
use super::status::read_moment;
use super::{At, all, need, refuse, some, write};
use crate::schema::allocator::{InverseOfferStatus, InverseOfferStatusStatus};
use crate::schema::maintenance::{self, ClusterStatus, ClusterStatusDrainingMachine, Schedule};
use crate::schema::{self, MachineID};

impl TryFrom<&MachineID> for MachineId {
    type Error = Invalid;

    fn try_from(id: &MachineID) -> Result<Self, Invalid> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self::new(&text(&id.hostname), &text(&id.ip))
    }
}

impl From<&MachineId> for MachineID {
    fn from(id: &MachineId) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            hostname: text(id.hostname()),
            ip: text(id.ip()),
        }
    }
}

impl TryFrom<&schema::Unavailability> for Unavailability {
    type Error = Invalid;

    fn try_from(away: &schema::Unavailability) -> Result<Self, Invalid> {
        Ok(Self {
            start: read_moment(&away.start).at("start")?,
            duration: some::<_, Duration>("duration", away.duration.as_ref())?,
        })
    }
}

impl From<&Unavailability> for schema::Unavailability {
    fn from(away: &Unavailability) -> Self {
        Self {
            start: away.start.into(),
            duration: away.duration.map(Into::into),
        }
    }
}

impl TryFrom<&maintenance::Window> for Window {
    type Error = Invalid;

    fn try_from(window: &maintenance::Window) -> Result<Self, Invalid> {
        let unavailability = (&window.unavailability).try_into();
        Ok(Self {
            machines: all("machine_ids", &window.machine_ids)?,
            unavailability: unavailability.at("unavailability")?,
        })
    }
}

impl From<&Window> for maintenance::Window {
    fn from(window: &Window) -> Self {
        Self {
            machine_ids: write(&window.machines),
            unavailability: (&window.unavailability).into(),
        }
    }
}

/// The windows of a schedule.
pub fn windows(schedule: &Schedule) -> Result<Vec<Window>, Invalid> {
    all("windows", &schedule.windows)
}

/// The machines of a list.
pub fn machines(list: &[MachineID]) -> Result<Vec<MachineId>, Invalid> {
    all("machines", list)
}

/// The schedule with these windows.
pub fn schedule(windows: &[Window]) -> Schedule {
    Schedule {
        windows: write(windows),
    }
}

impl TryFrom<&schema::InverseOffer> for InverseOffer {
    type Error = Invalid;

    fn try_from(offer: &schema::InverseOffer) -> Result<Self, Invalid> {
        let whole = "none, since an inverse offer is for a whole agent";
        refuse("resources", !offer.resources.is_empty(), "set", whole)?;
        let agent = need("agent_id", offer.agent_id.as_ref(), "the agent to leave")?;
        let url = offer.url.as_deref();
        let hostname = url.and_then(|url| url.address.hostname.clone());
        Ok(Self {
            id: (&offer.id).try_into().at("id")?,
            framework_id: (&offer.framework_id).try_into().at("framework_id")?,
            agent_id: agent.try_into().at("agent_id")?,
            unavailability: (&offer.unavailability).try_into().at("unavailability")?,
            hostname: hostname.unwrap_or_default(),
            endpoint: url.and_then(read_url),
        })
    }
}

impl From<&InverseOffer> for schema::InverseOffer {
    /// An inverse offer is for the whole agent, so it names no resources.
    fn from(offer: &InverseOffer) -> Self {
        Self {
            id: (&offer.id).into(),
            url: offer
                .endpoint
                .map(|endpoint| Box::new(url(&offer.hostname, endpoint))),
            framework_id: (&offer.framework_id).into(),
            agent_id: Some((&offer.agent_id).into()),
            unavailability: (&offer.unavailability).into(),
            ..Self::default()
        }
    }
}

impl From<&InverseAnswer> for InverseOfferStatus {
    fn from(answer: &InverseAnswer) -> Self {
        Self {
            status: match answer.accepted {
                true => InverseOfferStatusStatus::Accept,
                false => InverseOfferStatusStatus::Decline,
            },
            framework_id: (&answer.framework_id).into(),
            timestamp: answer.at.into(),
        }
    }
}

impl From<&MaintenanceStatus> for ClusterStatus {
    fn from(status: &MaintenanceStatus) -> Self {
        let draining = status.draining.iter();
        Self {
            draining_machines: draining
                .map(|machine| ClusterStatusDrainingMachine {
                    id: (&machine.id).into(),
                    statuses: write(&machine.answers),
                })
                .collect(),
            down_machines: write(&status.down),
        }
    }
}
