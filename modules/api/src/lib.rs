//! The interface of each kind of module, and the loader of `--modules`.
//!
//! There are five kinds of modules:
//!
//! | kind | runs in | decides |
//! |---|---|---|
//! | [`allocator`] | master | which resources are offered to which framework |
//! | [`sorter`] | master | which role or framework is next |
//! | [`resource_estimator`] | agent | which resources the agent can lend |
//! | [`qos_controller`] | agent | which revocable executors must yield |
//! | [`isolator`] | agent | what the processes of a container can use and see |
//!
//! | module | contents |
//! |---|---|
//! | `demand` | compiled demands: the agents that a framework accepts in a role |
//! | `error` | errors of modules, one variant for each reaction of the caller |
//! | `grpc` | calls of a module in another process |
//! | `manifest` | the JSON of `--modules`, in Mesos' form |
//! | `parameters` | the parameters of a module |
//! | `registry` | the linked-in modules by name, with their factories |
//! | `serve` | serves modules from a program of its own |
//! | `usage` | the interface to the agent's usage data |
//! | `wire` | the interface to a module in another process |
//!
//! A module is an actor with a name and [`Parameters`]. The file of each kind contains its messages
//! and the handle through which a service uses it. A failed module results in a [`ModuleError`] for
//! the service, never in a panic. A request has a timeout, or may stay pending without blocking the
//! service.
//!
//! # Writing a module
//!
//! The core of a module is a decision: here, a function that returns the resources that an agent
//! can lend. The actor around it handles two messages and keeps the address of the usage monitor.
//! See [`runtime::guide`] for how to write actors.
//!
//! ```
//! use meros_module_api as module_api;
//! use module_api::resource_estimator::{InitializeEstimator, Oversubscribable};
//! use module_api::{CurrentUsage, Fault, Parameters, Registry};
//! use module_api::{ResourceEstimatorRef, UsageUnavailable};
//! use protocol::ResourceUsage;
//! use resources::{Resources, Revocable};
//! use runtime::prelude::*;
//! use runtime::testing::simulate;
//! use std::time::Duration;
//!
//! /// The decision: lend all resources while no executor runs.
//! fn idle(usage: &ResourceUsage) -> Resources {
//!     match usage.executors.is_empty() {
//!         true => usage.total.to_revocable(Revocable::Throttleable).unwrap_or_default(),
//!         false => Resources::default(),
//!     }
//! }
//!
//! /// The actor around it.
//! #[derive(Default)]
//! struct Idle { monitor: Option<ActorRef> }
//! impl Actor for Idle { type Context = Context<Self>; }
//! impl Process for Idle {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) {
//!         handlers.accept::<InitializeEstimator>(&[Role::Agent]);
//!         handlers.accept::<Oversubscribable>(&[Role::Agent]);
//!     }
//! }
//! impl Handler<InitializeEstimator> for Idle {
//!     type Result = Result<(), Fault>;
//!     fn handle(
//!         &mut self,
//!         message: InitializeEstimator,
//!         ctx: &mut Context<Self>,
//!     ) -> Self::Result {
//!         if self.monitor.is_some() {
//!             return Err(Fault::InitializedTwice);
//!         }
//!         self.monitor = Some(ctx.node().refer(message.monitor));
//!         Ok(())
//!     }
//! }
//! impl Handler<Oversubscribable> for Idle {
//!     type Result = Reply<Result<Resources, Fault>>;
//!     fn handle(&mut self, _: Oversubscribable, ctx: &mut Context<Self>) -> Self::Result {
//!         let (promise, reply) = promise();
//!         let Some(monitor) = &self.monitor else {
//!             promise.answer(Err(Fault::NotInitialized));
//!             return reply;
//!         };
//!         // The reply may come at once, later or never; the agent does not block on it.
//!         let usage = monitor.ask(CurrentUsage, Duration::from_secs(5));
//!         ctx.then(usage, |_, usage, _| promise.answer(match usage {
//!             Ok(Ok(usage)) => Ok(idle(&usage)),
//!             Ok(Err(unavailable)) => Err(Fault::NoUsage { reason: unavailable.reason }),
//!             Err(error) => Err(Fault::NoUsage { reason: error.to_string() }),
//!         }));
//!         reply
//!     }
//! }
//!
//! /// Registers the module under the name that operators pass to `--resource_estimator`.
//! fn add_to(registry: &mut Registry) {
//!     registry.add_resource_estimator(&["idle"], |node, parameters| {
//!         parameters.only(&[])?; // rejects unknown parameters
//!         let policy = Supervision::Restart {
//!             backoff: Duration::from_secs(1), backoff_max: Duration::from_secs(60), limit: 10,
//!         };
//!         let actor = node.supervise("resource_estimator", policy, Idle::default);
//!         let actor = actor.map_err(|error| module_api::ModuleError::NotStarted {
//!             kind: module_api::ModuleKind::ResourceEstimator,
//!             name: "idle".to_owned(),
//!             reason: error.to_string(),
//!         })?;
//!         Ok(ResourceEstimatorRef::new(actor.refer()))
//!     });
//! }
//!
//! // A test with a replacement for the agent's monitor.
//! struct Monitor;
//! impl Actor for Monitor { type Context = Context<Self>; }
//! impl Process for Monitor {
//!     fn accepts(handlers: &mut RemoteHandlers<Self>) { handlers.accept_local::<CurrentUsage>(); }
//! }
//! impl Handler<CurrentUsage> for Monitor {
//!     type Result = Result<ResourceUsage, UsageUnavailable>;
//!     fn handle(&mut self, _: CurrentUsage, _: &mut Context<Self>) -> Self::Result {
//!         Ok(ResourceUsage { total: "cpus:4".parse().unwrap(), executors: Vec::new() })
//!     }
//! }
//!
//! simulate(|node| async move {
//!     let mut registry = Registry::new();
//!     add_to(&mut registry);
//!     let monitor = node.spawn("monitor", Monitor).unwrap().refer();
//!     let parameters = Parameters::none("idle");
//!     let estimator = registry.resource_estimator(&node, "idle", &parameters).unwrap();
//!     assert!(estimator.oversubscribable().await.is_err(), "it must be initialized first");
//!     estimator.initialize(monitor).await.unwrap();
//!     assert_eq!(estimator.oversubscribable().await.unwrap().cpus().as_f64(), 4.0);
//! });
//! ```
//!
//! The other kinds are written in the same way; the crate `modules` has examples of each.

pub mod allocator;
pub mod demand;
pub mod error;
pub mod grpc;
pub mod isolator;
pub mod manifest;
pub mod parameters;
pub mod qos_controller;
pub mod registry;
pub mod resource_estimator;
pub mod serve;
pub mod sorter;
pub mod usage;
pub mod wire;

pub use allocator::AllocatorRef;
pub use error::{Fault, ModuleError, ModuleKind};
pub use isolator::IsolatorRef;
pub use manifest::{ForeignModule, Manifest, ManifestError};
pub use parameters::Parameters;
pub use qos_controller::QosControllerRef;
pub use registry::Registry;
pub use resource_estimator::ResourceEstimatorRef;
pub use sorter::SorterRef;
pub use usage::{CurrentUsage, UsageUnavailable};
