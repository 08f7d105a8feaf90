//! The model of the master's registry: [`RegistryState`]'s own transition, with versions in the
//! answers.
//!
//! Every applied operation takes one version, so the versions determine nearly all of the order;
//! the search has to place the unknown operations only. A read returns the whole content.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use master::registry::{Applied, RegistryError, RegistryOperation, RegistryState};

use protocol::{AgentId, FrameworkId};

use super::Model;

/// Up to this number of unreachable agents and removed frameworks, none is dropped for its age.
const REMEMBERED_MAX: usize = 5_000;

/// A request to the registry.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryRequest {
    /// Apply this.
    Apply(Box<RegistryOperation>),
    /// Read the whole content.
    Read,
}

impl From<RegistryOperation> for RegistryRequest {
    fn from(operation: RegistryOperation) -> Self {
        Self::Apply(Box::new(operation))
    }
}

/// The registry's answer. A temporary failure is no answer: such a call is unknown, or without
/// effect where that is certain.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryAnswer {
    /// It was applied.
    Applied(Applied),
    /// It will never be applied in this form.
    Refused,
    /// The key has this version instead of the expected one.
    Conflict(u64),
    /// The whole content.
    Content(Arc<RegistryState>),
}

/// The registry of a master, with its initial content.
#[derive(Clone, Debug, Default)]
pub struct RegistryModel {
    /// The initial content.
    pub initial: Content,
}

/// The whole content at one moment.
#[derive(Clone, Debug, Default)]
pub struct Content(Arc<RegistryState>);

impl Content {
    /// This state.
    pub fn of(state: RegistryState) -> Self {
        Self(Arc::new(state))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Content {}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.version.hash(state);
        let sizes = (self.0.agents.len(), self.0.unreachable.len());
        (sizes, self.0.frameworks.len()).hash(state);
    }
}

impl RegistryModel {
    /// A request in a few words.
    pub fn asked(request: &RegistryRequest) -> String {
        match request {
            RegistryRequest::Read => "read".to_owned(),
            RegistryRequest::Apply(operation) => named(operation),
        }
    }

    /// An answer in a few words.
    pub fn answered(answer: &RegistryAnswer) -> String {
        match answer {
            RegistryAnswer::Refused => "refused".to_owned(),
            RegistryAnswer::Conflict(found) => format!("conflict with version {found}"),
            RegistryAnswer::Applied(Applied { version }) => format!("version {version}"),
            RegistryAnswer::Content(content) => format!(
                "version {}: {} agents, {} unreachable, {} frameworks, {} removed",
                content.version,
                content.agents.len(),
                content.unreachable.len(),
                content.frameworks.len(),
                content.removed_frameworks.len(),
            ),
        }
    }
}

impl Model for RegistryModel {
    type Operation = RegistryRequest;
    type Answer = RegistryAnswer;
    type State = Content;
    type Part = ();

    fn part(&self, _: &RegistryRequest) {}

    fn initial(&self, (): &()) -> Content {
        self.initial.clone()
    }

    fn step(
        &self,
        state: &Content,
        request: &RegistryRequest,
        answer: Option<&RegistryAnswer>,
    ) -> Option<Content> {
        let operation = match (request, answer) {
            (RegistryRequest::Read, None) => return Some(state.clone()),
            (RegistryRequest::Read, Some(RegistryAnswer::Content(content))) => {
                return (Arc::ptr_eq(content, &state.0) || **content == *state.0)
                    .then(|| state.clone());
            }
            (RegistryRequest::Read, Some(_)) => return None,
            (RegistryRequest::Apply(operation), _) => operation,
        };
        match answer {
            None => Some(applied(state, operation).unwrap_or_else(|_| state.clone())),
            Some(RegistryAnswer::Applied(Applied { version })) => (*version == state.0.version + 1)
                .then(|| applied(state, operation).ok())
                .flatten(),
            Some(RegistryAnswer::Refused) => {
                let refused = applied(state, operation).err()?;
                let deserved = !matches!(refused, RegistryError::Conflict { .. });
                deserved.then(|| state.clone())
            }
            Some(RegistryAnswer::Conflict(version)) => {
                let refused = applied(state, operation).err()?;
                let deserved = refused == RegistryError::Conflict { found: *version };
                deserved.then(|| state.clone())
            }
            Some(RegistryAnswer::Content(_)) => None,
        }
    }

    fn advance(
        &self,
        state: Content,
        request: &RegistryRequest,
        answer: &RegistryAnswer,
    ) -> Option<Content> {
        let (RegistryRequest::Apply(operation), RegistryAnswer::Applied(applied)) =
            (request, answer)
        else {
            return self.step(&state, request, Some(answer));
        };
        let Content(mut content) = state;
        let after = Arc::make_mut(&mut content).change(operation).ok()?;
        (after == *applied).then_some(Content(content))
    }

    fn place(&self, answer: &RegistryAnswer) -> Option<u64> {
        match answer {
            RegistryAnswer::Applied(Applied { version }) => Some(*version),
            RegistryAnswer::Refused | RegistryAnswer::Conflict(_) | RegistryAnswer::Content(_) => {
                None
            }
        }
    }

    fn next_place(&self, state: &Content) -> Option<u64> {
        Some(state.0.version + 1)
    }

    fn only_looks(&self, _: &RegistryRequest, answer: &RegistryAnswer) -> bool {
        !matches!(answer, RegistryAnswer::Applied(_))
    }

    fn too_late(&self, state: &Content, answer: &RegistryAnswer) -> bool {
        match answer {
            RegistryAnswer::Applied(Applied { version }) => *version <= state.0.version,
            RegistryAnswer::Content(content) => {
                let left = content.version.checked_sub(state.0.version);
                left.is_none_or(|left| differences(&state.0, content) > left)
            }
            RegistryAnswer::Refused | RegistryAnswer::Conflict(_) => false,
        }
    }

    fn describe(&self, request: &RegistryRequest, answer: Option<&RegistryAnswer>) -> String {
        let asked = Self::asked(request);
        let answered = answer.map_or_else(|| "unknown".to_owned(), Self::answered);
        format!("{asked} -> {answered}")
    }
}

/// The minimum of operations that turn one content into the other: each changes at most one agent
/// or one framework. (One that drops the oldest entry changes two; then the result is zero.)
fn differences(one: &RegistryState, other: &RegistryState) -> u64 {
    let remembered = |state: &RegistryState| {
        let agents = state.unreachable.len().max(state.gone.len());
        agents.max(state.removed_frameworks.len())
    };
    if remembered(one).max(remembered(other)) > REMEMBERED_MAX {
        return 0;
    }
    let agents = unequal(&one.agents, &other.agents)
        .chain(unequal(&one.unreachable, &other.unreachable))
        .chain(unequal(&one.gone, &other.gone))
        .chain(unequal(&one.orders, &other.orders));
    let agents: BTreeSet<&AgentId> = agents.collect();
    let (kept, kept_there) = (kept(one), kept(other));
    let frameworks = unequal(&one.frameworks, &other.frameworks)
        .chain(unequal(&one.leading, &other.leading))
        .chain(unequal(&kept, &kept_there).map(|(id, _)| *id));
    let frameworks: BTreeSet<&FrameworkId> = frameworks.collect();
    (agents.len() + frameworks.len()) as u64
}

/// The versions of all keys of frameworks: a changed one has another.
fn kept(state: &RegistryState) -> BTreeMap<(&FrameworkId, &str), u64> {
    let kept = state.framework_states.iter();
    kept.map(|(id, key, value)| ((id, key), value.version))
        .collect()
}

/// The keys with different values in two maps.
fn unequal<'a, K: Ord, V: PartialEq>(
    one: &'a BTreeMap<K, V>,
    other: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    let changed = one
        .iter()
        .filter(|(key, value)| other.get(*key) != Some(*value));
    let added = other.keys().filter(|key| !one.contains_key(*key));
    changed.map(|(key, _)| key).chain(added)
}

/// The content after an operation, or its refusal.
fn applied(state: &Content, operation: &RegistryOperation) -> Result<Content, RegistryError> {
    let mut after = RegistryState::clone(&state.0);
    after.change(operation)?;
    Ok(Content::of(after))
}

fn named(operation: &RegistryOperation) -> String {
    let or_none = |id: Option<String>| id.unwrap_or_else(|| "without an id".to_owned());
    match operation {
        RegistryOperation::AdmitAgent { info } => {
            let id = info.id.as_ref().map(ToString::to_string);
            format!("admit agent {}", or_none(id))
        }
        RegistryOperation::MarkAgentUnreachable { agent_id, .. } => {
            format!("mark agent {agent_id} unreachable")
        }
        RegistryOperation::MarkAgentReachable { info } => {
            let id = info.id.as_ref().map(ToString::to_string);
            format!("mark agent {} reachable", or_none(id))
        }
        RegistryOperation::RemoveAgent { agent_id } => format!("remove agent {agent_id}"),
        RegistryOperation::AdmitFramework { info, .. } => {
            let id = info.id.as_ref().map(ToString::to_string);
            format!("admit framework {}", or_none(id))
        }
        RegistryOperation::RemoveFramework { framework_id } => {
            format!("remove framework {framework_id}")
        }
        RegistryOperation::AppointScheduler { info, scheduler } => {
            let id = info.id.as_ref().map(ToString::to_string);
            format!("appoint {scheduler} of framework {}", or_none(id))
        }
        RegistryOperation::ChangeFrameworkState {
            framework_id,
            key,
            expected,
            ..
        } => format!("change {key:?} of framework {framework_id}, expecting {expected:?}"),
        RegistryOperation::UpdateQuotas { quotas } => {
            format!("update the quotas of {:?}", quotas.keys())
        }
        RegistryOperation::UpdateWeights { weights } => {
            format!("update the weights of {:?}", weights.keys())
        }
        RegistryOperation::UpdateMaintenanceSchedule { windows } => {
            format!("schedule maintenance in {} windows", windows.len())
        }
        RegistryOperation::StartMaintenance { machines } => {
            format!("start maintenance of {} machines", machines.len())
        }
        RegistryOperation::StopMaintenance { machines } => {
            format!("stop maintenance of {} machines", machines.len())
        }
        RegistryOperation::MarkAgentGone { agent_id, .. } => format!("mark agent {agent_id} gone"),
        RegistryOperation::DrainAgent { agent_id, .. } => format!("drain agent {agent_id}"),
        RegistryOperation::MarkAgentDrained { agent_id } => {
            format!("mark agent {agent_id} drained")
        }
        RegistryOperation::DeactivateAgent { agent_id } => format!("deactivate agent {agent_id}"),
        RegistryOperation::ReactivateAgent { agent_id } => format!("reactivate agent {agent_id}"),
        RegistryOperation::CancelDrain { agent_id } => {
            format!("cancel the drain of agent {agent_id}")
        }
        RegistryOperation::AcceptOperations {
            agent_id,
            operations,
        } => {
            let serials: Vec<u64> = operations.iter().map(|(serial, _)| *serial).collect();
            format!("accept operations {serials:?} of agent {agent_id}")
        }
        RegistryOperation::ForgetOperations { operations } => {
            let (count, first) = (operations.len(), operations.first());
            let first = first.map_or_else(String::new, |(agent_id, serial)| {
                format!(", the first {serial} of agent {agent_id}")
            });
            format!("forget {count} operations{first}")
        }
    }
}
