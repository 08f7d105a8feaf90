//! The members of a group of masters, each asked for itself: for the verbs `meros masters` and `meros registry dump`.
//!
//! Remembers the addresses that it was given and those that members have named since. Everybody is asked at once and has the same
//! patience, so that a master that is down costs one wait and not several. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::member::NAME;
use consensus::member::operator::{MasterStatus, NotShown, ViewMaster};
use futures_util::future::join_all;
use runtime::{AskError, Clock, Node, Pid, Remote};
use transport::Endpoint;

use super::{ClusterFlags, PATIENCE, no_answer, open};
use crate::failure::{Failure, Outcome};

/// More addresses than that are never asked.
const ADDRESSES_MAX: usize = 256;

/// What each address answered; of one that did not, why.
pub type Answers = BTreeMap<String, Result<MasterStatus, String>>;

/// An operator's node, and where masters are.
pub struct Members {
    node: Node,
    endpoint: Endpoint,
    addresses: BTreeSet<String>,
    refusal: Option<String>,
}

impl Members {
    /// Opens a socket; the masters are found when they are asked.
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

    /// Why a master did not say how it stands, if this operator may not know.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// One more address to be asked.
    pub fn know(&mut self, address: &str) {
        if self.addresses.len() < ADDRESSES_MAX {
            self.addresses.insert(address.to_owned());
        }
    }

    /// Asks everybody how it stands, also those whom the answers name.
    pub async fn look(&mut self, patience: Duration) -> Answers {
        let mut answers = Answers::new();
        // Ends: each round asks addresses that were not asked before, and there are so many at most.
        loop {
            let unasked = self.addresses.iter();
            let unasked: Vec<String> = unasked
                .filter(|one| !answers.contains_key(*one))
                .cloned()
                .collect();
            if unasked.is_empty() {
                return answers;
            }
            let asked = unasked.iter().map(|address| self.view(address, patience));
            let heard = join_all(asked).await;
            let told = heard.into_iter().map(|answer| {
                answer?.map_err(|NotShown { reason }| {
                    self.refusal = Some(reason.clone());
                    reason
                })
            });
            let heard: Vec<Result<MasterStatus, String>> = told.collect();
            let seats = heard.iter().flatten().flat_map(|status| &status.seats);
            let named: Vec<String> = seats.filter_map(|seat| seat.address.clone()).collect();
            named.iter().for_each(|address| self.know(address));
            answers.extend(unasked.into_iter().zip(heard));
        }
    }

    async fn view(
        &self,
        address: &str,
        patience: Duration,
    ) -> Result<Result<MasterStatus, NotShown>, String> {
        let asked = async {
            let pid = self.find(address, patience).await?;
            let asked = self.node.ask(&pid, ViewMaster, patience).await;
            asked.map_err(|error| error.to_string())
        };
        let answer = self.clock().timeout(patience, asked).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")))
    }

    async fn find(&self, address: &str, patience: Duration) -> Result<Pid, String> {
        let linked = self.node.connect(address).await;
        linked.map_err(|error| crate::failure::chain(&error))?;
        let found = self.node.find(address, NAME, patience).await;
        found.map_err(|error| match error {
            AskError::Gone => {
                "it belongs to no group: it was started without --initial_masters, or ends just now"
                    .to_owned()
            }
            error => error.to_string(),
        })
    }

    /// Asks one member something.
    pub async fn ask<M: Remote>(&self, address: &str, question: M) -> Outcome<M::Result> {
        let pid = self.find(address, PATIENCE).await.map_err(Failure::new)?;
        let answer = self.node.ask(&pid, question, PATIENCE).await;
        answer.map_err(|error| no_answer(address, &error))
    }

    /// Says farewell.
    pub async fn close(self) {
        self.node.shutdown().await;
        self.endpoint.close().await;
    }
}
