//! The listing verbs `meros agents`, `tasks`, `frameworks` and `state`, as a table or JSON.

use std::fmt::Display;

use protocol::view::{AgentView, ClusterView, FrameworkView, TaskView};
use serde_json::Value;

use super::{ListArgs, Operator, json};
use crate::out;
use crate::output::error::{CliError, Outcome};
use crate::output::{print, table};

async fn view(args: &ListArgs) -> Outcome<ClusterView> {
    let operator = Operator::connect(&args.cluster).await?;
    let view = operator.view().await;
    operator.close().await;
    view
}

pub(super) fn print_json(value: &Value) -> Outcome {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::because("cannot print JSON", &error))?;
    print::json_lines(&text);
    Ok(())
}

pub(super) fn print<const N: usize>(
    headings: [&str; N],
    rows: &[[String; N]],
    nothing: impl Display,
) {
    if rows.is_empty() {
        return out!("{nothing}");
    }
    for line in table::lines(headings, rows) {
        out!("{line}");
    }
}

/// Resources without their allocation, which has its own column.
pub(super) fn plain(resources: &resources::Resources) -> String {
    resources.unallocate().brief().to_string()
}

/// The state of an agent.
fn state_name(agent: &AgentView) -> &'static str {
    match (agent.orders.drain, agent.orders.deactivated) {
        (Some(drain), _) if drain.drained => "drained",
        (Some(_), _) => "draining",
        (None, true) => "deactivated",
        (None, false) if agent.active => "active",
        (None, false) => "inactive",
    }
}

/// `meros agents`.
pub async fn agents(args: ListArgs) -> Outcome {
    let view = view(&args).await?;
    if args.json {
        return print_json(&view.agents.iter().map(json::agent).collect());
    }
    let row = |agent: &AgentView| {
        [
            agent.id.to_string(),
            format!("{}:{}", agent.info.hostname, agent.info.port),
            state_name(agent).to_owned(),
            plain(&agent.used),
            plain(&agent.info.resources),
            plain(&agent.oversubscribed),
        ]
    };
    let rows: Vec<_> = view.agents.iter().map(row).collect();
    print(
        ["ID", "HOST", "STATE", "USED", "TOTAL", "OVERSUBSCRIBED"],
        &rows,
        "no agents are registered",
    );
    Ok(())
}

/// All tasks of the cluster, each framework's running ones first.
pub fn all_tasks(view: &ClusterView) -> impl Iterator<Item = (&FrameworkView, &TaskView)> {
    let frameworks = view.frameworks.iter().chain(&view.completed_frameworks);
    frameworks.flat_map(|framework| {
        let tasks = framework
            .tasks
            .iter()
            .chain(&framework.unreachable_tasks)
            .chain(&framework.completed_tasks);
        tasks.map(move |task| (framework, task))
    })
}

/// `meros tasks`.
pub async fn tasks(args: ListArgs) -> Outcome {
    let view = view(&args).await?;
    if args.json {
        return print_json(&all_tasks(&view).map(|(_, task)| json::task(task)).collect());
    }
    let host = |task: &TaskView| {
        let agent = view.agents.iter().find(|agent| agent.id == task.agent_id);
        agent.map_or_else(
            || task.agent_id.to_string(),
            |agent| format!("{}:{}", agent.info.hostname, agent.info.port),
        )
    };
    let row = |(framework, task): (&FrameworkView, &TaskView)| {
        [
            task.id.to_string(),
            task.state.to_string(),
            host(task),
            plain(&task.resources),
            framework.info.name.clone(),
            framework.id.to_string(),
        ]
    };
    let rows: Vec<_> = all_tasks(&view).map(row).collect();
    print(
        [
            "TASK",
            "STATE",
            "AGENT",
            "RESOURCES",
            "FRAMEWORK",
            "FRAMEWORK ID",
        ],
        &rows,
        "no tasks are known",
    );
    Ok(())
}

/// `meros frameworks`.
pub async fn frameworks(args: ListArgs) -> Outcome {
    let view = view(&args).await?;
    let all = || view.frameworks.iter().chain(&view.completed_frameworks);
    if args.json {
        return print_json(&all().map(json::framework).collect());
    }
    let row = |framework: &FrameworkView| {
        let state = match framework {
            framework if framework.unregistered.is_some() => "completed",
            framework if !framework.connected => "disconnected",
            framework if !framework.active => "inactive",
            _ => "active",
        };
        let roles: Vec<_> = framework.info.roles.iter().map(String::as_str).collect();
        [
            framework.id.to_string(),
            framework.info.name.clone(),
            roles.join(","),
            state.to_owned(),
            framework.tasks.len().to_string(),
            framework.completed_tasks.len().to_string(),
            plain(&framework.used),
        ]
    };
    let rows: Vec<_> = all().map(row).collect();
    print(
        ["ID", "NAME", "ROLES", "STATE", "TASKS", "ENDED", "USED"],
        &rows,
        "no frameworks are known",
    );
    Ok(())
}

/// `meros state`.
pub async fn state(args: ListArgs) -> Outcome {
    let view = view(&args).await?;
    if args.json {
        return print_json(&json::cluster(&view));
    }
    let active = view.agents.iter().filter(|agent| agent.active).count();
    let connected = view
        .frameworks
        .iter()
        .filter(|framework| framework.connected)
        .count();
    let (mut total, mut used, mut offered) = <(
        resources::Quantities,
        resources::Quantities,
        resources::Quantities,
    )>::default();
    for agent in &view.agents {
        for (sum, part) in [
            (&mut total, &agent.info.resources),
            (&mut used, &agent.used),
            (&mut offered, &agent.offered),
        ] {
            part.quantities()
                .iter()
                .for_each(|(name, amount)| sum.add(name.clone(), amount));
        }
    }
    let counts = json::counts(all_tasks(&view).map(|(_, task)| task));
    let counts: Vec<_> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    out!(
        "master      {} at {}:{}, version {}",
        view.master.id,
        view.master.hostname,
        view.master.port,
        view.master.version
    );
    out!(
        "agents      {} active, {} inactive",
        active,
        view.agents.len() - active
    );
    out!(
        "frameworks  {} connected, {} disconnected, {} completed",
        connected,
        view.frameworks.len() - connected,
        view.completed_frameworks.len()
    );
    out!(
        "tasks       {}",
        if counts.is_empty() {
            "none".to_owned()
        } else {
            counts.join(", ")
        }
    );
    out!(
        "resources   total {}; used {}; offered {}",
        amounts(&total),
        amounts(&used),
        amounts(&offered)
    );
    Ok(())
}

pub(super) fn amounts(quantities: &resources::Quantities) -> String {
    let parts: Vec<_> = quantities
        .iter()
        .map(|(name, amount)| format!("{name}:{amount}"))
        .collect();
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(";")
    }
}
