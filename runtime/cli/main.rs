//! The `meros` binary; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    meros::main()
}
