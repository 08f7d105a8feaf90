//! Discovery: finds an actor by name at one of several addresses, some of which may be dead.
//!
//! A hedged lookup: [`Round`] decides which address is queried when, and is pure;
//! [`Node::find_among`] sends the queries. The addresses are queried in order, the next one 500 ms
//! after the one before or at once on a negative reply, so a dead address costs a moment and not
//! the whole patience. While one is silent, the others are queried again, since the actor may start
//! there meanwhile. A node without the actor may know its address: that query is left to the
//! caller's `guide`. One call is one round.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::actor::ask::{AskError, Patience};
use crate::clock::Instant;
use crate::identity::Pid;
use crate::node::Node;

/// The delay before the next address is queried, and before a negative reply is queried again.
const HEDGE_DELAY: Duration = Duration::from_millis(500);

/// The state of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryState {
    NotYet,
    /// No reply yet.
    Silent,
    /// It has no such actor, or could not be reached.
    No(Instant),
    /// It had no such actor, and is queried again.
    Again,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Query this address.
    Ask(usize),
    /// Wait for this time or the next reply.
    Wait(Option<Instant>),
    /// All have replied, and none has the actor.
    Over,
}

/// One round of queries.
struct Round {
    asked: Vec<QueryState>,
    /// The time of the last first query.
    last: Instant,
}

impl Round {
    fn new(count: usize, now: Instant) -> Self {
        Self {
            asked: vec![QueryState::NotYet; count],
            last: now,
        }
    }

    fn next(&self, now: Instant) -> Next {
        if let Some(first) = self
            .asked
            .iter()
            .position(|asked| *asked == QueryState::NotYet)
        {
            let before = first.checked_sub(1).map(|before| self.asked[before]);
            let due = self.last + HEDGE_DELAY;
            return match before == Some(QueryState::Silent) && due > now {
                true => Next::Wait(Some(due)),
                false => Next::Ask(first),
            };
        }
        if !self.asked.contains(&QueryState::Silent) {
            // Addresses that are queried again have replied once, which is enough.
            return Next::Over;
        }
        let no = self
            .asked
            .iter()
            .enumerate()
            .filter_map(|(index, asked)| match asked {
                QueryState::No(at) => Some((*at + HEDGE_DELAY, index)),
                _ => None,
            });
        match no.min() {
            Some((due, index)) if due <= now => Next::Ask(index),
            Some((due, _)) => Next::Wait(Some(due)),
            None => Next::Wait(None),
        }
    }

    fn ask(&mut self, index: usize, now: Instant) {
        self.asked[index] = match self.asked[index] {
            QueryState::NotYet => {
                self.last = now;
                QueryState::Silent
            }
            _ => QueryState::Again,
        };
    }

    fn negative(&mut self, index: usize, now: Instant) {
        self.asked[index] = QueryState::No(now);
    }
}

/// A found actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The index of the given address that has the actor, or led to it.
    pub place: usize,
    /// The actor's address.
    pub address: String,
    /// The actor's pid.
    pub pid: Pid,
}

/// A result for the address at this index.
enum QueryResult {
    /// The result of the query.
    Direct(usize, Result<Pid, AskError>),
    /// It has no such actor; the result of the guide.
    Guided(usize, Result<(String, Pid), AskError>),
}

impl Node {
    /// Finds the actor with this name on a node at one of these addresses, or at an address that
    /// one of those leads to. Each query has this patience; the error is the last one.
    ///
    /// The addresses are queried in order, half a second apart, or at once after a negative reply.
    /// For a node that is up and has no such actor, the `guide` is called to find the actor's
    /// address, while the other addresses are still queried; a guide limits its own time. It ends
    /// with the first actor found, or when all queries and guides have failed or timed out.
    pub fn find_among<G, F>(
        &self,
        addresses: Vec<String>,
        name: &str,
        patience: Duration,
        guide: G,
    ) -> impl Future<Output = Result<Discovered, AskError>> + Send + use<G, F>
    where
        G: Fn(String) -> F + Send,
        F: Future<Output = Result<(String, Pid), AskError>> + Send,
    {
        let (node, name): (_, Arc<str>) = (self.clone(), name.into());
        async move {
            let clock = node.clock();
            let mut round = Round::new(addresses.len(), clock.now());
            let mut guided = vec![false; addresses.len()];
            let (mut awaited, mut error) = (FuturesUnordered::new(), AskError::Gone);
            loop {
                let due = match round.next(clock.now()) {
                    Next::Over if !guided.contains(&true) => return Err(error),
                    Next::Over => None,
                    Next::Ask(index) => {
                        round.ask(index, clock.now());
                        let finding = node.find(&addresses[index], &name, Patience::For(patience));
                        let asked = async move { QueryResult::Direct(index, finding.await) };
                        awaited.push(Either::Left(asked));
                        continue;
                    }
                    Next::Wait(due) => due,
                };
                let result = match due {
                    None => awaited.next().await,
                    Some(due) => {
                        let sleep = std::pin::pin!(clock.sleep_until(due));
                        match select(awaited.next(), sleep).await {
                            Either::Left((result, _)) => result,
                            Either::Right(_) => continue,
                        }
                    }
                };
                match result {
                    Some(QueryResult::Direct(place, Ok(pid))) => {
                        let address = addresses[place].clone();
                        return Ok(Discovered {
                            place,
                            address,
                            pid,
                        });
                    }
                    Some(QueryResult::Guided(place, Ok((address, pid)))) => {
                        return Ok(Discovered {
                            place,
                            address,
                            pid,
                        });
                    }
                    Some(QueryResult::Direct(index, Err(no))) => {
                        round.negative(index, clock.now());
                        let address = &addresses[index];
                        if no == AskError::Gone && !guided[index] && node.is_linked_at(address) {
                            guided[index] = true;
                            let guiding = guide(address.clone());
                            let guiding = async move { QueryResult::Guided(index, guiding.await) };
                            awaited.push(Either::Right(guiding));
                        }
                        error = no;
                    }
                    Some(QueryResult::Guided(index, Err(no))) => {
                        guided[index] = false;
                        error = no;
                    }
                    None => return Err(error), // unreachable: a silent address has a pending query
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::identity::Role;
    use crate::prelude::*;
    use crate::testing::simulate_network;
    use crate::{ConnectError, Dialer, Peer};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Instant {
        Instant::default() + Duration::from_millis(millis)
    }

    #[test]
    fn next_address_is_queried_after_a_no_or_silence() {
        let mut round = Round::new(3, at(0));
        assert_eq!(round.next(at(0)), Next::Ask(0));
        round.ask(0, at(0));
        assert_eq!(round.next(at(10)), Next::Wait(Some(at(500))));
        round.negative(0, at(20));
        assert_eq!(round.next(at(20)), Next::Ask(1));
        round.ask(1, at(20));
        assert_eq!(round.next(at(519)), Next::Wait(Some(at(520))));
        assert_eq!(round.next(at(520)), Next::Ask(2));
    }

    #[test]
    fn negative_replies_are_retried_while_another_is_silent() {
        let mut round = Round::new(2, at(0));
        round.ask(0, at(0));
        round.ask(1, at(500));
        assert_eq!(round.next(at(500)), Next::Wait(None));
        round.negative(1, at(501));
        assert_eq!(round.next(at(501)), Next::Wait(Some(at(1001))));
        assert_eq!(round.next(at(1001)), Next::Ask(1));
        round.ask(1, at(1001));
        assert_eq!(round.next(at(1002)), Next::Wait(None));
        round.negative(0, at(5000));
        assert_eq!(round.next(at(5000)), Next::Over);
        assert_eq!(Round::new(0, at(0)).next(at(0)), Next::Over);
    }

    struct Master;

    impl Actor for Master {
        type Context = Context<Self>;
    }

    impl Process for Master {
        fn accepts(_: &mut RemoteHandlers<Self>) {}
    }

    /// Never completes a dial to the address `dead`.
    struct Waits(Arc<dyn Dialer>);

    impl Dialer for Waits {
        fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
            match address.as_str() {
                "dead" => std::future::pending().boxed(),
                _ => self.0.dial(address),
            }
        }
    }

    /// A test with a node that looks for a master at these addresses; only `first` and `second`
    /// live.
    fn stage<F: Future>(story: impl FnOnce(Node, [Node; 2]) -> F) -> F::Output {
        simulate_network(|network| async move {
            let hosts = ["first", "second"]
                .map(|name| network.node(name, Role::Master, &[Role::Framework]));
            let seeker = network.node("seeker", Role::Framework, &[Role::Master]);
            seeker.set_dialer(Arc::new(Waits(network.place(&seeker, "seeker"))));
            story(seeker, hosts).await
        })
    }

    fn seek(
        seeker: &Node,
        addresses: &[&str],
    ) -> impl Future<Output = Result<(usize, Pid), AskError>> + use<> {
        let addresses = addresses.iter().map(|address| (*address).to_owned());
        let nobody = |_| std::future::ready(Err(AskError::Gone));
        let found = seeker.find_among(addresses.collect(), "master", PATIENCE, nobody);
        async move { found.await.map(|found| (found.place, found.pid)) }
    }

    #[test]
    fn dead_address_costs_only_the_hedge_delay() {
        stage(|seeker, [_, second]| async move {
            let master = second.spawn("master", Master).unwrap();
            let begun = seeker.clock().now();
            let found = seek(&seeker, &["dead", "first", "second"]).await;
            assert_eq!(found, Ok((2, master.pid())));
            assert_eq!(seeker.clock().now() - begun, HEDGE_DELAY);
        });
    }

    #[test]
    fn actor_started_during_the_round_is_found() {
        stage(|seeker, [first, _]| async move {
            let begun = seeker.clock().now();
            let seeking = seek(&seeker, &["first", "dead", "second"]);
            let elected = async {
                seeker.clock().sleep(Duration::from_millis(1200)).await;
                first.spawn("master", Master).unwrap()
            };
            let (found, master) = futures_util::future::join(seeking, elected).await;
            assert_eq!(found, Ok((0, master.pid())));
            let took = seeker.clock().now() - begun;
            assert!(took < Duration::from_millis(1800), "{took:?}");
        });
    }

    /// A guide that answers after a second.
    async fn guide(node: Node, pid: Option<Pid>) -> Result<(String, Pid), AskError> {
        node.clock().sleep(Duration::from_secs(1)).await;
        let found = pid.ok_or(AskError::Full)?;
        Ok(("elsewhere".to_owned(), found))
    }

    #[test]
    fn guide_finds_the_actor_while_others_are_queried() {
        stage(|seeker, [first, second]| async move {
            let elsewhere = Pid::new("master", first.id().clone(), 7);
            let addresses = || vec!["first".to_owned(), "second".to_owned()];
            let through = |known: Option<Pid>| {
                let led = seeker.clone();
                let guide = move |_| guide(led.clone(), known.clone());
                seeker.find_among(addresses(), "master", PATIENCE, guide)
            };
            let begun = seeker.clock().now();
            let found = through(Some(elsewhere.clone())).await.unwrap();
            assert_eq!((found.place, found.address.as_str()), (0, "elsewhere"));
            assert_eq!(found.pid, elsewhere);
            assert_eq!(seeker.clock().now() - begun, Duration::from_secs(1));
            assert_eq!(through(None).await, Err(AskError::Full));
            let master = second.spawn("master", Master).unwrap();
            let found = through(Some(elsewhere)).await.unwrap();
            assert_eq!((found.place, found.pid), (1, master.pid()), "at once");
        });
    }

    #[test]
    fn who_is_not_there_leads_nowhere() {
        stage(|seeker, _| async move {
            let led = |_| async { panic!("it is asked for a guide") };
            let found = seeker.find_among(vec!["nobody".to_owned()], "master", PATIENCE, led);
            assert_eq!(found.await, Err(AskError::Gone));
        });
    }

    #[test]
    fn round_ends_at_once_or_with_the_last_patience() {
        stage(|seeker, _| async move {
            let begun = seeker.clock().now();
            let found = seek(&seeker, &["first", "second"]).await;
            assert_eq!(found, Err(AskError::Gone));
            assert_eq!(seeker.clock().now(), begun);
            let found = seek(&seeker, &["dead", "first"]).await;
            assert_eq!(found, Err(AskError::Late { after: PATIENCE }));
            assert_eq!(seeker.clock().now() - begun, PATIENCE);
            assert_eq!(seek(&seeker, &[]).await, Err(AskError::Gone));
        });
    }
}
