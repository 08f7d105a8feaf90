//! Random values of `protocol`.

mod notes;
mod operators;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use protocol::agent::{Domain, HttpEndpoint};
use protocol::offers::wants::{Constraint, Predicate, Selector};
use protocol::task::check::{CheckKind, CheckTiming, HttpCheck, IpProtocol, NamedCheck, TcpCheck};
use protocol::task::container::{
    ContainerInfo, DockerNetwork, DockerOptions, Image, IpcMode, LinuxCapabilities, LinuxInfo,
    MemoryVolume, RLimit, RLimitKind, Seccomp, SecretData, SoftHard, Volume as ContainerVolume,
    VolumeSource as ContainerVolumeSource,
};
use protocol::task::network::{NetworkAddress, NetworkInfo, PortMapping};
use protocol::task::{CheckInfo, HealthCheck, Limit, TaskLimits};
use protocol::{
    AgentInfo, Capability, CommandInfo, Demand, ExecutorInfo, Filters, FrameworkInfo, KillPolicy,
    Offer, Operation, OperationState, OperationStatus, Quota, Reason, Source, TaskInfo, TaskState,
    TaskStatus, Unavailability, Uri, Uuid,
};
use resources::{
    Annotations, Attribute, AttributeValue, Attributes, Conversion, DiskInfo, DiskSource, Label,
    Labels, Name, Number, Persistence, Quantities, Range, Ranges, Reservation, ReservationKind,
    Resource, Resources, Revocable, Role, Scalar, Set, SourceKind, Value, Volume, VolumeMode,
};
use runtime::Timestamp;

use crate::chance::Chance;

impl Chance {
    fn half(&mut self) -> bool {
        self.below(2) == 0
    }

    fn some<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.half().then(|| make(self))
    }

    fn list<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    fn name(&mut self) -> String {
        self.pick(&["a", "b-1", "m-S1", "m-0007", "t.x", "ä 日", "\"quoted\""])
            .to_owned()
    }

    fn id<T: std::str::FromStr<Err = protocol::InvalidId>>(&mut self) -> T {
        self.name().parse().unwrap()
    }

    fn role(&mut self) -> Role {
        Role::new(self.pick(&["*", "ads", "eng/web", "日本"])).unwrap()
    }

    fn amount(&mut self) -> Scalar {
        Scalar::from_thousandths(self.pick(&[0, 1, 450, 1000, 31_999, 2_048_000, 999_999_999_999]))
            .unwrap()
    }

    fn ranges(&mut self) -> Ranges {
        let range = |chance: &mut Self| {
            let begin = chance.pick(&[0, 1, 31_000, u64::MAX - 7]);
            Range::new(begin, begin + chance.below(8)).unwrap()
        };
        Ranges::new(self.list(range))
    }

    fn set(&mut self) -> Set {
        Set::new(self.list(Self::name)).unwrap()
    }

    fn notes(&mut self) -> Labels {
        let label = |chance: &mut Self| Label {
            key: chance.text(),
            value: chance.some(Self::text),
        };
        Labels::new(self.list(label))
    }

    fn stack(&mut self) -> Vec<Reservation> {
        let entry = |chance: &mut Self, kind, role: &str| Reservation {
            kind,
            role: Role::new(role).unwrap(),
            principal: chance.some(Self::text),
            labels: chance.notes(),
        };
        let kind = self.pick(&[ReservationKind::Static, ReservationKind::Dynamic]);
        let all = [
            entry(self, kind, "eng"),
            entry(self, ReservationKind::Dynamic, "eng/web"),
            entry(self, ReservationKind::Dynamic, "eng/web/x"),
        ];
        all.into_iter().take(self.below(4) as usize).collect()
    }

    fn disk(&mut self) -> DiskInfo {
        let kind = self.pick(&[
            SourceKind::Path,
            SourceKind::Mount,
            SourceKind::Block,
            SourceKind::Raw,
        ]);
        let rooted = matches!(kind, SourceKind::Path | SourceKind::Mount);
        DiskInfo {
            persistence: self.some(|chance| Persistence {
                id: chance.pick(&["p1", "p2"]).to_owned(),
                principal: chance.some(Self::text),
            }),
            volume: self.some(|chance| Volume {
                container_path: "data".to_owned(),
                host_path: chance.some(|_| "/srv".to_owned()),
                mode: chance.pick(&[VolumeMode::ReadWrite, VolumeMode::ReadOnly]),
            }),
            source: self.some(|chance| DiskSource {
                kind,
                root: chance.some(|_| "/mnt".to_owned()).filter(|_| rooted),
                vendor: chance.some(Self::text),
                id: chance.some(Self::text),
                metadata: chance.notes(),
                profile: chance.some(Self::text),
            }),
        }
    }

    /// A resource; invalid combinations are retried.
    pub fn resource(&mut self) -> Resource {
        loop {
            let (name, value) = match self.below(4) {
                0 => ("ports", Value::from(self.ranges())),
                1 => ("bugs", Value::from(self.set())),
                2 => ("disk", Value::from(self.amount())),
                _ => (self.pick(&["cpus", "mem", "tokens"]), self.amount().into()),
            };
            let notes = Annotations {
                revocable: self.pick(&[
                    None,
                    None,
                    Some(Revocable::Throttleable),
                    Some(Revocable::NonThrottleable),
                ]),
                lender: None,
                allocation: self.some(Self::role),
                reservations: self.stack(),
                disk: self
                    .some(|chance| Box::new(chance.disk()))
                    .filter(|_| name == "disk"),
                shared: self.below(4) == 0,
                provider: self.some(|_| "rp1".into()),
            };
            if let Ok(resource) = Resource::annotated(Name::new(name).unwrap(), value, notes) {
                return resource;
            }
        }
    }

    /// Resources; some are held more than once.
    pub fn resources(&mut self) -> Resources {
        self.list(Self::resource).into_iter().collect()
    }

    /// Attributes.
    pub fn attributes(&mut self) -> Attributes {
        let attribute = |chance: &mut Self| {
            let value = match chance.below(4) {
                0 => AttributeValue::Scalar(Number::new(chance.pick(&[-1.25, 0.0, 1e20])).unwrap()),
                1 => AttributeValue::Ranges(chance.ranges()),
                2 => AttributeValue::Set(chance.set()),
                _ => AttributeValue::Text(chance.text()),
            };
            Attribute::new(chance.pick(&["rack", "os"]), value).unwrap()
        };
        Attributes::new(self.list(attribute))
    }

    fn duration(&mut self) -> Duration {
        Duration::from_nanos(self.pick(&[0, 1, 5_000_000_000, i64::MAX as u64]))
    }

    /// A command.
    pub fn command(&mut self) -> CommandInfo {
        CommandInfo {
            value: self.text(),
            shell: self.half(),
            arguments: self.list(Self::text),
            environment: self.pairs(),
            user: self.some(Self::text),
            uris: self.list(Self::uri),
        }
    }

    fn uri(&mut self) -> Uri {
        Uri {
            value: self
                .pick(&["http://h/a.tgz", "https://h:1/f?q", "/etc/hosts"])
                .into(),
            executable: self.half(),
            extract: self.half(),
            cache: self.half(),
            output_file: self.half().then(|| "d/f".to_owned()),
            digest: self.half().then(|| format!("sha256:{}", "0f".repeat(32))),
        }
    }

    /// An executor.
    pub fn executor(&mut self) -> ExecutorInfo {
        let (id, command, resources) = (self.id(), self.command(), self.resources());
        let plain = match self.half() {
            true => ExecutorInfo::default_kind(id, resources),
            false => ExecutorInfo::new(id, command, resources),
        };
        ExecutorInfo {
            name: self.text(),
            data: self.text().into_bytes(),
            shutdown_grace_period: self.some(Self::duration),
            labels: self.labels_of_what_is_found(),
            container: self.some(Self::container).map(Box::new),
            ..plain
        }
    }

    /// Settings of a container.
    fn container(&mut self) -> ContainerInfo {
        let docker = match self.below(5) {
            0 => Some(DockerNetwork::Host),
            1 => Some(DockerNetwork::None),
            2 => Some(DockerNetwork::Bridge),
            3 => Some(DockerNetwork::User),
            _ => None,
        };
        let is_docker = docker.is_some();
        let joins = matches!(docker, None | Some(DockerNetwork::User));
        let image = Image {
            name: self.text(),
            is_cached: self.half(),
        };
        ContainerInfo {
            docker: docker.map(|network| DockerOptions {
                network,
                port_mappings: self.list(Self::port_mapping),
                is_privileged: self.half(),
            }),
            // A container of type DOCKER always has one.
            image: (is_docker || self.half()).then_some(image),
            volumes: self.list(Self::volume),
            hostname: self.some(Self::text),
            has_terminal: self.half(),
            linux: LinuxInfo {
                effective: self.some(Self::capabilities),
                bounding: self.some(Self::capabilities),
                shares_pid_namespace: self.half(),
                seccomp: self.some(|chance| match chance.half() {
                    true => Seccomp::Profile(chance.text()),
                    false => Seccomp::Unconfined,
                }),
                ipc_mode: self.some(|chance| match chance.half() {
                    true => IpcMode::Private,
                    false => IpcMode::ShareParent,
                }),
                shm_size: self.some(|chance| chance.below(1000) as u32),
                // JSON has the default of an unset one.
                shares_cgroups: Some(self.half()),
            },
            rlimits: self.list(|chance| RLimit {
                kind: match chance.below(3) {
                    0 => RLimitKind::As,
                    1 => RLimitKind::Nofile,
                    _ => RLimitKind::Stack,
                },
                limits: chance.some(|chance| {
                    let soft = chance.below(1000);
                    let hard = soft + chance.below(1000);
                    SoftHard { soft, hard }
                }),
            }),
            networks: match joins {
                true => self.list(Self::network),
                false => Vec::new(),
            },
        }
    }

    fn network(&mut self) -> NetworkInfo {
        NetworkInfo {
            name: self.text(),
            addresses: self.list(|chance| NetworkAddress {
                protocol: chance.pick(&[IpProtocol::V4, IpProtocol::V6]),
                address: chance.some(Self::text),
            }),
            groups: self.list(Self::text),
            labels: self.labels(),
            port_mappings: self.list(Self::port_mapping),
        }
    }

    fn port_mapping(&mut self) -> PortMapping {
        PortMapping {
            host_port: self.below(65_536) as u16,
            container_port: self.below(65_536) as u16,
            protocol: self.some(Self::text),
        }
    }

    /// Of those that Mesos knows.
    fn capabilities(&mut self) -> LinuxCapabilities {
        LinuxCapabilities(self.below(1 << 38))
    }

    fn volume(&mut self) -> ContainerVolume {
        ContainerVolume {
            container_path: self.text(),
            is_read_only: self.half(),
            source: match self.below(5) {
                0 => ContainerVolumeSource::Path(self.text()),
                1 => ContainerVolumeSource::HostPath(self.text()),
                2 => ContainerVolumeSource::SandboxPath(self.text()),
                3 => ContainerVolumeSource::Memory(MemoryVolume {
                    bytes: self.some(|chance| 1 + chance.below(1 << 40)),
                    mode: self.below(0o1777) as u32,
                }),
                _ => ContainerVolumeSource::Secret(SecretData(self.text().into_bytes())),
            },
        }
    }

    /// A task.
    pub fn task(&mut self) -> TaskInfo {
        TaskInfo {
            name: self.text(),
            task_id: self.id(),
            agent_id: self.id(),
            resources: self.resources(),
            command: self.some(Self::command),
            executor: self.some(Self::executor),
            data: self.text().into_bytes(),
            kill_policy: self.some(|chance| KillPolicy {
                grace_period: chance.duration(),
            }),
            health_check: self.some(|chance| Box::new(chance.health_check())),
            check: self.some(|chance| Box::new(chance.check())),
            checks: self.list(|chance| NamedCheck {
                name: chance.text(),
                check: chance.check(),
            }),
            max_completion_time: self.some(Self::duration),
            limits: TaskLimits {
                cpus: self.some(Self::limit),
                mem: self.some(Self::limit),
            },
            labels: self.labels_of_what_is_found(),
            container: self.some(Self::container).map(Box::new),
            group: None,
        }
    }

    fn health_check(&mut self) -> HealthCheck {
        let protocol = self.pick(&[IpProtocol::V4, IpProtocol::V6]);
        let kind = match self.below(3) {
            0 => CheckKind::Command(self.command()),
            1 => CheckKind::Http(HttpCheck {
                port: self.below(70_000) as u32,
                path: self.some(Self::text),
                scheme: self.some(Self::text),
                statuses: self.list(|chance| chance.below(600) as u32),
                protocol,
            }),
            _ => CheckKind::Tcp(TcpCheck { port: 80, protocol }),
        };
        HealthCheck {
            kind,
            timing: self.timing(),
            grace_period: self.seconds(),
            consecutive_failures: self.below(5) as u32,
        }
    }

    fn check(&mut self) -> CheckInfo {
        let port = self.below(70_000) as u32;
        let kind = match self.below(3) {
            0 => CheckKind::Command(self.command()),
            1 => CheckKind::Http(HttpCheck {
                port,
                path: self.some(Self::text),
                ..HttpCheck::default()
            }),
            _ => CheckKind::Tcp(TcpCheck {
                port,
                ..TcpCheck::default()
            }),
        };
        CheckInfo {
            kind,
            timing: self.timing(),
        }
    }

    fn timing(&mut self) -> CheckTiming {
        CheckTiming {
            delay: self.seconds(),
            interval: self.seconds(),
            timeout: self.seconds(),
        }
    }

    /// Microseconds are the finest that a double of v1 carries.
    fn seconds(&mut self) -> Duration {
        Duration::from_micros(self.pick(&[0, 1, 250_000, 10_000_000]))
    }

    fn limit(&mut self) -> Limit {
        match self.below(3) {
            0 => Limit::Infinite,
            amount => Limit::Amount(amount as f64 + 0.5),
        }
    }

    /// Times in microseconds, up to the last that a double represents.
    fn moment(&mut self) -> Timestamp {
        Timestamp::from_nanos(self.below(4_294_967_296_000_000) * 1000)
    }

    fn uuid(&mut self) -> Uuid {
        Uuid(std::array::from_fn(|_| self.next() as u8))
    }

    /// A status with only what v1 can express.
    pub fn status(&mut self) -> TaskStatus {
        TaskStatus {
            task_id: self.id(),
            state: self.pick(TaskState::ALL),
            source: self.pick(Source::ALL),
            reason: self.some(|chance| chance.pick(Reason::ALL)),
            message: self.text(),
            data: self.text().into_bytes(),
            agent_id: self.some(Self::id),
            executor_id: self.some(Self::id),
            container_id: self.some(Self::id),
            address: self.some(|chance| {
                let bits = chance.next();
                match chance.half() {
                    true => Ipv4Addr::from_bits(bits as u32).into(),
                    false => Ipv6Addr::from_bits(u128::from(bits) << 64 | 1).into(),
                }
            }),
            timestamp: self.moment(),
            uuid: self.some(Self::uuid),
            healthy: self.some(Self::half),
            termination: None,
            unreachable_since: self.some(Self::moment),
            labels: self.labels_of_a_status(),
        }
    }

    /// A framework.
    pub fn framework(&mut self) -> FrameworkInfo {
        let role = |chance: &mut Self| chance.role().to_string();
        let roles: BTreeSet<_> = std::iter::once(role(self)).chain(self.list(role)).collect();
        let capabilities = self.list(|chance| chance.pick(&Capability::NAMES).0);
        // Only such a framework has several.
        let several = (roles.len() > 1).then_some(Capability::MultiRole);
        FrameworkInfo {
            user: self.text(),
            name: self.text(),
            id: self.some(Self::id),
            failover_timeout: Duration::from_micros(self.below(4_294_967_296_000_000)),
            checkpoint: self.half(),
            roles,
            hostname: self.text(),
            principal: self.some(Self::text),
            webui_url: self.some(Self::text),
            capabilities: capabilities.into_iter().chain(several).collect(),
            labels: self.labels(),
        }
    }

    /// An agent.
    pub fn agent(&mut self) -> AgentInfo {
        AgentInfo {
            hostname: self.text(),
            port: self.next() as u16,
            resources: self.resources(),
            attributes: self.attributes(),
            domain: self.some(Self::domain),
            id: self.some(Self::id),
        }
    }

    /// A domain.
    pub fn domain(&mut self) -> Domain {
        Domain {
            region: self.text(),
            zone: self.text(),
        }
    }

    /// An offer.
    pub fn offer(&mut self) -> Offer {
        Offer {
            id: self.id(),
            framework_id: self.id(),
            agent_id: self.id(),
            hostname: self.text(),
            role: self.role().to_string(),
            resources: self.resources(),
            attributes: self.attributes(),
            executor_ids: self.list(Self::id),
            unavailability: self.some(Self::unavailability),
            domain: self.some(Self::domain),
            endpoint: self.some(Self::endpoint),
        }
    }

    fn endpoint(&mut self) -> HttpEndpoint {
        let bits = self.next();
        HttpEndpoint {
            address: self.some(|_| Ipv4Addr::from_bits(bits as u32).into()),
            port: (bits >> 48) as u16,
        }
    }

    /// A period of unavailability.
    pub fn unavailability(&mut self) -> Unavailability {
        let start = self.pick(&[0, 7, 1_000_000_000]);
        Unavailability {
            start: Timestamp::from_nanos(start),
            duration: self.some(|chance| Duration::from_secs(chance.below(9))),
        }
    }

    /// Filters.
    pub fn filters(&mut self) -> Filters {
        Filters {
            refuse_seconds: self.pick(&[5.0, 0.0, -1.0, f64::INFINITY]),
        }
    }

    /// An operation of any kind.
    pub fn operation(&mut self) -> Operation {
        let conversion = match self.below(8) {
            0 => {
                let tasks = self.list(Self::task);
                return Operation::Launch { tasks };
            }
            1 => {
                let executor = Box::new(self.executor());
                let tasks = self.list(Self::task);
                return Operation::LaunchGroup { executor, tasks };
            }
            2 => Conversion::Reserve {
                resources: self.resources(),
            },
            3 => Conversion::Unreserve {
                resources: self.resources(),
            },
            4 => Conversion::Create {
                volumes: self.resources(),
            },
            5 => Conversion::Destroy {
                volumes: self.resources(),
            },
            6 => Conversion::GrowVolume {
                volume: self.resource(),
                addition: self.resource(),
            },
            _ => Conversion::ShrinkVolume {
                volume: self.resource(),
                subtract: self.amount(),
            },
        };
        Operation::Convert {
            id: self.some(Self::id),
            conversion,
        }
    }

    /// The status of an operation.
    pub fn operation_status(&mut self) -> OperationStatus {
        OperationStatus {
            operation_id: self.id(),
            state: self.pick(OperationState::ALL),
            message: self.text(),
            converted: self.resources(),
            uuid: self.some(Self::uuid),
            agent_id: self.some(Self::id),
        }
    }

    /// Demands by role, with only what v1 can express.
    pub fn demands(&mut self) -> BTreeMap<String, Demand> {
        let constraint = |chance: &mut Self| Constraint {
            selector: match chance.below(4) {
                0 => Selector::Hostname,
                1 => Selector::Region,
                2 => Selector::Zone,
                _ => Selector::Attribute(chance.text()),
            },
            predicate: match chance.below(6) {
                0 => Predicate::Exists,
                1 => Predicate::NotExists,
                2 => Predicate::TextEquals(chance.text()),
                3 => Predicate::TextNotEquals(chance.text()),
                4 => Predicate::TextMatches(chance.text()),
                _ => Predicate::TextNotMatches(chance.text()),
            },
        };
        let group = |chance: &mut Self| {
            std::iter::once(constraint(chance))
                .chain(chance.list(constraint))
                .collect()
        };
        let demand = |chance: &mut Self| {
            let groups = std::iter::once(group(chance)).chain(chance.list(group));
            let agents: Vec<Vec<Constraint>> = groups.collect();
            let least = chance.some(|chance| chance.list(Self::quantities));
            // A demand must not be empty.
            let keep = chance.half() || least.is_none();
            Demand {
                agents: if keep { agents } else { Vec::new() },
                least,
                ..Demand::default()
            }
        };
        self.list(|chance| (chance.role().to_string(), demand(chance)))
            .into_iter()
            .collect()
    }

    fn quantities(&mut self) -> Quantities {
        let amount = |chance: &mut Self| {
            let name = chance.pick(&["cpus", "mem", "tokens"]);
            (Name::new(name).unwrap(), chance.amount())
        };
        self.list(amount).into_iter().collect()
    }

    /// A quota.
    pub fn quota(&mut self) -> Quota {
        Quota {
            guarantees: self.quantities(),
            limits: self.quantities(),
        }
    }
}
