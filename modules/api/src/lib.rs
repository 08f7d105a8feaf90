//! The interface of each kind of module, and the `--modules` loader (DESIGN sections 6 to 8, SPEC 5.9).
//!
//! A module is an actor behind a name and [`Parameters`]. Each kind is one file: its messages, and the handle that its user holds.
//! A module's failure is a typed [`ModuleError`], never a panic or a stall of the service that uses it.
//!
//! # A module of your own
//!
//! What a module is at heart is a decision: here, how much of an agent may be lent out. The actor around it hears two messages
//! and remembers where usage comes from. How actors are written is told in [`runtime::guide`].
//!
//! ```
//! use meros_module_api as module_api;
//! use module_api::resource_estimator::{InitializeEstimator, Oversubscribable};
//! use module_api::{CurrentUsage, Fault, Parameters, Registry, ResourceEstimatorRef, UsageUnavailable};
//! use protocol::ResourceUsage;
//! use resources::{Resources, Revocable};
//! use runtime::prelude::*;
//! use runtime::rehearsal::rehearse;
//! use std::time::Duration;
//!
//! /// The decision: as many CPUs as there are, while nobody runs anything.
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
//!     fn hears(ears: &mut Ears<Self>) {
//!         ears.hear::<InitializeEstimator>(&[Role::Agent]);
//!         ears.hear::<Oversubscribable>(&[Role::Agent]);
//!     }
//! }
//! impl Handler<InitializeEstimator> for Idle {
//!     type Result = Result<(), Fault>;
//!     fn handle(&mut self, initialize: InitializeEstimator, ctx: &mut Context<Self>) -> Self::Result {
//!         if self.monitor.is_some() {
//!             return Err(Fault::InitializedTwice);
//!         }
//!         self.monitor = Some(ctx.node().refer(initialize.monitor));
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
//!         // It may answer at once, later or never: the agent is never blocked by the question.
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
//! /// Where the roof puts it on the shelf, under the name that operators give.
//! fn add_to(registry: &mut Registry) {
//!     registry.add_resource_estimator(&["idle"], |node, parameters| {
//!         parameters.only(&[])?; // an unknown parameter is refused by name
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
//! // Its test, with somebody who stands in for the agent's monitor.
//! struct Monitor;
//! impl Actor for Monitor { type Context = Context<Self>; }
//! impl Process for Monitor {
//!     fn hears(ears: &mut Ears<Self>) { ears.hear_local::<CurrentUsage>(); }
//! }
//! impl Handler<CurrentUsage> for Monitor {
//!     type Result = Result<ResourceUsage, UsageUnavailable>;
//!     fn handle(&mut self, _: CurrentUsage, _: &mut Context<Self>) -> Self::Result {
//!         Ok(ResourceUsage { total: "cpus:4".parse().unwrap(), executors: Vec::new() })
//!     }
//! }
//!
//! rehearse(|node| async move {
//!     let mut registry = Registry::new();
//!     add_to(&mut registry);
//!     let monitor = node.spawn("monitor", Monitor).unwrap().refer();
//!     let estimator = registry.resource_estimator(&node, "idle", &Parameters::none("idle")).unwrap();
//!     assert!(estimator.oversubscribable().await.is_err(), "it must be initialized first");
//!     estimator.initialize(monitor).await.unwrap();
//!     assert_eq!(estimator.oversubscribable().await.unwrap().cpus().as_f64(), 4.0);
//! });
//! ```
//!
//! The other kinds go the same way: [`qos_controller`] (which executors must yield), [`sorter`] (who is next) and [`allocator`] (who is
//! offered what). The crate `modules` has one of each to look at.

pub mod allocator;
pub mod demand;
pub mod error;
pub mod manifest;
pub mod parameters;
pub mod qos_controller;
pub mod registry;
pub mod resource_estimator;
pub mod sorter;
pub mod usage;

pub use allocator::AllocatorRef;
pub use error::{Fault, ModuleError, ModuleKind};
pub use manifest::{Manifest, ManifestError};
pub use parameters::Parameters;
pub use qos_controller::QosControllerRef;
pub use registry::Registry;
pub use resource_estimator::ResourceEstimatorRef;
pub use sorter::SorterRef;
pub use usage::{CurrentUsage, UsageUnavailable};
