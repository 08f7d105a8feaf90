//! The probe: measures when the registry accepts an operation again.
//!
//! Subscribes a new framework with the running masters in turn, until one admits it. The admission
//! is synced on the disks of a majority. The framework wants no offers and ends at once.

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
use meros::output::error::{CliError, Outcome};

/// Timeout for finding a master.
const FIND_PATIENCE: Duration = Duration::from_millis(500);
/// Timeout of its reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(5);

/// The probe's node.
pub struct Probe {
    node: Node,
    _endpoint: Endpoint,
}

/// A scheduler that ignores all messages.
struct IgnoringScheduler;

impl Actor for IgnoringScheduler {
    type Context = Context<Self>;
}

impl Process for IgnoringScheduler {}

impl Probe {
    /// A probe for this group.
    pub fn new(group: &Group) -> Outcome<Self> {
        let identity = group.issue(Role::Framework, "probe")?;
        let node = Node::builder("probe")
            .role(Role::Framework)
            .accepts(&[Role::Master])
            .build();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::bind(node.clone(), &identity, any, Options::default())
            .map_err(|error| CliError::because("cannot open a socket", &error))?;
        Ok(Self {
            node,
            _endpoint: endpoint,
        })
    }

    /// Waits until one of these masters has admitted a framework.
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
                return Err(CliError::new(format!(
                    "no master admits a framework within {patience:?}"
                )));
            }
            self.node.clock().sleep(PAUSE).await;
        }
    }

    async fn admitted(&self, master: &Pid) -> Outcome<bool> {
        let scheduler = self.node.spawn_unnamed("scheduler", IgnoringScheduler);
        let scheduler = scheduler.map_err(|error| CliError::because("the probe", &error))?;
        let mut framework = FrameworkInfo::new(user(), "probe");
        framework.hostname = "localhost".to_owned();
        let question = Subscribe {
            wants: Wants::suppressing(BTreeSet::from(["*".to_owned()])),
            framework,
            scheduler: scheduler.pid(),
        };
        let answer = self.node.ask(master, question, PATIENCE).await;
        self.node.stop(&scheduler.pid());
        Ok(matches!(answer, Ok(Ok(_))))
    }
}
