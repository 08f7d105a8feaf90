//! Leader discovery: finds the leading master through any masters of its group.
//!
//! Only the leading master has an actor `master`. Each member of a group has an actor `office`,
//! which knows the leader and answers [`AwaitLeader`] as soon as there is one. A search asks every
//! given address for `master` ([`Node::find_among`]) and, where there is none, for its leader. It
//! asks a named leader only for `master`, never for another leader, so two stale members that name
//! each other cannot form a loop. If the named leader does not answer for some time, its namer is
//! asked for a later one.
//!
//! An announcement contains only an address and a term, which `Referrals` checks. It needs no
//! further trust: the transport accepts only peers with a master's certificate, and a term takes
//! effect only when an acting master confirms it (see [`fence`](crate::fence)). A search keeps no
//! state and does not change the list of addresses.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use runtime::{AskError, Discovered, Node, Patience, Pid};

use crate::message::registration::{AwaitLeader, LeaderAnnounced};

/// The leading master's actor.
const MASTER: &str = "master";
/// The actor of each group member that knows the leader.
const OFFICE: &str = "office";

/// First pause before a named leader is tried again. It doubles up to [`RETRY_MAX`]; jitter
/// shortens it by up to half.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How long a named leader may take to be found before its namer is asked for a later one.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of leaders that one master may name in one search.
const LEADERS_MAX: u32 = 8;
/// Maximum jitter before clients that learn of a new leader at the same time connect to it.
pub const SPREAD_MAX: Duration = Duration::from_millis(200);

/// Maximum length of an address: a host name of 253 characters, a colon and a port.
const ADDRESS_BYTES_MAX: usize = 259;

impl LeaderAnnounced {
    /// Whether the address is a plain `host:port` on the network: not a node name and not a local
    /// socket.
    pub fn has_dialable_address(&self) -> bool {
        let odd = |c: char| c == '@' || c == '/' || c == ',' || c.is_whitespace() || c.is_control();
        let address = &self.address;
        !address.is_empty()
            && address.len() <= ADDRESS_BYTES_MAX
            && !address.contains(odd)
            && !address.starts_with("unix:")
    }
}

/// Leaders that one master has named so far.
#[derive(Debug, Default)]
struct Referrals {
    term: u64,
    leaders: u32,
}

impl Referrals {
    /// The address of the named leader. `None` if the referral is invalid: its term is not later
    /// than the previous one, its address is not dialable, or there were too many.
    fn next_address(&mut self, announced: LeaderAnnounced) -> Option<String> {
        self.leaders += 1;
        let may = announced.term > self.term
            && announced.has_dialable_address()
            && self.leaders <= LEADERS_MAX;
        self.term = self.term.max(announced.term);
        may.then_some(announced.address)
    }
}

/// Jitter for an answer that took `waited`: at most `waited` and [`SPREAD_MAX`]. Only clients that
/// waited may have been answered together. `chance` is in `0..1`.
pub fn spread(waited: Duration, chance: f64) -> Duration {
    waited.min(SPREAD_MAX).mul_f64(chance.clamp(0.0, 1.0))
}

/// Finds the leading master through `masters` (`host:port` each): one of them, or one that they
/// name. `patience` applies to each address, also while a group has no leader. `chance` in `0..1`
/// is the jitter of this client.
pub fn find_leader(
    node: &Node,
    masters: Vec<String>,
    patience: Duration,
    chance: f64,
) -> impl Future<Output = Result<Discovered, AskError>> + Send + use<> {
    let asking_node = node.clone();
    let ask = move |address: String| {
        let node = asking_node.clone();
        async move {
            let found = ask_for_leader(&node, &address, chance);
            let late = AskError::Late { after: patience };
            let found = node.clock().timeout(patience, found).await;
            found.unwrap_or(Err(late))
        }
    };
    node.find_among(masters, MASTER, patience, ask)
}

/// Finds the master at an announced address. Does not ask it for other leaders.
pub async fn find_announced(
    node: &Node,
    address: &str,
    patience: Duration,
) -> Result<Discovered, AskError> {
    let pid = node.find(address, MASTER, patience).await?;
    let (place, address) = (0, address.to_owned());
    Ok(Discovered {
        place,
        address,
        pid,
    })
}

/// Asks the master at `address` for the leader, and finds that leader. The caller limits the time.
async fn ask_for_leader(
    node: &Node,
    address: &str,
    chance: f64,
) -> Result<(String, Pid), AskError> {
    let clock = node.clock();
    let office = node.find(address, OFFICE, Patience::WhileLinked).await?;
    let next = |term| node.ask(&office, AwaitLeader { term }, Patience::WhileLinked);
    let mut referrals = Referrals::default();
    let mut asked_at = clock.now();
    let mut announced = next(0).await?;
    loop {
        let leader_address = referrals.next_address(announced).ok_or(AskError::Gone)?;
        clock.sleep(spread(clock.now() - asked_at, chance)).await;
        asked_at = clock.now();
        let mut arriving = pin!(wait_for_leader(node, &leader_address, chance));
        if let Ok(arrived) = clock.timeout(ARRIVAL_TIMEOUT, arriving.as_mut()).await {
            return arrived.map(|master| (leader_address.clone(), master));
        }
        announced = match select(arriving, next(referrals.term)).await {
            Either::Left((arrived, _)) => {
                return arrived.map(|master| (leader_address.clone(), master));
            }
            Either::Right((Ok(later), _)) => later,
            Either::Right((Err(_), arriving)) => {
                return arriving
                    .await
                    .map(|master| (leader_address.clone(), master));
            }
        };
    }
}

/// Finds the master at `address`, waiting until it starts to lead. Fails only if the peer refuses;
/// the caller limits the time.
async fn wait_for_leader(node: &Node, address: &str, chance: f64) -> Result<Pid, AskError> {
    let mut pause = RETRY_FIRST;
    loop {
        match node.find(address, MASTER, Patience::WhileLinked).await {
            Ok(master) => return Ok(master),
            Err(refused @ AskError::Refused { .. }) => return Err(refused),
            Err(_) => {}
        }
        node.clock().sleep(pause.mul_f64(1.0 - 0.5 * chance)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests;
