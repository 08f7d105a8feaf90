//! A fleet of peers that all dial one host at the same moment, and retry until each has its link.
//!
//! Each node has its own socket and certificate, so that the host sees as many machines. A final
//! refusal is counted and retried as well.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use runtime::prelude::*;
use runtime::{ConnectError, Instant};

use super::{ANY, BACKOFF_FIRST, BACKOFF_MAX, Failure, small_buffers};
use transport::Backoff;
use transport::Endpoint;
use transport::{Authority, Identity};

/// Many nodes on the calling thread.
pub struct PeerFleet {
    host: String,
    members: Vec<Member>,
}

struct Member {
    node: Node,
    identity: Identity,
    endpoint: Option<Endpoint>,
}

/// Times and counts of one reconnection of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReconnectReport {
    /// Nodes that were linked.
    pub nodes: usize,
    /// From the first dial to the last link.
    pub took: Duration,
    /// Until half of them were linked.
    pub took_half: Duration,
    /// Dials, failed ones included.
    pub dials: u64,
    /// Dials that were refused for good: expected none.
    pub failures: u64,
}

#[derive(Default)]
struct Progress {
    dials: Cell<u64>,
    failures: Cell<u64>,
    linked: Cell<usize>,
    half: Cell<Option<Instant>>,
}

impl PeerFleet {
    /// Creates the nodes without dialling.
    pub fn new(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self, Failure> {
        let members = (0..count).map(|number| {
            let identity = authority.issue(Role::Agent, &format!("fleet-{number}"))?;
            let node = Node::builder(identity.subject().name.as_str())
                .role(Role::Agent)
                .accepts(&[Role::Master])
                .build();
            let endpoint = None;
            Ok(Member {
                node,
                identity,
                endpoint,
            })
        });
        Ok(Self {
            host: host.to_string(),
            members: members.collect::<Result<_, Failure>>()?,
        })
    }

    /// Closes all links, gives each node a new socket, and lets all dial at once until each has its
    /// link.
    pub async fn reconnect_all(&mut self) -> Result<ReconnectReport, Failure> {
        let old = self.members.iter_mut().map(|member| member.endpoint.take());
        // a machine has too few sockets for both
        join_all(old.flatten().map(Endpoint::close)).await;
        for member in &self.members {
            while !member.node.peers().is_empty() {
                member.node.clock().sleep(Duration::from_millis(1)).await;
            }
        }
        for member in &mut self.members {
            let (node, identity) = (member.node.clone(), &member.identity);
            member.endpoint = Some(Endpoint::bind(node, identity, ANY, small_buffers())?);
        }
        let Some(first) = self.members.first() else {
            return Ok(ReconnectReport::default());
        };
        let clock = first.node.clock().clone();
        let (begun, progress) = (clock.now(), Progress::default());
        let (host, count) = (self.host.as_str(), self.members.len());
        let linking = self
            .members
            .iter()
            .map(|member| link(&member.node, host, count, &progress));
        join_all(linking).await;
        let now = clock.now();
        Ok(ReconnectReport {
            nodes: count,
            took: now - begun,
            took_half: progress.half.get().unwrap_or(now) - begun,
            dials: progress.dials.get(),
            failures: progress.failures.get(),
        })
    }
}

async fn link(node: &Node, host: &str, count: usize, progress: &Progress) {
    let (clock, mut chance) = (node.clock(), node.rng());
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX);
    loop {
        progress.dials.set(progress.dials.get() + 1);
        match node.connect(host).await {
            Ok(_) => break,
            Err(ConnectError::Unreachable { .. }) => {}
            Err(error) => {
                tracing::warn!(node = %node.id(), %error, "dial refused");
                progress.failures.set(progress.failures.get() + 1);
            }
        }
        clock.sleep(backoff.next(&mut chance)).await;
    }
    progress.linked.set(progress.linked.get() + 1);
    if progress.linked.get() == count.div_ceil(2) {
        progress.half.set(Some(clock.now()));
    }
}
