//! The `meros` binary. Everything except the global memory allocator is in the library.

use std::process::ExitCode;

/// Messages are allocated on one thread and freed on another, which is the slowest case of the
/// system's allocator.
#[global_allocator]
static HEAP: meros::heap::Heap = meros::heap::Heap;

fn main() -> ExitCode {
    meros::main()
}
