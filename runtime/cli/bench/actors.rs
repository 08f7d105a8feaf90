//! `meros bench actors`: what actors cost, each figure beside raw actix with the same actors and messages.
//!
//! Spawning, memory, many senders to one, and a ring. All on one thread, but for the threads of `fan_in_threads`. Remembers nothing.

use clap::Args;
use runtime::{Clock, Node};
use serde_json::{Value, json};

use super::load::{self, ours, raw};
use super::{Figure, OutputFlags, report};
use crate::failure::Outcome;
use crate::on_this_thread;

/// Senders of a fan-in.
const SENDERS: u64 = 8;

/// What actors cost
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ActorsArgs {
    /// How many actors are started
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=5_000_000))]
    actors: u64,
    /// How many messages are told in each round of each load
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    messages: u64,
    /// How many actors the ring has
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    ring: u64,
    /// How many tokens go round the ring at once; one goes round alone as well
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    tokens: u64,
    /// Rounds; the best one counts, since other work on the machine only ever slows
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// The best rounds, ours and raw actix'.
#[derive(Clone, Copy, Default)]
struct Pair {
    ours: f64,
    raw: f64,
}

/// The best rates of a load, in things a second. Ours and raw actix take turns.
async fn rates<T, U>(
    rounds: u32,
    things: u64,
    ours: impl AsyncFn(Node) -> T,
    raw: impl AsyncFn() -> U,
) -> Pair {
    let clock = Clock::real();
    let mut best = Pair::default();
    for _ in 0..rounds {
        let node = Node::builder("bench").build();
        let since = clock.now();
        let kept = ours(node.clone()).await;
        let took = (clock.now() - since).as_secs_f64().max(f64::EPSILON);
        best.ours = best.ours.max(things as f64 / took);
        drop(kept);
        node.shutdown().await;

        let since = clock.now();
        let kept = raw().await;
        let took = (clock.now() - since).as_secs_f64().max(f64::EPSILON);
        best.raw = best.raw.max(things as f64 / took);
        drop(kept);
        tokio::task::yield_now().await; // in which those without an address end
    }
    best
}

async fn figures(args: &ActorsArgs) -> Vec<Figure> {
    let (rounds, messages, actors) = (args.rounds, args.messages, args.actors);
    let node = Node::builder("bench").build();
    let [of_ours, of_raw] = load::memory(&node, actors).await;
    node.shutdown().await;
    let memory = Pair {
        ours: of_ours,
        raw: of_raw,
    };
    let spawned = rates(
        rounds,
        actors,
        async |node: Node| ours::spawn(&node, actors).await,
        async || raw::spawn(&(), actors).await,
    )
    .await;
    let each = messages / SENDERS;
    let told = each * SENDERS;
    let fan_in = rates(
        rounds,
        told,
        async |node: Node| ours::fan_in(&node, SENDERS, each).await,
        async || raw::fan_in(&(), SENDERS, each).await,
    )
    .await;
    let fan_in_threads = rates(
        rounds,
        told,
        async |node: Node| ours::fan_in_threads(&node, SENDERS, each).await,
        async || raw::fan_in_threads(&(), SENDERS, each).await,
    )
    .await;
    let mut rings = Vec::new();
    for tokens in [1, args.tokens] {
        let hops = messages / tokens;
        let turned = rates(
            rounds,
            hops * tokens,
            async |node: Node| ours::Ring::start(&node, args.ring, tokens).turn(hops).await,
            async || raw::Ring::start(&(), args.ring, tokens).turn(hops).await,
        );
        rings.push((tokens, turned.await));
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let parameters = |more: Value| {
        let mut parameters = json!({ "rounds": rounds, "cores": cores });
        if let (Some(all), Value::Object(more)) = (parameters.as_object_mut(), more) {
            all.extend(more);
        }
        parameters
    };
    let figure = |bench, unit, pair: Pair, limit_is, more| Figure {
        bench,
        figure: pair.ours,
        unit,
        limit: pair.raw,
        limit_is,
        parameters: parameters(more),
    };
    let mut figures = vec![
        figure(
            "spawn",
            "actors/s",
            spawned,
            "raw actix, same actor without a name",
            json!({ "actors": actors, "threads": 1 }),
        ),
        figure(
            "actor_memory",
            "bytes/actor",
            memory,
            "raw actix, same actor without a name",
            json!({ "actors": actors }),
        ),
        figure(
            "fan_in",
            "messages/s",
            fan_in,
            "raw actix do_send, 8 actors to one",
            json!({ "messages": told, "senders": SENDERS, "threads": 1 }),
        ),
        figure(
            "fan_in_threads",
            "messages/s",
            fan_in_threads,
            "raw actix do_send, 8 threads to one actor",
            json!({ "messages": told, "senders": SENDERS, "threads": SENDERS + 1 }),
        ),
    ];
    for ((tokens, pair), bench) in rings.into_iter().zip(["ring", "ring_busy"]) {
        let more =
            json!({ "messages": messages, "actors": args.ring, "tokens": tokens, "threads": 1 });
        figures.push(figure(
            bench,
            "messages/s",
            pair,
            "raw actix do_send, same ring",
            more,
        ));
    }
    figures
}

/// `meros bench actors`.
pub fn run(args: ActorsArgs) -> Outcome {
    let figures = on_this_thread(figures(&args))?;
    report(&figures, args.output);
    Ok(())
}
