//! The cost of revocation for the allocator: the check for unmet guarantees, once a second while
//! there are any, and the choice of tasks. The state, without mailboxes, has 10,000 agents that are
//! used up by 100,000 tasks.
//!
//! The allocator requests the tasks of 500 agents at a time; for comparison, also the choice among
//! all tasks at once.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use criterion::Criterion;
use module_api::allocator::{AgentAdded, FrameworkAdded, ListedTask, QuotasChanged};
use modules::allocator::AllocatorState;
use protocol::{AgentId, AgentInfo, FrameworkId, FrameworkInfo, Quota, TaskId};
use resources::{Quantities, Resources, Role};
use runtime::{Instant, Timestamp};

const AGENTS: u32 = 10_000;
/// Tasks of each agent, which use all of it.
const TASKS: u32 = 10;
const AGENT: &str = "cpus:10;mem:10240";
const TASK: &str = "cpus:1;mem:1024";
/// Guarantee of the role without tasks: the size of 200 tasks, the largest choice.
const GUARANTEE: &str = "cpus:200;mem:204800";

/// For an invalid constant above.
type Wrong = Box<dyn std::error::Error>;

fn framework(name: &str) -> Result<FrameworkAdded, Wrong> {
    let mut info = FrameworkInfo::new("nobody", name);
    info.roles = [name.to_owned()].into();
    Ok(FrameworkAdded {
        framework_id: FrameworkId::new(name)?,
        info,
        wants: Default::default(),
        active: true,
    })
}

fn agent_id(number: u32) -> Result<AgentId, Wrong> {
    Ok(AgentId::new(format!("agent-{number}"))?)
}

/// A state in which `batch` holds everything and `web` wants its guarantee.
fn scarce() -> Result<AllocatorState, Wrong> {
    let mut state = AllocatorState::default();
    state.lend_guarantees();
    for name in ["batch", "web"] {
        state.framework_added(framework(name)?);
    }
    let quota = Quota {
        guarantees: Quantities::parse(GUARANTEE)?,
        limits: Quantities::new(),
    };
    let quotas = BTreeMap::from([("web".to_owned(), quota)]);
    state.quotas_changed(&QuotasChanged { quotas });
    let batch = Role::new("batch")?;
    let resources: Resources = AGENT.parse()?;
    let owner = FrameworkId::new("batch")?;
    for number in 0..AGENTS {
        state.agent_added(AgentAdded {
            agent_id: agent_id(number)?,
            session: 1,
            info: AgentInfo::new(format!("host-{number}"), resources.clone()),
            oversubscribed: Resources::new(),
            used: vec![(owner.clone(), resources.allocate(&batch))],
        });
    }
    Ok(state)
}

/// Tasks on `count` agents, with priorities from 0 to 6.
fn tasks(agents: u32) -> Result<Vec<ListedTask>, Wrong> {
    let batch = Role::new("batch")?;
    let resources: Resources = TASK.parse()?;
    let resources = resources.allocate(&batch);
    let task = |number: u32| {
        Ok(ListedTask {
            framework_id: FrameworkId::new("batch")?,
            task_id: TaskId::new(format!("t{number}"))?,
            agent_id: agent_id(number / TASKS)?,
            resources: resources.clone(),
            priority: (number.wrapping_mul(2_654_435_761) >> 16) as i32 % 7,
            since: Some(Timestamp::from_nanos(u64::from(number % 977))),
            leaves: false,
        })
    };
    (0..agents * TASKS).map(task).collect()
}

fn looking(criterion: &mut Criterion, state: &mut AllocatorState, web: &BTreeSet<Role>) {
    let now = Instant::default();
    criterion.bench_function("shortage/10000_agents", |bencher| {
        bencher.iter(|| black_box(state.shortage(now)));
    });
    let shortage = state.shortage(now);
    assert_eq!(shortage.roles(), *web);
    criterion.bench_function("shortage_roles/10000_agents", |bencher| {
        bencher.iter(|| black_box(shortage.roles()));
    });
    criterion.bench_function("occupied/10000_agents", |bencher| {
        bencher.iter(|| black_box(state.occupied(&shortage, web, 0)));
    });
}

fn choosing(
    criterion: &mut Criterion,
    state: &mut AllocatorState,
    web: &BTreeSet<Role>,
    tasks: &[ListedTask],
) {
    let (now, none) = (Instant::default(), BTreeMap::new());
    assert_eq!(state.victims(web, tasks, &none, now).len(), 200);
    criterion.bench_function(&format!("victims/{}_tasks", tasks.len()), |bencher| {
        bencher.iter(|| black_box(state.victims(web, tasks, &none, now)));
    });
}

fn main() -> Result<(), Wrong> {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let (mut state, web) = (scarce()?, BTreeSet::from([Role::new("web")?]));
    looking(&mut criterion, &mut state, &web);
    for agents in [500, AGENTS] {
        choosing(&mut criterion, &mut state, &web, &tasks(agents)?);
    }
    criterion.final_summary();
    Ok(())
}
