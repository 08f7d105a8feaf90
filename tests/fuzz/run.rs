//! The runner: feeds every target in turn, mutates what showed something new, and reports what broke.
//!
//! Which inputs come is decided by the seed alone, in one order; time only decides when it ends. Remembers for each target its pool
//! and which features were seen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use runtime::{Clock, Instant};

use crate::chance::Chance;
use crate::corpus;
use crate::mutate::mutate;
use crate::target::{Judged, Target};

/// Inputs a target is given before it is the next one's turn.
const TURN: usize = 20;
/// The most inputs that are mutated further, for each target.
const POOL_MAX: usize = 400;
/// How often a failing input is tried smaller.
const SHRINK_MAX: usize = 4000;
/// No input takes so long, on any machine.
const HANGS: Duration = Duration::from_secs(30);
/// The longest input that is kept.
const KEPT_MAX: usize = 300;
/// A line longer than this is shown once and not again in the command that replays it.
const LONG: usize = 400;

/// What the environment asks for.
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
    /// Reads the variables; see the top of `tests/fuzz.rs`.
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

/// A target at work.
struct Course {
    target: Target,
    chance: Chance,
    pool: Vec<Vec<u8>>,
    kept: usize,
    seen: BTreeSet<u16>,
    inputs: u64,
    taken: u64,
    failure: Option<String>,
}

/// Feeds all targets, and fails with everything that broke.
pub fn run(targets: Vec<Target>, settings: &Settings) {
    hide_panics();
    std::thread::spawn(watch);
    let began = now();
    let chosen = targets
        .into_iter()
        .filter(|target| target.name.contains(&settings.only));
    let mut courses: Vec<Course> = chosen.map(|target| Course::new(target, settings)).collect();
    assert!(
        !courses.is_empty(),
        "no target's name contains MEROS_FUZZ_ONLY={:?}",
        settings.only
    );
    let time_is_up = |seconds: u64| now() - began >= Duration::from_secs(seconds);
    let mut turns = settings.inputs.div_ceil(TURN);
    while settings.input.is_none() {
        match settings.seconds {
            Some(seconds) if time_is_up(seconds) => break,
            None if turns == 0 => break,
            _ => turns = turns.saturating_sub(1),
        }
        for course in &mut courses {
            for _ in 0..TURN * course.target.weight {
                course.step(settings);
            }
            if settings.seconds.is_some_and(time_is_up) {
                break;
            }
        }
    }
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    report(&courses, settings, (now() - began).as_secs_f64());
}

fn report(courses: &[Course], settings: &Settings, seconds: f64) {
    println!("{:>10} {:>10} {:>6}  target", "inputs", "taken", "seen");
    for course in courses {
        println!(
            "{:>10} {:>10} {:>6}  {}",
            course.inputs,
            course.taken,
            course.seen.len(),
            course.target.name
        );
    }
    let inputs: u64 = courses.iter().map(|course| course.inputs).sum();
    let failures: Vec<&str> = courses
        .iter()
        .filter_map(|course| course.failure.as_deref())
        .collect();
    println!(
        "fuzz: {inputs} inputs to {} targets in {seconds:.1} s, seed {}, {} broken",
        courses.len(),
        settings.seed,
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

impl Course {
    /// Plays the seeds and the corpus, which are the first pool.
    fn new(mut target: Target, settings: &Settings) -> Self {
        let mut known = std::mem::take(&mut target.seeds);
        known.extend(corpus::of(&target.name));
        if let Some(input) = &settings.input {
            known = vec![input.clone()];
        }
        // Each target draws from its own stream, so that another target more or less changes nothing for it.
        let name = u64::from(runtime::message::id_of(&target.name));
        let mut course = Self {
            target,
            chance: Chance::new(settings.seed ^ (name << 32)),
            pool: Vec::new(),
            kept: known.len(),
            seen: BTreeSet::new(),
            inputs: 0,
            taken: 0,
            failure: None,
        };
        for input in &known {
            course.play(input, settings);
        }
        course.pool = known;
        course
    }

    /// Makes one input and plays it.
    fn step(&mut self, settings: &Settings) {
        if self.failure.is_some() {
            return;
        }
        let chance = &mut self.chance;
        let kind = chance.below(16);
        set_current(&self.target, b"while an input was imagined");
        let input = match kind {
            0 => {
                let length = chance.below(64);
                Some(chance.bytes(length))
            }
            1..=5 => (self.target.imagine)(chance),
            _ => None,
        };
        let mut input = input.unwrap_or_else(|| match self.pool.is_empty() {
            true => Vec::new(),
            false => self.pool[chance.below(self.pool.len())].clone(),
        });
        if kind > 2 {
            mutate(chance, &mut input, &self.pool);
        }
        if self.play(&input, settings) {
            if self.kept < settings.keep && input.len() <= KEPT_MAX {
                self.kept += 1;
                if let Err(error) = corpus::add(&self.target, &input, "") {
                    panic!("the corpus cannot be written: {error}");
                }
            }
            if self.pool.len() >= POOL_MAX {
                let replaced = self.chance.below(POOL_MAX);
                self.pool.swap_remove(replaced);
            }
            self.pool.push(input);
        }
    }

    /// Feeds the target with this input. Whether it showed something new.
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
        match judge(&self.target, input) {
            Ok(shown) => {
                self.taken += u64::from(shown.taken);
                let known = self.seen.len();
                self.seen.extend(shown.features);
                self.seen.len() > known
            }
            Err(_) if self.failure.is_some() => false,
            Err(_) => {
                self.failure = Some(self.broken(input, settings));
                false
            }
        }
    }

    /// The report of an input that broke a law.
    fn broken(&self, input: &[u8], settings: &Settings) -> String {
        let target = &self.target;
        let input = shrink(target, input);
        let why = judge(target, &input).err().unwrap_or_default();
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
            ..=LONG => line.as_str(),
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

/// What is being judged: since when, whose, and the input.
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

/// Ends the process, with the input, when one takes so long that it will never end.
fn watch() {
    loop {
        std::thread::park_timeout(Duration::from_secs(1));
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, name, input)) = &*current
            && now() - *since > HANGS
        {
            let line: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!(
                "{name}: an input of {} bytes takes more than {HANGS:?}\n  {line}\n  replay: MEROS_FUZZ_ONLY='{name}' MEROS_FUZZ_INPUT='{line}' cargo test --test fuzz -- --nocapture",
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
    /// The words of a panic under judgement; `None` while nothing is judged.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic in a target is a finding and no news for the terminal.
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

/// Feeds the target; a panic is a broken law as well.
fn judge(target: &Target, input: &[u8]) -> Judged {
    PANIC.set(Some(String::new()));
    let judged = catch_unwind(AssertUnwindSafe(|| (target.judge)(input)));
    let words = PANIC.take().unwrap_or_default();
    judged.unwrap_or(Err(words))
}

/// A smaller input that breaks the target as well, if there is one.
fn shrink(target: &Target, input: &[u8]) -> Vec<u8> {
    let mut input = input.to_vec();
    let mut attempts = 0;
    let mut breaks = |candidate: &[u8]| {
        attempts += 1;
        (attempts <= SHRINK_MAX).then(|| judge(target, candidate).is_err())
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
