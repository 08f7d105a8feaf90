//! The host of an agent: its processes, its resources, its users, and system calls.
//!
//! `procfs` reads `/proc`, `detect` finds the resources that the operator does not configure,
//! `accounts` decides the user that a task runs as, `helper` runs processes with other rights,
//! `beneath` finds paths below directories of strangers, `network` connects to containers, `output`
//! opens files that a task may have replaced, `removal` removes their directories, `readers` copies
//! output to sockets, and `sys` has the only unsafe code of this crate. No actors, and no knowledge
//! of containers.

pub(crate) mod accounts;
pub(crate) mod beneath;
pub mod detect;
pub mod helper;
pub(crate) mod network;
pub(crate) mod output;
pub mod procfs;
pub(crate) mod readers;
pub(crate) mod removal;
pub mod sys;
