//! Bare actors that pass on the messages of offers: the limit of `meros-lab bench offers`.
//!
//! Raw actix, one message of the size of an id for each offer and each decline, on as many threads
//! as master, allocator, sorter and drivers have. Messages are not encoded, counted or checked.

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::prelude::{Actor, Addr, Context, Handler, Message};
use runtime::Clock;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use meros::output::error::{CliError, Outcome};

/// The actors, each on its own thread.
const ACTORS: usize = 4;
const MASTER: usize = 0;
const ALLOCATOR: usize = 1;
const SORTER: usize = 2;
const DRIVERS: usize = 3;

/// The path of an offer and its decline, from the allocator on. The sorter is left out, since one
/// slate covers many offers.
const OFFER: [usize; 4] = [MASTER, DRIVERS, MASTER, ALLOCATOR];
/// The path from a decline to the next offer. The drivers' thread waits for it.
const REOFFER: [usize; 5] = [MASTER, ALLOCATOR, SORTER, ALLOCATOR, MASTER];

/// A token that travels a path of actors several times.
#[derive(Message)]
#[rtype(result = "()")]
struct Token {
    path: &'static [usize],
    at: usize,
    rounds: u32,
    id: String,
    /// Closed by the end of the last token.
    _ended: mpsc::Sender<()>,
}

/// The addresses of all actors.
#[derive(Message)]
#[rtype(result = "()")]
struct Peers(Vec<Addr<BareActor>>);

/// Passes tokens on.
#[derive(Default)]
struct BareActor(Vec<Addr<BareActor>>);

impl Actor for BareActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(usize::MAX >> 4);
    }
}

impl Handler<Peers> for BareActor {
    type Result = ();

    fn handle(&mut self, Peers(all): Peers, _: &mut Self::Context) {
        self.0 = all;
    }
}

impl Handler<Token> for BareActor {
    type Result = ();

    fn handle(&mut self, mut token: Token, _: &mut Self::Context) {
        black_box(&token.id);
        token.at += 1;
        if token.at == token.path.len() {
            token.at = 0;
            token.rounds -= 1;
        }
        if token.rounds > 0 {
            self.0[token.path[token.at]].do_send(token);
        }
    }
}

/// The actors, each on a thread that lives until the process ends.
pub struct Bare(Vec<Addr<BareActor>>);

impl Bare {
    /// Starts them.
    pub async fn start() -> Outcome<Self> {
        let actors: Outcome<Vec<_>> = (0..ACTORS).map(|_| spawn_on_thread()).collect();
        let actors = actors?;
        for actor in &actors {
            let addresses = actor.send(Peers(actors.clone())).await;
            addresses.map_err(|error| CliError::because("a bare actor", &error))?;
        }
        Ok(Self(actors))
    }

    /// Offers per second, with each agent offered to all frameworks in turn.
    pub async fn offers(&self, clock: &Clock, agents: u32, frameworks: u32) -> f64 {
        let (ended, mut all_ended) = mpsc::channel(1);
        let begun = clock.now();
        for agent in 0..agents {
            self.send(&OFFER, agent, frameworks, &ended);
        }
        drop(ended);
        all_ended.recv().await;
        let offers = f64::from(agents) * f64::from(frameworks);
        offers / (clock.now() - begun).as_secs_f64().max(f64::EPSILON)
    }

    /// The time from a single decline to the next offer, for each decline.
    pub async fn reoffers(&self, clock: &Clock, declines: u32, pause: Duration) -> Vec<Duration> {
        let mut times = Vec::new();
        for decline in 0..declines {
            clock.sleep(pause).await;
            let (ended, mut all_ended) = mpsc::channel(1);
            let begun = clock.now();
            self.send(&REOFFER, decline, 1, &ended);
            drop(ended);
            all_ended.recv().await;
            times.push(clock.now() - begun);
        }
        times
    }

    fn send(&self, path: &'static [usize], number: u32, rounds: u32, ended: &mpsc::Sender<()>) {
        self.0[path[0]].do_send(Token {
            path,
            at: 0,
            rounds,
            id: format!("00000000-0000-0000-0000-000000000000-O{number}"),
            _ended: ended.clone(),
        });
    }
}

fn spawn_on_thread() -> Outcome<Addr<BareActor>> {
    let (tell, addresses) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| CliError::because("a thread for a bare actor", &error))?;
    std::thread::spawn(move || {
        LocalSet::new().block_on(&runtime, async move {
            // The starting thread waits for this.
            let _ = tell.send(BareActor::default().start());
            std::future::pending::<()>().await;
        });
    });
    addresses
        .recv()
        .map_err(|error| CliError::because("a thread for a bare actor", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_goes_its_rounds_and_ends() {
        let measured = meros::on_this_thread(async {
            let (clock, bare) = (Clock::real(), Bare::start().await?);
            let rate = bare.offers(&clock, 20, 30).await;
            let reoffers = bare.reoffers(&clock, 10, Duration::ZERO).await;
            Outcome::Ok((rate, reoffers))
        });
        let (rate, reoffers) = measured.unwrap().unwrap();
        assert!(rate > 0.0);
        assert!(reoffers.len() == 10 && reoffers.iter().all(|time| !time.is_zero()));
    }
}
