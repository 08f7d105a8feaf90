//! The runner: proptest makes, checks and shrinks the inputs of each target in turn.
//!
//! An input is arbitrary, generated as a valid one, or known (a seed or of the corpus), with up to
//! four changes that leave it almost valid, which finds most defects. proptest chooses the seeds of
//! all of this, and shrinks a failure to as few changes as possible. The seed alone determines the
//! inputs and their order; time only determines the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use runtime::{Clock, Instant};

use crate::corpus;
use crate::rng::Rng;
use crate::target::{Target, Verdict};

/// Number of inputs of a target of weight 1 before the next target.
const INPUTS_PER_TURN: u32 = 20;
/// Maximum length of any input.
const LENGTH_MAX: usize = 64 << 10;
/// No input takes this long on any machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Boundary values of the codec, frames and texts.
const BORDERS: &[u8] = &[
    0, 1, 2, 3, 0x20, 0x7f, 0x80, 0xbf, 0xc0, 0xed, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff,
];
/// Tokens of the text formats, separated by spaces.
const TOKENS: &str = "{ } [ ] ( ) : ; , - \" \\ \\u0000 null true 0 -0 1e308 -1 9e999 0.0005 NaN inf \
    18446744073709551615 9223372036854775807 * / .. \n \0 \u{202e} e\u{301} {} [] [[[[[[[[ cpus:1 \
    role value";

/// Removes bytes at a place and inserts others.
fn change(rng: &mut Rng, input: &mut Vec<u8>, known: &[Vec<u8>]) {
    let at = rng.below(input.len() + 1);
    let part = |rng: &mut Rng, of: &[u8], at: usize| {
        let most = if rng.one_in(4) { of.len() } else { 16 };
        let end = at + 1 + rng.below(most);
        of.get(at..end.min(of.len())).unwrap_or_default().to_vec()
    };
    let piece = match rng.below(12) {
        0..=2 => {
            let count = 1 + rng.below(8);
            rng.bytes(count)
        }
        3..=4 => vec![*rng.pick(BORDERS)],
        5..=6 => length(rng),
        7 => {
            let tokens: Vec<&str> = TOKENS.split(' ').collect();
            rng.pick(&tokens).as_bytes().to_vec()
        }
        8 => Vec::new(),
        9 => {
            let piece = part(rng, input, at);
            let times = match rng.one_in(20) {
                true => LENGTH_MAX / piece.len().max(1),
                false => 1 + rng.below(3),
            };
            piece.repeat(times)
        }
        _ if known.is_empty() => Vec::new(),
        _ => {
            let other = rng.pick(known);
            let from = rng.below(other.len() + 1);
            part(rng, other, from)
        }
    };
    let removed = match rng.below(10) {
        0..=3 => piece.len(),
        4..=6 => 0,
        7..=8 => 1 + rng.below(16),
        _ => input.len(),
    };
    input.splice(at..(at + removed).min(input.len()), piece);
    input.truncate(LENGTH_MAX);
}

/// A wrong length, in one of the encodings used.
fn length(rng: &mut Rng) -> Vec<u8> {
    let number = rng.number();
    match rng.below(7) {
        0 => vec![number as u8],
        1 => [&[0xfb][..], &(number as u16).to_le_bytes()].concat(),
        2 => [&[0xfc][..], &(number as u32).to_le_bytes()].concat(),
        3 => [&[0xfd][..], &number.to_le_bytes()].concat(),
        4 => (number as u16).to_be_bytes().to_vec(),
        5 => (number as u32).to_be_bytes().to_vec(),
        _ => number.to_be_bytes().to_vec(),
    }
}

/// The input of this seed, with a change for each of the other seeds.
fn input(target: &Target, known: &[Vec<u8>], seed: u64, changes: &[u64]) -> Vec<u8> {
    let rng = &mut Rng::new(seed);
    let start = match rng.below(16) {
        0 => {
            let count = rng.below(64);
            Some(rng.bytes(count))
        }
        1..=5 => (target.generate)(rng),
        _ => None,
    };
    let mut input = start.unwrap_or_else(|| match known {
        [] => Vec::new(),
        known => rng.pick(known).clone(),
    });
    for seed in changes {
        change(&mut Rng::new(*seed), &mut input, known);
    }
    input
}

/// Runs all targets, and panics with all failures.
pub fn run(mut targets: Vec<Target>) {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        Some(parsed.unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")))
    };
    let seconds = number("MEROS_FUZZ_SECONDS").map(Duration::from_secs);
    let turns = number("MEROS_FUZZ_INPUTS").map_or(3, |inputs| inputs.div_ceil(20));
    let seed = number("MEROS_FUZZ_SEED").unwrap_or(7);
    let only = std::env::var("MEROS_FUZZ_ONLY").unwrap_or_default();
    targets.retain(|target| target.name.contains(&only));
    assert!(!targets.is_empty(), "no target has {only:?} in its name");
    let (clock, watch, mut failures) = (Clock::real(), Watch::start(), BTreeMap::new());
    let began = clock.now();
    let known = |target: &Target| {
        let mut known = target.seeds.clone();
        known.extend(corpus::inputs(&corpus::file_of(&target.name)));
        known
    };
    let known: Vec<Vec<Vec<u8>>> = targets.iter().map(known).collect();
    let mut count = 0;
    'turns: for turn in 0.. {
        for (target, known) in targets.iter().zip(&known) {
            let is_over = match seconds {
                Some(seconds) => clock.now() - began >= seconds,
                None => turn > turns,
            };
            if is_over && turn > 0 {
                break 'turns;
            }
            if failures.contains_key(&target.name) {
                continue;
            }
            let failed = match turn {
                0 => known.iter().find_map(|input| {
                    count += 1;
                    let verdict = watch.check(target, input);
                    Some((input.clone(), verdict.err()?))
                }),
                turn => {
                    count += u64::from(INPUTS_PER_TURN * target.weight);
                    proptest_turn(target, known, [seed, turn], &watch)
                }
            };
            if let Some((input, why)) = failed {
                let (name, line) = (&target.name, corpus::line(target, &input));
                let file = corpus::file_of(name);
                let failure =
                    format!("{name}: {why}\n  add to tests/fixtures/corpus/{file}: {line}");
                failures.insert(name.clone(), failure);
            }
        }
    }
    let seconds = (clock.now() - began).as_secs_f64();
    println!(
        "fuzz: {count} inputs to {} targets in {seconds:.1} s, seed {seed}, {} broken",
        targets.len(),
        failures.len()
    );
    let failures: Vec<String> = failures.into_values().collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Some inputs of a target. Returns the shrunk input that fails, with the violated property.
fn proptest_turn(
    target: &Target,
    known: &[Vec<u8>],
    [seed, turn]: [u64; 2],
    watch: &Watch,
) -> Option<(Vec<u8>, String)> {
    let config = Config {
        cases: INPUTS_PER_TURN * target.weight,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    // Each target has its own random numbers, so another target does not change them.
    let name = u64::from(runtime::wire::message::id_of(&target.name));
    let bytes = [seed, turn, name, 0].map(u64::to_le_bytes).concat();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let ran = runner.run(
        &(any::<u64>(), vec(any::<u64>(), 0..5)),
        |(seed, changes)| {
            let input = input(target, known, seed, &changes);
            watch.check(target, &input).map_err(TestCaseError::fail)
        },
    );
    match ran {
        Ok(()) => None,
        Err(TestError::Fail(why, (seed, changes))) => {
            let input = input(target, known, seed, &changes);
            Some((input, why.message().to_owned()))
        }
        Err(TestError::Abort(why)) => Some((Vec::new(), why.message().to_owned())),
    }
}

/// The running input with its target and start.
type Current = Option<(Instant, String, Vec<u8>)>;

/// Aborts the process with a report if an input hangs.
struct Watch(Arc<Mutex<Current>>, Clock);

impl Watch {
    fn start() -> Self {
        let current = Arc::new(Mutex::new(Current::None));
        let (watched, clock) = (current.clone(), Clock::real());
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_secs(1));
                let current = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((since, name, input)) = &*current
                    && clock.now() - *since > INPUT_TIMEOUT
                {
                    eprintln!("{name}: an input takes more than {INPUT_TIMEOUT:?}: {input:02x?}");
                    std::process::abort();
                }
            }
        });
        hide_panics();
        Self(current, Clock::real())
    }

    /// Checks an input; a panic is a failure too.
    fn check(&self, target: &Target, input: &[u8]) -> Verdict {
        let current = Some((self.1.now(), target.name.clone(), input.to_vec()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = current;
        PANIC.set(Some(String::new()));
        let check = AssertUnwindSafe(|| (target.check)(input));
        let verdict = catch_unwind(check);
        let panic = PANIC.take().unwrap_or_default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        verdict.unwrap_or(Err(panic))
    }
}

thread_local! {
    /// Message of a panic during a check; `None` outside of checks.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Captures panics during checks instead of printing them.
fn hide_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let hidden = PANIC.with_borrow_mut(|message| match message {
            Some(message) => {
                *message = panic.to_string();
                true
            }
            None => false,
        });
        if !hidden {
            usual(panic);
        }
    }));
}
