//! Seek: the master that leads is found through any master of its group.
//!
//! A master that does not lead has no actor `master`, but its `office` knows who does, and answers as soon as somebody does
//! ([`AwaitLeader`]). So the masters that are given are asked for their actor as ever ([`Node::find_among`]), and those that have none are
//! asked who leads. Whoever is said to lead is asked for its master and for nothing else: nobody that was not given sends anybody on, so no
//! two that believe in each other keep anybody between them. Who sent us there is asked for the next leader when there is none for a while.
//!
//! What is said is only an address and a term, which `Word` judges: the transport lets nobody answer there who has no certificate of a
//! master, and terms are believed when a master that acts says them (`fence`). Nothing outlives one search: the list stays as it was given.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use runtime::{AskError, Node, Patience, Pid, Sought};

use crate::message::registration::{AwaitLeader, LeaderAnnounced};

/// The actor that is sought.
const MASTER: &str = "master";
/// The actor that knows who leads, on each master of a group.
const OFFICE: &str = "office";

/// The pause before it is looked again whether somebody who is said to lead has begun to; it doubles, and chance shortens it by up to half.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// How long somebody who is said to lead may take to be found before whoever said so is asked for the next.
const ARRIVAL: Duration = Duration::from_millis(500);
/// How many leaders, one after the other, one master may name in one search.
const LEADERS_MAX: u32 = 8;
/// All who were told of a new leader at once come to it within so long.
pub const SPREAD_MAX: Duration = Duration::from_millis(200);

/// The longest place: a host's name of 253 characters, a colon and a port.
const PLACE_MAX: usize = 259;

impl LeaderAnnounced {
    /// Whether this is a place on the network where a master may be looked for: `host:port`, and not a node of another role or something of
    /// one's own machine.
    pub fn names_a_place(&self) -> bool {
        let odd = |c: char| c == '@' || c == '/' || c == ',' || c.is_whitespace() || c.is_control();
        let place = &self.address;
        !place.is_empty()
            && place.len() <= PLACE_MAX
            && !place.contains(odd)
            && !place.starts_with("unix:")
    }
}

/// What one master has said so far of who leads.
#[derive(Debug, Default)]
struct Word {
    term: u64,
    leaders: u32,
}

impl Word {
    /// Where to go by what it says now; `None` if that leads nowhere: it was asked for a later term than before, and names few in a moment.
    fn leads_to(&mut self, said: LeaderAnnounced) -> Option<String> {
        self.leaders += 1;
        let may = said.term > self.term && said.names_a_place() && self.leaders <= LEADERS_MAX;
        self.term = self.term.max(said.term);
        may.then_some(said.address)
    }
}

/// How long to wait with what somebody was told who had waited for it so long: no longer than that, for others may have waited too and were
/// told in the same moment. `chance` is in `0..1`.
pub fn spread(waited: Duration, chance: f64) -> Duration {
    waited.min(SPREAD_MAX).mul_f64(chance.clamp(0.0, 1.0))
}

/// The master that leads the group to which these belong, each at `host:port`: one of them, or one that they name. Each is given this
/// patience, to say that nobody leads as well. `chance` is in `0..1`, and spreads those who seek the same one.
pub fn find_leader(
    node: &Node,
    masters: Vec<String>,
    patience: Duration,
    chance: f64,
) -> impl Future<Output = Result<Sought, AskError>> + Send + use<> {
    let asker = node.clone();
    let guide = move |address: String| {
        let node = asker.clone();
        async move {
            let guided = guided(&node, &address, chance);
            let late = AskError::Late { after: patience };
            let guided = node.clock().timeout(patience, guided).await;
            guided.unwrap_or(Err(late))
        }
    };
    node.find_among(masters, MASTER, patience, guide)
}

/// The master at the address of one that was announced; nobody else is asked, and it is not asked who else leads.
pub async fn find_announced(
    node: &Node,
    address: &str,
    patience: Duration,
) -> Result<Sought, AskError> {
    let pid = node.find(address, MASTER, patience).await?;
    let (place, address) = (0, address.to_owned());
    Ok(Sought {
        place,
        address,
        pid,
    })
}

/// Where the master at `address` says that one leads, and that one. It ends by the patience of whoever asks.
async fn guided(node: &Node, address: &str, chance: f64) -> Result<(String, Pid), AskError> {
    let clock = node.clock();
    let office = node.find(address, OFFICE, Patience::WhileLinked).await?;
    let next = |term| node.ask(&office, AwaitLeader { term }, Patience::WhileLinked);
    let mut word = Word::default();
    let mut begun = clock.now();
    let mut said = next(0).await?;
    loop {
        let place = word.leads_to(said).ok_or(AskError::Gone)?;
        clock.sleep(spread(clock.now() - begun, chance)).await;
        begun = clock.now();
        let mut arriving = pin!(arrive(node, &place, chance));
        if let Ok(arrived) = clock.timeout(ARRIVAL, arriving.as_mut()).await {
            return arrived.map(|master| (place.clone(), master));
        }
        said = match select(arriving, next(word.term)).await {
            Either::Left((arrived, _)) => {
                return arrived.map(|master| (place.clone(), master));
            }
            Either::Right((Ok(later), _)) => later,
            Either::Right((Err(_), arriving)) => {
                return arriving.await.map(|master| (place.clone(), master));
            }
        };
    }
}

/// The master at `address`, as soon as one acts there. It ends by the patience of whoever asks, or when whoever is there wants us not, or is
/// no master.
async fn arrive(node: &Node, address: &str, chance: f64) -> Result<Pid, AskError> {
    let mut pause = AGAIN;
    loop {
        match node.find(address, MASTER, Patience::WhileLinked).await {
            Ok(master) => return Ok(master),
            Err(refused @ AskError::Refused { .. }) => return Err(refused),
            Err(_) => {}
        }
        node.clock().sleep(pause.mul_f64(1.0 - 0.5 * chance)).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

#[cfg(test)]
mod tests;
