//! One sample of each word that messages carry.

mod explained;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use meros_protocol as protocol;
use protocol::task::check::{CheckKind, CheckTiming, HttpCheck, IpProtocol, TcpCheck};
use protocol::task::{Limit, TaskLimits};
use protocol::view::*;
use protocol::*;
use resources::{Attributes, Quantities, Resources, Revocable};
use runtime::Timestamp;

pub use explained::explained;

pub fn id<T: std::str::FromStr<Err = InvalidId>>(text: &str) -> T {
    text.parse().unwrap()
}

pub fn agent() -> AgentInfo {
    AgentInfo {
        hostname: "foobar".to_owned(),
        port: 5051,
        resources: Resources::parse(
            "cpus:4;mem:2048;cpus(ads):8;mem(ads):4096;ports:[21000-29000];bugs:{a,b,c}",
        )
        .unwrap(),
        attributes: Attributes::parse("rack:rack-2;datacenter:europe").unwrap(),
        domain: None,
        id: Some(id("m-S1")),
    }
}

pub fn framework() -> FrameworkInfo {
    FrameworkInfo {
        id: Some(id("m-0000")),
        failover_timeout: Duration::from_secs(60),
        principal: Some("ops".to_owned()),
        webui_url: Some("http://foobar".to_owned()),
        capabilities: BTreeSet::from([Capability::RevocableResources]),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        ..FrameworkInfo::new("nobody", "Revocable framework")
    }
}

pub fn executor() -> ExecutorInfo {
    ExecutorInfo {
        kind: protocol::ExecutorKind::Custom,
        executor_id: id("e"),
        name: "executor".to_owned(),
        command: CommandInfo {
            uris: vec![Uri::new("http://files/executor.tgz")],
            ..CommandInfo::program("/bin/executor", ["--fast".to_owned()])
        },
        resources: Resources::parse("cpus:0.1").unwrap(),
        data: vec![1, 2],
        shutdown_grace_period: Some(Duration::from_millis(1500)),
        labels: Labels::new(),
        container: None,
    }
}

pub fn task() -> TaskInfo {
    TaskInfo {
        name: "task".to_owned(),
        task_id: id("t"),
        agent_id: id("m-S1"),
        resources: Resources::parse("cpus:0.45;mem:32")
            .unwrap()
            .allocate(&"ads".parse().unwrap()),
        command: Some(CommandInfo::shell("echo hello")),
        executor: None,
        data: vec![255],
        kill_policy: Some(KillPolicy {
            grace_period: Duration::from_secs(3),
        }),
        health_check: Some(Box::new(HealthCheck {
            kind: CheckKind::Http(HttpCheck {
                port: 80,
                path: Some("/".to_owned()),
                scheme: None,
                statuses: vec![200],
                protocol: IpProtocol::V6,
            }),
            timing: CheckTiming::default(),
            grace_period: Duration::from_secs(10),
            consecutive_failures: 3,
        })),
        check: Some(Box::new(CheckInfo {
            kind: CheckKind::Command(CommandInfo::shell("true")),
            timing: CheckTiming::default(),
        })),
        checks: vec![NamedCheck {
            name: "web".to_owned(),
            check: CheckInfo {
                kind: CheckKind::Tcp(TcpCheck::default()),
                timing: CheckTiming::default(),
            },
        }],
        max_completion_time: Some(Duration::from_secs(60)),
        limits: TaskLimits {
            cpus: Some(Limit::Amount(1.5)),
            mem: Some(Limit::Infinite),
        },
        labels: Labels::new(),
        container: None,
        group: None,
    }
}

pub fn status() -> TaskStatus {
    TaskStatus {
        executor_id: Some(id("e")),
        container_id: Some(Uuid([7; 16]).into()),
        address: None,
        uuid: Some(Uuid([9; 16])),
        healthy: Some(true),
        termination: Some(Termination::Signaled(9)),
        unreachable_since: Some(Timestamp::default()),
        ..TaskStatus::new(
            id("t"),
            TaskState::Failed,
            Source::Executor,
            Timestamp::default(),
        )
        .with_reason(Reason::CommandExecutorFailed, "because")
        .on(&id("m-S1"))
    }
}

pub fn offer() -> Offer {
    Offer {
        id: id("m-O1"),
        framework_id: id("m-0000"),
        agent_id: id("m-S1"),
        hostname: "foobar".to_owned(),
        role: "ads".to_owned(),
        resources: Resources::parse("cpus:1")
            .unwrap()
            .to_revocable(Revocable::Throttleable)
            .unwrap(),
        attributes: Attributes::default(),
        executor_ids: vec![id("e")],
        unavailability: Some(unavailability()),
        domain: None,
        endpoint: None,
    }
}

pub fn unavailability() -> Unavailability {
    Unavailability {
        start: Timestamp::from_nanos(9),
        duration: Some(Duration::from_secs(3600)),
    }
}

pub fn machine() -> MachineId {
    MachineId::new("foobar", "10.0.0.2").unwrap()
}

pub fn master() -> MasterInfo {
    MasterInfo {
        id: id("m"),
        hostname: "foobar".to_owned(),
        port: 5050,
        version: "0.1.0".to_owned(),
        term: 7,
        address: None,
        domain: None,
    }
}

pub fn task_view() -> TaskView {
    TaskView {
        id: id("t"),
        name: "task".to_owned(),
        framework_id: id("m-0000"),
        executor_id: id("e"),
        agent_id: id("m-S1"),
        state: TaskState::Running,
        resources: Resources::parse("cpus:1").unwrap(),
        statuses: vec![status()],
        labels: Labels::new(),
    }
}

pub fn cluster() -> ClusterView {
    let nothing = Resources::default();
    let agent = AgentView {
        id: id("m-S1"),
        info: agent(),
        address: "127.0.0.1:5051".to_owned(),
        active: true,
        orders: AgentOrders {
            deactivated: true,
            drain: Some(Drain {
                max_grace_period: Some(Duration::from_secs(7)),
                mark_gone: true,
                since: Timestamp::default(),
                drained: false,
            }),
        },
        registered: Timestamp::default(),
        version: "0.1.0".to_owned(),
        oversubscribed: nothing.clone(),
        used: nothing.clone(),
        offered: nothing.clone(),
    };
    let framework = FrameworkView {
        id: id("m-0000"),
        info: framework(),
        connected: true,
        active: true,
        registered: Timestamp::default(),
        unregistered: None,
        tasks: vec![task_view()],
        completed_tasks: Vec::new(),
        unreachable_tasks: Vec::new(),
        offers: vec![offer()],
        used: nothing,
    };
    ClusterView {
        master: master(),
        elected: Timestamp::default(),
        started: Timestamp::default(),
        agents: vec![agent],
        frameworks: vec![framework],
        completed_frameworks: Vec::new(),
    }
}

pub fn quota() -> Quota {
    Quota {
        guarantees: Quantities::parse("cpus:2").unwrap(),
        limits: Quantities::parse("cpus:4;mem:2048").unwrap(),
    }
}

pub fn role() -> RoleView {
    let nothing = Resources::default();
    RoleView {
        name: "eng/web".to_owned(),
        weight: 2.5,
        quota: quota(),
        consumed: Quantities::parse("cpus:1").unwrap(),
        frameworks: vec![id("m-0000")],
        allocated: Resources::parse("cpus:1").unwrap(),
        offered: nothing.clone(),
        reserved: nothing,
    }
}
