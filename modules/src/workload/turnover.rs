//! A cluster whose tasks come and go: how near the shares of its frameworks come to those of exact dominant resource fairness (S114, S117).
//!
//! Books and sorter as in [`super`], with a clock that moves a second at a time. Every framework has as much to do as it gets room for,
//! in tasks of one size, which is its own, and takes whatever it is offered as far as it fits; what does not fit it declines for five
//! seconds. Tasks end by chance, all after the same time on average. Some frameworks come later than others. The same plan and seed give
//! the same moments.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{AgentAdded, FrameworkAdded, Grant};
use protocol::{AgentId, AgentInfo, FrameworkId, FrameworkInfo};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use resources::{Attributes, Resources, Role};

use super::{Workload, sure};

/// What agents have, in turn.
const AGENTS: [&str; 2] = ["cpus:16;mem:32768", "cpus:8;mem:65536"];
/// How long what does not fit is declined.
const REFUSE: Duration = Duration::from_secs(5);
/// One step of the clock.
const STEP: Duration = Duration::from_secs(1);

/// What a cluster is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many agents.
    pub agents: u32,
    /// How many frameworks are there from the start.
    pub first: u32,
    /// How many come when half of the time is over.
    pub late: u32,
    /// How long a task takes on average.
    pub task: Duration,
    /// How long all of it takes.
    pub lasts: Duration,
}

/// What one framework's tasks need.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    cpus: f64,
    mem: f64,
}

/// How it is at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Since the beginning.
    pub at: Duration,
    /// The dominant share of each framework that is there, the first ones first.
    pub shares: Vec<f64>,
    /// What each of them would have if resources could be cut as finely as one likes.
    pub exact: f64,
    /// Half a task of each framework, as a part of the exact share: how far from it whole tasks are on average.
    pub grain: f64,
}

impl Moment {
    /// How far the shares are from the exact one on average, as a part of it.
    pub fn deviation(&self) -> f64 {
        let apart = self.shares.iter().map(|share| (share - self.exact).abs());
        apart.sum::<f64>() / self.exact / self.shares.len() as f64
    }
}

struct Task {
    framework: usize,
    grant: Grant,
    ends: Duration,
}

struct Turnover {
    cluster: Workload,
    total: Need,
    needs: Vec<Need>,
    ids: BTreeMap<FrameworkId, usize>,
    tasks: Vec<Task>,
    rng: SmallRng,
    at: Duration,
    mean: Duration,
}

/// All moments of such a cluster, one each second.
pub fn play(plan: &Plan, seed: u64) -> Vec<Moment> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let needs = (0..plan.first + plan.late).map(|_| Need {
        cpus: f64::from(rng.random_range(1..=8)) / 2.0,
        mem: f64::from(rng.random_range(1..=16)) * 512.0,
    });
    let needs: Vec<Need> = needs.collect();
    play_with(plan, &needs, seed)
}

/// The same with these needs: one for each framework.
fn play_with(plan: &Plan, needs: &[Need], seed: u64) -> Vec<Moment> {
    let mut all = Turnover {
        cluster: Workload::empty(seed),
        total: Need {
            cpus: 0.0,
            mem: 0.0,
        },
        needs: Vec::new(),
        ids: BTreeMap::new(),
        tasks: Vec::new(),
        rng: SmallRng::seed_from_u64(seed),
        at: Duration::ZERO,
        mean: plan.task,
    };
    for number in 0..plan.agents {
        all.add_agent(number);
    }
    let (first, late) = needs.split_at(plan.first as usize);
    all.add_frameworks(first);
    let mut moments = Vec::new();
    while all.at < plan.lasts {
        if all.at * 2 >= plan.lasts && all.needs.len() == first.len() {
            all.add_frameworks(late);
        }
        moments.push(all.step());
    }
    moments
}

impl Turnover {
    fn add_agent(&mut self, number: u32) {
        let resources = sure(Resources::parse(AGENTS[number as usize % AGENTS.len()]));
        self.total.cpus += resources.cpus().as_f64();
        self.total.mem += resources.mem().as_f64();
        let agent_id: AgentId = sure(format!("agent-{number}").parse());
        self.cluster.books.agent_added(AgentAdded {
            agent_id,
            session: 1,
            info: AgentInfo {
                hostname: format!("host-{number}"),
                port: 5051,
                resources,
                attributes: Attributes::default(),
                domain: None,
                id: None,
            },
            oversubscribed: Resources::new(),
            used: Vec::new(),
        });
    }

    fn add_frameworks(&mut self, needs: &[Need]) {
        for need in needs {
            let number = self.needs.len();
            let framework_id: FrameworkId = sure(format!("framework-{number}").parse());
            let mut info = FrameworkInfo::new("nobody", format!("framework-{number}"));
            info.roles = [Role::STAR.as_str().to_owned()].into();
            self.ids.insert(framework_id.clone(), number);
            self.cluster.books.framework_added(FrameworkAdded {
                framework_id,
                info,
                wants: Default::default(),
                active: true,
            });
            self.needs.push(need.clone());
        }
    }

    /// A second passes: tasks end, what is free is granted and used.
    fn step(&mut self) -> Moment {
        self.at += STEP;
        self.cluster.now = self.cluster.now + STEP;
        let (over, going) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition(|task| task.ends <= self.at);
        self.tasks = going;
        for task in over {
            self.cluster.end(task.grant);
        }
        for grant in self.cluster.run(true) {
            self.take(grant);
        }
        self.moment()
    }

    /// As many tasks as fit into what was granted.
    fn take(&mut self, grant: Grant) {
        let Some(framework) = self.ids.get(&grant.framework_id).copied() else {
            return;
        };
        let need = &self.needs[framework];
        let needed = sure(Resources::parse(&format!(
            "cpus:{};mem:{}",
            need.cpus, need.mem
        )));
        let mut rest = grant.resources.clone();
        while let Some(resources) = rest.find(&needed) {
            rest.subtract_what_is_there(&resources);
            // Ends come at a constant rate, so that at any moment the time left is the mean again.
            let chance = self.rng.random_range(f64::EPSILON..1.0);
            self.tasks.push(Task {
                framework,
                grant: Grant {
                    resources,
                    ..grant.clone()
                },
                ends: self.at + self.mean.mul_f64(-chance.ln()),
            });
        }
        let rest = Grant {
            resources: rest,
            ..grant
        };
        self.cluster.give_back(rest, Some(REFUSE));
    }

    /// A framework's dominant share with one task.
    fn of_one(&self, need: &Need) -> f64 {
        (need.cpus / self.total.cpus).max(need.mem / self.total.mem)
    }

    fn moment(&self) -> Moment {
        let mut shares = vec![0.0; self.needs.len()];
        for task in &self.tasks {
            shares[task.framework] += self.of_one(&self.needs[task.framework]);
        }
        // All shares grow alike until there is no more of something.
        let used = |part: fn(&Need) -> f64| {
            let each = self.needs.iter();
            let each = each.map(|need| part(need) / part(&self.total) / self.of_one(need));
            each.sum::<f64>()
        };
        let exact = 1.0 / used(|need| need.cpus).max(used(|need| need.mem));
        let halves = self.needs.iter().map(|need| self.of_one(need) / 2.0);
        Moment {
            at: self.at,
            grain: halves.sum::<f64>() / exact / self.needs.len() as f64,
            shares,
            exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(moments: &[Moment], of: impl Fn(&Moment) -> f64) -> f64 {
        moments.iter().map(of).sum::<f64>() / moments.len() as f64
    }

    #[test]
    fn shares_come_as_near_to_the_exact_ones_as_whole_tasks_and_chance_let_them() {
        let plan = Plan {
            agents: 30,
            first: 6,
            late: 0,
            task: Duration::from_secs(60),
            lasts: Duration::from_secs(600),
        };
        let moments = play(&plan, 7);
        assert_eq!(moments, play(&plan, 7), "the same seed gives the same run");
        let settled = &moments[300..];
        let deviation = mean(settled, Moment::deviation);
        assert!(deviation < 0.1, "{deviation}");
    }

    /// S114: a framework whose share is a tenth waits about a tenth of the mean task length for it.
    #[test]
    fn who_comes_late_has_its_tenth_after_a_tenth_of_a_task() {
        let plan = Plan {
            agents: 60,
            first: 9,
            late: 1,
            task: Duration::from_secs(200),
            lasts: Duration::from_secs(600),
        };
        let need = Need {
            cpus: 1.0,
            mem: 2048.0,
        };
        let moments = play_with(&plan, &vec![need; 10], 7);
        let came = moments.iter().find(|moment| moment.shares.len() == 10);
        let came = came.map(|moment| moment.at).unwrap_or_default();
        let has = moments.iter().find(|moment| {
            moment
                .shares
                .last()
                .is_some_and(|share| moment.shares.len() == 10 && *share >= 0.9 * moment.exact)
        });
        let waited = has.map(|moment| moment.at - came).unwrap_or(plan.lasts);
        let tenth = plan.task / 10;
        assert!(waited > tenth / 2 && waited < tenth * 2, "{waited:?}");
    }
}
