//! Renewal: a new certificate for all later handshakes, without closing a link.
//!
//! Open connections are not touched: they were verified when they began. A leaked key requires a
//! new authority and a restart.

use std::sync::{Arc, Weak};

use quinn::{ClientConfig, ServerConfig};
use runtime::Node;

use super::socket_provider::SocketProvider;
use super::{BindError, Endpoint, Options, Shared, config, deterministic_tls};
use crate::certificates::Identity;

/// A handle that renews an endpoint's identity. It does not keep the endpoint open.
#[derive(Clone)]
pub struct Renewal(Weak<Shared>);

impl Endpoint {
    /// Uses this identity and trusts its authority in all later handshakes; open links continue.
    ///
    /// The identity must be the same node's and valid now; otherwise nothing changes.
    pub fn renew(&self, identity: &Identity) -> Result<(), RenewError> {
        self.shared.renew(identity)
    }

    /// A handle for renewals, which works wherever the endpoint is moved.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        Renewal(Arc::downgrade(&self.shared))
    }
}

impl Renewal {
    /// See [`Endpoint::renew`].
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
        let (server, client) = both(&self.node, identity, &self.options, &self.sockets)?;
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

/// Checks that the identity is the node's.
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

/// The configurations of both sides of a handshake.
pub(super) fn both(
    node: &Node,
    identity: &Identity,
    options: &Options,
    sockets: &SocketProvider,
) -> Result<(ServerConfig, ClientConfig), BindError> {
    let (clock, provider) = (node.clock(), sockets.cryptography());
    let server = config::server(identity, options, clock, &provider)?;
    let mut client = config::client(identity, options, clock, &provider)?;
    if let Some(seed) = sockets.seed(node) {
        client.initial_dst_cid_provider(deterministic_tls::first_ids(seed));
    }
    Ok((server, client))
}

/// The reason why an endpoint keeps its identity.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The endpoint is closed or closing.
    #[error("the endpoint is closed")]
    Closed,
    /// The new identity cannot be used.
    #[error(transparent)]
    Unusable(#[from] BindError),
}
