//! The actor that has the process of a module: starts it, asks it, and starts it again when it has
//! ended, hangs, or its executable was replaced.
//!
//! Handles [`Question`]s from the actor of the kind. Each is answered within seconds, be it with
//! the reason why there is no answer, so a module that is down delays nobody for long. Knows the
//! first call of a module; the other messages pass through.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use module_api::grpc::{CallError, Client};
use module_api::wire::{self, API_VERSION, CALL_PATIENCE, START_PATIENCE};
use module_api::{ModuleKind, Parameters};
use runtime::Instant;
use runtime::prelude::*;
use v1::protobuf;
use v1::schema::Parameter;
use v1::schema::agent::module as schema;

use super::Counts;
use super::process::{ModuleProcess, Starter, remove_leftovers};

/// The delay of the first restart, doubled after each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// The longest delay of a restart.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A module that was up for so long begins again with the first delay.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Interval of checks whether the executable was replaced.
const UPGRADE_INTERVAL: Duration = Duration::from_secs(5);
/// Questions that wait for a module to come up; beyond this, the oldest are dropped.
const WAITING_MAX: usize = 16;

/// Calls a method of the module. The error is the reason why there is no answer.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<Vec<u8>, String>")]
pub(super) struct Question {
    /// The method.
    pub(super) path: &'static str,
    /// The encoded request.
    pub(super) message: Vec<u8>,
}

type Answer = Result<Vec<u8>, String>;

/// How a module is started.
#[derive(Clone, Debug)]
pub(super) struct ModulePlan {
    pub(super) kind: ModuleKind,
    /// Its name and parameters.
    pub(super) parameters: Parameters,
    pub(super) program: PathBuf,
    pub(super) starter: Option<Starter>,
    pub(super) counts: Arc<Counts>,
}

impl ModulePlan {
    fn first_call(&self) -> schema::InitializeRequest {
        let parameter = |(key, value): (&str, &str)| Parameter {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        schema::InitializeRequest {
            api_version: API_VERSION,
            kind: wire_kind(self.kind),
            name: self.parameters.module().to_owned(),
            parameters: self.parameters.iter().map(parameter).collect(),
        }
    }

    /// Checks the answer to the first call. The error is what is wrong.
    fn check(&self, answer: &[u8]) -> Result<schema::InitializeResponse, String> {
        let answer: schema::InitializeResponse =
            wire::read(answer).map_err(|bad| format!("its first answer is invalid: {bad}"))?;
        if answer.api_version != API_VERSION {
            return Err(format!(
                "it has version {} of the module API: expected {API_VERSION}",
                answer.api_version
            ));
        }
        if answer.kind != wire_kind(self.kind) {
            let found = answer.kind.name();
            return Err(format!(
                "it is a module of the kind {found}: expected {}",
                self.kind
            ));
        }
        let name = self.parameters.module();
        match answer.name == name {
            true => Ok(answer),
            false => {
                let found: String = answer.name.chars().take(80).collect();
                Err(format!("it is the module `{found}`: expected `{name}`"))
            }
        }
    }
}

fn wire_kind(kind: ModuleKind) -> schema::ModuleKind {
    match kind {
        ModuleKind::ResourceEstimator => schema::ModuleKind::ResourceEstimator,
        ModuleKind::QosController => schema::ModuleKind::QosController,
        // Their modules are linked in.
        ModuleKind::Allocator | ModuleKind::Sorter | ModuleKind::Isolator => {
            schema::ModuleKind::Unknown
        }
    }
}

/// The delays of restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The module was up for so long.
    fn note_up(&mut self, was_up: Duration) {
        if was_up >= STABLE_AFTER {
            self.failures = 0;
        }
    }

    /// The delay after a failure.
    fn after_failure(&mut self) -> Duration {
        let delay = BACKOFF.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        delay.min(BACKOFF_MAX)
    }
}

/// Distinguishes an executable from its successor at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// `None` if there is no file.
    fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            file: (data.dev(), data.ino()),
            size: data.size(),
            changed: (data.mtime(), data.mtime_nsec()),
        })
    }
}

enum ModuleState {
    /// Between a start and the answer to the first call, or between an end and its cause.
    Starting,
    Serving {
        process: ModuleProcess,
        client: Client,
        since: Instant,
    },
    /// Ended; the timer starts it again.
    Down(TimerHandle),
}

/// The actor.
pub(super) struct Module {
    plan: ModulePlan,
    state: ModuleState,
    /// Counts the processes, so that the end of an earlier one is not taken for that of this one.
    run: u64,
    version: Option<FileVersion>,
    backoff: Backoff,
    waiting: VecDeque<(Question, Promise<Answer>)>,
    /// Whether the log says that it is down.
    is_reported: bool,
}

impl Module {
    pub(super) fn new(plan: ModulePlan) -> Self {
        Self {
            plan,
            state: ModuleState::Starting,
            run: 0,
            version: None,
            backoff: Backoff::default(),
            waiting: VecDeque::new(),
            is_reported: false,
        }
    }

    fn name(&self) -> &str {
        self.plan.parameters.module()
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        self.state = ModuleState::Starting;
        self.run += 1;
        self.plan.counts.starts.fetch_add(1, Ordering::Relaxed);
        // Still set after a panic of the actor.
        self.plan.counts.is_up.store(false, Ordering::Relaxed);
        self.version = FileVersion::of(&self.plan.program);
        let started = ModuleProcess::start(&self.plan.program, self.plan.starter.as_ref());
        let mut process = match started {
            Ok(process) => process,
            Err(error) => return self.failed(None, format!("it cannot be started: {error}"), ctx),
        };
        let clock = ctx.clock().clone();
        let connecting = async move {
            let connected = clock.timeout(START_PATIENCE, async {
                let stream = process.connect(&clock).await?;
                Client::connect(stream)
                    .await
                    .map_err(|error| error.to_string())
            });
            let connected = connected.await;
            let late = |_| Err(format!("it did not listen within {START_PATIENCE:?}"));
            let connected = connected.unwrap_or_else(late);
            (process, connected)
        };
        ctx.then(
            connecting,
            |this, (process, connected), ctx| match connected {
                Err(reason) => this.failed(Some(process), reason, ctx),
                Ok((client, carried)) => {
                    let run = this.run;
                    ctx.then(carried, move |this, reason, ctx| {
                        this.lost(run, reason, ctx)
                    });
                    this.initialize(process, client, ctx);
                }
            },
        );
    }

    fn initialize(&mut self, process: ModuleProcess, client: Client, ctx: &mut Context<Self>) {
        let request = protobuf::write(&self.plan.first_call());
        let (clock, calling) = (ctx.clock().clone(), client.clone());
        let asked = async move {
            let call = calling.call(wire::INITIALIZE, &request);
            let answer = clock.timeout(START_PATIENCE, call).await;
            let late = |_| Err(CallError::Broken(no_answer(START_PATIENCE)));
            answer.unwrap_or_else(late)
        };
        ctx.then(asked, move |this, answer, ctx| {
            let answer = answer.map_err(|error| error.to_string());
            match answer.and_then(|answer| this.plan.check(&answer)) {
                Err(reason) => this.failed(Some(process), reason, ctx),
                Ok(answer) => {
                    let version = answer.version.unwrap_or_default();
                    let (module, kind) = (this.name(), this.plan.kind);
                    tracing::info!(module, %kind, version, "the module is up");
                    this.is_reported = false;
                    this.plan.counts.is_up.store(true, Ordering::Relaxed);
                    let since = ctx.clock().now();
                    this.state = ModuleState::Serving {
                        process,
                        client,
                        since,
                    };
                    for (question, promise) in std::mem::take(&mut this.waiting) {
                        this.ask(question, promise, ctx);
                    }
                }
            }
        });
    }

    /// Asks now, or once the module is up.
    fn ask(&mut self, question: Question, promise: Promise<Answer>, ctx: &mut Context<Self>) {
        let ModuleState::Serving { client, .. } = &self.state else {
            self.waiting.retain(|(_, promise)| promise.is_awaited());
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back((question, promise));
            return;
        };
        let (clock, client, run) = (ctx.clock().clone(), client.clone(), self.run);
        let asked = async move {
            let call = client.call(question.path, &question.message);
            let answer = clock.timeout(CALL_PATIENCE, call).await;
            // It hangs: as dead as one that has ended.
            let late = |_| Err(CallError::Broken(no_answer(CALL_PATIENCE)));
            answer.unwrap_or_else(late)
        };
        ctx.then(asked, move |this, answer, ctx| {
            if let Err(CallError::Broken(reason)) = &answer {
                this.lost(run, reason.clone(), ctx);
            }
            promise.answer(answer.map_err(|error| error.to_string()));
        });
    }

    /// The connection of this process is over.
    fn lost(&mut self, run: u64, reason: String, ctx: &mut Context<Self>) {
        if run != self.run || !matches!(self.state, ModuleState::Serving { .. }) {
            return;
        }
        if let ModuleState::Serving { process, since, .. } =
            std::mem::replace(&mut self.state, ModuleState::Starting)
        {
            self.backoff.note_up(ctx.clock().now() - since);
            self.failed(Some(process), reason, ctx);
        }
    }

    /// Kills the process group, and starts another process later.
    fn failed(&mut self, process: Option<ModuleProcess>, reason: String, ctx: &mut Context<Self>) {
        self.plan.counts.is_up.store(false, Ordering::Relaxed);
        let stopped = ctx
            .node()
            .blocking(move || process.and_then(ModuleProcess::stop));
        ctx.then(stopped, move |this, end, ctx| {
            // Its end explains more than that of its connection.
            let reason = end.ok().flatten().unwrap_or(reason);
            let (module, kind) = (this.name(), this.plan.kind);
            match this.is_reported {
                false => tracing::warn!(module, %kind, reason, "the module is down; restarting it"),
                true => tracing::debug!(module, %kind, reason, "the module is still down"),
            }
            this.is_reported = true;
            let delay = this.backoff.after_failure();
            this.state = ModuleState::Down(ctx.after(delay, Self::start));
        });
    }

    /// Starts the module anew if its executable was replaced. Another version may not fail as this
    /// one, so it does not wait for a restart's delay.
    fn upgrade(&mut self, found: Option<FileVersion>, ctx: &mut Context<Self>) {
        if found.is_none() || found == self.version || matches!(self.state, ModuleState::Starting) {
            return;
        }
        let module = self.name();
        tracing::info!(
            module,
            "the module's executable was replaced; restarting it"
        );
        match std::mem::replace(&mut self.state, ModuleState::Starting) {
            ModuleState::Serving { process, .. } => {
                let stopped = ctx.node().blocking(move || process.stop());
                ctx.then(stopped, |_, _, _| {}); // Its successor need not wait for that.
            }
            ModuleState::Down(timer) => ctx.cancel(timer),
            ModuleState::Starting => {}
        }
        self.backoff = Backoff::default();
        self.start(ctx);
    }
}

fn no_answer(within: Duration) -> String {
    format!("it gave no answer within {within:?}")
}

impl Actor for Module {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let now = ctx.clock().wall();
        let removed = ctx.node().blocking(move || remove_leftovers(now));
        ctx.then(removed, |_, _, _| {});
        self.start(ctx);
        ctx.every(UPGRADE_INTERVAL, |this, ctx| {
            let program = this.plan.program.clone();
            let found = ctx.node().blocking(move || FileVersion::of(&program));
            ctx.then(found, |this, found, ctx| {
                this.upgrade(found.ok().flatten(), ctx);
            });
        });
    }
}

impl Process for Module {}

impl Handler<Question> for Module {
    type Result = Reply<Answer>;

    fn handle(&mut self, question: Question, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.ask(question, promise, ctx);
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_restarts_double_up_to_a_maximum() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..10)
            .map(|_| backoff.after_failure().as_millis())
            .collect();
        assert_eq!(
            delays,
            [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]
        );
        let delay = (0..100).map(|_| backoff.after_failure()).last();
        assert_eq!(delay, Some(BACKOFF_MAX));
        backoff.note_up(Duration::from_secs(1));
        assert_eq!(backoff.after_failure(), BACKOFF_MAX);
        backoff.note_up(STABLE_AFTER);
        assert_eq!(backoff.after_failure(), BACKOFF);
    }

    #[test]
    fn first_answer_is_checked() {
        let plan = ModulePlan {
            kind: ModuleKind::QosController,
            parameters: Parameters::none("mine").with("key", "value"),
            program: PathBuf::from("/mine"),
            starter: None,
            counts: Arc::default(),
        };
        let request = plan.first_call();
        assert_eq!(request.kind, schema::ModuleKind::QosController);
        assert_eq!(request.parameters[0].value, "value");
        let good = schema::InitializeResponse {
            api_version: API_VERSION,
            kind: schema::ModuleKind::QosController,
            name: "mine".to_owned(),
            version: None,
        };
        let check = |answer: &schema::InitializeResponse| plan.check(&protobuf::write(answer));
        assert_eq!(check(&good), Ok(good.clone()));
        let mut bad = good.clone();
        bad.api_version = 2;
        let error = check(&bad).unwrap_err();
        assert_eq!(error, "it has version 2 of the module API: expected 1");
        let mut bad = good.clone();
        bad.kind = schema::ModuleKind::ResourceEstimator;
        let expected = "it is a module of the kind RESOURCE_ESTIMATOR: expected QoS controller";
        assert_eq!(check(&bad).unwrap_err(), expected);
        let mut bad = good;
        bad.name = "yours".to_owned();
        let expected = "it is the module `yours`: expected `mine`";
        assert_eq!(check(&bad).unwrap_err(), expected);
        assert!(plan.check(b"\xff").unwrap_err().contains("is invalid"));
    }
}
