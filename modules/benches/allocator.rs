//! What a run of the allocator costs, beside what the same costs in Mesos' own benchmark `DeclineOffers` (one thread each).
//!
//! As there: every agent has cpus, memory, disk and a list of ports in 16 pieces, all frameworks are in role `*`; one run offers every agent
//! to somebody, then all is declined, so that the next run meets the filters. The whole decision is measured, books and sorter, without
//! mailboxes, in processor time as Mesos' figures are. Each figure ends as one line of JSON: microseconds, Mesos' figure as the limit, and
//! how many times faster this is.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use module_api::allocator::{AgentAdded, FrameworkAdded, Grant, Recovered};
use module_api::sorter::Stage;
use modules::allocator::Books;
use modules::sorter::Drf;
use protocol::{AgentId, AgentInfo, FrameworkId, FrameworkInfo};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use resources::{Attributes, Resources, Role};
use runtime::Instant;

/// Agents, frameworks, and milliseconds in Mesos: one run, adding all agents, adding all frameworks.
const ANCHORS: [(u32, u32, [f64; 3]); 4] = [
    (1_000, 50, [31.0, 48.0, 0.5]),
    (1_000, 1_000, [41.0, 63.0, 9.9]),
    (5_000, 200, [178.0, 315.0, 3.0]),
    (10_000, 50, [362.0, 579.0, 0.5]),
];

struct World {
    books: Books,
    sorter: Drf,
    rng: SmallRng,
    now: Instant,
}

fn id<T: std::str::FromStr<Err = protocol::InvalidId>>(prefix: &str, n: u32) -> T {
    match format!("{prefix}{n}").parse() {
        Ok(id) => id,
        Err(error) => unreachable!("{error}"),
    }
}

fn text(text: &str) -> Resources {
    match Resources::parse(text) {
        Ok(resources) => resources,
        Err(error) => unreachable!("{error}"),
    }
}

fn agents(count: u32) -> Vec<AgentAdded> {
    let mut used = String::from("cpus:1;ports:[");
    for piece in 0..16 {
        let comma = if piece == 0 { "" } else { "," };
        let _ = write!(
            used,
            "{comma}{}-{}",
            31_000 + piece * 50,
            31_000 + piece * 50 + 9
        );
    }
    let total = text("cpus:24;mem:4096;disk:4096;ports:[31000-32000]");
    let used = text(&format!("{used}]")).allocate(&Role::STAR);
    let added = |n| AgentAdded {
        agent_id: id::<AgentId>("agent-", n),
        session: 1,
        info: AgentInfo {
            hostname: format!("host-{n}"),
            port: 5051,
            resources: total.clone(),
            attributes: Attributes::default(),
            domain: None,
            id: None,
        },
        oversubscribed: Resources::new(),
        used: vec![(id::<FrameworkId>("framework-", n % 50), used.clone())],
    };
    (0..count).map(added).collect()
}

fn frameworks(count: u32) -> Vec<FrameworkAdded> {
    let added = |n| FrameworkAdded {
        framework_id: id("framework-", n),
        info: FrameworkInfo::new("nobody", format!("framework-{n}")),
        wants: Default::default(),
        active: true,
    };
    (0..count).map(added).collect()
}

impl World {
    fn new(agents_count: u32, frameworks_count: u32) -> Self {
        let mut world = Self {
            books: Books::default(),
            sorter: Drf::default(),
            rng: SmallRng::seed_from_u64(7),
            now: Instant::default(),
        };
        frameworks(frameworks_count)
            .into_iter()
            .for_each(|added| world.books.framework_added(added));
        agents(agents_count)
            .into_iter()
            .for_each(|added| world.books.agent_added(added));
        world
    }

    fn run(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut slots = self.books.candidates(self.now, true);
        slots.shuffle(&mut self.rng);
        for stage in Stage::ALL {
            let slate = self
                .books
                .slate(stage, &slots, &Default::default(), self.now);
            let Some((slate, asked)) = slate else {
                continue;
            };
            let advice = self.sorter.advise(slate).unwrap_or_default();
            let booked = self.books.book(asked, &advice, self.now);
            grants.extend(booked.grants.into_iter().map(|(_, grant)| grant));
        }
        grants
    }

    fn decline(&mut self, grants: Vec<Grant>) {
        for grant in grants {
            let recovered = Recovered {
                framework_id: grant.framework_id,
                agent_id: grant.agent_id,
                resources: grant.resources,
                refuse: Some(Duration::from_secs(3600)),
            };
            self.books.recovered(&recovered, self.now);
        }
    }
}

/// The median of many, in microseconds.
fn report(figure: &str, parameters: &str, taken: &mut [Duration], mesos_ms: f64) {
    taken.sort();
    let Some(median) = taken.get(taken.len() / 2) else {
        return;
    };
    let (ours, mesos) = (median.as_secs_f64() * 1e6, mesos_ms * 1e3);
    println!(
        "{{\"bench\":\"allocator\",\"figure\":\"{figure}\",\"unit\":\"us\",\"value\":{ours:.1},\"limit\":{mesos:.1},\"ratio\":{:.1},\"parameters\":\"{parameters}\"}}",
        mesos / ours
    );
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    for (agents_count, frameworks_count, [run, add_agents, add_frameworks]) in ANCHORS {
        let parameters = format!("{agents_count} agents x {frameworks_count} frameworks");
        let ready = World::new(agents_count, frameworks_count);
        if (agents_count, frameworks_count) == (1_000, 50) {
            criterion.bench_function(&format!("one run, {parameters}"), |bencher| {
                bencher.iter_batched(
                    || World {
                        books: ready.books.clone(),
                        sorter: ready.sorter.clone(),
                        rng: ready.rng.clone(),
                        now: ready.now,
                    },
                    |mut world| black_box(world.run()),
                    BatchSize::LargeInput,
                );
            });
        }
        println!("{parameters}");
        let mut world = ready;
        let (mut runs, mut declines) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            let begun = watch();
            let grants = world.run();
            runs.push(begun());
            assert_eq!(grants.len(), agents_count as usize);
            let begun = watch();
            world.decline(grants);
            declines.push(begun());
        }
        report("run", &parameters, &mut runs, run);
        let many = agents(agents_count);
        let mut taken: Vec<Duration> = (0..5)
            .map(|_| {
                let (mut books, many) = (Books::default(), many.clone());
                let begun = watch();
                many.into_iter().for_each(|added| books.agent_added(added));
                begun()
            })
            .collect();
        report("add_agents", &parameters, &mut taken, add_agents);
        let many = frameworks(frameworks_count);
        let mut taken: Vec<Duration> = (0..5)
            .map(|_| {
                let (mut books, many) = (Books::default(), many.clone());
                let begun = watch();
                many.into_iter()
                    .for_each(|added| books.framework_added(added));
                begun()
            })
            .collect();
        report("add_frameworks", &parameters, &mut taken, add_frameworks);
        declines.sort();
        println!(
            "  median of declining all: {:?}",
            declines[declines.len() / 2]
        );
    }
    criterion.final_summary();
}

/// Starts a stop watch of this thread's processor time, which other work on the machine does not lengthen.
fn watch() -> impl Fn() -> Duration {
    let spent = || {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.map_or(Duration::ZERO, Duration::from)
    };
    let begun = spent();
    move || spent().saturating_sub(begun)
}
