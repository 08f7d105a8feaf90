//! The zygote as a program of its own, and with the argument `fetcher` the fetcher, for this
//! crate's tests; in the `meros` command they are hidden subcommands.

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("fetcher") => meros_agent::fetcher::main(),
        _ => meros_agent::zygote::main(),
    }
}
