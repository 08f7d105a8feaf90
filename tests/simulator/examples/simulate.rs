//! Runs one scenario and prints its results: `simulate SEED[/MASTERS] AGENTS FRAMEWORKS SECONDS
//! none|network|machines|all memory|quic`.

use std::time::Duration;

use simulator::{Profile, Scenario, Wiring, run};

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        given
            .get(at)
            .and_then(|text| text.split('/').next()?.parse().ok())
            .unwrap_or(default)
    };
    let text = |at: usize| given.get(at).map(String::as_str).unwrap_or_default();
    let scenario = Scenario {
        seed: number(0, 1),
        masters: text(0)
            .split_once('/')
            .and_then(|(_, masters)| masters.parse().ok())
            .unwrap_or(1),
        agents: number(1, 4) as u32,
        frameworks: number(2, 5) as u32,
        duration: Duration::from_secs(number(3, 300)),
        profile: match text(4) {
            "network" => Profile::Network,
            "machines" => Profile::Machines,
            "all" => Profile::All,
            _ => Profile::None,
        },
        wiring: match text(5) {
            "quic" => Wiring::Quic,
            _ => Wiring::Memory,
        },
        faults: None,
    };
    let checkers = match text(6) {
        "unchecked" => Vec::new(),
        _ => simulator::checkers::all(),
    };
    let run = run(&scenario, checkers, None);
    println!("seed {} {:?}", scenario.seed, run.violation);
    for line in run.recent.iter().filter(|_| text(6) == "recent") {
        println!("{line}");
    }
    println!("{:#?}\nhash {:016x}", run.tally, run.hash);
}
