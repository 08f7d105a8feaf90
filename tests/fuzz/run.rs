//! The runner: proptest makes, checks and shrinks the inputs of each target in turn.
//!
//! An input is arbitrary, generated as a valid one, or known (a seed or of the corpus), with up to
//! four changes that leave it almost valid, which finds most defects. The seed alone determines the
//! inputs and their order; time only determines the end.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
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

/// The content that a change inserts.
#[derive(Clone, Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// A part of a known input.
    Known(Index, Index, usize),
    /// A part of the input itself, repeated.
    Own(usize, usize),
}

/// Removes bytes at a place and inserts a piece.
#[derive(Clone, Debug)]
struct Change {
    at: Index,
    /// The number of bytes; `None` for as many as the piece has.
    removed: Option<usize>,
    piece: Piece,
}

impl Change {
    fn strategy() -> impl Strategy<Value = Self> {
        // A wrong length, in one of the encodings used.
        let number = any::<u64>().prop_map(|seed| Rng::new(seed).number());
        let length = (0..7_u8, number).prop_map(|(form, number)| match form {
            0 => vec![number as u8],
            1 => [&[0xfb][..], &(number as u16).to_le_bytes()].concat(),
            2 => [&[0xfc][..], &(number as u32).to_le_bytes()].concat(),
            3 => [&[0xfd][..], &number.to_le_bytes()].concat(),
            4 => (number as u16).to_be_bytes().to_vec(),
            5 => (number as u32).to_be_bytes().to_vec(),
            _ => number.to_be_bytes().to_vec(),
        });
        let tokens: Vec<&str> = TOKENS.split(' ').collect();
        let bytes = prop_oneof![
            3 => vec(any::<u8>(), 1..8),
            2 => select(BORDERS).prop_map(|border| vec![border]),
            2 => length,
            1 => select(tokens).prop_map(|token| token.as_bytes().to_vec()),
            2 => Just(Vec::new()),
        ];
        let times = prop_oneof![9 => 1_usize..4, 1 => Just(LENGTH_MAX)];
        let piece = prop_oneof![
            6 => bytes.prop_map(Piece::Bytes),
            2 => (any::<Index>(), any::<Index>(), 1_usize..100)
                .prop_map(|(input, at, length)| Piece::Known(input, at, length)),
            1 => (1_usize..40, times).prop_map(|(length, times)| Piece::Own(length, times)),
        ];
        let removed = prop_oneof![
            3 => Just(None),
            3 => Just(Some(0)),
            3 => (1_usize..16).prop_map(Some),
            1 => Just(Some(usize::MAX)),
        ];
        (any::<Index>(), removed, piece).prop_map(|(at, removed, piece)| Self {
            at,
            removed,
            piece,
        })
    }

    fn apply(&self, input: &mut Vec<u8>, known: &[Vec<u8>]) {
        let at = self.at.index(input.len() + 1);
        let part = |of: &[u8], at: usize, length: usize| {
            of[at..at.saturating_add(length).min(of.len())].to_vec()
        };
        let piece = match &self.piece {
            Piece::Bytes(bytes) => bytes.clone(),
            Piece::Known(..) if known.is_empty() => Vec::new(),
            Piece::Known(other, from, length) => {
                let other = other.get(known);
                part(other, from.index(other.len() + 1), *length)
            }
            Piece::Own(length, times) => {
                let piece = part(input, at, *length);
                let most = LENGTH_MAX / piece.len().max(1);
                piece.repeat(most.min(*times))
            }
        };
        let removed = self.removed.unwrap_or(piece.len());
        let end = at.saturating_add(removed).min(input.len());
        input.splice(at..end, piece);
        input.truncate(LENGTH_MAX);
    }
}

/// The inputs of a target.
fn inputs<'t>(
    target: &'t Target,
    known: &'t [Vec<u8>],
) -> impl Strategy<Value = Vec<u8>> + use<'t> {
    let start = prop_oneof![
        1 => vec(any::<u8>(), 0..64).prop_map(Some),
        15 => Just(None),
    ];
    let changes = prop_oneof![1 => Just(Vec::new()), 4 => vec(Change::strategy(), 1..5)];
    let all = (start, any::<u64>(), any::<Index>(), changes);
    all.prop_map(|(start, seed, index, changes)| {
        let generated = || match seed % 3 {
            0 => None,
            _ => (target.generate)(&mut Rng::new(seed)),
        };
        let from_known = || (!known.is_empty()).then(|| index.get(known).clone());
        let start = start.or_else(generated).or_else(from_known);
        let mut input = start.unwrap_or_default();
        changes
            .iter()
            .for_each(|change| change.apply(&mut input, known));
        input
    })
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
    let ran = runner.run(&inputs(target, known), |input| {
        watch.check(target, &input).map_err(TestCaseError::fail)
    });
    match ran {
        Ok(()) => None,
        Err(TestError::Fail(why, input)) => Some((input, why.message().to_owned())),
        Err(TestError::Abort(why)) => Some((Vec::new(), why.message().to_owned())),
    }
}

/// The running input, with its start.
type Current = Option<(Instant, String)>;

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
                if let Some((since, line)) = &*current
                    && clock.now() - *since > INPUT_TIMEOUT
                {
                    eprintln!("an input takes more than {INPUT_TIMEOUT:?}: {line}");
                    std::process::abort();
                }
            }
        });
        Self(current, Clock::real())
    }

    fn set(&self, current: Current) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    fn check(&self, target: &Target, input: &[u8]) -> Verdict {
        let line = format!("{}: {}", target.name, corpus::line(target, input));
        self.set(Some((self.1.now(), line)));
        let check = AssertUnwindSafe(|| (target.check)(input));
        let verdict = catch_unwind(check).unwrap_or_else(|_| Err("it panicked".to_owned()));
        self.set(None);
        verdict
    }
}
