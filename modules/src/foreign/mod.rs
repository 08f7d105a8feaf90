//! Modules in processes of their own: resource estimators and QoS controllers that are executables.
//!
//! An actor starts and supervises the process of a module ([`module`]); one of the kind's own asks
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
use runtime::prelude::*;

use controller::ForeignController;
use estimator::ForeignEstimator;
use module::{Module, ModulePlan, Question};

/// How long a question may take, with the time in which a module that is down may come up. The
/// module actor answers before, so this bounds only an actor that is restarted.
const QUESTION_PATIENCE: Duration = wire::CALL_PATIENCE.saturating_add(Duration::from_secs(1));

/// Counters of a module.
#[derive(Debug, Default)]
struct Counts {
    /// How often its process has been started again.
    restarts: AtomicU64,
    /// Whether it can be asked now.
    is_up: AtomicBool,
}

/// Adds modules that are executables under their names. Nothing is started before a service
/// chooses one. Whether it is an estimator or a controller is checked by its first call.
pub fn register(registry: &mut Registry, foreign: Vec<ForeignModule>, starter: Option<&Starter>) {
    for ForeignModule { name, program } in foreign {
        let plan = move |kind, starter: Option<Starter>, counts: &Arc<Counts>| {
            let (program, counts) = (program.clone(), counts.clone());
            move |given: &Parameters| ModulePlan {
                kind,
                parameters: given.clone(),
                program: program.clone(),
                starter: starter.clone(),
                counts: counts.clone(),
            }
        };
        let counts = Arc::<Counts>::default();
        let of = plan(ModuleKind::ResourceEstimator, starter.cloned(), &counts);
        registry.add_resource_estimator(&[&name], move |node, given| {
            let (kind, module) = (ModuleKind::ResourceEstimator, start(node, of(given))?);
            let make = move || ForeignEstimator::new(module.clone());
            let actor = crate::supervise(node, kind, "resource_estimator", make)?;
            Ok(ResourceEstimatorRef::new(actor))
        });
        let of = plan(ModuleKind::QosController, starter.cloned(), &counts);
        registry.add_qos_controller(&[&name], move |node, given| {
            let (kind, module) = (ModuleKind::QosController, start(node, of(given))?);
            let make = move || ForeignController::new(module.clone());
            let actor = crate::supervise(node, kind, "qos_controller", make)?;
            Ok(QosControllerRef::new(actor))
        });
        registry.add_counters(move || {
            let up = u8::from(counts.is_up.load(Ordering::Relaxed));
            let restarts = counts.restarts.load(Ordering::Relaxed);
            BTreeMap::from([
                (format!("modules/{name}/up"), f64::from(up)),
                (format!("modules/{name}/restarts"), restarts as f64),
            ])
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
                tracing::warn!(%kind, reason, "no answer of the module; going on without it");
            }
            Ok(_) if was_failing => tracing::info!(%kind, "the module answers again"),
            _ => {}
        }
        answer.ok()
    }
}
