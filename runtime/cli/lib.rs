//! The `meros` command.
