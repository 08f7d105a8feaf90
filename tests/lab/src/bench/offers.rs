//! `meros-lab bench offers`: offers through master, allocator and sorter, all of them declined.
//!
//! A real master with allocator and sorter, synthetic agents (see
//! [`simulator::synthetic_agents::embedded`]), and real drivers that decline each offer for an
//! hour: every agent is offered once to every framework. Also measures the time from a single
//! decline, and from the end of a task, to the next offer of the same resources.
//!
//! The limit is that of bare actix: one message of the size of an id for each offer and each
//! decline, on as many threads as master, allocator, sorter and drivers have. Messages are not
//! encoded, counted or checked.

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use actix::prelude::{Actor, Addr, Context, Handler, Message};
use clap::Args;
use runtime::Clock;
use serde_json::json;
use simulator::synthetic_agents::declining::declined;
use simulator::synthetic_agents::embedded::Embedded;
use simulator::synthetic_agents::reoffered::{Freed, reoffered};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::{Figure, OutputFlags, Result, Times, cores, rounded};

/// Goal of the offer rate.
const WANTED: f64 = 100_000.0;
/// For single declines: the number of frameworks, and of agents that each of them may decline.
const KEEPERS: u32 = 5;
const KEPT_MAX: u32 = 1_000;
/// Pause between single declines of the bare actors.
const PAUSE: Duration = Duration::from_millis(5);

/// Rate of offers and declines
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct OffersArgs {
    /// Number of agents
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    agents: u32,
    /// Number of frameworks, each of which is offered each agent once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    frameworks: u32,
    /// Single declines, and single ends of tasks, for the time until the same resources are offered
    /// again
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    reoffers: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench offers`.
pub async fn run(args: &OffersArgs) -> Result {
    let (clock, bare) = (Clock::real(), Bare::start().await?);
    let mut figures = vec![offers(args, &clock, &bare).await?];
    if args.reoffers > 0 {
        figures.push(reoffers(args, &clock, &bare, Freed::Declined).await?);
        figures.push(reoffers(args, &clock, &bare, Freed::Ended).await?);
    }
    args.output.report(&figures);
    Ok(())
}

async fn offers(args: &OffersArgs, clock: &Clock, bare: &Bare) -> Result<Figure> {
    let (agents, frameworks) = (args.agents, args.frameworks);
    args.output.say(format_args!(
        "{frameworks} frameworks decline {agents} agents"
    ));
    let cluster = Embedded::start(agents, 0).await?;
    let seconds = declined(&cluster, agents, frameworks).await?;
    cluster.stop().await;
    let limit = bare.offers(clock, agents, frameworks).await;
    let wanted = u64::from(agents) * u64::from(frameworks);
    let rate = wanted as f64 / seconds.max(f64::EPSILON);
    Ok(Figure::new("offers", rate, "offers/s")
        .beside(
            limit,
            "bare actix: a message for each offer and decline, as many threads",
        )
        .with(json!({
            "agents": agents, "frameworks": frameworks, "offers": wanted,
            "asked_for": WANTED, "cores": cores(),
        })))
}

async fn reoffers(args: &OffersArgs, clock: &Clock, bare: &Bare, freed: Freed) -> Result<Figure> {
    let (bench, from, to) = match freed {
        Freed::Declined => (
            "reoffer_latency",
            "a decline",
            "the offer of it to another framework",
        ),
        Freed::Ended => (
            "reoffer_ended_latency",
            "the end of a task, at its agent",
            "the next offer of what it used",
        ),
    };
    let agents = args.agents.min(KEPT_MAX);
    args.output
        .say(format_args!("{bench}: {agents} agents, one at a time"));
    let cluster = Embedded::start(agents, 0).await?;
    let times = reoffered(&cluster, agents, KEEPERS, args.reoffers, freed).await?;
    cluster.stop().await;
    let limit = Times::of(bare.reoffers(clock, args.reoffers).await)?;
    let (count, times) = (times.len(), Times::of(times)?);
    Ok(Figure::new(bench, times.ms(0.5), "ms, p50")
        .beside(
            limit.ms(0.5),
            "bare actix: six hops between as many threads",
        )
        .with(json!({
            "agents": agents, "frameworks": KEEPERS, "times": count,
            "p99": rounded(times.ms(0.99)), "p99_limit": rounded(limit.ms(0.99)),
            "from": from, "to": to, "cores": cores(),
        })))
}

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
struct Bare(Vec<Addr<BareActor>>);

impl Bare {
    async fn start() -> Result<Self> {
        let actors = (0..ACTORS).map(|_| spawn_on_thread());
        let actors = actors.collect::<Result<Vec<_>>>()?;
        for actor in &actors {
            actor.send(Peers(actors.clone())).await?;
        }
        Ok(Self(actors))
    }

    /// Offers per second, with each agent offered to all frameworks in turn.
    async fn offers(&self, clock: &Clock, agents: u32, frameworks: u32) -> f64 {
        let begun = clock.now();
        self.send(&OFFER, 0..agents, frameworks).await;
        let offers = f64::from(agents) * f64::from(frameworks);
        offers / (clock.now() - begun).as_secs_f64().max(f64::EPSILON)
    }

    /// The time from a single decline to the next offer, for each decline.
    async fn reoffers(&self, clock: &Clock, declines: u32) -> Vec<Duration> {
        let mut times = Vec::new();
        for decline in 0..declines {
            clock.sleep(PAUSE).await;
            let begun = clock.now();
            self.send(&REOFFER, decline..decline + 1, 1).await;
            times.push(clock.now() - begun);
        }
        times
    }

    /// Sends tokens with these numbers and waits for the end of all.
    async fn send(&self, path: &'static [usize], numbers: std::ops::Range<u32>, rounds: u32) {
        let (ended, mut all_ended) = mpsc::channel(1);
        for number in numbers {
            self.0[path[0]].do_send(Token {
                path,
                at: 0,
                rounds,
                id: format!("00000000-0000-0000-0000-000000000000-O{number}"),
                _ended: ended.clone(),
            });
        }
        drop(ended);
        all_ended.recv().await;
    }
}

fn spawn_on_thread() -> Result<Addr<BareActor>> {
    let (tell, addresses) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    std::thread::spawn(move || {
        LocalSet::new().block_on(&runtime, async move {
            // The starting thread waits for this.
            let _ = tell.send(BareActor::default().start());
            std::future::pending::<()>().await;
        });
    });
    Ok(addresses.recv()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_goes_its_rounds_and_ends() {
        let measured = meros::on_this_thread(async {
            let (clock, bare) = (Clock::real(), Bare::start().await?);
            let rate = bare.offers(&clock, 20, 30).await;
            Result::Ok((rate, bare.reoffers(&clock, 3).await))
        });
        let (rate, reoffers) = measured.unwrap().unwrap();
        assert!(rate > 0.0);
        assert!(reoffers.len() == 3 && reoffers.iter().all(|time| !time.is_zero()));
    }
}
