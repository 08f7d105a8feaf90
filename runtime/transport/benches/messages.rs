//! Messages over QUIC beside a bare quinn stream: prints one line of JSON per figure.

use transport::measure::{Load, messages};

fn main() -> Result<(), transport::measure::Failure> {
    let load = Load::default();
    let figures = messages(load)?;
    let print = |name: &str, figure: f64, limit: f64, count: u64| {
        let ratio = figure / limit;
        println!(
            "{{\"bench\":\"{name}\",\"figure\":{figure:.0},\"unit\":\"messages/s\",\"limit\":{limit:.0},\
             \"ratio\":{ratio:.3},\"parameters\":{{\"frame_bytes\":{},\"count\":{count},\"rounds\":{}}}}}",
            figures.frame, load.rounds
        );
    };
    print(
        "remote_tell",
        figures.remote_tell,
        figures.remote_tell_limit,
        load.tells,
    );
    print(
        "remote_ask",
        figures.remote_ask,
        figures.remote_ask_limit,
        load.asks,
    );
    Ok(())
}
