//! Bare actors that pass on what offers would: the limit of `meros bench offers`.
//!
//! Raw actix, one message of the size of an id for each offer and each decline, between as many threads as master, allocator, sorter and the
//! drivers' home have. Nothing is encoded, counted or decided.

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::prelude::{Actor, Addr, Context, Handler, Message};
use runtime::Clock;
use tokio::task::LocalSet;

use crate::bench::load::Countdown;
use crate::failure::{Failure, Outcome};

/// Who sits where; each has a thread.
const SEATS: usize = 4;
const MASTER: usize = 0;
const ALLOCATOR: usize = 1;
const SORTER: usize = 2;
const DRIVERS: usize = 3;

/// An offer and the decline of it, from the allocator on. Its sorter is asked about many at once, which here costs nothing.
const OFFER: [usize; 4] = [MASTER, DRIVERS, MASTER, ALLOCATOR];
/// From a decline to the next offer; whoever waits is the drivers' home.
const AGAIN: [usize; 5] = [MASTER, ALLOCATOR, SORTER, ALLOCATOR, MASTER];

/// Goes the round of these seats so often.
#[derive(Message)]
#[rtype(result = "()")]
struct Token {
    path: &'static [usize],
    at: usize,
    rounds: u32,
    id: String,
    ended: Countdown,
}

/// These are the others.
#[derive(Message)]
#[rtype(result = "()")]
struct Seated(Vec<Addr<Seat>>);

/// Passes tokens on.
#[derive(Default)]
struct Seat(Vec<Addr<Seat>>);

impl Actor for Seat {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(usize::MAX >> 4);
    }
}

impl Handler<Seated> for Seat {
    type Result = ();

    fn handle(&mut self, Seated(all): Seated, _: &mut Self::Context) {
        self.0 = all;
    }
}

impl Handler<Token> for Seat {
    type Result = ();

    fn handle(&mut self, mut token: Token, _: &mut Self::Context) {
        black_box(&token.id);
        token.at += 1;
        if token.at == token.path.len() {
            token.at = 0;
            token.rounds -= 1;
        }
        match token.rounds {
            0 => token.ended.one(),
            _ => self.0[token.path[token.at]].do_send(token),
        }
    }
}

/// The seats, each on a thread that lives until the process ends.
pub struct Bare(Vec<Addr<Seat>>);

impl Bare {
    /// Starts them.
    pub async fn start() -> Outcome<Self> {
        let seats: Outcome<Vec<_>> = (0..SEATS).map(|_| on_its_thread()).collect();
        let seats = seats?;
        for seat in &seats {
            let told = seat.send(Seated(seats.clone())).await;
            told.map_err(|error| Failure::because("a bare actor", &error))?;
        }
        Ok(Self(seats))
    }

    /// Offers in a second, so many agents each offered to so many frameworks in turn.
    pub async fn offers(&self, clock: &Clock, agents: u32, frameworks: u32) -> f64 {
        let ended = Countdown::of(u64::from(agents));
        let begun = clock.now();
        for agent in 0..agents {
            self.send(&OFFER, agent, frameworks, &ended);
        }
        ended.done().await;
        let offers = f64::from(agents) * f64::from(frameworks);
        offers / (clock.now() - begun).as_secs_f64().max(f64::EPSILON)
    }

    /// The times that a lone decline takes to become the next offer.
    pub async fn again(&self, clock: &Clock, declines: u32, pause: Duration) -> Vec<Duration> {
        let mut times = Vec::new();
        for decline in 0..declines {
            clock.sleep(pause).await;
            let ended = Countdown::of(1);
            let begun = clock.now();
            self.send(&AGAIN, decline, 1, &ended);
            ended.done().await;
            times.push(clock.now() - begun);
        }
        times
    }

    fn send(&self, path: &'static [usize], number: u32, rounds: u32, ended: &Countdown) {
        self.0[path[0]].do_send(Token {
            path,
            at: 0,
            rounds,
            id: format!("00000000-0000-0000-0000-000000000000-O{number}"),
            ended: ended.clone(),
        });
    }
}

fn on_its_thread() -> Outcome<Addr<Seat>> {
    let (tell, told) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::because("a thread for a bare actor", &error))?;
    std::thread::spawn(move || {
        LocalSet::new().block_on(&runtime, async move {
            // Whoever started it waits for this.
            let _ = tell.send(Seat::default().start());
            std::future::pending::<()>().await;
        });
    });
    told.recv()
        .map_err(|error| Failure::because("a thread for a bare actor", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_goes_its_rounds_and_ends() {
        let measured = crate::on_this_thread(async {
            let (clock, bare) = (Clock::real(), Bare::start().await?);
            let rate = bare.offers(&clock, 20, 30).await;
            let again = bare.again(&clock, 10, Duration::ZERO).await;
            Outcome::Ok((rate, again))
        });
        let (rate, again) = measured.unwrap().unwrap();
        assert!(rate > 0.0);
        assert!(again.len() == 10 && again.iter().all(|time| !time.is_zero()));
    }
}
