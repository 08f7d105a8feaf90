//! The crowd: many nodes that all want a link to one host at the same moment, and try again until they have it.
//!
//! Remembers its nodes. Each has a socket and a certificate of its own, so that the host sees what it would see of as
//! many machines. Never gives up on its own; a refusal that is final is counted, and tried again all the same.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use runtime::prelude::*;
use runtime::{ConnectError, Instant};

use super::{ANY, BACKOFF_FIRST, BACKOFF_MAX, Failure, modest};
use crate::backoff::Backoff;
use crate::certificates::{Authority, Identity};
use crate::quic::Endpoint;

/// Many nodes on the calling thread.
pub struct Crowd {
    host: String,
    members: Vec<Member>,
}

struct Member {
    node: Node,
    identity: Identity,
    endpoint: Option<Endpoint>,
}

/// How a crowd came to its links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Linking {
    /// How many wanted one, and have it.
    pub nodes: usize,
    /// From the first dial to the last link.
    pub took: Duration,
    /// Until half of them were linked.
    pub took_half: Duration,
    /// Dials, those that did not succeed included.
    pub dials: u64,
    /// Dials that somebody refused for good: expected none.
    pub failures: u64,
}

#[derive(Default)]
struct Progress {
    dials: Cell<u64>,
    failures: Cell<u64>,
    linked: Cell<usize>,
    half: Cell<Option<Instant>>,
}

impl Crowd {
    /// Makes the nodes; nobody dials yet.
    pub fn gather(authority: &Authority, host: SocketAddr, count: usize) -> Result<Self, Failure> {
        let members = (0..count).map(|number| {
            let identity = authority.issue(Role::Agent, &format!("crowd-{number}"))?;
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

    /// Takes all links away, gives each node a new socket, and lets all of them dial at once until each has its link.
    pub async fn storm(&mut self) -> Result<Linking, Failure> {
        let old = self.members.iter_mut().map(|member| member.endpoint.take());
        join_all(old.flatten().map(Endpoint::close)).await; // a machine has not sockets enough for both
        for member in &self.members {
            while !member.node.peers().is_empty() {
                member.node.clock().sleep(Duration::from_millis(1)).await;
            }
        }
        for member in &mut self.members {
            let (node, identity) = (member.node.clone(), &member.identity);
            member.endpoint = Some(Endpoint::bind(node, identity, ANY, modest())?);
        }
        let Some(first) = self.members.first() else {
            return Ok(Linking::default());
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
        Ok(Linking {
            nodes: count,
            took: now - begun,
            took_half: progress.half.get().unwrap_or(now) - begun,
            dials: progress.dials.get(),
            failures: progress.failures.get(),
        })
    }

    /// How many are linked still.
    #[must_use]
    pub fn linked(&self) -> usize {
        let endpoints = self
            .members
            .iter()
            .filter_map(|member| member.endpoint.as_ref());
        endpoints.map(Endpoint::links).sum()
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
                tracing::warn!(node = %node.id(), %error, "a final refusal");
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
