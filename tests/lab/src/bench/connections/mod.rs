//! `meros-lab bench connections`: the cost of an idle connection for a node, and the effect of many
//! simultaneous reconnects.
//!
//! Uses real processes: the measured host, the nodes that link to it, and pingers that are already
//! linked. The same is done with bare quinn endpoints of the same settings. Memory and CPU time are
//! the system's figures.

mod links;
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
use meros::output::error::{CliError, Outcome};
use meros::output::print;
use meros::service::signals::Signals;

/// Time to settle before a measurement; longer than a lost connection is remembered.
const SETTLE: Duration = Duration::from_secs(5);
/// Limit of an idle connection, in KiB.
const CONNECTION_MAX: f64 = 40.0;
/// KiB in a MiB.
const KIB: f64 = 1024.0;

/// Cost of many connections
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ConnectionsArgs {
    /// Nodes that link to one host, each with a socket of its own
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    connections: u32,
    /// Concurrent handshakes that the host allows
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    handshakes: u32,
    /// Linked nodes that ping the host twice a second while the others reconnect
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pingers: u32,
    /// Seconds for which the idle connections are measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    output: OutputFlags,
}

/// Results for one kind of host.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// KiB of the host for each connection.
    memory: f64,
    /// CPU of the host for all connections, in percent of one core.
    cpu: f64,
    /// Seconds until all were linked for the first time.
    first: f64,
}

/// `meros-lab bench connections`.
pub async fn run(args: ConnectionsArgs, signals: Signals) -> Outcome {
    let figures = match signals.unless_stopped(figures(&args)).await {
        Ok(figures) => figures?,
        Err(code) => return Err(CliError::code(code)),
    };
    report(&figures, args.output);
    Ok(())
}

async fn figures(args: &ConnectionsArgs) -> Outcome<Vec<Figure>> {
    let directory = tempfile::Builder::new().prefix("meros-links-").tempdir();
    let directory = directory
        .map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
    let path = directory.path();
    Authority::load_or_create(path)
        .map_err(|error| CliError::because("cannot make certificates", &error))?;

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

/// Starts the nodes or the pingers for this host.
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

/// Links all nodes, and measures the idle host.
async fn idle(args: &ConnectionsArgs, host: &mut Part, crowd: &mut Part) -> Outcome<Idle> {
    let clock = Clock::real();
    let empty = host.usage()?;
    let linking = crowd.ask().await?;
    clock.sleep(SETTLE).await;
    let links = host.ask().await?["links"].as_u64().unwrap_or_default();
    if links != u64::from(args.connections) {
        let expected = args.connections;
        return Err(CliError::new(format!("{links} links, expected {expected}")));
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
        print::error_line(format_args!("{} connections: {what}", args.connections));
    }
}
