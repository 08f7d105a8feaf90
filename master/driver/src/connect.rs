//! A driver's own place on the network: a node of role framework and a QUIC socket, opened for it and closed after it.
//!
//! Nothing is decided here; a driver on somebody else's node does not come by.

use std::net::{Ipv4Addr, SocketAddr};

use runtime::{Node, Role, SpawnError};
use tokio::sync::watch;
use transport::{BindError, Endpoint, Identity, Options};

use crate::scheduler::Scheduler;
use crate::verbs::DriverRef;
use crate::{Ended, SchedulerDriver};

/// Why a driver could not be put on the network.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The certificate is not one of a framework.
    #[error("the certificate is of role {found}, expected {}", Role::Framework)]
    WrongRole {
        /// The certificate's role.
        found: Role,
    },
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No actor.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

pub(crate) fn connect(
    driver: SchedulerDriver,
    identity: &Identity,
    scheduler: impl Scheduler,
) -> Result<DriverRef, ConnectError> {
    let subject = identity.subject();
    if subject.role != Role::Framework {
        return Err(ConnectError::WrongRole {
            found: subject.role,
        });
    }
    let node = Node::builder(subject.name.as_str())
        .role(Role::Framework)
        .accepts(&[Role::Master])
        .speak_previous(driver.plan.speak_previous)
        .build();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint = Endpoint::bind(node.clone(), identity, any, Options::default())?;
    let inner = driver.start(&node, scheduler)?;
    let (announce, ended) = watch::channel(None);
    let outer = DriverRef {
        actor: inner.actor.clone(),
        ended,
    };
    // Only when all that was written has left is the driver over: then the process may end too.
    tokio::task::spawn_local(async move {
        let how: Ended = inner.ended().await;
        node.shutdown().await;
        endpoint.close().await;
        announce.send_replace(Some(how));
    });
    Ok(outer)
}
