//! Clusters to measure the allocator with: books and sorter without mailboxes, filled as in Mesos' own benchmarks (SPEC 4.10, Benchmarks).
//!
//! As there, every agent has cpus, memory, disk, and ports of which a list in 16 pieces is in use; one run offers every agent to somebody,
//! and what is declined is refused for an hour. The same shape and seed give the same cluster. For `meros bench allocator` and `cargo bench`
//! only: no cluster is run by this. [`turnover`] has one whose tasks come and go, [`measure`] says what work on one takes, and [`recorded`] what Mesos takes.

pub mod measure;
pub mod recorded;
pub mod turnover;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use module_api::allocator::{
    AgentAdded, FrameworkAdded, Grant, QuotasChanged, Recovered, Revived, Suppressed,
};
use module_api::sorter::{Slate, Stage};
use protocol::{AgentInfo, FrameworkId, FrameworkInfo, Quota};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use resources::{
    Annotations, Attributes, DiskInfo, Label, Labels, Name, Quantities, Reservation, Resource,
    Resources, Role, Scalar,
};
use runtime::Instant;

use crate::allocator::{Asked, Books, ROUNDS_MAX};
use crate::sorter::Drf;

/// What one agent has, beside what is reserved there.
const AGENT: &str = "cpus:24;mem:4096;disk:4096;ports:[31000-32000]";
/// Half an agent, and one and a half: what roles are guaranteed in turn, so that the cluster has just enough for all.
const GUARANTEES: [&str; 2] = ["cpus:11;mem:2048;disk:2048", "cpus:33;mem:6144;disk:6144"];
/// One reservation.
const RESERVED: &str = "cpus:0.1;mem:1";
/// How long a refusal holds.
const REFUSE: Duration = Duration::from_secs(3600);

/// How large a cluster is, and of what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many agents.
    pub agents: u32,
    /// How many frameworks, each in one role.
    pub frameworks: u32,
    /// How many roles there are; with none, all frameworks are in `*`.
    pub roles: u32,
    /// Whether each role has a guarantee, and what is guaranteed is all there is.
    pub quotas: bool,
    /// How many reservations each agent has, for one role after the other.
    pub reservations: u32,
    /// How many labels each reservation has; no two agents have the same.
    pub labels: u32,
    /// Whether each reservation has a persistent volume beside it, of a mebibyte.
    pub volumes: bool,
}

impl Shape {
    /// A cluster of that size, all in role `*`.
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
            roles => sure(Role::new(&format!("role-{}", n % roles))),
        }
    }

    /// Its agents, each with a little in use by one of the first 50 frameworks.
    pub fn agents(&self) -> impl Iterator<Item = AgentAdded> + use<> {
        let mut used = String::from("cpus:1;ports:[");
        for piece in 0..16 {
            let begin = 31_000 + piece * 50;
            let comma = if piece == 0 { "" } else { "," };
            // A String takes whatever is written.
            let _ = write!(used, "{comma}{begin}-{}", begin + 9);
        }
        let used = sure(Resources::parse(&format!("{used}]")));
        let total = sure(Resources::parse(AGENT));
        let (shape, users) = (*self, self.frameworks.clamp(1, 50));
        let added = move |n| AgentAdded {
            agent_id: sure(format!("agent-{n}").parse()),
            session: 1,
            info: AgentInfo {
                hostname: format!("host-{n}"),
                port: 5051,
                resources: total.clone() + shape.reserved(n),
                attributes: Attributes::default(),
                domain: None,
                id: None,
            },
            oversubscribed: Resources::new(),
            used: vec![(
                sure(format!("framework-{}", n % users).parse()),
                used.allocate(&shape.role(n % users)),
            )],
        };
        (0..self.agents).map(added)
    }

    /// The same agents with one core more each.
    pub fn larger_agents(&self) -> impl Iterator<Item = AgentAdded> + use<> {
        let more = sure(Resources::parse("cpus:1"));
        self.agents().map(move |mut added| {
            added.info.resources += more.clone();
            added
        })
    }

    /// What is reserved on one agent.
    fn reserved(&self, agent: u32) -> Resources {
        let one = sure(Resources::parse(RESERVED));
        let mut all = Resources::new();
        for n in 0..self.reservations {
            let label = |label: u32| Label {
                key: format!("label-{label}"),
                value: Some(format!("{agent}-{n}")),
            };
            let mut reservation = Reservation::dynamic(self.role(n), Some("operator"));
            reservation.labels = Labels::new((0..self.labels).map(label).collect());
            let reserve =
                |resource: &Resource| sure(resource.push_reservation(reservation.clone()));
            all += one.iter().map(reserve).collect::<Resources>();
            if self.volumes {
                let id = format!("volume-{agent}-{n}");
                let annotations = Annotations {
                    reservations: vec![reservation],
                    disk: Some(Box::new(DiskInfo::persistent(id, Some("operator"), "data"))),
                    ..Annotations::default()
                };
                let volume = Resource::annotated(Name::Disk, Scalar::whole(1), annotations);
                all += sure(volume);
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
                framework_id: sure(format!("framework-{n}").parse()),
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
                guarantees: sure(Quantities::parse(GUARANTEES[n as usize % 2])),
                limits: Quantities::new(),
            };
            (self.role(n).as_str().to_owned(), quota)
        };
        let quotas: BTreeMap<_, _> = (0..roles).map(quota).collect();
        QuotasChanged { quotas }
    }
}

/// A cluster as its allocator and sorter see it. Its clock stands.
#[derive(Clone)]
pub struct Workload {
    /// The allocator's books.
    pub books: Books,
    /// Its sorter.
    pub sorter: Drf,
    rng: SmallRng,
    now: Instant,
}

impl Workload {
    /// A cluster with nobody in it.
    pub fn empty(seed: u64) -> Self {
        Self {
            books: Books::default(),
            sorter: Drf::default(),
            rng: SmallRng::seed_from_u64(seed),
            now: Instant::default(),
        }
    }

    /// A cluster of this shape in which everything that is not in use is free.
    pub fn of(shape: &Shape, seed: u64) -> Self {
        let mut all = Self::empty(seed);
        all.books.quotas_changed(&shape.quotas());
        for added in shape.frameworks() {
            all.books.framework_added(added);
        }
        for added in shape.agents() {
            all.books.agent_added(added);
        }
        all
    }

    /// The agents that the run which begins now looks at, shuffled.
    pub fn candidates(&mut self, batch: bool) -> Vec<u32> {
        let mut slots = self.books.candidates(self.now, batch);
        slots.shuffle(&mut self.rng);
        slots
    }

    /// The first slate about these agents.
    pub fn slate(&mut self, stage: Stage, slots: &[u32]) -> Option<(Slate, Asked)> {
        self.books
            .slate(stage, slots, &Default::default(), self.now)
    }

    /// One run, as the allocator's actor does it. What was granted is held by whoever got it.
    pub fn run(&mut self, batch: bool) -> Vec<Grant> {
        let slots = self.candidates(batch);
        let mut grants = Vec::new();
        for stage in Stage::ALL {
            let (mut slots, mut barred) = (slots.clone(), Default::default());
            slots.shuffle(&mut self.rng);
            for _ in 0..ROUNDS_MAX {
                let slate = self.books.slate(stage, &slots, &barred, self.now);
                let Some((slate, asked)) = slate else { break };
                let advice = sure(self.sorter.advise(slate));
                let booked = self.books.book(asked, &advice, self.now);
                grants.extend(booked.grants.into_iter().map(|(_, grant)| grant));
                if booked.again.is_empty() {
                    break;
                }
                slots = booked.again;
                barred.extend(booked.barred);
            }
        }
        self.books.run_ended();
        grants
    }

    /// All of it is declined, and refused for an hour.
    pub fn decline(&mut self, grants: Vec<Grant>) {
        grants
            .into_iter()
            .for_each(|grant| self.give_back(grant, Some(REFUSE)));
    }

    /// A framework wants nothing for the present.
    pub fn suppress(&mut self, framework: &FrameworkId) {
        self.books.suppressed(&Suppressed {
            framework_id: framework.clone(),
            roles: Default::default(),
        });
    }

    /// It wants offers again, and refuses nothing any more.
    pub fn revive(&mut self, framework: &FrameworkId) {
        self.books.revived(&Revived {
            framework_id: framework.clone(),
            roles: Default::default(),
        });
    }

    /// What was granted was used, and has ended.
    pub fn end(&mut self, grant: Grant) {
        self.give_back(grant, None);
    }

    fn give_back(&mut self, grant: Grant, refuse: Option<Duration>) {
        let recovered = Recovered {
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            resources: grant.resources,
            refuse,
            beside_offer: false,
        };
        self.books.recovered(&recovered, self.now);
    }
}

/// What is written in this file is sound.
fn sure<T, E: std::fmt::Display>(made: Result<T, E>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => unreachable!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the measurements say of a run holds only if each agent is granted in it, and none in the next.
    #[test]
    fn one_run_offers_every_agent_and_the_next_meets_the_refusals() {
        let plain = Shape::of(40, 5);
        let labels = Shape {
            roles: 5,
            reservations: 2,
            labels: 10,
            ..plain
        };
        let volumes = Shape {
            volumes: true,
            ..labels
        };
        for shape in [plain, labels, volumes] {
            let mut all = Workload::of(&shape, 7);
            for _ in 0..4 {
                let grants = all.run(true);
                assert!(grants.len() >= 40, "{shape:?}: {}", grants.len());
                all.decline(grants);
            }
            let held = Workload::of(&shape, 7).run(true);
            let mut all = Workload::of(&shape, 7);
            let grants = all.run(true);
            assert_eq!(grants, held, "the same seed gives the same run");
            assert!(all.run(true).is_empty());
            all.end(grants[3].clone());
            assert_eq!(all.candidates(false).len(), 1);
        }
    }

    #[test]
    fn guarantees_of_the_whole_cluster_are_all_met_in_one_run() {
        let shape = Shape {
            roles: 20,
            quotas: true,
            ..Shape::of(20, 20)
        };
        let mut all = Workload::of(&shape, 7);
        let budgets = all.books.budgets();
        assert!(!budgets.required().is_empty());
        all.run(true);
        let lacking = all.books.budgets().required().clone();
        assert!(lacking.is_empty(), "{lacking}");
    }
}
