//! The probe: how soon the registry takes an operation again, as a framework that is admitted sees it.
//!
//! Asks all masters that run in turn to admit a new framework, until one has. A framework is admitted when its admission is synced on
//! a majority's disks. It wants no offers, and is over as soon as it was admitted.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use protocol::FrameworkInfo;
use protocol::Wants;
use protocol::message::scheduler::Subscribe;
use runtime::prelude::*;
use transport::{Endpoint, Options};

use super::super::launch::user;
use super::group::Group;
use crate::failure::{Failure, Outcome};

/// How long one master may take to be found.
const FIND_PATIENCE: Duration = Duration::from_millis(500);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(5);

/// The probe's node.
pub struct Probe {
    node: Node,
    _endpoint: Endpoint,
}

/// A scheduler that hears nothing.
struct Deaf;

impl Actor for Deaf {
    type Context = Context<Self>;
}

impl Process for Deaf {}

impl Probe {
    /// A probe of this group.
    pub fn new(group: &Group) -> Outcome<Self> {
        let identity = group.issue(Role::Framework, "probe")?;
        let node = Node::builder("probe")
            .role(Role::Framework)
            .accepts(&[Role::Master])
            .build();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::bind(node.clone(), &identity, any, Options::default())
            .map_err(|error| Failure::because("cannot open a socket", &error))?;
        Ok(Self {
            node,
            _endpoint: endpoint,
        })
    }

    /// Waits until a master of these has had a framework admitted.
    pub async fn commit(&self, masters: &[String], patience: Duration) -> Outcome {
        let begun = self.node.clock().now();
        loop {
            for master in masters {
                if let Ok(master) = self.node.find(master, "master", FIND_PATIENCE).await
                    && self.admitted(&master).await?
                {
                    return Ok(());
                }
            }
            if self.node.clock().now() - begun > patience {
                return Err(Failure::new(format!(
                    "no master admits a framework within {patience:?}"
                )));
            }
            self.node.clock().sleep(PAUSE).await;
        }
    }

    async fn admitted(&self, master: &Pid) -> Outcome<bool> {
        let scheduler = self.node.spawn_unnamed("scheduler", Deaf);
        let scheduler = scheduler.map_err(|error| Failure::because("the probe", &error))?;
        let mut framework = FrameworkInfo::new(user(), "probe");
        framework.hostname = "localhost".to_owned();
        let question = Subscribe {
            wants: Wants::but_not(BTreeSet::from(["*".to_owned()])),
            framework,
            scheduler: scheduler.pid(),
        };
        let answer = self.node.ask(master, question, PATIENCE).await;
        self.node.stop(&scheduler.pid());
        Ok(matches!(answer, Ok(Ok(_))))
    }
}
