//! `meros oversubscription`: usage, lent resources and corrections of each agent.
//!
//! The master knows which resources are offered and allocated. Usage, estimate and corrections come
//! from the agents, which are asked at the same time.

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream;
use protocol::message::operator::ViewOversubscription;
use protocol::view::AgentView;
use protocol::view::oversubscription::{CorrectionView, OversubscriptionView};
use resources::{Quantities, Resources};
use runtime::Timestamp;
use serde_json::{Value, json};

use super::list::{amounts, print, print_json};
use super::maintenance::when;
use super::{ANSWER_TIMEOUT, ClusterFlags, Operator, no_answer};
use crate::out;
use crate::output::error::{CliError, Outcome};

/// Agents that are asked at the same time.
const AT_ONCE: usize = 64;

const HELP: &str = "\
USED and SLACK are those of regular executors, IN USE of best-effort ones. ESTIMATE is the estimator's
answer, REVOCABLE all lent resources, of which OFFERED are in offers and ALLOCATED to executors.";

/// Show usage, lent resources and corrections of agents
#[derive(Args, Debug)]
#[command(rename_all = "snake_case", after_help = HELP)]
pub struct OversubscriptionArgs {
    /// Only this agent, by id or host
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An agent as the master knows it, and its own answer.
type Asked = (AgentView, Outcome<OversubscriptionView>);

/// `meros oversubscription`.
pub async fn run(args: OversubscriptionArgs) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let asked = ask_all(&operator, args.agent.as_deref()).await;
    let now = operator.node().clock().wall();
    operator.close().await;
    let asked = asked?;
    if args.json {
        return print_json(&asked.iter().map(value).collect());
    }
    let rows: Vec<_> = asked.iter().map(row).collect();
    print(HEADINGS, &rows, "no agents are registered");
    let corrections: Vec<_> = asked.iter().flat_map(|one| corrections(one, now)).collect();
    if !corrections.is_empty() {
        out!("");
        print(CORRECTION_HEADINGS, &corrections, "");
    }
    for (agent, answer) in &asked {
        if let Err(error) = answer {
            crate::output::print::error_line(format_args!("agent {}: {error}", agent.id));
        }
    }
    Ok(())
}

/// Asks all agents, or the one of this id or host.
async fn ask_all(operator: &Operator, wanted: Option<&str>) -> Outcome<Vec<Asked>> {
    let mut agents = operator.view().await?.agents;
    if let Some(wanted) = wanted {
        agents.retain(|one| one.id.as_str() == wanted || one.info.hostname == wanted);
        if agents.is_empty() {
            return Err(CliError::new(format!("agent {wanted} is not registered"))
                .next("`meros agents` shows all agents"));
        }
    }
    let each = agents.into_iter().map(|agent| async {
        let answer = ask(operator, &agent).await;
        (agent, answer)
    });
    Ok(stream::iter(each).buffered(AT_ONCE).collect().await)
}

async fn ask(operator: &Operator, agent: &AgentView) -> Outcome<OversubscriptionView> {
    let pid = operator.agent(agent).await?;
    let asked = operator
        .node()
        .ask(&pid, ViewOversubscription, ANSWER_TIMEOUT);
    let answer = asked.await;
    let answer = answer.map_err(|error| no_answer(&format!("agent {}", agent.id), &error))?;
    answer.map_err(|error| CliError::new(error.to_string()))
}

fn value((agent, answer): &Asked) -> Value {
    let mut value = match answer {
        Ok(view) => ::agent::oversubscription::view::json(view),
        Err(error) => json!({ "error": error.to_string() }),
    };
    value["id"] = json!(agent.id.as_str());
    value["hostname"] = json!(agent.info.hostname);
    value["port"] = json!(agent.info.port);
    for (key, resources) in [
        ("total", &agent.oversubscribed),
        ("offered", &agent.offered),
        ("allocated", &agent.used),
    ] {
        let revocable = resources.revocable().quantities();
        let each = revocable.iter();
        let each = each.map(|(name, amount)| (name.to_string(), json!(amount.as_f64())));
        value["master"][key] = Value::Object(each.collect());
    }
    value
}

const HEADINGS: [&str; 10] = [
    "ID",
    "HOST",
    "USED",
    "SLACK",
    "ESTIMATE",
    "MAXIMUM",
    "REVOCABLE",
    "OFFERED",
    "ALLOCATED",
    "IN USE",
];

fn row((agent, answer): &Asked) -> [String; 10] {
    let view = answer.as_ref().ok();
    let of = |part: fn(&OversubscriptionView) -> Option<Quantities>| {
        view.and_then(part)
            .map_or_else(|| "-".to_owned(), |part| amounts(&part))
    };
    let known = |resources: &Resources| amounts(&resources.revocable().quantities());
    [
        agent.id.to_string(),
        format!("{}:{}", agent.info.hostname, agent.info.port),
        of(|view| Some(view.regular.used.clone())),
        of(|view| Some(view.regular.slack())),
        of(|view| Some(view.estimate.as_ref()?.available.clone())),
        of(|view| Some(view.maximum.clone()).filter(|maximum| !maximum.is_empty())),
        known(&agent.oversubscribed),
        known(&agent.offered),
        known(&agent.used),
        of(|view| Some(view.revocable.used.clone())),
    ]
}

const CORRECTION_HEADINGS: [&str; 6] = [
    "CORRECTED",
    "AGENT",
    "FRAMEWORK ID",
    "EXECUTOR",
    "CORRECTION",
    "REASON",
];

fn corrections((agent, answer): &Asked, now: Timestamp) -> Vec<[String; 6]> {
    let all = answer.iter().flat_map(|view| &view.corrections);
    let row = |one: &CorrectionView| {
        let reason = match &one.problem {
            Some(problem) => format!("{}; failed: {problem}", one.reason),
            None => one.reason.clone(),
        };
        [
            when(one.at, now),
            agent.id.to_string(),
            one.framework_id.to_string(),
            one.executor_id.to_string(),
            one.kind.to_string(),
            reason,
        ]
    };
    all.map(row).collect()
}
