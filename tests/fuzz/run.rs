//! The runner: runs every target in turn, mutates interesting inputs, and reports failures.
//!
//! The seed alone determines the inputs and their order; time only determines the end. Stores for
//! each target the pool of interesting inputs and the features seen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use runtime::{Clock, Instant};

use crate::corpus;
use crate::mutate::mutate;
use crate::rng::Rng;
use crate::target::{Target, Verdict};

/// Number of inputs before the next target.
const INPUTS_PER_TURN: usize = 20;
/// Maximum size of a target's pool.
const POOL_MAX: usize = 400;
/// Maximum number of attempts to shrink a failing input.
const SHRINK_MAX: usize = 4000;
/// No input takes this long on any machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an input to add to the corpus.
const CORPUS_INPUT_MAX: usize = 300;
/// Longer inputs are not repeated in the command that replays them.
const LINE_MAX: usize = 400;

/// Settings from the environment.
pub struct Settings {
    seconds: Option<u64>,
    inputs: usize,
    seed: u64,
    only: String,
    input: Option<Vec<u8>>,
    keep: usize,
    trace: Option<String>,
}

impl Settings {
    /// Reads the variables described in `tests/fuzz.rs`.
    pub fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str| {
            text(name).map(|text| {
                let parsed = match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => text.parse(),
                };
                parsed.unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number"))
            })
        };
        let input = text("MEROS_FUZZ_INPUT").map(|line| {
            corpus::input(&line).unwrap_or_else(|| {
                panic!("MEROS_FUZZ_INPUT is {line:?}, expected hexadecimal or a JSON string")
            })
        });
        Self {
            seconds: number("MEROS_FUZZ_SECONDS"),
            inputs: number("MEROS_FUZZ_INPUTS").unwrap_or(60) as usize,
            seed: number("MEROS_FUZZ_SEED").unwrap_or(7),
            only: text("MEROS_FUZZ_ONLY").unwrap_or_default(),
            input,
            keep: number("MEROS_FUZZ_KEEP").unwrap_or(0) as usize,
            trace: text("MEROS_FUZZ_TRACE"),
        }
    }
}

/// State of one target.
struct TargetRun {
    target: Target,
    rng: Rng,
    pool: Vec<Vec<u8>>,
    kept: usize,
    seen: BTreeSet<u16>,
    inputs: u64,
    accepted: u64,
    failure: Option<String>,
}

/// Runs all targets, and panics with all failures.
pub fn run(targets: Vec<Target>, settings: &Settings) {
    hide_panics();
    std::thread::spawn(watch);
    let began = now();
    let chosen = targets
        .into_iter()
        .filter(|target| target.name.contains(&settings.only));
    let mut runs: Vec<TargetRun> = chosen
        .map(|target| TargetRun::new(target, settings))
        .collect();
    assert!(
        !runs.is_empty(),
        "no target's name contains MEROS_FUZZ_ONLY={:?}",
        settings.only
    );
    let time_is_up = |seconds: u64| now() - began >= Duration::from_secs(seconds);
    let mut turns = settings.inputs.div_ceil(INPUTS_PER_TURN);
    while settings.input.is_none() {
        match settings.seconds {
            Some(seconds) if time_is_up(seconds) => break,
            None if turns == 0 => break,
            _ => turns = turns.saturating_sub(1),
        }
        for target_run in &mut runs {
            for _ in 0..INPUTS_PER_TURN * target_run.target.weight {
                target_run.step(settings);
            }
            if settings.seconds.is_some_and(time_is_up) {
                break;
            }
        }
    }
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    report(&runs, settings, (now() - began).as_secs_f64());
}

fn report(runs: &[TargetRun], settings: &Settings, seconds: f64) {
    println!("{:>10} {:>10} {:>6}  target", "inputs", "accepted", "seen");
    for target_run in runs {
        println!(
            "{:>10} {:>10} {:>6}  {}",
            target_run.inputs,
            target_run.accepted,
            target_run.seen.len(),
            target_run.target.name
        );
    }
    let inputs: u64 = runs.iter().map(|target_run| target_run.inputs).sum();
    let failures: Vec<&str> = runs
        .iter()
        .filter_map(|target_run| target_run.failure.as_deref())
        .collect();
    println!(
        "fuzz: {inputs} inputs to {} targets in {seconds:.1} s, seed {}, {} broken",
        runs.len(),
        settings.seed,
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

impl TargetRun {
    /// Runs the seeds and the corpus, which are the initial pool.
    fn new(mut target: Target, settings: &Settings) -> Self {
        let mut known = std::mem::take(&mut target.seeds);
        known.extend(corpus::of(&target.name));
        if let Some(input) = &settings.input {
            known = vec![input.clone()];
        }
        // Each target has its own random numbers, so another target does not change them.
        let name = u64::from(runtime::wire::message::id_of(&target.name));
        let mut target_run = Self {
            target,
            rng: Rng::new(settings.seed ^ (name << 32)),
            pool: Vec::new(),
            kept: known.len(),
            seen: BTreeSet::new(),
            inputs: 0,
            accepted: 0,
            failure: None,
        };
        for input in &known {
            target_run.play(input, settings);
        }
        target_run.pool = known;
        target_run
    }

    /// Makes and runs one input.
    fn step(&mut self, settings: &Settings) {
        if self.failure.is_some() {
            return;
        }
        let rng = &mut self.rng;
        let kind = rng.below(16);
        set_current(&self.target, b"while an input was imagined");
        let input = match kind {
            0 => {
                let length = rng.below(64);
                Some(rng.bytes(length))
            }
            1..=5 => (self.target.generate)(rng),
            _ => None,
        };
        let mut input = input.unwrap_or_else(|| match self.pool.is_empty() {
            true => Vec::new(),
            false => self.pool[rng.below(self.pool.len())].clone(),
        });
        if kind > 2 {
            mutate(rng, &mut input, &self.pool);
        }
        if self.play(&input, settings) {
            if self.kept < settings.keep && input.len() <= CORPUS_INPUT_MAX {
                self.kept += 1;
                if let Err(error) = corpus::add(&self.target, &input, "") {
                    panic!("the corpus cannot be written: {error}");
                }
            }
            if self.pool.len() >= POOL_MAX {
                let replaced = self.rng.below(POOL_MAX);
                self.pool.swap_remove(replaced);
            }
            self.pool.push(input);
        }
    }

    /// Runs one input. Returns whether it had new features.
    fn play(&mut self, input: &[u8], settings: &Settings) -> bool {
        if let Some(file) = &settings.trace {
            let line = format!(
                "{} {}\n",
                self.target.name,
                corpus::line(&self.target, input)
            );
            if let Err(error) = std::fs::write(file, line) {
                panic!("MEROS_FUZZ_TRACE={file} cannot be written: {error}");
            }
        }
        self.inputs += 1;
        set_current(&self.target, input);
        match check(&self.target, input) {
            Ok(observation) => {
                self.accepted += u64::from(observation.accepted);
                let known = self.seen.len();
                self.seen.extend(observation.features);
                self.seen.len() > known
            }
            Err(_) if self.failure.is_some() => false,
            Err(_) => {
                self.failure = Some(self.broken(input, settings));
                false
            }
        }
    }

    /// Report of a failing input.
    fn broken(&self, input: &[u8], settings: &Settings) -> String {
        let target = &self.target;
        let input = shrink(target, input);
        let why = check(target, &input).err().unwrap_or_default();
        let line = corpus::line(target, &input);
        let known = corpus::of(&target.name).contains(&input);
        let kept = match known || settings.input.is_some() {
            true => "it stands in the corpus or was given".to_owned(),
            false => match corpus::add(
                target,
                &input,
                &format!("found with seed {}", settings.seed),
            ) {
                Ok(file) => format!("added to {file}"),
                Err(error) => format!("NOT added to the corpus: {error}"),
            },
        };
        let given = match line.len() {
            ..=LINE_MAX => line.as_str(),
            _ => "(the bytes above)",
        };
        format!(
            "{}: {why}\n  seed {}, after {} inputs; {} bytes, {kept}\n  {line}\n  replay: MEROS_FUZZ_ONLY='{}' MEROS_FUZZ_INPUT='{given}' cargo test --test fuzz -- --nocapture",
            target.name,
            settings.seed,
            self.inputs,
            input.len(),
            target.name,
        )
    }
}

/// The running input with its target and start time.
static CURRENT: Mutex<Option<(Instant, String, Vec<u8>)>> = Mutex::new(None);

fn set_current(target: &Target, input: &[u8]) {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *current {
        Some((since, name, bytes)) => {
            *since = now();
            name.clone_from(&target.name);
            input.clone_into(bytes);
        }
        None => *current = Some((now(), target.name.clone(), input.to_vec())),
    }
}

/// Aborts the process with a report if an input hangs.
fn watch() {
    loop {
        std::thread::park_timeout(Duration::from_secs(1));
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, name, input)) = &*current
            && now() - *since > INPUT_TIMEOUT
        {
            let line: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!(
                "{name}: an input of {} bytes takes more than {INPUT_TIMEOUT:?}\n  {line}\n  replay: MEROS_FUZZ_ONLY='{name}' MEROS_FUZZ_INPUT='{line}' cargo test --test fuzz -- --nocapture",
                input.len()
            );
            std::process::abort();
        }
    }
}

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::real);

fn now() -> Instant {
    CLOCK.now()
}

thread_local! {
    /// Message of a panic during a check; `None` outside of checks.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Captures panics during checks instead of printing them.
fn hide_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let hidden = PANIC.with_borrow_mut(|words| match words {
            Some(words) => {
                *words = panic.to_string();
                true
            }
            None => false,
        });
        if !hidden {
            usual(panic);
        }
    }));
}

/// Checks an input; a panic is a failure too.
fn check(target: &Target, input: &[u8]) -> Verdict {
    PANIC.set(Some(String::new()));
    let with_check = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    let words = PANIC.take().unwrap_or_default();
    with_check.unwrap_or(Err(words))
}

/// A smaller input that still fails, if there is one.
fn shrink(target: &Target, input: &[u8]) -> Vec<u8> {
    let mut input = input.to_vec();
    let mut attempts = 0;
    let mut breaks = |candidate: &[u8]| {
        attempts += 1;
        (attempts <= SHRINK_MAX).then(|| check(target, candidate).is_err())
    };
    let mut size = input.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < input.len() {
            let end = (at + size).min(input.len());
            let shorter = [&input[..at], &input[end..]].concat();
            match breaks(&shorter) {
                None => return input,
                Some(true) => input = shorter,
                Some(false) => at = end,
            }
        }
        size /= 2;
    }
    for at in 0..input.len() {
        let mut plainer = input.clone();
        plainer[at] = match target.text {
            true => b'0',
            false => 0,
        };
        match breaks(&plainer) {
            None => break,
            Some(true) => input = plainer,
            Some(false) => {}
        }
    }
    input
}
