//! Modules in processes of their own: resource estimators and QoS controllers that are executables.
//!
//! An actor starts and supervises the process of a module (`module`); one of the kind's own asks
//! it. So the agent sees an estimator or a controller as any other. While the module is down or
//! gives no usable answers, the agent goes on without: nothing more is lent, nothing is corrected.
//!
//! | module | contents |
//! |---|---|
//! | `controller` | a QoS controller in another process |
//! | `estimator` | a resource estimator in another process |
//! | `module` | starts the process again after a delay, and asks it |
//! | `process` | the process and its socket |

mod controller;
mod estimator;
mod module;
mod process;

pub use process::Starter;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use module_api::{
    ForeignModule, ModuleError, ModuleKind, Parameters, QosControllerRef, Registry,
    ResourceEstimatorRef, wire,
};
use protocol::ResourceUsage;
use runtime::prelude::*;
use v1::schema;

use controller::ForeignController;
use estimator::ForeignEstimator;
use module::{Module, ModulePlan, Question};

/// How long a question may take, with the time in which a module that is down may come up. The
/// module actor answers before, so this bounds only an actor that is restarted.
const QUESTION_PATIENCE: Duration = wire::CALL_PATIENCE.saturating_add(Duration::from_secs(1));

/// Counters of a module of one kind.
#[derive(Debug, Default)]
struct Counts {
    /// How often its process has been started.
    starts: AtomicU64,
    /// Whether it can be asked now.
    is_up: AtomicBool,
}

impl Counts {
    /// The counters, once the module has been chosen.
    fn by_name(&self, kind: &str, name: &str) -> BTreeMap<String, f64> {
        let Some(restarts) = self.starts.load(Ordering::Relaxed).checked_sub(1) else {
            return BTreeMap::new();
        };
        let up = u8::from(self.is_up.load(Ordering::Relaxed));
        BTreeMap::from([
            (format!("modules/{kind}/{name}/up"), f64::from(up)),
            (format!("modules/{kind}/{name}/restarts"), restarts as f64),
        ])
    }
}

/// Adds modules that are executables under their names. Nothing is started before a service
/// chooses one. Whether it is an estimator or a controller is checked by its first call.
pub fn register(registry: &mut Registry, foreign: Vec<ForeignModule>, starter: Option<&Starter>) {
    for ForeignModule { name, program } in foreign {
        let mut plan = |kind, starter: Option<Starter>, label: &'static str| {
            let (program, counts) = (program.clone(), Arc::<Counts>::default());
            let (name, counted) = (name.clone(), counts.clone());
            registry.add_counters(move || counted.by_name(label, &name));
            move |given: &Parameters| ModulePlan {
                kind,
                parameters: given.clone(),
                program: program.clone(),
                starter: starter.clone(),
                counts: counts.clone(),
            }
        };
        let (estimator, controller) = ("resource_estimator", "qos_controller");
        let of = plan(ModuleKind::ResourceEstimator, starter.cloned(), estimator);
        let of_controller = plan(ModuleKind::QosController, starter.cloned(), controller);
        registry.add_resource_estimator(&[&name], move |node, given| {
            let (kind, module) = (ModuleKind::ResourceEstimator, start(node, of(given))?);
            let make = move || ForeignEstimator::new(module.clone());
            let actor = crate::supervise(node, kind, estimator, make)?;
            Ok(ResourceEstimatorRef::new(actor))
        });
        registry.add_qos_controller(&[&name], move |node, given| {
            let (kind, module) = (
                ModuleKind::QosController,
                start(node, of_controller(given))?,
            );
            let make = move || ForeignController::new(module.clone());
            let actor = crate::supervise(node, kind, controller, make)?;
            Ok(QosControllerRef::new(actor))
        });
    }
}

/// Starts the actor that has the module's process, on the thread of its kind.
fn start(node: &Node, plan: ModulePlan) -> Result<Handle<Module>, ModuleError> {
    let kind = plan.kind;
    let name = match kind {
        ModuleKind::QosController => "qos_controller_module",
        _ => "resource_estimator_module",
    };
    let make = move || Module::new(plan.clone());
    let started = node.supervise(name, crate::SUPERVISION, make);
    started.map_err(|error| ModuleError::NotStarted {
        kind,
        name: name.to_owned(),
        reason: error.to_string(),
    })
}

/// Asks a module. The error is the reason why it has no answer.
async fn ask(
    module: &Handle<Module>,
    path: &'static str,
    message: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let asked = module.ask(Question { path, message }, QUESTION_PATIENCE);
    asked.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The usage as a module gets it: without the statistics of block devices, which are long.
fn shown(mut usage: ResourceUsage) -> schema::ResourceUsage {
    for executor in &mut usage.executors {
        if let Some(statistics) = &mut executor.statistics {
            statistics.blkio.clear();
        }
    }
    (&usage).into()
}

/// Whether the last answer of a module was usable. Logs the changes.
#[derive(Debug, Default)]
struct Health {
    is_failing: bool,
}

impl Health {
    /// The answer, if there is one.
    fn judge<T>(&mut self, kind: ModuleKind, answer: Result<T, String>) -> Option<T> {
        let was_failing = std::mem::replace(&mut self.is_failing, answer.is_err());
        match &answer {
            Err(reason) if !was_failing => {
                tracing::warn!(%kind, reason, "module gives no answer");
            }
            Ok(_) if was_failing => tracing::info!(%kind, "module answers again"),
            _ => {}
        }
        answer.ok()
    }
}
