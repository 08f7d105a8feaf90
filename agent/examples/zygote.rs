//! A zygote as a program of its own, for this crate's tests; the `meros` command has it as a hidden verb.

fn main() -> std::process::ExitCode {
    meros_agent::zygote::main()
}
