//! Offers.

use resources::{Attributes, Invalid};

use super::resource::{read_resources, write_resources};
use super::{At, all, some, write};
use crate::schema::{Offer, ResourceAllocationInfo};

impl TryFrom<&Offer> for protocol::Offer {
    type Error = Invalid;

    fn try_from(offer: &Offer) -> Result<Self, Invalid> {
        let info = offer.allocation_info.as_ref();
        let role = info.and_then(|info| info.role.as_deref());
        Ok(Self {
            id: (&offer.id).try_into().at("id")?,
            framework_id: (&offer.framework_id).try_into().at("framework_id")?,
            agent_id: (&offer.agent_id).try_into().at("agent_id")?,
            hostname: offer.hostname.clone(),
            role: role.unwrap_or("*").to_owned(),
            resources: read_resources("resources", &offer.resources)?,
            attributes: Attributes::new(all("attributes", &offer.attributes)?),
            executor_ids: all("executor_ids", &offer.executor_ids)?,
            unavailability: some("unavailability", offer.unavailability.as_ref())?,
        })
    }
}

impl From<&protocol::Offer> for Offer {
    fn from(offer: &protocol::Offer) -> Self {
        Self {
            id: (&offer.id).into(),
            framework_id: (&offer.framework_id).into(),
            agent_id: (&offer.agent_id).into(),
            hostname: offer.hostname.clone(),
            resources: write_resources(&offer.resources),
            executor_ids: write(&offer.executor_ids),
            attributes: write(&offer.attributes),
            allocation_info: Some(ResourceAllocationInfo {
                role: Some(offer.role.clone()),
            }),
            unavailability: offer.unavailability.as_ref().map(Into::into),
            ..Self::default()
        }
    }
}
