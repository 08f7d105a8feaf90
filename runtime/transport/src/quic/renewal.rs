//! Renewal: an endpoint shows another certificate from now on, and lets go of no link for that.
//!
//! Hears new identities of the same node. Remembers nothing: the configurations for the next handshakes are replaced
//! whole. Never touches a connection that stands: it was proven when it began, and a leaked key is answered with a new
//! authority and a restart.

use std::sync::{Arc, Weak};

use quinn::{ClientConfig, ServerConfig};
use runtime::Node;

use super::ground::Ground;
use super::{BindError, Endpoint, Options, Shared, chanceless, config};
use crate::certificates::Identity;

/// Renews the identity of an endpoint wherever the endpoint itself is, and does not keep it open.
#[derive(Clone)]
pub struct Renewal(Weak<Shared>);

impl Endpoint {
    /// Shows this identity in all handshakes from now on, and trusts its authority in them; the links that stand go on.
    ///
    /// It must be of the same node and valid now, otherwise nothing changes.
    pub fn renew(&self, identity: &Identity) -> Result<(), RenewError> {
        self.shared.renew(identity)
    }

    /// A handle that can do the same, also after the endpoint was moved elsewhere.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        Renewal(Arc::downgrade(&self.shared))
    }
}

impl Renewal {
    /// As [`Endpoint::renew`].
    pub fn renew(&self, identity: &Identity) -> Result<(), RenewError> {
        let shared = self.0.upgrade().ok_or(RenewError::Closed)?;
        shared.renew(identity)
    }
}

impl Shared {
    fn renew(&self, identity: &Identity) -> Result<(), RenewError> {
        check(&self.node, identity)?;
        let valid = identity.verify_at(self.node.clock().wall());
        valid.map_err(BindError::identity)?;
        let (server, client) = both(&self.node, identity, &self.options, &self.ground)?;
        let secret = identity.lasting_secret().map_err(BindError::identity)?;
        let state = self.state();
        if state.closing {
            return Err(RenewError::Closed);
        }
        self.reset_key.renew(&secret).map_err(BindError::identity)?;
        self.endpoint.set_server_config(Some(server));
        self.client.store(Arc::new(client));
        Ok(())
    }
}

/// The identity must be the node's.
pub(super) fn check(node: &Node, identity: &Identity) -> Result<(), BindError> {
    let subject = identity.subject();
    if subject.name == node.id().name() && subject.role == node.role() {
        return Ok(());
    }
    let (role, name) = (node.role(), node.id().name());
    Err(BindError::identity(format!(
        "{subject} is not the node's: expected meros://{role}/{name}"
    )))
}

/// What both sides of a handshake are set up with.
pub(super) fn both(
    node: &Node,
    identity: &Identity,
    options: &Options,
    ground: &Ground,
) -> Result<(ServerConfig, ClientConfig), BindError> {
    let (clock, provider) = (node.clock(), ground.cryptography());
    let server = config::server(identity, options, clock, &provider)?;
    let mut client = config::client(identity, options, clock, &provider)?;
    if let Some(seed) = ground.seed(node) {
        client.initial_dst_cid_provider(chanceless::first_ids(seed));
    }
    Ok((server, client))
}

/// Why an endpoint goes on with the identity it had.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// It takes no connections any more.
    #[error("the endpoint is closed")]
    Closed,
    /// The new identity cannot be used.
    #[error(transparent)]
    Unusable(#[from] BindError),
}
