//! Benchmark clusters: the allocator's state and a sorter without mailboxes, filled as in Mesos'
//! own benchmarks.
//!
//! Every agent has cpus, memory, disk and ports, with 16 port ranges in use. One run offers every
//! agent, and declined resources are refused for an hour. The same shape and seed produce the same
//! cluster. For tests of this crate and for `meros-lab bench allocator`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use module_api::allocator::{AgentAdded, FrameworkAdded, Grant, QuotasChanged, Recovered};
use module_api::sorter::Stage;
use modules::allocator::{AllocatorState, ROUNDS_MAX};
use modules::sorter::Drf;
use protocol::{AgentInfo, FrameworkInfo, Quota};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use resources::{
    Annotations, DiskInfo, Label, Labels, Name, Quantities, Reservation, Resource, Resources, Role,
    Scalar,
};
use runtime::Instant;

/// Resources of one agent without its reservations.
const AGENT: &str = "cpus:24;mem:4096;disk:4096;ports:[31000-32000]";
/// Guarantees of the roles in turn, half an agent and one and a half: their sum is just the
/// cluster.
const GUARANTEES: [&str; 2] = ["cpus:11;mem:2048;disk:2048", "cpus:33;mem:6144;disk:6144"];
/// One reservation.
const RESERVED: &str = "cpus:0.1;mem:1";
/// Duration of a filter.
const REFUSE: Duration = Duration::from_secs(3600);

/// Size and kind of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of agents.
    pub agents: u32,
    /// Number of frameworks, each in one role.
    pub frameworks: u32,
    /// Number of roles; with 0, all frameworks are in `*`.
    pub roles: u32,
    /// Whether each role has a guarantee. Together they cover the whole cluster.
    pub quotas: bool,
    /// Reservations of each agent, distributed over the roles in turn.
    pub reservations: u32,
    /// Labels of each reservation, different on each agent.
    pub labels: u32,
    /// Whether each reservation has a persistent volume of 1 MiB.
    pub volumes: bool,
}

impl Shape {
    /// A cluster of that size, with all frameworks in role `*`.
    pub const fn of(agents: u32, frameworks: u32) -> Self {
        Self {
            agents,
            frameworks,
            roles: 0,
            quotas: false,
            reservations: 0,
            labels: 0,
            volumes: false,
        }
    }

    fn role(&self, n: u32) -> Role {
        match self.roles {
            0 => Role::STAR,
            roles => must(Role::new(&format!("role-{}", n % roles))),
        }
    }

    /// Its agents; each has a few resources in use by one of the first 50 frameworks.
    pub fn agents(&self) -> impl Iterator<Item = AgentAdded> + use<> {
        let mut used = String::from("cpus:1;ports:[");
        for piece in 0..16 {
            let begin = 31_000 + piece * 50;
            let comma = if piece == 0 { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(used, "{comma}{begin}-{}", begin + 9);
        }
        let used = must(Resources::parse(&format!("{used}]")));
        let total = must(Resources::parse(AGENT));
        let (shape, users) = (*self, self.frameworks.clamp(1, 50));
        let added = move |n| AgentAdded {
            agent_id: must(format!("agent-{n}").parse()),
            session: 1,
            info: AgentInfo::new(format!("host-{n}"), total.clone() + shape.reserved(n)),
            oversubscribed: Resources::new(),
            used: vec![(
                must(format!("framework-{}", n % users).parse()),
                used.allocate(&shape.role(n % users)),
            )],
        };
        (0..self.agents).map(added)
    }

    /// Reserved resources of one agent.
    fn reserved(&self, agent: u32) -> Resources {
        let one = must(Resources::parse(RESERVED));
        let mut all = Resources::new();
        for n in 0..self.reservations {
            let label = |label: u32| Label {
                key: format!("label-{label}"),
                value: Some(format!("{agent}-{n}")),
            };
            let mut reservation = Reservation::dynamic(self.role(n), Some("operator"));
            reservation.labels = Labels::new((0..self.labels).map(label).collect());
            let reserve =
                |resource: &Resource| must(resource.push_reservation(reservation.clone()));
            all += one.iter().map(reserve).collect::<Resources>();
            if self.volumes {
                let id = format!("volume-{agent}-{n}");
                let annotations = Annotations {
                    reservations: vec![reservation],
                    disk: Some(Box::new(DiskInfo::persistent(id, Some("operator"), "data"))),
                    ..Annotations::default()
                };
                let volume = Resource::annotated(Name::Disk, Scalar::whole(1), annotations);
                all += must(volume);
            }
        }
        all
    }

    /// Its frameworks.
    pub fn frameworks(&self) -> impl Iterator<Item = FrameworkAdded> + use<> {
        let shape = *self;
        let added = move |n| {
            let mut info = FrameworkInfo::new("nobody", format!("framework-{n}"));
            info.roles = [shape.role(n).as_str().to_owned()].into();
            FrameworkAdded {
                framework_id: must(format!("framework-{n}").parse()),
                info,
                wants: Default::default(),
                active: true,
            }
        };
        (0..self.frameworks).map(added)
    }

    fn quotas(&self) -> QuotasChanged {
        let roles = if self.quotas { self.roles } else { 0 };
        let quota = |n: u32| {
            let quota = Quota {
                guarantees: must(Quantities::parse(GUARANTEES[n as usize % 2])),
                limits: Quantities::new(),
            };
            (self.role(n).as_str().to_owned(), quota)
        };
        let quotas: BTreeMap<_, _> = (0..roles).map(quota).collect();
        QuotasChanged { quotas }
    }
}

/// A cluster as its allocator and sorter see it. Its clock stands still.
#[derive(Clone)]
pub struct Workload {
    /// The allocator's state.
    pub state: AllocatorState,
    /// Its sorter.
    pub sorter: Drf,
    rng: SmallRng,
    now: Instant,
}

impl Workload {
    /// An empty cluster.
    pub fn empty(seed: u64) -> Self {
        Self {
            state: AllocatorState::default(),
            sorter: Drf::default(),
            rng: SmallRng::seed_from_u64(seed),
            now: Instant::default(),
        }
    }

    /// A cluster of this shape with all unused resources free.
    pub fn of(shape: &Shape, seed: u64) -> Self {
        let mut all = Self::empty(seed);
        all.state.quotas_changed(&shape.quotas());
        for added in shape.frameworks() {
            all.state.framework_added(added);
        }
        for added in shape.agents() {
            all.state.agent_added(added);
        }
        all
    }

    /// The candidate agents of a new run, shuffled.
    pub fn candidates(&mut self, batch: bool) -> Vec<u32> {
        let mut slots = self.state.candidates(self.now, batch);
        slots.shuffle(&mut self.rng);
        slots
    }

    /// One run, as in the allocator's actor. Granted resources count as allocated.
    pub fn run(&mut self, batch: bool) -> Vec<Grant> {
        let slots = self.candidates(batch);
        let mut grants = Vec::new();
        for stage in Stage::ALL {
            let (mut slots, mut barred) = (slots.clone(), Default::default());
            slots.shuffle(&mut self.rng);
            for _ in 0..ROUNDS_MAX {
                let slate = self.state.slate(stage, &slots, &barred, self.now);
                let Some((slate, pending)) = slate else { break };
                let advice = must(self.sorter.advise(slate));
                let booked = self.state.book(pending, &advice, self.now);
                grants.extend(booked.grants.into_iter().map(|(_, grant)| grant));
                if booked.again.is_empty() {
                    break;
                }
                slots = booked.again;
                barred.extend(booked.barred);
            }
        }
        self.state.run_ended();
        grants
    }

    /// Declines all grants with a filter of an hour.
    pub fn decline(&mut self, grants: Vec<Grant>) {
        grants
            .into_iter()
            .for_each(|grant| self.recover(grant, Some(REFUSE)));
    }

    /// Returns the resources of a grant, as after the end of its task.
    pub fn end(&mut self, grant: Grant) {
        self.recover(grant, None);
    }

    fn recover(&mut self, grant: Grant, refuse: Option<Duration>) {
        let recovered = Recovered {
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            resources: grant.resources,
            refuse,
            beside_offer: false,
        };
        self.state.recovered(&recovered, self.now);
    }
}

/// Constants of this file are valid.
fn must<T, E: std::fmt::Display>(made: Result<T, E>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => unreachable!("{error}"),
    }
}
