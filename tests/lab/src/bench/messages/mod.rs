//! `meros-lab bench messages`: messages between actors, on one thread and over QUIC on the
//! loopback.
//!
//! The limit of the remote figures is a bare quinn stream with the same payloads behind a length and
//! an id (`rates`). Parameters have the CPU time of a tell on each thread. The local limit is raw actix on the same thread with the same actor; the limit
//! of a ping beside other work is a ping alone.

mod rates;

use std::hint::black_box;

use actix::prelude::{Actor, Addr, Handler, Message};
use clap::Args;
use runtime::{Clock, Context, Handle, Instant, Node, Patience, Process};
use serde_json::json;

use self::rates::{Delay, Load};
use super::{Figure, OutputFlags, report, rounded};
use meros::on_this_thread;
use meros::output::error::{CliError, Outcome};

/// Messages sent before the actor runs.
const BURST: u64 = 1000;

/// Rate of messages between actors
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct MessagesArgs {
    /// Messages in each round
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    tells: u64,
    /// Requests in each round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    asks: u64,
    /// Rounds; the best one counts, since other work on the machine can only slow them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Pings during large transfers, as many during a flood, and as many during both
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pings: u32,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

/// The same actor twice: for raw actix and for the runtime.
struct Raw(u64);
struct Ours(u64);

impl Actor for Raw {
    type Context = actix::Context<Self>;
}

impl Handler<Add> for Raw {
    type Result = u64;
    fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u64 {
        self.0 = self.0.wrapping_add(more);
        self.0
    }
}

impl Actor for Ours {
    type Context = Context<Self>;
}

impl Process for Ours {}

impl Handler<Add> for Ours {
    type Result = u64;
    fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u64 {
        self.0 = self.0.wrapping_add(more);
        self.0
    }
}

/// The best rounds of the local measurements, in messages per second.
#[derive(Default)]
struct Local {
    tell: f64,
    tell_limit: f64,
    ask: f64,
    ask_limit: f64,
}

async fn local(args: &MessagesArgs) -> Outcome<Local> {
    let node = Node::builder("bench").build();
    let ours = node
        .spawn("ours", Ours(0))
        .map_err(|error| CliError::because("cannot start an actor", &error))?;
    let raw = Raw(0).start();
    let clock = Clock::real();
    let lost = |error: &dyn std::error::Error| CliError::because("a message was lost", error);
    let rate = |count: u64, since: Instant| {
        count as f64 / (clock.now() - since).as_secs_f64().max(f64::EPSILON)
    };
    let mut best = Local::default();
    for _ in 0..args.rounds {
        let since = clock.now();
        tell_raw(&raw, args.tells / BURST)
            .await
            .map_err(|error| lost(&error))?;
        best.tell_limit = best.tell_limit.max(rate(args.tells / BURST * BURST, since));

        let since = clock.now();
        tell_ours(&ours, args.tells / BURST).await?;
        best.tell = best.tell.max(rate(args.tells / BURST * BURST, since));

        let since = clock.now();
        for number in 0..args.asks {
            black_box(raw.send(Add(number)).await.map_err(|error| lost(&error))?);
        }
        best.ask_limit = best.ask_limit.max(rate(args.asks, since));

        let since = clock.now();
        for number in 0..args.asks {
            black_box(
                ours.ask(Add(number), Patience::WhileLinked)
                    .await
                    .map_err(|error| lost(&error))?,
            );
        }
        best.ask = best.ask.max(rate(args.asks, since));
    }
    node.shutdown().await;
    Ok(best)
}

async fn tell_raw(actor: &Addr<Raw>, bursts: u64) -> Result<(), actix::MailboxError> {
    for _ in 0..bursts {
        (0..BURST).for_each(|number| actor.do_send(Add(number)));
        tokio::task::yield_now().await;
    }
    actor.send(Add(0)).await.map(drop)
}

async fn tell_ours(actor: &Handle<Ours>, bursts: u64) -> Outcome {
    for _ in 0..bursts {
        for number in 0..BURST {
            actor
                .tell(Add(number))
                .map_err(|error| CliError::because("a message was lost", &error))?;
        }
        tokio::task::yield_now().await;
    }
    let last = actor.ask(Add(0), Patience::WhileLinked).await;
    last.map(drop)
        .map_err(|error| CliError::because("a message was lost", &error))
}

/// `meros-lab bench messages`.
pub fn run(args: MessagesArgs) -> Outcome {
    let load = Load {
        tells: args.tells,
        asks: args.asks,
        rounds: args.rounds,
    };
    let remote = rates::messages(load)
        .map_err(|error| CliError::new(format!("remote messages cannot be measured: {error}")))?;
    let delays = rates::pings(args.pings, rates::TRANSFER)
        .map_err(|error| CliError::new(format!("pings cannot be measured: {error}")))?;
    let local = on_this_thread(local(&args))??;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let parameters = |messages: u64, threads: u32| json!({ "messages": messages, "rounds": args.rounds, "threads": threads, "cores": cores });
    let mut told = parameters(args.tells, 2);
    for (name, value) in [
        ("payload", remote.payload as f64),
        ("frame", remote.frame),
        ("frame_limit", remote.frame_limit as f64),
        ("sender_ns", remote.tell_cost.sender),
        ("receiver_ns", remote.tell_cost.receiver),
        ("sender_ns_limit", remote.tell_cost_limit.sender),
        ("receiver_ns_limit", remote.tell_cost_limit.receiver),
    ] {
        told[name] = rounded(value).into();
    }
    let figure = |bench, figure, limit, limit_is, parameters| Figure {
        bench,
        figure,
        unit: "messages/s",
        limit,
        limit_is,
        parameters,
    };
    let ping = |bench, delay: Delay| Figure {
        bench,
        figure: delay.p99,
        unit: "ms, p99",
        limit: delays.alone.p99,
        limit_is: "the same ping, alone",
        parameters: json!({
            "pings": args.pings, "p50": rounded(delay.p50), "p50_limit": rounded(delays.alone.p50),
            "transfer": rates::TRANSFER, "transferred": delays.transferred,
        }),
    };
    report(
        &[
            figure(
                "remote_tell",
                remote.remote_tell.ours,
                remote.remote_tell.limit,
                "a bare quinn stream, same payloads",
                told,
            ),
            figure(
                "remote_ask",
                remote.remote_ask.ours,
                remote.remote_ask.limit,
                "the same there and back, one at a time",
                parameters(args.asks, 1),
            ),
            figure(
                "local_tell",
                local.tell,
                local.tell_limit,
                "raw actix do_send, same actor",
                parameters(args.tells, 1),
            ),
            figure(
                "local_ask",
                local.ask,
                local.ask_limit,
                "raw actix send, same actor",
                parameters(args.asks, 1),
            ),
            ping("ping_beside_transfers", delays.transfers),
            ping("ping_beside_flood", delays.flood),
            ping("ping_beside_both", delays.both),
        ],
        args.output,
    );
    Ok(())
}
