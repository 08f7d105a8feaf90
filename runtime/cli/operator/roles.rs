//! The verbs about roles: `meros roles`, `meros quota show | set | reset` and `meros weights show | set`.
//!
//! The leading master is asked, whatever master is named first. Decides nothing: the master judges what is set.

use std::collections::BTreeMap;

use ::master::Config;
use ::master::http::words;
use clap::{Args, Subcommand};
use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateRefused, UpdateWeights, ViewRoles};
use protocol::view::RoleView;
use resources::Quantities;
use runtime::Remote;
use serde_json::{Value, json};

use super::list::{amounts, plain, print, print_json};
use super::{ClusterFlags, ListArgs, Operator};
use crate::failure::{Failure, Outcome};
use crate::flags::Text;
use crate::out;

const QUOTA_HELP: &str = "\
Examples:
  meros quota set eng --guarantee 'cpus:4;mem:8192' --limit cpus:16
  meros quota set --json '{\"quota_configs\": [{\"role\": \"eng\", \"limits\": {\"cpus\": {\"value\": 16}}}, {\"role\": \"ops\"}]}'
  meros quota reset eng
A limit holds for a role and all roles below it. What a role guarantees is shared by the roles below it.";

const WEIGHTS_HELP: &str = "\
Example:
  meros weights set dev=2,prod=3.5
What is set here wins over the masters' --weights, and outlives them; 1 is what every other role has.";

/// Show and change what roles are sure of, and may not go beyond
#[derive(Subcommand, Debug)]
#[command(after_help = QUOTA_HELP)]
pub enum QuotaArgs {
    /// Show the roles with a quota, and what they consume of it
    Show(ListArgs),
    /// Give a role a quota in place of the one it has, or several roles at once, all or none
    #[command(after_help = QUOTA_HELP)]
    Set(Box<SetQuotaArgs>),
    /// Take the quotas of these roles away
    #[command(after_help = "Example: meros quota reset eng ops/batch")]
    Reset(ResetQuotaArgs),
}

/// `meros quota set`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct SetQuotaArgs {
    /// The role
    #[arg(required_unless_present = "json")]
    role: Option<String>,
    /// Kept free for the role until it takes it, as in `cpus:4;mem:8192`
    #[arg(
        long,
        value_name = "AMOUNTS",
        default_value = "",
        hide_default_value = true
    )]
    guarantee: Quantities,
    /// The most that the role may hold, as in `cpus:16`
    #[arg(
        long,
        value_name = "AMOUNTS",
        default_value = "",
        hide_default_value = true
    )]
    limit: Quantities,
    /// Several roles as JSON, or as file:///PATH of it
    #[arg(long, value_name = "JSON", conflicts_with_all = ["role", "guarantee", "limit"])]
    json: Option<Text>,
    /// Also if the cluster has less than is guaranteed, or the role holds more than its limit already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros quota reset`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ResetQuotaArgs {
    /// The roles
    #[arg(required = true, value_name = "ROLE")]
    roles: Vec<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Show and change the weights of roles: a role of weight 2 gets twice the share of one of weight 1
#[derive(Subcommand, Debug)]
#[command(after_help = WEIGHTS_HELP)]
pub enum WeightsArgs {
    /// Show the roles that have another weight than 1
    Show(ListArgs),
    /// Give roles weights, all or none
    #[command(after_help = WEIGHTS_HELP)]
    Set(SetWeightsArgs),
}

/// `meros weights set`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct SetWeightsArgs {
    /// The weights
    #[arg(value_name = "ROLE=WEIGHT,...")]
    weights: String,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros roles`.
pub async fn list(args: ListArgs) -> Outcome {
    let roles = look(&args.cluster).await?;
    if args.json {
        return print_json(&roles.iter().map(words::role).collect());
    }
    let row = |role: &RoleView| {
        [
            role.name.clone(),
            role.weight.to_string(),
            role.frameworks.len().to_string(),
            plain(&role.allocated),
            plain(&role.offered),
            role.reserved.quantities().to_string(),
            role.consumed.to_string(),
            limits(&role.quota),
        ]
    };
    let rows: Vec<_> = roles.iter().map(row).collect();
    let headings = [
        "ROLE",
        "WEIGHT",
        "FRAMEWORKS",
        "ALLOCATED",
        "OFFERED",
        "RESERVED",
        "CONSUMED",
        "LIMIT",
    ];
    print(headings, &rows, "no roles are known");
    Ok(())
}

/// `meros quota`.
pub async fn quota(args: QuotaArgs) -> Outcome {
    match args {
        QuotaArgs::Show(args) => show_quotas(args).await,
        QuotaArgs::Set(args) => set_quotas(*args).await,
        QuotaArgs::Reset(args) => {
            let default = |role: &String| (role.clone(), Quota::default());
            let update = UpdateQuotas {
                quotas: args.roles.iter().map(default).collect(),
                force: false,
            };
            change(&args.cluster, update).await?;
            out!("no quota any more: {}", args.roles.join(", "));
            Ok(())
        }
    }
}

async fn show_quotas(args: ListArgs) -> Outcome {
    let mut roles = look(&args.cluster).await?;
    roles.retain(|role| !role.quota.is_default());
    if args.json {
        let quota = |role: &RoleView| words::role(role)["quota"].take();
        return print_json(&roles.iter().map(quota).collect());
    }
    let row = |role: &RoleView| {
        [
            role.name.clone(),
            amounts(&role.quota.guarantees),
            limits(&role.quota),
            amounts(&role.consumed),
        ]
    };
    let rows: Vec<_> = roles.iter().map(row).collect();
    let headings = ["ROLE", "GUARANTEE", "LIMIT", "CONSUMED"];
    print(headings, &rows, "no role has a quota");
    Ok(())
}

fn limits(quota: &Quota) -> String {
    match quota.limits.iter().len() {
        0 => "none".to_owned(),
        _ => quota.limits.to_string(),
    }
}

async fn set_quotas(args: SetQuotaArgs) -> Outcome {
    let mut update = match (&args.json, args.role) {
        (Some(Text(text)), _) => {
            let said = words::quotas(text.as_bytes());
            said.map_err(|problem| Failure::usage(format!("--json: {problem}")))?
                .update
        }
        (None, role) => {
            let quota = Quota {
                guarantees: args.guarantee,
                limits: args.limit,
            };
            if quota.is_default() {
                let problem = "neither --guarantee nor --limit is given";
                return Err(Failure::usage(problem).next("`meros quota reset` takes a quota away"));
            }
            UpdateQuotas {
                quotas: role.into_iter().map(|role| (role, quota.clone())).collect(),
                force: false,
            }
        }
    };
    update.force |= args.force;
    change(&args.cluster, update.clone()).await?;
    for (role, quota) in &update.quotas {
        let (guarantee, limit) = (amounts(&quota.guarantees), limits(quota));
        out!("{role}: guarantee {guarantee}, limit {limit}");
    }
    Ok(())
}

/// `meros weights`.
pub async fn weights(args: WeightsArgs) -> Outcome {
    match args {
        WeightsArgs::Show(args) => show_weights(args).await,
        WeightsArgs::Set(args) => {
            let weights: BTreeMap<String, f64> = Config::parse_weights(&args.weights)
                .map_err(|error| Failure::usage(error.to_string()))?;
            let said = |(role, weight): (&String, &f64)| format!("{role}={weight}");
            let said: Vec<_> = weights.iter().map(said).collect();
            change(&args.cluster, UpdateWeights { weights }).await?;
            out!("weights: {}", said.join(", "));
            Ok(())
        }
    }
}

async fn show_weights(args: ListArgs) -> Outcome {
    let mut roles = look(&args.cluster).await?;
    roles.retain(|role| role.weight != 1.0);
    if args.json {
        let info = |role: &RoleView| json!({ "role": role.name, "weight": role.weight });
        return print_json(&roles.iter().map(info).collect::<Value>());
    }
    let row = |role: &RoleView| [role.name.clone(), role.weight.to_string()];
    let rows: Vec<_> = roles.iter().map(row).collect();
    print(["ROLE", "WEIGHT"], &rows, "every role has weight 1");
    Ok(())
}

async fn look(cluster: &ClusterFlags) -> Outcome<Vec<RoleView>> {
    let operator = Operator::connect(cluster).await?;
    let roles = operator.look(ViewRoles).await;
    operator.close().await;
    roles
}

async fn ask<M: Remote>(cluster: &ClusterFlags, question: M) -> Outcome<M::Result> {
    let operator = Operator::connect(cluster).await?;
    let answer = operator.ask(question).await;
    operator.close().await;
    answer
}

async fn change<M>(cluster: &ClusterFlags, update: M) -> Outcome
where
    M: Remote + runtime::prelude::Message<Result = Result<(), UpdateRefused>>,
{
    let changed = ask(cluster, update).await?;
    changed.map_err(|error| Failure::because("nothing was changed", &error))
}
