//! Fuzzing of everything that reads bytes from a peer, a disk, a child process or an operator, on the stable toolchain.
//!
//! `cargo test` plays the corpus in `tests/fixtures/corpus` and a few inputs more. For longer (the variables may be combined):
//!
//! ```text
//! MEROS_FUZZ_SECONDS=3600 cargo test --release --test fuzz -- --nocapture
//!   MEROS_FUZZ_SECONDS=N   go on for N seconds; without it, MEROS_FUZZ_INPUTS=N inputs for each target (default 60)
//!   MEROS_FUZZ_SEED=N      where all chance comes from (default 7; 0x... is read too)
//!   MEROS_FUZZ_ONLY=TEXT   only targets whose name contains TEXT; MEROS_FUZZ_INPUT=HEX only this input, too
//!   MEROS_FUZZ_KEEP=N      add to the corpus what reached something new, up to N inputs for each target
//!   MEROS_FUZZ_TRACE=FILE  write each input there before it runs: the last one is what ended the process
//! ```
//!
//! A defect is printed with its target, seed and bytes, made as small as can be, and added to the corpus, so that every later `cargo test`
//! plays it again. The laws: a decoder never panics, never holds more memory than its bound (see [`target::Heap`]),
//! refuses with words that say what is wrong, and what it took can be written and read again as the same value.
//!
//! # Why not bolero, libFuzzer or plain proptest
//!
//! Coverage guidance without nightly needs rustc's internal flags, a C++ engine and a cargo subcommand (bolero, cargo-fuzz), which is
//! much to install for CI and every developer; bolero without them is a random generator and a dependency tree. proptest has no
//! corpus of bytes, and its strategies would be written once more for each message. What guides this runner is what our decoders tell
//! anyway: which fields and variants a value has, and in which words it was refused. An input that shows a new one joins the
//! pool that is mutated further ([`run`]). Values to begin with are imagined through serde for every type ([`imagine`]).

#![allow(clippy::panic, reason = "a test may end by a panic")]

#[path = "fuzz/chance.rs"]
mod chance;
#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/forms.rs"]
mod forms;
#[path = "fuzz/heap.rs"]
mod heap;
#[path = "fuzz/imagine.rs"]
mod imagine;
#[path = "fuzz/kept.rs"]
mod kept;
#[path = "fuzz/link.rs"]
mod link;
#[path = "fuzz/messages.rs"]
mod messages;
#[path = "fuzz/mutate.rs"]
mod mutate;
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
    all.extend(kept::targets());
    all.push(link::target());
    all.extend(messages::targets());
    all.extend(texts::targets());
    all.extend(v1_api::targets());
    all
}

#[test]
fn no_bytes_break_a_decoder() {
    run::run(targets(), &run::Settings::from_environment());
}

#[test]
fn the_corpus_is_small_and_each_file_has_its_target() {
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
