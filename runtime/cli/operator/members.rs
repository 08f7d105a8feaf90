//! The members of a group of masters, each queried directly: for `meros masters` and `meros
//! registry dump`.
//!
//! Queries the given addresses, and those that members have reported. All are queried at once with
//! the same time limit, so that several unreachable masters cost one timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::member::NAME;
use consensus::member::operator::{MasterStatus, NotShown, ViewMaster};
use futures_util::future::join_all;
use runtime::{AskError, Clock, Node, Pid, Remote};
use transport::Endpoint;

use super::{ANSWER_TIMEOUT, ClusterFlags, no_answer, open};
use crate::output::error::{CliError, Outcome};

/// The maximum of queried addresses.
const ADDRESSES_MAX: usize = 256;

/// The answer of each address, or why there is none.
pub type Answers = BTreeMap<String, Result<MasterStatus, String>>;

/// An operator's node, and the masters' addresses.
pub struct Members {
    node: Node,
    endpoint: Endpoint,
    addresses: BTreeSet<String>,
    refusal: Option<String>,
}

impl Members {
    /// Opens a socket. Connections are made on demand.
    pub fn open(flags: &ClusterFlags) -> Outcome<Self> {
        let addresses = flags.addresses();
        let (node, endpoint) = open(&flags.identity(None)?)?;
        Ok(Self {
            node,
            endpoint,
            addresses: addresses.split(',').map(str::to_owned).collect(),
            refusal: None,
        })
    }

    /// The clock of the node.
    pub fn clock(&self) -> &Clock {
        self.node.clock()
    }

    /// The reason why a master refused its status to this operator, if one did.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Adds an address.
    pub fn add_address(&mut self, address: &str) {
        if self.addresses.len() < ADDRESSES_MAX {
            self.addresses.insert(address.to_owned());
        }
    }

    /// Queries the status of all, including the members that the answers report.
    pub async fn query(&mut self, timeout: Duration) -> Answers {
        let mut answers = Answers::new();
        // Ends: each round asks new addresses, whose number is bounded.
        loop {
            let unasked = self.addresses.iter();
            let unasked: Vec<String> = unasked
                .filter(|one| !answers.contains_key(*one))
                .cloned()
                .collect();
            if unasked.is_empty() {
                return answers;
            }
            let asked = unasked.iter().map(|address| self.view(address, timeout));
            let results = join_all(asked).await;
            let statuses = results.into_iter().map(|answer| {
                answer?.map_err(|NotShown { reason }| {
                    self.refusal = Some(reason.clone());
                    reason
                })
            });
            let results: Vec<Result<MasterStatus, String>> = statuses.collect();
            let members = results.iter().flatten().flat_map(|status| &status.members);
            let named: Vec<String> = members
                .filter_map(|member| member.address.clone())
                .collect();
            named.iter().for_each(|address| self.add_address(address));
            answers.extend(unasked.into_iter().zip(results));
        }
    }

    async fn view(
        &self,
        address: &str,
        timeout: Duration,
    ) -> Result<Result<MasterStatus, NotShown>, String> {
        let asked = async {
            let pid = self.find(address, timeout).await?;
            let asked = self.node.ask(&pid, ViewMaster, timeout).await;
            asked.map_err(|error| error.to_string())
        };
        let answer = self.clock().timeout(timeout, asked).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
    }

    async fn find(&self, address: &str, timeout: Duration) -> Result<Pid, String> {
        let linked = self.node.connect(address).await;
        linked.map_err(|error| crate::output::error::chain(&error))?;
        let found = self.node.find(address, NAME, timeout).await;
        found.map_err(|error| match error {
            AskError::Gone => "no master runs there, or it is starting or stopping".to_owned(),
            error => error.to_string(),
        })
    }

    /// Sends a request to one member.
    pub async fn ask<M: Remote>(&self, address: &str, question: M) -> Outcome<M::Result> {
        let pid = self
            .find(address, ANSWER_TIMEOUT)
            .await
            .map_err(CliError::new)?;
        let answer = self.node.ask(&pid, question, ANSWER_TIMEOUT).await;
        answer.map_err(|error| no_answer(address, &error))
    }

    /// Closes the connections.
    pub async fn close(self) {
        self.node.shutdown().await;
        self.endpoint.close().await;
    }
}
