//! Registry: the linked-in modules by name, with their factories.
//!
//! The binary builds it once and passes it to the services, which thus never name a concrete
//! module. It holds factories only; the node owns the started actors.

use std::collections::BTreeMap;
use std::sync::Arc;

use runtime::Node;

use crate::allocator::AllocatorRef;
use crate::error::{ModuleError, ModuleKind};
use crate::isolator::IsolatorRef;
use crate::manifest::Manifest;
use crate::parameters::Parameters;
use crate::qos_controller::QosControllerRef;
use crate::resource_estimator::ResourceEstimatorRef;
use crate::sorter::SorterRef;

/// Starts one module on a node.
pub type Factory<R> = dyn Fn(&Node, &Parameters) -> Result<R, ModuleError> + Send + Sync;

/// Starts an allocator that uses the given sorter, which is already running.
pub type AllocatorFactory =
    dyn Fn(&Node, SorterRef, &Parameters) -> Result<AllocatorRef, ModuleError> + Send + Sync;

/// Starts an isolator. It gets those of the operator's names that are its own.
pub type IsolatorFactory =
    dyn Fn(&Node, &[&str], &Parameters) -> Result<IsolatorRef, ModuleError> + Send + Sync;

/// Counters by name.
type Counters = dyn Fn() -> BTreeMap<String, f64> + Send + Sync;

/// The modules of one kind, each under one or more names.
struct ModuleTable<F: ?Sized> {
    kind: ModuleKind,
    /// From each name to the module's first name.
    names: BTreeMap<String, String>,
    factories: BTreeMap<String, Arc<F>>,
}

impl<F: ?Sized> ModuleTable<F> {
    fn new(kind: ModuleKind) -> Self {
        Self {
            kind,
            names: BTreeMap::new(),
            factories: BTreeMap::new(),
        }
    }

    /// A later module of the same name replaces the earlier one.
    fn insert(&mut self, names: &[&str], factory: Arc<F>) {
        let Some(first) = names.first() else { return };
        for name in names {
            self.names.insert((*name).to_owned(), (*first).to_owned());
        }
        self.factories.insert((*first).to_owned(), factory);
    }

    fn find(&self, name: &str) -> Result<&F, ModuleError> {
        let factory = self
            .names
            .get(name)
            .and_then(|first| self.factories.get(first));
        factory
            .map(|factory| &**factory)
            .ok_or_else(|| ModuleError::Unknown {
                kind: self.kind,
                name: name.chars().take(80).collect(),
                known: self.names.keys().cloned().collect::<Vec<_>>().join(", "),
            })
    }

    /// Its kind, if it has a module of this name.
    fn kind_of(&self, name: &str) -> Option<ModuleKind> {
        self.names.contains_key(name).then_some(self.kind)
    }

    /// All names of the module called `name`.
    fn aliases<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let first = self.names.get(name);
        self.names
            .iter()
            .filter(move |(_, own)| Some(*own) == first)
            .map(|(other, _)| other.as_str())
    }
}

impl<F: ?Sized> Clone for ModuleTable<F> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind,
            names: self.names.clone(),
            factories: self.factories.clone(),
        }
    }
}

/// The linked-in modules.
#[derive(Clone)]
pub struct Registry {
    allocators: ModuleTable<AllocatorFactory>,
    sorters: ModuleTable<Factory<SorterRef>>,
    estimators: ModuleTable<Factory<ResourceEstimatorRef>>,
    controllers: ModuleTable<Factory<QosControllerRef>>,
    isolators: ModuleTable<IsolatorFactory>,
    counters: Vec<Arc<Counters>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self {
            allocators: ModuleTable::new(ModuleKind::Allocator),
            sorters: ModuleTable::new(ModuleKind::Sorter),
            estimators: ModuleTable::new(ModuleKind::ResourceEstimator),
            controllers: ModuleTable::new(ModuleKind::QosController),
            isolators: ModuleTable::new(ModuleKind::Isolator),
            counters: Vec::new(),
        }
    }

    /// Adds counters of modules to those of the service.
    pub fn add_counters(
        &mut self,
        counters: impl Fn() -> BTreeMap<String, f64> + Send + Sync + 'static,
    ) {
        self.counters.push(Arc::new(counters));
    }

    /// The present counters of the modules.
    pub fn counters(&self) -> BTreeMap<String, f64> {
        self.counters
            .iter()
            .flat_map(|counters| counters())
            .collect()
    }

    /// Adds an allocator under all these names. Its factory gets the configured sorter.
    pub fn add_allocator(
        &mut self,
        names: &[&str],
        factory: impl Fn(&Node, SorterRef, &Parameters) -> Result<AllocatorRef, ModuleError>
        + Send
        + Sync
        + 'static,
    ) {
        self.allocators.insert(names, Arc::new(factory));
    }

    /// Adds a sorter under all these names.
    pub fn add_sorter(
        &mut self,
        names: &[&str],
        factory: impl Fn(&Node, &Parameters) -> Result<SorterRef, ModuleError> + Send + Sync + 'static,
    ) {
        self.sorters.insert(names, Arc::new(factory));
    }

    /// Adds a resource estimator under all these names.
    pub fn add_resource_estimator(
        &mut self,
        names: &[&str],
        factory: impl Fn(&Node, &Parameters) -> Result<ResourceEstimatorRef, ModuleError>
        + Send
        + Sync
        + 'static,
    ) {
        self.estimators.insert(names, Arc::new(factory));
    }

    /// Adds a QoS controller under all these names.
    pub fn add_qos_controller(
        &mut self,
        names: &[&str],
        factory: impl Fn(&Node, &Parameters) -> Result<QosControllerRef, ModuleError>
        + Send
        + Sync
        + 'static,
    ) {
        self.controllers.insert(names, Arc::new(factory));
    }

    /// Adds an isolator under all these names. Operators may choose several of them, for example
    /// `cgroups/cpu` and `cgroups/mem`; the isolator is started once.
    pub fn add_isolator(
        &mut self,
        names: &[&str],
        factory: impl Fn(&Node, &[&str], &Parameters) -> Result<IsolatorRef, ModuleError>
        + Send
        + Sync
        + 'static,
    ) {
        self.isolators.insert(names, Arc::new(factory));
    }

    /// Starts the allocator of this name as a supervised actor that uses `sorter`.
    pub fn allocator(
        &self,
        node: &Node,
        name: &str,
        sorter: SorterRef,
        given: &Parameters,
    ) -> Result<AllocatorRef, ModuleError> {
        self.explained(self.allocators.find(name))?(node, sorter, given)
    }

    /// Starts the sorter of this name as a supervised actor.
    pub fn sorter(
        &self,
        node: &Node,
        name: &str,
        given: &Parameters,
    ) -> Result<SorterRef, ModuleError> {
        self.explained(self.sorters.find(name))?(node, given)
    }

    /// Starts the resource estimator of this name as a supervised actor.
    pub fn resource_estimator(
        &self,
        node: &Node,
        name: &str,
        given: &Parameters,
    ) -> Result<ResourceEstimatorRef, ModuleError> {
        self.explained(self.estimators.find(name))?(node, given)
    }

    /// Starts the QoS controller of this name as a supervised actor.
    pub fn qos_controller(
        &self,
        node: &Node,
        name: &str,
        given: &Parameters,
    ) -> Result<QosControllerRef, ModuleError> {
        self.explained(self.controllers.find(name))?(node, given)
    }

    /// Starts the isolators of these names as supervised actors, in the order in which they were
    /// named. `given` are the operator's flags for all isolators.
    pub fn isolators(
        &self,
        node: &Node,
        names: &[&str],
        given: &Parameters,
    ) -> Result<Vec<IsolatorRef>, ModuleError> {
        let mut chosen: Vec<(&str, Vec<&str>)> = Vec::new();
        for &name in names {
            self.explained(self.isolators.find(name))?;
            let first = self.isolators.names[name].as_str();
            match chosen.iter_mut().find(|(known, _)| *known == first) {
                Some((_, own)) => own.push(name),
                None => chosen.push((first, vec![name])),
            }
        }
        let start =
            |(first, own): (&str, Vec<&str>)| self.isolators.find(first)?(node, &own, given);
        chosen.into_iter().map(start).collect()
    }

    /// Adds the kind of the module to the error if there is one of another kind.
    fn explained<T>(&self, found: Result<T, ModuleError>) -> Result<T, ModuleError> {
        found.map_err(|error| match error {
            ModuleError::Unknown { kind, name, known } if self.knows(&name) => {
                let kinds = self.kinds_of(&name).map(|kind| kind.to_string());
                ModuleError::WrongKind {
                    kind,
                    actual: kinds.collect::<Vec<_>>().join(" or "),
                    name,
                    known,
                }
            }
            other => other,
        })
    }

    /// The kinds of the modules of this name. An executable may be of one of several.
    fn kinds_of(&self, name: &str) -> impl Iterator<Item = ModuleKind> {
        let kinds = [
            self.allocators.kind_of(name),
            self.sorters.kind_of(name),
            self.estimators.kind_of(name),
            self.controllers.kind_of(name),
            self.isolators.kind_of(name),
        ];
        kinds.into_iter().flatten()
    }

    /// Whether a module of any kind has this name.
    pub fn knows(&self, name: &str) -> bool {
        self.kinds_of(name).next().is_some()
    }

    /// The names of all modules.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.allocators.names.keys();
        let names = names
            .chain(self.sorters.names.keys())
            .chain(self.estimators.names.keys())
            .chain(self.controllers.names.keys())
            .chain(self.isolators.names.keys());
        names.map(String::as_str)
    }

    /// The parameters of the module called `name`. The manifest may list it under any of its names.
    pub fn parameters(&self, manifest: &Manifest, name: &str) -> Parameters {
        let names = [name].into_iter();
        let names = names
            .chain(self.allocators.aliases(name))
            .chain(self.sorters.aliases(name))
            .chain(self.estimators.aliases(name))
            .chain(self.controllers.aliases(name))
            .chain(self.isolators.aliases(name));
        let mut given = names.filter(|name| manifest.names(name));
        manifest.parameters(given.next().unwrap_or(name))
    }
}
