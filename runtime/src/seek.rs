//! Seeking: one of several addresses has an actor of some name, and some of them may be dead.
//!
//! [`Round`] decides who is asked when, and is pure; [`Node::find_among`] asks. Those addressed are asked in their order,
//! each a little after the one before unless that has said no, so that a dead one costs a moment and not its patience.
//! While a silent one is still awaited the others, which may come to have the actor meanwhile, are asked again. Who has said no may
//! know who has the actor: to ask him for that is left to a guide. Remembers nothing beyond one round, and never begins another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::ask::{AskError, Patience};
use crate::clock::Instant;
use crate::identity::Pid;
use crate::node::Node;

/// How long one is waited for before the next is asked as well, and the pause before one that has said no is asked again.
const STAGGER: Duration = Duration::from_millis(500);

/// How far one address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    NotYet,
    /// It has not answered yet.
    Silent,
    /// It said no, or could not be reached.
    No(Instant),
    /// It said no, and is asked again.
    Again,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Ask this one.
    Ask(usize),
    /// Nothing before this time or the next answer.
    Wait(Option<Instant>),
    /// All have been asked, and none has the actor.
    Over,
}

/// One round of questions.
struct Round {
    asked: Vec<Asked>,
    /// When one was asked for the first time, last.
    last: Instant,
}

impl Round {
    fn new(count: usize, now: Instant) -> Self {
        Self {
            asked: vec![Asked::NotYet; count],
            last: now,
        }
    }

    fn next(&self, now: Instant) -> Next {
        if let Some(first) = self.asked.iter().position(|asked| *asked == Asked::NotYet) {
            let before = first.checked_sub(1).map(|before| self.asked[before]);
            let due = self.last + STAGGER;
            return match before == Some(Asked::Silent) && due > now {
                true => Next::Wait(Some(due)),
                false => Next::Ask(first),
            };
        }
        if !self.asked.contains(&Asked::Silent) {
            // Those that are asked again have said no once, which will do.
            return Next::Over;
        }
        let no = self
            .asked
            .iter()
            .enumerate()
            .filter_map(|(index, asked)| match asked {
                Asked::No(at) => Some((*at + STAGGER, index)),
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
            Asked::NotYet => {
                self.last = now;
                Asked::Silent
            }
            _ => Asked::Again,
        };
    }

    fn said_no(&mut self, index: usize, now: Instant) {
        self.asked[index] = Asked::No(now);
    }
}

/// Where an actor was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The place, among the addresses given, of the one that has the actor, or has led there.
    pub place: usize,
    /// Where the actor is.
    pub address: String,
    /// The actor.
    pub pid: Pid,
}

/// What has come back, of the address at a place.
enum Heard {
    /// It was asked for the actor.
    Asked(usize, Result<Pid, AskError>),
    /// It has not the actor, and the guide was asked.
    Guided(usize, Result<(String, Pid), AskError>),
}

impl Node {
    /// Whoever has this name on a node at one of these addresses, or where one of those leads. Each is given this patience; the error is
    /// that of the one that said no last.
    ///
    /// They are asked in their order, half a second apart, or at once when the one before has said no. Of one that is there and has no such
    /// actor the `guide` is asked where the actor is, while the others are asked for it; guides bring their own patience. It ends: with the
    /// first that is found, or when all have said no or been silent for their patience, and all guides have ended.
    pub fn find_among<G, F>(
        &self,
        addresses: Vec<String>,
        name: &str,
        patience: Duration,
        guide: G,
    ) -> impl Future<Output = Result<Sought, AskError>> + Send + use<G, F>
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
                        let asked = async move { Heard::Asked(index, finding.await) };
                        awaited.push(Either::Left(asked));
                        continue;
                    }
                    Next::Wait(due) => due,
                };
                let heard = match due {
                    None => awaited.next().await,
                    Some(due) => {
                        let sleep = std::pin::pin!(clock.sleep_until(due));
                        match select(awaited.next(), sleep).await {
                            Either::Left((heard, _)) => heard,
                            Either::Right(_) => continue,
                        }
                    }
                };
                match heard {
                    Some(Heard::Asked(place, Ok(pid))) => {
                        let address = addresses[place].clone();
                        return Ok(Sought {
                            place,
                            address,
                            pid,
                        });
                    }
                    Some(Heard::Guided(place, Ok((address, pid)))) => {
                        return Ok(Sought {
                            place,
                            address,
                            pid,
                        });
                    }
                    Some(Heard::Asked(index, Err(no))) => {
                        round.said_no(index, clock.now());
                        let address = &addresses[index];
                        if no == AskError::Gone && !guided[index] && node.is_linked_at(address) {
                            guided[index] = true;
                            let guiding = guide(address.clone());
                            let guiding = async move { Heard::Guided(index, guiding.await) };
                            awaited.push(Either::Right(guiding));
                        }
                        error = no;
                    }
                    Some(Heard::Guided(index, Err(no))) => {
                        guided[index] = false;
                        error = no;
                    }
                    None => return Err(error), // never: whoever is awaited has been asked
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
    use crate::rehearsal::rehearse_network;
    use crate::{ConnectError, Dialer, Peer};

    const PATIENCE: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Instant {
        Instant::default() + Duration::from_millis(millis)
    }

    #[test]
    fn the_next_is_asked_at_once_after_a_no_and_after_a_moment_of_silence() {
        let mut round = Round::new(3, at(0));
        assert_eq!(round.next(at(0)), Next::Ask(0));
        round.ask(0, at(0));
        assert_eq!(round.next(at(10)), Next::Wait(Some(at(500))));
        round.said_no(0, at(20));
        assert_eq!(round.next(at(20)), Next::Ask(1));
        round.ask(1, at(20));
        assert_eq!(round.next(at(519)), Next::Wait(Some(at(520))));
        assert_eq!(round.next(at(520)), Next::Ask(2));
    }

    #[test]
    fn who_said_no_is_asked_again_while_another_is_silent_and_not_longer() {
        let mut round = Round::new(2, at(0));
        round.ask(0, at(0));
        round.ask(1, at(500));
        assert_eq!(round.next(at(500)), Next::Wait(None));
        round.said_no(1, at(501));
        assert_eq!(round.next(at(501)), Next::Wait(Some(at(1001))));
        assert_eq!(round.next(at(1001)), Next::Ask(1));
        round.ask(1, at(1001));
        assert_eq!(round.next(at(1002)), Next::Wait(None));
        round.said_no(0, at(5000));
        assert_eq!(round.next(at(5000)), Next::Over);
        assert_eq!(Round::new(0, at(0)).next(at(0)), Next::Over);
    }

    struct Master;

    impl Actor for Master {
        type Context = Context<Self>;
    }

    impl Process for Master {
        fn hears(_: &mut Ears<Self>) {}
    }

    /// Hears nothing of the address `dead`.
    struct Waits(Arc<dyn Dialer>);

    impl Dialer for Waits {
        fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
            match address.as_str() {
                "dead" => std::future::pending().boxed(),
                _ => self.0.dial(address),
            }
        }
    }

    /// Who seeks a master at these addresses, of which `first` and `second` live.
    fn stage<F: Future>(story: impl FnOnce(Node, [Node; 2]) -> F) -> F::Output {
        rehearse_network(|network| async move {
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
    fn a_dead_one_costs_a_moment_and_not_its_patience() {
        stage(|seeker, [_, second]| async move {
            let master = second.spawn("master", Master).unwrap();
            let begun = seeker.clock().now();
            let found = seek(&seeker, &["dead", "first", "second"]).await;
            assert_eq!(found, Ok((2, master.pid())));
            assert_eq!(seeker.clock().now() - begun, STAGGER);
        });
    }

    #[test]
    fn one_that_begins_to_lead_while_a_dead_one_is_awaited_is_found_soon() {
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

    /// What a guide knows after a second.
    async fn guide(node: Node, pid: Option<Pid>) -> Result<(String, Pid), AskError> {
        node.clock().sleep(Duration::from_secs(1)).await;
        let found = pid.ok_or(AskError::Full)?;
        Ok(("elsewhere".to_owned(), found))
    }

    #[test]
    fn who_has_it_not_may_lead_to_who_has_it_and_the_next_is_asked_meanwhile() {
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
    fn where_all_say_no_the_round_is_over_at_once_and_a_silent_one_ends_it_with_its_patience() {
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
