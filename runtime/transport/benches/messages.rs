//! Messages over QUIC beside a bare quinn stream. Prints one line of JSON per figure.

use transport::measure::{Cost, Figure, FrameLoad, Load, TRANSFER, frames, messages, pings};

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Frames of these sizes without actors (`frame`) and with them (`tell`), and the cost for sender
/// and receiver beside the bare stream.
fn sizes(sizes: Vec<usize>) -> Result<(), transport::measure::Failure> {
    let load = FrameLoad {
        sizes,
        frames: number("TELLS").unwrap_or(1_000_000),
        bytes: 256 << 20,
        rounds: number("ROUNDS").unwrap_or(5) as u32,
    };
    for sized in frames(&load)? {
        let print = |name: &str, Figure { ours, limit }: Figure, cost: Cost| {
            let bare = sized.limit_cost;
            println!(
                "{{\"bench\":\"{name}_{}\",\"figure\":{ours:.0},\"limit\":{limit:.0},\"ratio\":{:.3},\
                 \"ratio_by_cpu\":{:.3},\"ns\":[{:.1},{:.1}],\"ns_limit\":[{:.1},{:.1}]}}",
                sized.size,
                ours / limit,
                bare.busier() / cost.busier(),
                cost.sender,
                cost.receiver,
                bare.sender,
                bare.receiver
            );
        };
        print("frames", sized.frames, sized.frame_cost);
        print("tells", sized.tells, sized.tell_cost);
    }
    Ok(())
}

fn main() -> Result<(), transport::measure::Failure> {
    if let Ok(list) = std::env::var("FRAMES") {
        return sizes(
            list.split(',')
                .filter_map(|size| size.parse().ok())
                .collect(),
        );
    }
    let load = Load {
        tells: number("TELLS").unwrap_or(Load::default().tells),
        rounds: number("ROUNDS").map_or(Load::default().rounds, |rounds| rounds as u32),
        ..Load::default()
    };
    let figures = messages(load)?;
    let print = |name: &str, figure: Figure, count: u64| {
        let Figure { ours, limit } = figure;
        println!(
            "{{\"bench\":\"{name}\",\"figure\":{ours:.0},\"unit\":\"messages/s\",\"limit\":{limit:.0},\
             \"ratio\":{:.3},\"parameters\":{{\"payload\":{},\"count\":{count},\"rounds\":{}}}}}",
            ours / limit,
            figures.payload,
            load.rounds
        );
    };
    print("remote_tell", figures.remote_tell, load.tells);
    print("remote_ask", figures.remote_ask, load.asks);
    let (cost, limit) = (figures.tell_cost, figures.tell_cost_limit);
    println!(
        "{{\"bench\":\"remote_tell_cpu\",\"figure\":{:.1},\"unit\":\"ns/message\",\"limit\":{:.1},\"ratio\":{:.3},\
         \"parameters\":{{\"sender\":{:.1},\"receiver\":{:.1},\"sender_limit\":{:.1},\"receiver_limit\":{:.1},\
         \"frame\":{:.1},\"frame_limit\":{}}}}}",
        cost.busier(),
        limit.busier(),
        cost.busier() / limit.busier(),
        cost.sender,
        cost.receiver,
        limit.sender,
        limit.receiver,
        figures.frame,
        figures.frame_limit
    );
    let delays = pings(number("PINGS").unwrap_or(500) as u32, TRANSFER)?;
    for (beside, delay) in [
        ("large transfers", delays.transfers),
        ("a flood", delays.flood),
        ("both", delays.both),
    ] {
        println!(
            "{{\"bench\":\"ping_beside\",\"figure\":{:.3},\"unit\":\"ms\",\"limit\":{:.3},\"ratio\":{:.1},\
             \"parameters\":{{\"beside\":\"{beside}\",\"p50\":{:.3},\"p50_alone\":{:.3},\"transfer\":{TRANSFER}}}}}",
            delay.p99,
            delays.alone.p99,
            delay.p99 / delays.alone.p99,
            delay.p50,
            delays.alone.p50
        );
    }
    Ok(())
}
