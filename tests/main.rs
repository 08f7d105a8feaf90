//! Integration tests of the whole: real binaries, real sockets, real processes. One module a capability.

mod commands;
mod faults;
mod pages;
mod support;
mod tasks;
