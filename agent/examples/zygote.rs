//! The zygote as a program of its own, for this crate's tests; in the `meros` command it is a
//! hidden subcommand.

fn main() -> std::process::ExitCode {
    meros_agent::zygote::main()
}
