//! The zygote as a program of its own, and with an argument the fetcher, the puller or the
//! unpacker, for this crate's tests; in the `meros` command they are hidden subcommands.

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("fetcher") => meros_agent::fetcher::main(),
        Some("puller") => meros_agent::images::puller::main(),
        Some("unpacker") => meros_agent::images::unpacker::main(),
        _ => meros_agent::zygote::main(),
    }
}
