//! Pingers: linked nodes that ping the host at an interval and record the time of each answer.
//!
//! They never dial again: a lost link counts as missed pings.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rand::Rng;
use runtime::prelude::*;

use super::{ANY, Alive, Failure, GREETER, small_buffers};
use transport::Authority;
use transport::Endpoint;

/// An answer later than this counts as missed: the patience of masters.
const PATIENCE: Duration = Duration::from_secs(15);

/// Linked nodes that ping. Dropping it ends their links.
pub struct Pingers {
    _endpoints: Vec<Endpoint>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    samples: Rc<RefCell<PingSamples>>,
}

#[derive(Default)]
struct PingSamples {
    answers: Vec<Duration>,
    missed: u64,
}

/// Results of the pings since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pings {
    /// Answered pings.
    pub answered: u64,
    /// Unanswered pings.
    pub missed: u64,
    /// Median of the answer times.
    pub p50: Duration,
    /// 99th percentile of the answer times.
    pub p99: Duration,
    /// The longest answer time.
    pub longest: Duration,
}

impl Pingers {
    /// Links `count` nodes to the host; from then on each pings it once per `interval`.
    pub async fn start(
        authority: &Authority,
        host: SocketAddr,
        count: usize,
        interval: Duration,
    ) -> Result<Self, Failure> {
        let (host, samples) = (
            host.to_string(),
            Rc::new(RefCell::new(PingSamples::default())),
        );
        let (mut endpoints, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..count {
            let identity = authority.issue(Role::Agent, &format!("pinger-{number}"))?;
            let node = Node::builder(identity.subject().name.as_str())
                .role(Role::Agent)
                .accepts(&[Role::Master])
                .build();
            endpoints.push(Endpoint::bind(
                node.clone(),
                &identity,
                ANY,
                small_buffers(),
            )?);
            let greeter = node.find(&host, GREETER, PATIENCE).await?;
            let pinging = ping(node, greeter, interval, samples.clone());
            tasks.push(tokio::task::spawn_local(pinging));
        }
        Ok(Self {
            _endpoints: endpoints,
            tasks,
            samples,
        })
    }

    /// The results since the last call.
    #[must_use]
    pub fn report(&self) -> Pings {
        let mut samples = std::mem::take(&mut *self.samples.borrow_mut());
        samples.answers.sort_unstable();
        let share = |percent: usize| {
            let place =
                (samples.answers.len() * percent / 100).min(samples.answers.len().max(1) - 1);
            samples.answers.get(place).copied().unwrap_or_default()
        };
        Pings {
            answered: samples.answers.len() as u64,
            missed: samples.missed,
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

async fn ping(node: Node, greeter: Pid, interval: Duration, samples: Rc<RefCell<PingSamples>>) {
    let clock = node.clock();
    clock.sleep(interval.mul_f64(node.rng().random())).await; // not all at once
    loop {
        let begun = clock.now();
        let answer = node.ask(&greeter, Alive, PATIENCE).await;
        let took = clock.now() - begun;
        {
            let mut samples = samples.borrow_mut();
            match answer {
                Ok(()) => samples.answers.push(took),
                Err(_) => samples.missed += 1,
            }
        }
        clock.sleep(interval.saturating_sub(took)).await;
    }
}
