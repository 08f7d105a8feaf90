//! Serves modules from a program of its own, which an agent starts: the other side of
//! `--modules` with an executable as `file`.
//!
//! ```no_run
//! use meros_module_api::serve::{Modules, ResourceUsage, Revocable};
//!
//! fn main() -> std::process::ExitCode {
//!     Modules::new(env!("CARGO_PKG_VERSION"))
//!         .resource_estimator("idle", |parameters| {
//!             parameters.only(&[])?; // refuses unknown parameters
//!             Ok(|usage: &ResourceUsage| match usage.executors.is_empty() {
//!                 true => usage.total.to_revocable(Revocable::Throttleable).unwrap_or_default(),
//!                 false => Default::default(),
//!             })
//!         })
//!         .run()
//! }
//! ```
//!
//! One process serves one module, which the agent names in its first call. The process ends with
//! its connection, or when its standard input is closed, which the end of the agent does. A module
//! keeps its state in memory: after a crash it is started again without it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

pub use protocol::{QosCorrection, ResourceUsage};
pub use resources::{Resources, Revocable};
use tokio::net::UnixListener;
use v1::schema::agent::module::{
    CorrectionsRequest, CorrectionsResponse, EstimateRequest, EstimateResponse, InitializeRequest,
    InitializeResponse, ModuleKind,
};
use v1::{convert, protobuf, schema};

use crate::error::ModuleError;
use crate::grpc::{self, Status};
use crate::parameters::Parameters;
use crate::wire::{self, API_VERSION};

type Estimator = Box<dyn FnMut(&ResourceUsage) -> Resources>;
type Controller = Box<dyn FnMut(&ResourceUsage) -> Vec<QosCorrection>>;
type Factory<M> = Box<dyn Fn(&Parameters) -> Result<M, ModuleError>>;

/// The modules of a program.
pub struct Modules {
    version: String,
    estimators: BTreeMap<String, Factory<Estimator>>,
    controllers: BTreeMap<String, Factory<Controller>>,
    /// The module of this process.
    chosen: RefCell<Option<Chosen>>,
}

enum Chosen {
    Estimator(Estimator),
    Controller(Controller),
}

impl Modules {
    /// No modules yet. The version of the program is for logs.
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            estimators: BTreeMap::new(),
            controllers: BTreeMap::new(),
            chosen: RefCell::new(None),
        }
    }

    /// Adds a resource estimator: a function of the agent's usage that returns the resources that
    /// may be lent in addition to those already lent, all revocable.
    #[must_use]
    pub fn resource_estimator<E>(
        mut self,
        name: &str,
        make: impl Fn(&Parameters) -> Result<E, ModuleError> + 'static,
    ) -> Self
    where
        E: FnMut(&ResourceUsage) -> Resources + 'static,
    {
        let make = move |given: &Parameters| Ok(Box::new(make(given)?) as Estimator);
        self.estimators.insert(name.to_owned(), Box::new(make));
        self
    }

    /// Adds a QoS controller: a function of the agent's usage that returns the corrections that are
    /// needed now. Repeating one is harmless.
    #[must_use]
    pub fn qos_controller<C>(
        mut self,
        name: &str,
        make: impl Fn(&Parameters) -> Result<C, ModuleError> + 'static,
    ) -> Self
    where
        C: FnMut(&ResourceUsage) -> Vec<QosCorrection> + 'static,
    {
        let make = move |given: &Parameters| Ok(Box::new(make(given)?) as Controller);
        self.controllers.insert(name.to_owned(), Box::new(make));
        self
    }

    /// Serves the module that the agent chooses, until the agent ends it: the whole `main` of a
    /// module.
    pub fn run(self) -> ExitCode {
        let Some(socket) = std::env::var_os(wire::SOCKET) else {
            let names: Vec<&str> = self.names().collect();
            eprintln!(
                "this program serves modules of Meros ({}): an agent starts it, with its path as `file` in --modules",
                names.join(", ")
            );
            return ExitCode::from(2);
        };
        // A function that never returns must not outlive the agent, so this is a thread.
        std::thread::spawn(|| {
            end_with(std::io::stdin());
            std::process::exit(0)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let served = runtime
            .map_err(|error| error.to_string())
            .and_then(|runtime| runtime.block_on(self.serve(Path::new(&socket))));
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("cannot serve {}: {reason}", Path::new(&socket).display());
                ExitCode::FAILURE
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.estimators.keys().chain(self.controllers.keys());
        names.map(String::as_str)
    }

    async fn serve(&self, socket: &Path) -> Result<(), String> {
        let listener = UnixListener::bind(socket).map_err(|error| error.to_string())?;
        let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let served = grpc::serve(stream, |path, message| self.answer(path, message));
        served.await.map_err(|error| error.to_string())
    }

    /// The answer to one call.
    pub fn answer(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        if path == wire::INITIALIZE {
            return self.initialize(&read(message)?);
        }
        let mut chosen = self.chosen.borrow_mut();
        match (path, &mut *chosen) {
            (wire::ESTIMATE, Some(Chosen::Estimator(estimator))) => {
                let estimate = estimator(&usage(&read::<EstimateRequest>(message)?.usage)?);
                Ok(protobuf::write(&EstimateResponse {
                    oversubscribable: convert::write_resources(&estimate),
                }))
            }
            (wire::CORRECTIONS, Some(Chosen::Controller(controller))) => {
                let corrections = controller(&usage(&read::<CorrectionsRequest>(message)?.usage)?);
                Ok(protobuf::write(&CorrectionsResponse {
                    corrections: corrections.iter().map(Into::into).collect(),
                }))
            }
            _ => Err(Status::new(
                Status::UNIMPLEMENTED,
                format!("the module has no method {path}"),
            )),
        }
    }

    fn initialize(&self, request: &InitializeRequest) -> Result<Vec<u8>, Status> {
        let invalid = |reason: String| Status::new(Status::INVALID_ARGUMENT, reason);
        let name = request.name.as_str();
        let mut given = Parameters::none(name);
        for parameter in &request.parameters {
            given = given.with(&parameter.key, &parameter.value);
        }
        let missing = |kind: &str| {
            let names: Vec<&str> = self.names().collect();
            let names = names.join(", ");
            invalid(format!(
                "the program has no {kind} called `{name}`: expected one of {names}"
            ))
        };
        let chosen = match request.kind {
            ModuleKind::ResourceEstimator => {
                let make = self.estimators.get(name);
                make.ok_or_else(|| missing("resource estimator"))?(&given).map(Chosen::Estimator)
            }
            ModuleKind::QosController => {
                let make = self.controllers.get(name);
                make.ok_or_else(|| missing("QoS controller"))?(&given).map(Chosen::Controller)
            }
            ModuleKind::Unknown => return Err(missing("module of that kind")),
        };
        let chosen = chosen.map_err(|error| invalid(error.to_string()))?;
        *self.chosen.borrow_mut() = Some(chosen);
        Ok(protobuf::write(&InitializeResponse {
            api_version: API_VERSION,
            kind: request.kind,
            name: request.name.clone(),
            version: Some(self.version.clone()),
        }))
    }
}

/// Blocks until this input is closed.
fn end_with(mut input: impl Read) {
    let mut ignored = [0; 64];
    loop {
        match input.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn read<M: v1::Message + Default>(message: &[u8]) -> Result<M, Status> {
    wire::read(message).map_err(|bad| Status::new(Status::INVALID_ARGUMENT, bad.to_string()))
}

fn usage(usage: &schema::ResourceUsage) -> Result<ResourceUsage, Status> {
    let usage = ResourceUsage::try_from(usage);
    usage.map_err(|bad| Status::new(Status::INVALID_ARGUMENT, bad.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let modules = Modules::new("7").resource_estimator("all", |given| {
            given.only(&[])?;
            Ok(|usage: &ResourceUsage| {
                usage
                    .total
                    .to_revocable(Revocable::Throttleable)
                    .unwrap_or_default()
            })
        });
        modules.qos_controller("none", |_| Ok(|_: &ResourceUsage| Vec::new()))
    }

    fn initialize(
        modules: &Modules,
        kind: ModuleKind,
        name: &str,
        key: &str,
    ) -> Result<(), String> {
        let request = InitializeRequest {
            api_version: API_VERSION,
            kind,
            name: name.to_owned(),
            parameters: (key.split_terminator(','))
                .map(|key| schema::Parameter {
                    key: key.to_owned(),
                    value: "1".to_owned(),
                })
                .collect(),
        };
        let answer = modules.answer(wire::INITIALIZE, &protobuf::write(&request));
        answer.map(drop).map_err(|status| status.message)
    }

    #[test]
    fn first_call_chooses_the_module() {
        let modules = modules();
        let request = EstimateRequest {
            usage: (&ResourceUsage {
                total: Resources::parse("cpus:4").unwrap(),
                ..ResourceUsage::default()
            })
                .into(),
        };
        let estimate = || modules.answer(wire::ESTIMATE, &protobuf::write(&request));
        assert_eq!(estimate().unwrap_err().code, Status::UNIMPLEMENTED);
        let kind = ModuleKind::ResourceEstimator;
        assert_eq!(initialize(&modules, kind, "all", ""), Ok(()));
        let answer = wire::read::<EstimateResponse>(&estimate().unwrap()).unwrap();
        let lent = convert::estimate(&answer).unwrap();
        assert_eq!(lent.revocable().cpus().as_f64(), 4.0);
        let kind = ModuleKind::QosController;
        assert_eq!(initialize(&modules, kind, "none", ""), Ok(()));
        assert_eq!(estimate().unwrap_err().code, Status::UNIMPLEMENTED);
    }

    #[test]
    fn invalid_first_calls_are_refused_with_a_reason() {
        let refused = |kind, name, key| initialize(&modules(), kind, name, key).unwrap_err();
        assert_eq!(
            refused(ModuleKind::QosController, "all", ""),
            "the program has no QoS controller called `all`: expected one of all, none"
        );
        assert_eq!(
            refused(ModuleKind::ResourceEstimator, "all", "size"),
            "module `all`, parameter `size` is given: expected no parameters"
        );
        let garbage = modules().answer(wire::INITIALIZE, b"\xff\xff").unwrap_err();
        assert_eq!(garbage.code, Status::INVALID_ARGUMENT);
    }
}
