//! Usage of resources, and corrections of it.

use protocol::QosCorrection;
use protocol::usage::{
    BlockOperations, BlockStatistics, ExecutorUsage, NetworkStatistics, Objective, Pressure,
    ResourceStatistics, ResourceUsage, TaskObjective, Throttle, Traffic,
};
use resources::{Invalid, Resources};
use runtime::Timestamp;

use super::{read_resources, write_resources};
use crate::convert::{At, all, each, need, some};
use crate::schema::agent::module::{
    CorrectionsResponse, EstimateResponse, QoSCorrection, QoSCorrectionTarget,
    QoSCorrectionThrottle, QoSCorrectionType,
};
use crate::schema::{
    self, ExecutorInfo, ExecutorInfoType, ResourceUsageExecutorObjective,
    ResourceUsageExecutorThrottle,
};

impl From<&ResourceUsage> for schema::ResourceUsage {
    fn from(usage: &ResourceUsage) -> Self {
        Self {
            executors: usage.executors.iter().map(Into::into).collect(),
            total: write_resources(&usage.total),
        }
    }
}

impl TryFrom<&schema::ResourceUsage> for ResourceUsage {
    type Error = Invalid;

    fn try_from(usage: &schema::ResourceUsage) -> Result<Self, Invalid> {
        Ok(Self {
            total: read_resources("total", &usage.total)?,
            executors: all("executors", &usage.executors)?,
        })
    }
}

impl From<&ExecutorUsage> for schema::ResourceUsageExecutor {
    fn from(usage: &ExecutorUsage) -> Self {
        let task = |id: &protocol::TaskId| schema::ResourceUsageExecutorTask {
            name: id.to_string(),
            id: id.into(),
            ..schema::ResourceUsageExecutorTask::default()
        };
        Self {
            executor_info: ExecutorInfo {
                executor_id: (&usage.executor_id).into(),
                framework_id: Some((&usage.framework_id).into()),
                name: Some(usage.executor_name.clone()),
                // A command has no executor of its own; nothing else distinguishes the two.
                r#type: (!usage.is_command).then_some(ExecutorInfoType::Custom),
                ..ExecutorInfo::default()
            },
            allocated: write_resources(&usage.allocated),
            statistics: usage.statistics.as_ref().map(|one| Box::new(one.into())),
            container_id: (&usage.container_id).into(),
            tasks: usage.tasks.iter().map(task).collect(),
            throttle: Some(usage.throttle)
                .filter(|throttle| !throttle.is_none())
                .map(Into::into),
            objectives: usage.objectives.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<&schema::ResourceUsageExecutor> for ExecutorUsage {
    type Error = Invalid;

    fn try_from(usage: &schema::ResourceUsageExecutor) -> Result<Self, Invalid> {
        let info = &usage.executor_info;
        let framework = need("framework_id", info.framework_id.as_ref(), "an id");
        let framework = framework.and_then(|id| id.try_into().at("framework_id"));
        let task = |task: &schema::ResourceUsageExecutorTask| (&task.id).try_into().at("id");
        Ok(Self {
            framework_id: framework.at("executor_info")?,
            executor_id: (&info.executor_id)
                .try_into()
                .at("executor_id")
                .at("executor_info")?,
            executor_name: info.name.clone().unwrap_or_default(),
            is_command: info.r#type.is_none(),
            container_id: (&usage.container_id).try_into().at("container_id")?,
            allocated: read_resources("allocated", &usage.allocated)?,
            tasks: each("tasks", &usage.tasks, task)?,
            statistics: usage.statistics.as_deref().map(Into::into),
            throttle: usage.throttle.as_ref().map(Into::into).unwrap_or_default(),
            objectives: all("objectives", &usage.objectives)?,
        })
    }
}

/// The cast saturates.
fn timestamp(seconds: f64) -> Timestamp {
    Timestamp::from_nanos((seconds * 1e9).round() as u64)
}

impl From<&TaskObjective> for ResourceUsageExecutorObjective {
    fn from(measured: &TaskObjective) -> Self {
        Self {
            objective: measured.objective.to_string(),
            value: measured.value,
            timestamp: measured.at.as_secs_f64(),
        }
    }
}

impl TryFrom<&ResourceUsageExecutorObjective> for TaskObjective {
    type Error = Invalid;

    fn try_from(measured: &ResourceUsageExecutorObjective) -> Result<Self, Invalid> {
        let expected = "`latency:MILLISECONDS` or `progress:PER_SECOND`";
        let objective = Objective::parse(&measured.objective);
        let invalid = || Invalid::new("objective", &measured.objective, expected);
        Ok(Self {
            objective: objective.ok_or_else(invalid)?,
            value: measured.value,
            at: timestamp(measured.timestamp),
        })
    }
}

impl From<Throttle> for ResourceUsageExecutorThrottle {
    fn from(throttle: Throttle) -> Self {
        Self {
            cpu: throttle.cpu.map(Into::into),
            memory: throttle.memory.map(Into::into),
            io: throttle.io.map(Into::into),
        }
    }
}

impl From<&ResourceUsageExecutorThrottle> for Throttle {
    fn from(throttle: &ResourceUsageExecutorThrottle) -> Self {
        // All above the whole mean the same.
        let degree = |degree: u32| u16::try_from(degree).unwrap_or(u16::MAX);
        Self {
            cpu: throttle.cpu.map(degree),
            memory: throttle.memory.map(degree),
            io: throttle.io.map(degree),
        }
    }
}

/// An infinite limit is left out.
impl From<&ResourceStatistics> for schema::ResourceStatistics {
    fn from(measured: &ResourceStatistics) -> Self {
        let cpus_soft_limit = measured.cpus_soft_limit.unwrap_or(measured.cpus_limit);
        let mem_soft_limit = measured.mem_soft_limit_bytes;
        let mem_soft_limit = mem_soft_limit.unwrap_or(measured.mem_limit_bytes);
        Self {
            timestamp: measured.timestamp.as_secs_f64(),
            processes: Some(measured.processes),
            threads: Some(measured.threads),
            cpus_user_time_secs: Some(measured.cpus_user_time_secs),
            cpus_system_time_secs: Some(measured.cpus_system_time_secs),
            cpus_limit: Some(measured.cpus_limit).filter(|limit| limit.is_finite()),
            cpus_soft_limit: Some(cpus_soft_limit),
            cpus_nr_periods: measured.cpus_nr_periods,
            cpus_nr_throttled: measured.cpus_nr_throttled,
            cpus_throttled_time_secs: measured.cpus_throttled_time_secs,
            mem_rss_bytes: Some(measured.mem_rss_bytes),
            mem_limit_bytes: Some(measured.mem_limit_bytes).filter(|&limit| limit != u64::MAX),
            mem_soft_limit_bytes: Some(mem_soft_limit),
            mem_total_bytes: measured.mem_total_bytes,
            mem_total_memsw_bytes: measured.mem_total_memsw_bytes,
            // Mesos has two names for it.
            mem_file_bytes: measured.mem_cache_bytes,
            mem_cache_bytes: measured.mem_cache_bytes,
            mem_anon_bytes: measured.mem_anon_bytes,
            mem_mapped_file_bytes: measured.mem_mapped_file_bytes,
            mem_swap_bytes: measured.mem_swap_bytes,
            mem_unevictable_bytes: measured.mem_unevictable_bytes,
            mem_kmem_usage_bytes: measured.mem_kmem_usage_bytes,
            mem_kmem_tcp_usage_bytes: measured.mem_kmem_tcp_usage_bytes,
            disk_limit_bytes: measured.disk_limit_bytes,
            disk_used_bytes: measured.disk_used_bytes,
            blkio_statistics: write_blkio(&measured.blkio).map(Box::new),
            net_rx_packets: measured.net.map(|net| net.received.packets),
            net_rx_bytes: measured.net.map(|net| net.received.bytes),
            net_rx_errors: measured.net.map(|net| net.received.errors),
            net_rx_dropped: measured.net.map(|net| net.received.dropped),
            net_tx_packets: measured.net.map(|net| net.sent.packets),
            net_tx_bytes: measured.net.map(|net| net.sent.bytes),
            net_tx_errors: measured.net.map(|net| net.sent.errors),
            net_tx_dropped: measured.net.map(|net| net.sent.dropped),
            cpu_pressure: measured.cpu_pressure.map(write_pressure),
            mem_pressure: measured.mem_pressure.map(write_pressure),
            io_pressure: measured.io_pressure.map(write_pressure),
            ..Self::default()
        }
    }
}

impl From<&schema::ResourceStatistics> for ResourceStatistics {
    fn from(shown: &schema::ResourceStatistics) -> Self {
        let traffic = |bytes: Option<u64>, packets: Option<u64>, errors, dropped| {
            Some(Traffic {
                bytes: bytes?,
                packets: packets.unwrap_or_default(),
                errors: Option::unwrap_or_default(errors),
                dropped: Option::unwrap_or_default(dropped),
            })
        };
        let received = traffic(
            shown.net_rx_bytes,
            shown.net_rx_packets,
            shown.net_rx_errors,
            shown.net_rx_dropped,
        );
        let sent = traffic(
            shown.net_tx_bytes,
            shown.net_tx_packets,
            shown.net_tx_errors,
            shown.net_tx_dropped,
        );
        Self {
            timestamp: timestamp(shown.timestamp),
            pressure_directory: None,
            processes: shown.processes.unwrap_or_default(),
            threads: shown.threads.unwrap_or_default(),
            cpus_user_time_secs: shown.cpus_user_time_secs.unwrap_or_default(),
            cpus_system_time_secs: shown.cpus_system_time_secs.unwrap_or_default(),
            cpus_limit: shown.cpus_limit.unwrap_or(f64::INFINITY),
            mem_rss_bytes: shown.mem_rss_bytes.unwrap_or_default(),
            mem_limit_bytes: shown.mem_limit_bytes.unwrap_or(u64::MAX),
            cpus_soft_limit: shown.cpus_soft_limit,
            cpus_nr_periods: shown.cpus_nr_periods,
            cpus_nr_throttled: shown.cpus_nr_throttled,
            cpus_throttled_time_secs: shown.cpus_throttled_time_secs,
            mem_total_bytes: shown.mem_total_bytes,
            mem_total_memsw_bytes: shown.mem_total_memsw_bytes,
            mem_soft_limit_bytes: shown.mem_soft_limit_bytes,
            mem_cache_bytes: shown.mem_cache_bytes,
            mem_anon_bytes: shown.mem_anon_bytes,
            mem_mapped_file_bytes: shown.mem_mapped_file_bytes,
            mem_swap_bytes: shown.mem_swap_bytes,
            mem_unevictable_bytes: shown.mem_unevictable_bytes,
            mem_kmem_usage_bytes: shown.mem_kmem_usage_bytes,
            mem_kmem_tcp_usage_bytes: shown.mem_kmem_tcp_usage_bytes,
            disk_limit_bytes: shown.disk_limit_bytes,
            disk_used_bytes: shown.disk_used_bytes,
            blkio: shown
                .blkio_statistics
                .as_deref()
                .map_or_else(Vec::new, read_blkio),
            net: received
                .zip(sent)
                .map(|(received, sent)| NetworkStatistics { received, sent }),
            cpu_pressure: shown.cpu_pressure.as_ref().map(read_pressure),
            mem_pressure: shown.mem_pressure.as_ref().map(read_pressure),
            io_pressure: shown.io_pressure.as_ref().map(read_pressure),
        }
    }
}

fn write_pressure(measured: Pressure) -> schema::PressureStatistics {
    schema::PressureStatistics {
        some_secs: Some(measured.some_secs),
        full_secs: Some(measured.full_secs),
    }
}

fn read_pressure(shown: &schema::PressureStatistics) -> Pressure {
    Pressure {
        some_secs: shown.some_secs.unwrap_or_default(),
        full_secs: shown.full_secs.unwrap_or_default(),
    }
}

/// The figures of each device, and last their sum without a device. As in Mesos on kernels without
/// the CFQ scheduler.
fn write_blkio(measured: &[BlockStatistics]) -> Option<schema::CgroupInfoBlkioStatistics> {
    let value = |op, value| schema::CgroupInfoBlkioValue {
        op: Some(op),
        value: Some(value),
    };
    let total = |of: &BlockOperations| {
        let sum = of.read + of.write + of.discard;
        value(schema::CgroupInfoBlkioOperation::Total, sum)
    };
    let all = |of: &BlockOperations| {
        let operations = [
            (schema::CgroupInfoBlkioOperation::Read, of.read),
            (schema::CgroupInfoBlkioOperation::Write, of.write),
            (schema::CgroupInfoBlkioOperation::Discard, of.discard),
        ];
        let mut values = operations.map(|(op, amount)| value(op, amount)).to_vec();
        values.push(total(of));
        values
    };
    let mut sum = BlockStatistics::default();
    let mut throttling = Vec::with_capacity(measured.len() + 1);
    for one in measured {
        sum.bytes += one.bytes;
        sum.requests += one.requests;
        throttling.push(schema::CgroupInfoBlkioThrottlingStatistics {
            device: Some(schema::DeviceNumber {
                major_number: one.device.0.into(),
                minor_number: one.device.1.into(),
            }),
            io_serviced: all(&one.requests),
            io_service_bytes: all(&one.bytes),
        });
    }
    throttling.push(schema::CgroupInfoBlkioThrottlingStatistics {
        device: None,
        io_serviced: vec![total(&sum.requests)],
        io_service_bytes: vec![total(&sum.bytes)],
    });
    (!measured.is_empty()).then(|| schema::CgroupInfoBlkioStatistics {
        throttling,
        ..schema::CgroupInfoBlkioStatistics::default()
    })
}

/// The figures of each device, without their sum.
fn read_blkio(shown: &schema::CgroupInfoBlkioStatistics) -> Vec<BlockStatistics> {
    let operations = |values: &[schema::CgroupInfoBlkioValue]| {
        let amount = |op| {
            let value = values.iter().find(|value| value.op == Some(op));
            value.and_then(|value| value.value).unwrap_or_default()
        };
        BlockOperations {
            read: amount(schema::CgroupInfoBlkioOperation::Read),
            write: amount(schema::CgroupInfoBlkioOperation::Write),
            discard: amount(schema::CgroupInfoBlkioOperation::Discard),
        }
    };
    let one = |shown: &schema::CgroupInfoBlkioThrottlingStatistics| {
        let device = shown.device.as_ref()?;
        let number = |number: u64| u32::try_from(number).ok();
        Some(BlockStatistics {
            device: (number(device.major_number)?, number(device.minor_number)?),
            bytes: operations(&shown.io_service_bytes),
            requests: operations(&shown.io_serviced),
        })
    };
    shown.throttling.iter().filter_map(one).collect()
}

/// The estimate of a module.
pub fn estimate(response: &EstimateResponse) -> Result<Resources, Invalid> {
    read_resources("oversubscribable", &response.oversubscribable)
}

/// The corrections of a module.
pub fn corrections(response: &CorrectionsResponse) -> Result<Vec<QosCorrection>, Invalid> {
    all("corrections", &response.corrections)
}

impl TryFrom<&QoSCorrection> for QosCorrection {
    type Error = Invalid;

    fn try_from(correction: &QoSCorrection) -> Result<Self, Invalid> {
        let expected = "the field that `type` selects";
        let target = |target: &QoSCorrectionTarget| {
            Ok::<_, Invalid>((
                (&target.framework_id).try_into().at("framework_id")?,
                (&target.executor_id).try_into().at("executor_id")?,
                some("container_id", target.container_id.as_ref())?,
            ))
        };
        let reason = correction.reason.clone().unwrap_or_default();
        Ok(match correction.r#type {
            QoSCorrectionType::Kill => {
                let given = need("kill", correction.kill.as_deref(), expected)?;
                let (framework_id, executor_id, container_id) = target(given).at("kill")?;
                Self::Kill {
                    framework_id,
                    executor_id,
                    container_id,
                    reason,
                }
            }
            QoSCorrectionType::Throttle => {
                let given = need("throttle", correction.throttle.as_deref(), expected)?;
                let (framework_id, executor_id, container_id) =
                    target(&given.target).at("target").at("throttle")?;
                Self::Throttle {
                    framework_id,
                    executor_id,
                    container_id,
                    degree: (&given.degree).into(),
                    reason,
                }
            }
            QoSCorrectionType::Restore => {
                let given = need("restore", correction.restore.as_deref(), expected)?;
                let (framework_id, executor_id, container_id) = target(given).at("restore")?;
                Self::Restore {
                    framework_id,
                    executor_id,
                    container_id,
                    reason,
                }
            }
            QoSCorrectionType::Unknown => {
                let expected = "KILL, THROTTLE or RESTORE";
                return Err(Invalid::new("type", "UNKNOWN", expected));
            }
        })
    }
}

impl From<&QosCorrection> for QoSCorrection {
    fn from(correction: &QosCorrection) -> Self {
        let (framework_id, executor_id, container_id) = correction.target();
        let target = QoSCorrectionTarget {
            framework_id: framework_id.into(),
            executor_id: executor_id.into(),
            container_id: container_id.map(Into::into),
        };
        let of = |r#type| Self {
            r#type,
            reason: Some(correction.reason().to_owned()).filter(|reason| !reason.is_empty()),
            ..Self::default()
        };
        match correction {
            QosCorrection::Kill { .. } => Self {
                kill: Some(Box::new(target)),
                ..of(QoSCorrectionType::Kill)
            },
            QosCorrection::Throttle { degree, .. } => {
                let degree = (*degree).into();
                Self {
                    throttle: Some(Box::new(QoSCorrectionThrottle { target, degree })),
                    ..of(QoSCorrectionType::Throttle)
                }
            }
            QosCorrection::Restore { .. } => Self {
                restore: Some(Box::new(target)),
                ..of(QoSCorrectionType::Restore)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ContainerId, ExecutorId, FrameworkId, TaskId};

    #[test]
    fn usage_survives_the_wire() {
        let statistics = ResourceStatistics {
            timestamp: Timestamp::from_nanos(1_500_000_000),
            processes: 2,
            threads: 3,
            cpus_user_time_secs: 1.5,
            cpus_limit: f64::INFINITY,
            cpus_soft_limit: Some(2.0),
            mem_rss_bytes: 4096,
            mem_limit_bytes: u64::MAX,
            mem_soft_limit_bytes: Some(1 << 20),
            blkio: vec![BlockStatistics {
                device: (8, 1),
                bytes: BlockOperations {
                    read: 1,
                    write: 2,
                    discard: 3,
                },
                requests: BlockOperations::default(),
            }],
            net: Some(NetworkStatistics::default()),
            cpu_pressure: Some(Pressure {
                some_secs: 0.5,
                full_secs: 0.25,
            }),
            ..ResourceStatistics::default()
        };
        let executor = |is_command, throttle, statistics| ExecutorUsage {
            framework_id: FrameworkId::new("f").unwrap(),
            executor_id: ExecutorId::new("e").unwrap(),
            executor_name: "web".to_owned(),
            is_command,
            container_id: ContainerId::new("c").unwrap(),
            allocated: Resources::parse("cpus:2;mem(ads):64").unwrap(),
            tasks: vec![TaskId::new("t").unwrap()],
            statistics,
            throttle,
            objectives: vec![TaskObjective {
                objective: Objective::LatencyMillis(2.5),
                value: 3.25,
                at: Timestamp::from_nanos(2_500_000_000),
            }],
        };
        let throttle = Throttle {
            cpu: Some(500),
            ..Throttle::default()
        };
        let usage = ResourceUsage {
            total: Resources::parse("cpus:4;ports:[1-2]").unwrap(),
            executors: vec![
                executor(false, Throttle::default(), Some(statistics)),
                executor(true, throttle, None),
            ],
        };
        let message = schema::ResourceUsage::from(&usage);
        let bytes = crate::protobuf::write(&message);
        let read = crate::protobuf::read::<schema::ResourceUsage>(&bytes, crate::Limits::default());
        assert_eq!(ResourceUsage::try_from(&read.unwrap()), Ok(usage));
    }

    #[test]
    fn corrections_survive_the_wire() {
        let framework_id = FrameworkId::new("f").unwrap();
        let executor_id = ExecutorId::new("e").unwrap();
        let container_id = Some(ContainerId::new("c").unwrap());
        let degree = Throttle {
            io: Some(100),
            ..Throttle::default()
        };
        for correction in [
            QosCorrection::Kill {
                framework_id: framework_id.clone(),
                executor_id: executor_id.clone(),
                container_id: None,
                reason: "it is too busy".to_owned(),
            },
            QosCorrection::Throttle {
                framework_id: framework_id.clone(),
                executor_id: executor_id.clone(),
                container_id: container_id.clone(),
                degree,
                reason: String::new(),
            },
            QosCorrection::Restore {
                framework_id,
                executor_id,
                container_id,
                reason: String::new(),
            },
        ] {
            let message = QoSCorrection::from(&correction);
            assert_eq!(QosCorrection::try_from(&message), Ok(correction));
        }
        let error = QosCorrection::try_from(&QoSCorrection::default()).unwrap_err();
        assert_eq!(error.field, "type");
    }
}
