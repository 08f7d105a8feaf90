//! The hidden verb `meros-lab bench connections-part`: one part of the measurement in a process of
//! its own, for separate figures of memory and CPU time.
//!
//! Follows the protocol of parts (see `bench/part.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use transport::Authority;

use super::super::part::input;
use super::links::{self, Host, PeerFleet, Pingers, ReconnectReport, bare};
use meros::certs::CertsFlag;
use meros::out;
use meros::output::error::{CliError, Outcome};
use meros::service::raise_open_files;
use meros::service::signals::Signals;

/// The kinds of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The node whose connections are measured.
    Host,
    /// Nodes that link to it.
    Crowd,
    /// Linked nodes that send pings.
    Pingers,
    /// A bare quinn endpoint instead of the host.
    BareHost,
    /// Bare connections instead of the nodes.
    BareCrowd,
}

impl Kind {
    /// The name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// One part of a measurement of connections
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct PartArgs {
    #[arg(long)]
    kind: Kind,
    #[arg(long, default_value = "127.0.0.1:1")]
    host: SocketAddr,
    #[arg(long, default_value_t = 1)]
    count: usize,
    #[arg(long, default_value_t = 256)]
    handshakes: usize,
    #[arg(long, default_value_t = 500)]
    interval_ms: u64,
    #[command(flatten)]
    certs: CertsFlag,
}

/// Serves until its input ends.
pub async fn run(args: PartArgs, signals: Signals) -> Outcome {
    let served = signals.unless_stopped(serve(&args)).await;
    served.unwrap_or(Ok(()))
}

async fn serve(args: &PartArgs) -> Outcome {
    raise_open_files()?;
    let authority = Authority::load(&args.certs.directory())
        .map_err(|error| CliError::because("no authority", &error))?;
    let mut lines = input();
    let failed = |error: links::Failure| CliError::because(args.kind.name(), &*error);
    match args.kind {
        Kind::Host => {
            let host = Host::start(&authority, args.handshakes).map_err(failed)?;
            answer(json!({ "address": host.address().map_err(failed)?.to_string() }));
            while lines.recv().await.is_some() {
                let seen = host.handshakes();
                answer(json!({
                    "links": host.links(),
                    "handshakes_most": seen.under_way_most,
                    "linked": seen.linked,
                    "refused": seen.refused,
                    "failed": seen.failed,
                }));
            }
        }
        Kind::BareHost => {
            let host = bare::Host::start(&authority).map_err(failed)?;
            answer(json!({ "address": host.address().map_err(failed)?.to_string() }));
            while lines.recv().await.is_some() {
                answer(json!({ "links": host.links() }));
            }
        }
        Kind::Crowd => {
            let mut crowd = PeerFleet::new(&authority, args.host, args.count).map_err(failed)?;
            answer(json!({}));
            while lines.recv().await.is_some() {
                answer(linking(crowd.reconnect_all().await.map_err(failed)?));
            }
        }
        Kind::BareCrowd => {
            let crowd = bare::PeerFleet::new(&authority, args.host, args.count);
            let mut crowd = crowd.map_err(failed)?;
            answer(json!({}));
            while lines.recv().await.is_some() {
                answer(linking(crowd.reconnect_all().await.map_err(failed)?));
            }
        }
        Kind::Pingers => {
            let interval = Duration::from_millis(args.interval_ms);
            let pingers = Pingers::start(&authority, args.host, args.count, interval).await;
            let pingers = pingers.map_err(failed)?;
            answer(json!({}));
            while lines.recv().await.is_some() {
                let pings = pingers.report();
                answer(json!({
                    "answered": pings.answered,
                    "missed": pings.missed,
                    "p50_ms": milliseconds(pings.p50),
                    "p99_ms": milliseconds(pings.p99),
                    "longest_ms": milliseconds(pings.longest),
                }));
            }
        }
    }
    Ok(())
}

fn linking(linking: ReconnectReport) -> Value {
    json!({
        "nodes": linking.nodes,
        "seconds": linking.took.as_secs_f64(),
        "seconds_half": linking.took_half.as_secs_f64(),
        "dials": linking.dials,
        "failures": linking.failures,
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn answer(value: Value) {
    out!("{value}");
}
