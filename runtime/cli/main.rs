//! The `meros` binary; all of it is in the library, but for how it allocates memory.

use std::process::ExitCode;

/// Messages are made on one thread and dropped on another, which is what the system's allocator is slowest at.
#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

fn main() -> ExitCode {
    meros::main()
}

mod heap;
