//! Fuzzing of everything that decodes bytes from a peer, a disk, a child process or an operator,
//! with the stable toolchain.
//!
//! `cargo test` runs the corpus in `tests/fixtures/corpus` and a few more inputs. For longer runs
//! (variables can be combined):
//!
//! ```text
//! MEROS_FUZZ_SECONDS=3600 cargo test --release --test fuzz -- --nocapture
//!   MEROS_FUZZ_SECONDS=N   run for N seconds
//!   MEROS_FUZZ_INPUTS=N    without SECONDS: N inputs per target (default 60)
//!   MEROS_FUZZ_SEED=N      seed of all random numbers (default 7; also 0x...)
//!   MEROS_FUZZ_ONLY=TEXT   only targets with TEXT in their names
//!   MEROS_FUZZ_INPUT=HEX   only this input
//!   MEROS_FUZZ_KEEP=N      add inputs with new features to the corpus, up to N inputs per target
//!   MEROS_FUZZ_TRACE=FILE  write each input there before it runs: the last one ended the process
//! ```
//!
//! A failure is printed with its target, seed and input, shrunk as far as possible, and added to
//! the corpus, so that every later `cargo test` repeats it. Required properties: a decoder never
//! panics, stays within its memory limit (see [`target::HeapLimit`]), and rejects inputs with a
//! meaningful error; an accepted value can be encoded and decoded to the same value.
//!
//! # Why not bolero, libFuzzer or plain proptest
//!
//! Coverage guidance without nightly needs internal flags of rustc, a C++ engine and a cargo
//! subcommand (bolero, cargo-fuzz), too much to install for CI and every developer; without them,
//! bolero is a random generator with many dependencies. proptest has no corpus of bytes and needs a
//! strategy for each message. This runner is guided by the results of the decoders instead: the
//! fields and variants of a value, and the text of an error. An input with a new feature joins the
//! pool for further mutations ([`run`]). Initial values are generated through Serde for every type
//! ([`generate`]).

#![allow(clippy::panic, reason = "a test may end by a panic")]

#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/forms.rs"]
mod forms;
#[path = "fuzz/generate.rs"]
mod generate;
#[path = "fuzz/heap.rs"]
mod heap;
#[path = "fuzz/link.rs"]
mod link;
#[path = "fuzz/messages.rs"]
mod messages;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/persisted.rs"]
mod persisted;
#[path = "fuzz/rng.rs"]
mod rng;
#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/target.rs"]
mod target;
#[path = "fuzz/texts.rs"]
mod texts;
#[path = "fuzz/v1.rs"]
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
    run::run(targets(), &run::Settings::from_environment());
}

#[test]
fn corpus_files_are_small_and_have_targets() {
    let targets = targets();
    for (file, inputs) in corpus::all() {
        assert!(
            targets
                .iter()
                .any(|target| corpus::file_of(&target.name) == file),
            "{file} belongs to no target: remove it, or correct its name"
        );
        let bytes: usize = inputs.iter().map(Vec::len).sum();
        assert!(
            bytes <= corpus::BYTES_MAX,
            "{file} holds {bytes} bytes, expected at most {}",
            corpus::BYTES_MAX
        );
    }
}
