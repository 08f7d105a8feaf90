//! Offers.

use protocol::agent::HttpEndpoint;
use resources::{Attributes, Invalid};

use super::nodes::read_domain;
use super::resource::{describe_resources, read_resources};
use super::{At, all, some};
use crate::describe::{Describe, Each, Fields, Output, build};
use crate::schema::{Address, DomainInfo, Offer, ResourceAllocationInfo, URL, Unavailability};

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
            endpoint: offer.url.as_deref().and_then(read_url),
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
            .resources(describe_resources(&self.resources))
            .executor_ids(Each(&self.executor_ids))
            .attributes(Each(&self.attributes))
            .url(self.endpoint.map(|endpoint| url(&self.hostname, endpoint)))
            .unavailability(unavailability)
            .allocation_info(Some(ResourceAllocationInfo { role }))
            .domain(domain);
    }
}

/// The URL of an agent. The scheme is `http` even for an agent that serves HTTPS, as in Mesos.
pub(super) fn url(hostname: &str, endpoint: HttpEndpoint) -> URL {
    URL {
        scheme: "http".to_owned(),
        address: Address {
            hostname: Some(hostname.to_owned()),
            ip: endpoint.address.map(|address| address.to_string()),
            port: endpoint.port.into(),
        },
        path: Some("/slave(1)".to_owned()),
        ..URL::default()
    }
}

pub(super) fn read_url(url: &URL) -> Option<HttpEndpoint> {
    let address = url.address.ip.as_ref();
    Some(HttpEndpoint {
        address: address.and_then(|address| address.parse().ok()),
        port: url.address.port.try_into().ok()?,
    })
}

impl From<&protocol::Offer> for Offer {
    fn from(offer: &protocol::Offer) -> Self {
        build(offer)
    }
}
