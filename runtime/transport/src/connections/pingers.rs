//! Pingers: nodes that are linked already and ask the host, again and again, whether it is there.
//!
//! Remember how long each answer took. Never dial again: a link that is lost is what they are there to notice.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rand::Rng;
use runtime::prelude::*;

use super::{ANY, Alive, Failure, GREETER, modest};
use crate::certificates::Authority;
use crate::quic::Endpoint;

/// How long one waits for an answer before the ping counts as missed: as long as masters wait.
const PATIENCE: Duration = Duration::from_secs(15);

/// Linked nodes that ping. Dropping it ends their links.
pub struct Pingers {
    _endpoints: Vec<Endpoint>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    heard: Rc<RefCell<Heard>>,
}

#[derive(Default)]
struct Heard {
    answers: Vec<Duration>,
    missed: u64,
}

/// What pings have shown since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pings {
    /// Pings that were answered.
    pub answered: u64,
    /// Pings that were not.
    pub missed: u64,
    /// Half of the answers came within this.
    pub p50: Duration,
    /// All but one in a hundred came within this.
    pub p99: Duration,
    /// All of them did.
    pub longest: Duration,
}

impl Pingers {
    /// Links `count` nodes to the host, each of which pings it once every `interval` from then on.
    pub async fn start(
        authority: &Authority,
        host: SocketAddr,
        count: usize,
        interval: Duration,
    ) -> Result<Self, Failure> {
        let (host, heard) = (host.to_string(), Rc::new(RefCell::new(Heard::default())));
        let (mut endpoints, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..count {
            let identity = authority.issue(Role::Agent, &format!("pinger-{number}"))?;
            let node = Node::builder(identity.subject().name.as_str())
                .role(Role::Agent)
                .accepts(&[Role::Master])
                .build();
            endpoints.push(Endpoint::bind(node.clone(), &identity, ANY, modest())?);
            let greeter = node.find(&host, GREETER, PATIENCE).await?;
            let pinging = ping(node, greeter, interval, heard.clone());
            tasks.push(tokio::task::spawn_local(pinging));
        }
        Ok(Self {
            _endpoints: endpoints,
            tasks,
            heard,
        })
    }

    /// What was heard since the last call.
    #[must_use]
    pub fn report(&self) -> Pings {
        let mut heard = std::mem::take(&mut *self.heard.borrow_mut());
        heard.answers.sort_unstable();
        let share = |percent: usize| {
            let place = (heard.answers.len() * percent / 100).min(heard.answers.len().max(1) - 1);
            heard.answers.get(place).copied().unwrap_or_default()
        };
        Pings {
            answered: heard.answers.len() as u64,
            missed: heard.missed,
            p50: share(50),
            p99: share(99),
            longest: share(100),
        }
    }
}

impl Drop for Pingers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn ping(node: Node, greeter: Pid, interval: Duration, heard: Rc<RefCell<Heard>>) {
    let clock = node.clock();
    clock.sleep(interval.mul_f64(node.rng().random())).await; // not all at once
    loop {
        let begun = clock.now();
        let answer = node.ask(&greeter, Alive, PATIENCE).await;
        let took = clock.now() - begun;
        {
            let mut heard = heard.borrow_mut();
            match answer {
                Ok(()) => heard.answers.push(took),
                Err(_) => heard.missed += 1,
            }
        }
        clock.sleep(interval.saturating_sub(took)).await;
    }
}
