//! `meros explain`: why a framework gets no offers (W26).
//!
//! Asks the leader, whose allocator knows the reasons, and prints the answer as text or JSON.

use ::master::api::v0::explain::value;
use clap::Args;
use protocol::message::operator::{ExplainError, ExplainOffers};
use protocol::view::explain::{OffersExplained, ReasonCount, RoleExplanation};

use super::list::print_json;
use super::{ClusterFlags, Operator};
use crate::out;
use crate::output::error::{CliError, Outcome};

const HELP: &str = "\
Examples:
  meros explain web
  meros explain web --role eng --agent node-7
Each agent is counted once, by its first reason; with --agent all reasons are shown. Shares are dominant shares.";

/// Explain why a framework gets no offers
#[derive(Args, Debug)]
#[command(rename_all = "snake_case", after_help = HELP)]
pub struct ExplainArgs {
    /// The framework's id or name
    framework: String,
    /// Only for this role
    #[arg(long)]
    role: Option<String>,
    /// Only for this agent, by id or host: all reasons
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `meros explain`.
pub async fn run(args: ExplainArgs) -> Outcome {
    let operator = Operator::connect(&args.cluster).await?;
    let question = ExplainOffers {
        framework: args.framework,
        role: args.role,
        agent: args.agent,
    };
    let explained = operator.ask(question).await;
    operator.close().await;
    let explained = explained?.map_err(|problem| match &problem {
        ExplainError::Unknown(_) => CliError::new(problem.to_string())
            .next("`meros frameworks` and `meros agents` show all"),
        ExplainError::NoAnswer { .. } => CliError::because("no explanation", &problem),
    })?;
    if args.json {
        return print_json(&value(&explained));
    }
    lines(&explained).iter().for_each(|line| out!("{line}"));
    Ok(())
}

fn lines(explained: &OffersExplained) -> Vec<String> {
    let (name, id) = (&explained.name, &explained.explanation.framework_id);
    let mut lines = Vec::new();
    for role in &explained.explanation.roles {
        let unanswered = explained.unanswered.get(&role.role).copied().unwrap_or(0);
        lines.push(format!(
            "{name} ({id}) in role {}: share {:.3}, the role's {:.3}, unanswered offers {unanswered}",
            role.role, role.share, role.role_share
        ));
        of_role(role, &mut lines);
    }
    lines
}

fn of_role(role: &RoleExplanation, lines: &mut Vec<String>) {
    for standing in &role.standing {
        lines.push(format!("  everywhere: {standing}"));
    }
    if !role.standing.is_empty() && role.agents > 0 {
        lines.push("  and were it not for that:".to_owned());
    }
    role.reasons.iter().for_each(|tally| of_tally(tally, lines));
    match (role.agents, role.untold) {
        (0, _) => lines.push("  no agents are registered".to_owned()),
        (_, 0) => {}
        (_, untold) => lines.push(format!("  {}: other reasons", agents(untold))),
    }
}

fn of_tally(tally: &ReasonCount, lines: &mut Vec<String>) {
    let Some(first) = tally.examples.first() else {
        return;
    };
    let lent = if tally.revocable {
        " (what is lent)"
    } else {
        ""
    };
    let title = first.reason.title();
    lines.push(format!("  {}{lent}: {title}", agents(tally.agents)));
    for example in &tally.examples {
        let (host, id) = (&example.hostname, &example.agent_id);
        match example.reason.to_string() {
            none if none.is_empty() => lines.push(format!("    {host} ({id})")),
            detail => lines.push(format!("    {host} ({id}): {detail}")),
        }
    }
    let more = tally.agents.saturating_sub(tally.examples.len() as u64);
    if more > 0 {
        lines.push(format!("    and {more} more"));
    }
}

fn agents(count: u64) -> String {
    match count {
        1 => "1 agent".to_owned(),
        count => format!("{count} agents"),
    }
}
