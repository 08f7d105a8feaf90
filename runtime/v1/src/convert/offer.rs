//! Offers.

use resources::{Attributes, Invalid};

use super::nodes::read_domain;
use super::resource::{read_resources, say_resources};
use super::{At, all, some};
use crate::describe::{Describe, Each, Fields, Output, made};
use crate::schema::{DomainInfo, Offer, ResourceAllocationInfo, Unavailability};

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
            domain: offer.domain.as_ref().and_then(read_domain),
        })
    }
}

impl Describe<Offer> for protocol::Offer {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Offer, O>) {
        let role = Some(self.role.clone());
        let unavailability = self.unavailability.as_ref().map(Unavailability::from);
        let domain = self.domain.as_ref().map(DomainInfo::from);
        fields
            .id(&self.id)
            .framework_id(&self.framework_id)
            .agent_id(&self.agent_id)
            .hostname(self.hostname.as_str())
            .resources(say_resources(&self.resources))
            .executor_ids(Each(&self.executor_ids))
            .attributes(Each(&self.attributes))
            .unavailability(unavailability)
            .allocation_info(Some(ResourceAllocationInfo { role }))
            .domain(domain);
    }
}

impl From<&protocol::Offer> for Offer {
    fn from(offer: &protocol::Offer) -> Self {
        made(offer)
    }
}
