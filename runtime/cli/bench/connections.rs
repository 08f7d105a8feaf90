//! `meros bench connections`: what a connection costs a node while nothing happens, and what many that come back at once do to it.
//!
//! Real processes: the host whose memory and time are measured, the crowd of nodes that link to it, and pingers that are linked already.
//! The same is done with bare quinn endpoints of the same settings, in the same run. Memory and time are the system's figures.

pub mod part;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use runtime::Clock;
use serde_json::{Value, json};
use transport::Authority;

use self::part::Kind;
use super::part::Part;
use super::{Figure, OutputFlags, report};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::signals::Signals;

/// How long things may settle before they are measured: longer than a lost connection is remembered.
const SETTLE: Duration = Duration::from_secs(5);
/// What an idle connection may cost, in KiB.
const CONNECTION_MAX: f64 = 40.0;
/// KiB in a MiB.
const KIB: f64 = 1024.0;

/// What many connections cost
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ConnectionsArgs {
    /// Nodes that link to one host, each with a socket of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    connections: u32,
    /// Handshakes that the host lets be under way at once
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    handshakes: u32,
    /// Nodes that are linked already and ping the host twice a second while the others come back
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pingers: u32,
    /// How long the idle connections are watched
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    output: OutputFlags,
}

/// What was seen of one kind of host.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// KiB that each connection added to the host.
    memory: f64,
    /// Percent of a core that all of them cost it.
    cpu: f64,
    /// Seconds until all were linked for the first time.
    first: f64,
}

/// `meros bench connections`.
pub async fn run(args: ConnectionsArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(figures(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(Failure::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn figures(args: &ConnectionsArgs) -> Outcome<Vec<Figure>> {
    let directory = tempfile::Builder::new().prefix("meros-links-").tempdir();
    let directory =
        directory.map_err(|error| Failure::because("cannot make a temporary directory", &error))?;
    let path = directory.path();
    Authority::load_or_create(path)
        .map_err(|error| Failure::because("cannot make certificates", &error))?;

    say(args, "bare quinn");
    let mut host = start(Kind::BareHost, path, &[]).await?;
    let mut crowd = gather(args, Kind::BareCrowd, path, &host).await?;
    let bare = idle(args, &mut host, &mut crowd).await?;
    let bare_again = crowd.ask().await?;
    drop((crowd, host));

    say(args, "nodes");
    let handshakes = [("--handshakes", args.handshakes.to_string())];
    let mut host = start(Kind::Host, path, &handshakes).await?;
    let mut crowd = gather(args, Kind::Crowd, path, &host).await?;
    let ours = idle(args, &mut host, &mut crowd).await?;
    say(args, "they come back at once");
    let mut pingers = gather(args, Kind::Pingers, path, &host).await?;
    let clock = Clock::real();
    clock.sleep(SETTLE).await;
    let quiet = pingers.ask().await?;
    let storm = crowd.ask().await?;
    let pings = pingers.ask().await?;
    let seen = host.ask().await?;
    drop((crowd, pingers, host));

    let parameters = json!({ "connections": args.connections, "seconds": args.seconds });
    let storm_parameters = json!({
        "connections": args.connections,
        "handshakes": args.handshakes,
        "seconds_half": storm["seconds_half"],
        "dials": storm["dials"],
        "refused": seen["refused"],
        "first_seconds": ours.first,
        "first_seconds_bare": bare.first,
    });
    let ping_parameters = json!({
        "pingers": args.pingers,
        "answered": pings["answered"],
        "p50_ms": pings["p50_ms"],
        "longest_ms": pings["longest_ms"],
    });
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let figure = |bench, figure, unit, limit, limit_is, parameters: &Value| Figure {
        bench,
        figure,
        unit,
        limit,
        limit_is,
        parameters: parameters.clone(),
    };
    Ok(vec![
        figure(
            "connection_memory",
            ours.memory,
            "KiB",
            CONNECTION_MAX,
            "the most it may be",
            &parameters,
        ),
        figure(
            "connection_memory_quinn",
            ours.memory,
            "KiB",
            bare.memory,
            "bare quinn with the same settings",
            &parameters,
        ),
        figure(
            "connections_cpu",
            ours.cpu,
            "% of a core",
            bare.cpu,
            "bare quinn with the same settings",
            &parameters,
        ),
        figure(
            "storm",
            number(&storm["seconds"]),
            "s",
            number(&bare_again["seconds"]),
            "bare quinn, 256 at once",
            &storm_parameters,
        ),
        figure(
            "storm_handshakes",
            number(&seen["handshakes_most"]),
            "at once",
            f64::from(args.handshakes),
            "the most it may be",
            &storm_parameters,
        ),
        figure(
            "storm_ping_p99",
            number(&pings["p99_ms"]),
            "ms",
            number(&quiet["p99_ms"]),
            "the same before the storm",
            &ping_parameters,
        ),
        figure(
            "storm_lost",
            number(&pings["missed"]) + number(&storm["failures"]),
            "pings and links",
            0.0,
            "none",
            &storm_parameters,
        ),
    ])
}

async fn start(kind: Kind, certs: &Path, arguments: &[(&str, String)]) -> Outcome<Part> {
    let mut all = vec![("--kind", kind.name())];
    all.extend_from_slice(arguments);
    Part::start(kind.name(), "connections-part", &all, certs).await
}

/// Starts the crowd or the pingers of this host.
async fn gather(args: &ConnectionsArgs, kind: Kind, path: &Path, host: &Part) -> Outcome<Part> {
    let address = host.first()["address"].as_str().unwrap_or_default();
    let count = match kind {
        Kind::Pingers => args.pingers,
        _ => args.connections,
    };
    let arguments = [
        ("--host", address.to_owned()),
        ("--count", count.to_string()),
    ];
    start(kind, path, &arguments).await
}

/// Links everybody, and watches what the host costs while nothing happens.
async fn idle(args: &ConnectionsArgs, host: &mut Part, crowd: &mut Part) -> Outcome<Idle> {
    let clock = Clock::real();
    let empty = host.usage()?;
    let linking = crowd.ask().await?;
    clock.sleep(SETTLE).await;
    let links = host.ask().await?["links"].as_u64().unwrap_or_default();
    if links != u64::from(args.connections) {
        let expected = args.connections;
        return Err(Failure::new(format!("{links} links, expected {expected}")));
    }
    let (before, begun) = (host.usage()?, clock.now());
    clock.sleep(Duration::from_secs(args.seconds)).await;
    let (after, seconds) = (host.usage()?, (clock.now() - begun).as_secs_f64());
    Ok(Idle {
        memory: (after.resident - empty.resident) * KIB / f64::from(args.connections),
        cpu: 100.0 * (after.cpu - before.cpu) / seconds,
        first: linking["seconds"].as_f64().unwrap_or_default(),
    })
}

fn say(args: &ConnectionsArgs, what: &str) {
    if !args.output.json {
        print::complain(format_args!("{} connections: {what}", args.connections));
    }
}
