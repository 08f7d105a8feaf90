//! `meros-lab bench messages --frames`: frames of several sizes over QUIC on the loopback, without
//! actors and with them.
//!
//! The limit is a bare quinn stream that carries a length and the same bytes, in the same run, on
//! the same two threads. Figures are real time; the parameters of each figure have the CPU time per
//! message on either thread.

use serde_json::json;
use transport::measure::{self, Cost, FrameLoad, Sized};

use super::{Figure, OutputFlags, report, rounded};
use meros::output::error::{CliError, Outcome};

/// Payload sizes, with the names of their figures without actors and with them.
const SIZES: [(usize, &str, &str); 5] = [
    (64, "frames_64", "tells_64"),
    (256, "frames_256", "tells_256"),
    (1 << 10, "frames_1k", "tells_1k"),
    (16 << 10, "frames_16k", "tells_16k"),
    (1 << 20, "frames_1m", "tells_1m"),
];

/// Largest number of bytes in one round.
const ROUND: u64 = 256 << 20;

/// Measures and prints. Each round has `frames` frames, or fewer if they are large.
pub fn run(frames: u64, rounds: u32, output: OutputFlags) -> Outcome {
    let load = FrameLoad {
        sizes: SIZES.iter().map(|(size, ..)| *size).collect(),
        frames,
        bytes: ROUND,
        rounds,
    };
    let measured = measure::frames(&load)
        .map_err(|error| CliError::new(format!("frames cannot be measured: {error}")))?;
    let figures: Vec<Figure> = measured
        .iter()
        .zip(&SIZES)
        .flat_map(|(sized, (_, frames, tells))| figures(sized, frames, tells, rounds))
        .collect();
    report(&figures, output);
    Ok(())
}

fn figures(sized: &Sized, frames: &'static str, tells: &'static str, rounds: u32) -> [Figure; 2] {
    let limit = sized.limit_cost;
    let parameters = |cost: Cost| {
        json!({
            "payload": sized.size, "messages": sized.count, "rounds": rounds, "threads": 2,
            "sender_ns": rounded(cost.sender), "receiver_ns": rounded(cost.receiver),
            "sender_ns_limit": rounded(limit.sender), "receiver_ns_limit": rounded(limit.receiver),
            "ratio_by_cpu": rounded(limit.busier() / cost.busier()),
        })
    };
    let figure = |bench, figure: measure::Figure, cost| Figure {
        bench,
        figure: figure.ours,
        unit: "messages/s",
        limit: figure.limit,
        limit_is: "a bare quinn stream, a length and the same bytes",
        parameters: parameters(cost),
    };
    [
        figure(frames, sized.frames, sized.frame_cost),
        figure(tells, sized.tells, sized.tell_cost),
    ]
}
