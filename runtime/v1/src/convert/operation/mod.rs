//! Operations and their statuses.
//!
//! RESERVE_RESOURCES with a source is in `reserving`.

pub(in crate::convert) mod reserving;

use protocol::{FrameworkId, Operation, OperationState, Uuid};
use resources::{Conversion, Invalid};

use super::ids::{uuid, uuid_bytes};
use super::resource::{read_resources, write_resources};
use super::task::of_task;
use super::{At, all, each, need, refuse, some, write};
use crate::message::Enum;
use crate::schema::{
    self, OfferOperation, OfferOperationCreate, OfferOperationDestroy, OfferOperationGrowVolume,
    OfferOperationLaunch, OfferOperationLaunchGroup, OfferOperationReserve,
    OfferOperationShrinkVolume, OfferOperationType, OfferOperationUnreserve, OperationStatus,
    TaskGroupInfo, TaskInfo, UUID,
};

impl TryFrom<&OfferOperation> for Operation {
    type Error = Invalid;

    fn try_from(operation: &OfferOperation) -> Result<Self, Invalid> {
        let kind = operation.r#type.unwrap_or_default();
        let expected_field = "the field named by `type`";
        let conversion = match kind {
            OfferOperationType::Unknown => {
                let expected = "LAUNCH, LAUNCH_GROUP, RESERVE, UNRESERVE, CREATE, DESTROY, GROW_VOLUME or SHRINK_VOLUME";
                return Err(Invalid::new("type", "absent or not known", expected));
            }
            OfferOperationType::CreateDisk | OfferOperationType::DestroyDisk => {
                let expected = "another operation, since no resource provider makes disks here yet";
                return Err(Invalid::new("type", kind, expected));
            }
            OfferOperationType::Launch => {
                refuse_id(operation)?;
                let launch = need("launch", operation.launch.as_ref(), expected_field)?;
                let tasks = all("task_infos", &launch.task_infos).at("launch")?;
                return Ok(Self::Launch { tasks });
            }
            OfferOperationType::LaunchGroup => {
                refuse_id(operation)?;
                let group = need(
                    "launch_group",
                    operation.launch_group.as_deref(),
                    expected_field,
                )?;
                return read_group(group).at("launch_group");
            }
            OfferOperationType::Reserve => {
                let reserve = need("reserve", operation.reserve.as_ref(), expected_field)?;
                refuse(
                    "reserve.source",
                    !reserve.source.is_empty(),
                    "set",
                    "none: only operators may set a source",
                )?;
                let resources = read_resources("resources", &reserve.resources).at("reserve")?;
                Conversion::Reserve { resources }
            }
            OfferOperationType::Unreserve => {
                let unreserve = need("unreserve", operation.unreserve.as_ref(), expected_field)?;
                let resources = read_resources("resources", &unreserve.resources);
                Conversion::Unreserve {
                    resources: resources.at("unreserve")?,
                }
            }
            OfferOperationType::Create => {
                let create = need("create", operation.create.as_ref(), expected_field)?;
                let volumes = read_resources("volumes", &create.volumes).at("create")?;
                Conversion::Create { volumes }
            }
            OfferOperationType::Destroy => {
                let destroy = need("destroy", operation.destroy.as_ref(), expected_field)?;
                let volumes = read_resources("volumes", &destroy.volumes).at("destroy")?;
                Conversion::Destroy { volumes }
            }
            OfferOperationType::GrowVolume => {
                let grow = need(
                    "grow_volume",
                    operation.grow_volume.as_deref(),
                    expected_field,
                )?;
                Conversion::GrowVolume {
                    volume: (&grow.volume).try_into().at("grow_volume.volume")?,
                    addition: (&grow.addition).try_into().at("grow_volume.addition")?,
                }
            }
            OfferOperationType::ShrinkVolume => {
                let shrink = need(
                    "shrink_volume",
                    operation.shrink_volume.as_deref(),
                    expected_field,
                )?;
                Conversion::ShrinkVolume {
                    volume: (&shrink.volume).try_into().at("shrink_volume.volume")?,
                    subtract: (&shrink.subtract).try_into().at("shrink_volume.subtract")?,
                }
            }
        };
        let id = some("id", operation.id.as_ref())?;
        Ok(Self::Convert { id, conversion })
    }
}

/// A launch has no status of its own, so it has no id.
fn refuse_id(operation: &OfferOperation) -> Result<(), Invalid> {
    match &operation.id {
        Some(id) => Err(Invalid::new(
            "id",
            &id.value,
            "none, since a launch has no status",
        )),
        None => Ok(()),
    }
}

fn read_group(group: &OfferOperationLaunchGroup) -> Result<Operation, Invalid> {
    Ok(Operation::LaunchGroup {
        executor: Box::new((&group.executor).try_into().at("executor")?),
        tasks: each("tasks", &group.task_group.tasks, read_member).at("task_group")?,
    })
}

fn read_member(task: &TaskInfo) -> Result<protocol::TaskInfo, Invalid> {
    protocol::TaskInfo::try_from(task).map_err(|bad| of_task(task, bad))
}

impl From<&Operation> for OfferOperation {
    fn from(operation: &Operation) -> Self {
        match operation {
            Operation::Launch { tasks } => Self {
                r#type: Some(OfferOperationType::Launch),
                launch: Some(OfferOperationLaunch {
                    task_infos: write(tasks),
                }),
                ..Self::default()
            },
            Operation::LaunchGroup { executor, tasks } => Self {
                r#type: Some(OfferOperationType::LaunchGroup),
                launch_group: Some(Box::new(OfferOperationLaunchGroup {
                    executor: (&**executor).into(),
                    task_group: TaskGroupInfo {
                        tasks: write(tasks),
                    },
                })),
                ..Self::default()
            },
            Operation::Convert { id, conversion } => Self {
                id: id.as_ref().map(Into::into),
                ..conversion.into()
            },
        }
    }
}

impl From<&Conversion> for OfferOperation {
    fn from(conversion: &Conversion) -> Self {
        let mut operation = Self::default();
        operation.r#type = Some(match conversion {
            Conversion::Reserve { resources } => {
                operation.reserve = Some(OfferOperationReserve {
                    resources: write_resources(resources),
                    source: Vec::new(),
                });
                OfferOperationType::Reserve
            }
            Conversion::Unreserve { resources } => {
                operation.unreserve = Some(OfferOperationUnreserve {
                    resources: write_resources(resources),
                });
                OfferOperationType::Unreserve
            }
            Conversion::Create { volumes } => {
                operation.create = Some(OfferOperationCreate {
                    volumes: write_resources(volumes),
                });
                OfferOperationType::Create
            }
            Conversion::Destroy { volumes } => {
                operation.destroy = Some(OfferOperationDestroy {
                    volumes: write_resources(volumes),
                });
                OfferOperationType::Destroy
            }
            Conversion::GrowVolume { volume, addition } => {
                operation.grow_volume = Some(Box::new(OfferOperationGrowVolume {
                    volume: volume.into(),
                    addition: addition.into(),
                }));
                OfferOperationType::GrowVolume
            }
            Conversion::ShrinkVolume { volume, subtract } => {
                operation.shrink_volume = Some(Box::new(OfferOperationShrinkVolume {
                    volume: volume.into(),
                    subtract: (*subtract).into(),
                }));
                OfferOperationType::ShrinkVolume
            }
        });
        operation
    }
}

/// An operation as APIs show it: framework, status and, if known, the conversion.
pub fn known_operation(
    framework: &FrameworkId,
    conversion: Option<&Conversion>,
    status: &protocol::OperationStatus,
) -> schema::Operation {
    let info = conversion.map(OfferOperation::from).unwrap_or_default();
    let uuid = status.uuid.unwrap_or(Uuid([0; 16]));
    schema::Operation {
        framework_id: Some(framework.into()),
        agent_id: status.agent_id.as_ref().map(Into::into),
        info: OfferOperation {
            id: Some((&status.operation_id).into()),
            ..info
        },
        latest_status: status.into(),
        statuses: vec![status.into()],
        uuid: UUID {
            value: uuid_bytes(uuid),
        },
    }
}

impl TryFrom<schema::OperationState> for OperationState {
    type Error = Invalid;

    fn try_from(state: schema::OperationState) -> Result<Self, Invalid> {
        let found = Self::ALL.iter().find(|own| own.name() == state.name());
        found.copied().ok_or_else(|| {
            let expected = "another state: this one is not supported";
            Invalid::new("", state, expected)
        })
    }
}

impl From<OperationState> for schema::OperationState {
    fn from(state: OperationState) -> Self {
        Self::by_name(state.name()).unwrap_or(Self::Unknown)
    }
}

impl TryFrom<&OperationStatus> for protocol::OperationStatus {
    type Error = Invalid;

    fn try_from(status: &OperationStatus) -> Result<Self, Invalid> {
        if let Some(provider) = &status.resource_provider_id {
            let expected = "none, since agents have no resource providers yet";
            return Err(Invalid::new(
                "resource_provider_id",
                &provider.value,
                expected,
            ));
        }
        let expected = "the operation's id";
        let id = need("operation_id", status.operation_id.as_ref(), expected)?;
        let bytes = status.uuid.as_ref().map(|uuid| &uuid.value[..]);
        Ok(Self {
            operation_id: id.try_into().at("operation_id")?,
            state: status.state.try_into().at("state")?,
            message: status.message.clone().unwrap_or_default(),
            converted: read_resources("converted_resources", &status.converted_resources)?,
            uuid: bytes.map(uuid).transpose().at("uuid.value")?,
            agent_id: some("agent_id", status.agent_id.as_ref())?,
        })
    }
}

impl From<&protocol::OperationStatus> for OperationStatus {
    fn from(status: &protocol::OperationStatus) -> Self {
        Self {
            operation_id: Some((&status.operation_id).into()),
            state: status.state.into(),
            message: (!status.message.is_empty()).then(|| status.message.clone()),
            converted_resources: write_resources(&status.converted),
            uuid: status.uuid.map(|uuid| UUID {
                value: uuid_bytes(uuid),
            }),
            agent_id: status.agent_id.as_ref().map(Into::into),
            resource_provider_id: None,
        }
    }
}
