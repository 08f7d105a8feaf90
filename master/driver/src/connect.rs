//! A driver with its own node of role framework and QUIC socket, opened for it and closed after it.

use std::net::{Ipv4Addr, SocketAddr};

use runtime::{Node, Role, SpawnError};
use tokio::sync::watch;
use transport::{BindError, Endpoint, Identity, Options};

use crate::call::DriverRef;
use crate::scheduler::Scheduler;
use crate::{Ended, SchedulerDriver};

/// Why a driver could not connect.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerConnectError {
    /// The certificate has another role than framework.
    #[error("the certificate is of role {found}, expected {}", Role::Framework)]
    WrongRole {
        /// Role in the certificate.
        found: Role,
    },
    /// The socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The actor could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

pub(crate) fn connect(
    driver: SchedulerDriver,
    identity: &Identity,
    scheduler: impl Scheduler,
) -> Result<DriverRef, SchedulerConnectError> {
    let subject = identity.subject();
    if subject.role != Role::Framework {
        return Err(SchedulerConnectError::WrongRole {
            found: subject.role,
        });
    }
    let node = Node::builder(subject.name.as_str())
        .role(Role::Framework)
        .accepts(&[Role::Master])
        .build();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint = Endpoint::bind(node.clone(), identity, any, Options::default())?;
    let inner = driver.start(&node, scheduler)?;
    let (announce, ended) = watch::channel(None);
    let outer = DriverRef {
        actor: inner.actor.clone(),
        ended,
    };
    // The driver has ended only when everything is sent: then the process may exit.
    tokio::task::spawn_local(async move {
        let how: Ended = inner.ended().await;
        node.shutdown().await;
        endpoint.close().await;
        announce.send_replace(Some(how));
    });
    Ok(outer)
}
