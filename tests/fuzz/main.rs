//! Fuzzing of everything that decodes bytes from a peer, a disk, a child process or an operator,
//! with the stable toolchain.
//!
//! `cargo test` runs the corpus in `tests/fixtures/corpus` and a few more inputs, which proptest
//! makes, checks and shrinks. For longer runs (variables can be combined):
//!
//! ```text
//! MEROS_FUZZ_SECONDS=3600 cargo test --release --test fuzz -- --nocapture
//!   MEROS_FUZZ_SECONDS=N   run for N seconds
//!   MEROS_FUZZ_INPUTS=N    without SECONDS: at least N inputs per target (default 60)
//!   MEROS_FUZZ_SEED=N      seed of all random numbers (default 7; also 0x...)
//!   MEROS_FUZZ_ONLY=TEXT   only targets with TEXT in their names
//! ```
//!
//! A failure is printed with its target and its input, shrunk as far as possible, as a line for the
//! corpus. Required properties: a decoder never panics, stays within its memory limit (see
//! [`target::HeapLimit`]), and rejects inputs with a meaningful error; an accepted value can be
//! encoded and decoded to the same value. Valid inputs of every type are generated through Serde
//! ([`generate`]). No coverage guides the inputs: that needs nightly or internal flags of rustc.

#![allow(clippy::panic, reason = "a test may end by a panic")]

mod corpus;
mod forms;
mod generate;
mod heap;
mod link;
mod messages;
mod persisted;
mod rng;
mod run;
mod target;
mod texts;
#[path = "v1.rs"]
mod v1_api;

use target::Target;

fn targets() -> Vec<Target> {
    let mut all = forms::targets();
    all.extend(persisted::targets());
    all.push(link::target());
    all.extend(messages::targets());
    all.extend(texts::targets());
    all.extend(v1_api::targets());
    all
}

#[test]
fn fuzzed_bytes_break_no_decoder() {
    run::run(targets());
}

#[test]
fn corpus_files_are_small_and_have_targets() {
    let names: Vec<String> = targets().into_iter().map(|target| target.name).collect();
    for file in corpus::files() {
        assert!(
            names.iter().any(|name| corpus::file_of(name) == file),
            "{file} belongs to no target: remove it, or correct its name"
        );
        let bytes: usize = corpus::inputs(&file).iter().map(Vec::len).sum();
        let most = corpus::BYTES_MAX;
        assert!(
            bytes <= most,
            "{file} holds {bytes} bytes, expected at most {most}"
        );
    }
}
