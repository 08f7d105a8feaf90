//! The verbs for roles: `meros roles`, `meros quota show | set | reset` and `meros weights show |
//! set`.
//!
//! Requests go to the leader, which validates them.

use std::collections::BTreeMap;

use ::master::Config;
use ::master::api::v0::role_json;
use clap::{Args, Subcommand};
use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateRefused, UpdateWeights, ViewRoles};
use protocol::view::RoleView;
use resources::Quantities;
use runtime::Remote;
use serde_json::{Value, json};

use super::list::{amounts, plain, print, print_json};
use super::{ClusterFlags, ListArgs, Operator};
use crate::flags::Text;
use crate::out;
use crate::output::error::{CliError, Outcome};

const QUOTA_HELP: &str = "\
Examples:
  meros quota set eng --guarantee 'cpus:4;mem:8192' --limit cpus:16
  meros quota set --json '{\"quota_configs\": [{\"role\": \"eng\", \"limits\": {\"cpus\": {\"value\": 16}}}, {\"role\": \"ops\"}]}'
  meros quota reset eng
A limit applies to a role and all roles below it. The guarantee of a role is shared by the roles below it.";

const WEIGHTS_HELP: &str = "\
Example:
  meros weights set dev=2,prod=3.5
These weights are persistent and override the masters' --weights; all other roles have weight 1.";

/// Show and change the guarantees and limits of roles
#[derive(Subcommand, Debug)]
#[command(after_help = QUOTA_HELP)]
pub enum QuotaArgs {
    /// Show the roles with a quota, and their consumption
    Show(ListArgs),
    /// Replace the quota of a role, or of several roles atomically
    #[command(after_help = QUOTA_HELP)]
    Set(Box<SetQuotaArgs>),
    /// Remove the quotas of roles
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
    /// Guarantee: resources kept free for the role, for example `cpus:4;mem:8192`
    #[arg(
        long,
        value_name = "AMOUNTS",
        default_value = "",
        hide_default_value = true
    )]
    guarantee: Quantities,
    /// Limit: the most that the role may hold, for example `cpus:16`
    #[arg(
        long,
        value_name = "AMOUNTS",
        default_value = "",
        hide_default_value = true
    )]
    limit: Quantities,
    /// Quotas of several roles as JSON, or file:///PATH
    #[arg(long, value_name = "JSON", conflicts_with_all = ["role", "guarantee", "limit"])]
    json: Option<Text>,
    /// Also if the cluster has less than the guarantee, or the role already exceeds its limit
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
    /// Show the roles with a weight other than 1
    Show(ListArgs),
    /// Set weights of roles, atomically
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
        return print_json(&roles.iter().map(role_json::role).collect());
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
        let quota = |role: &RoleView| role_json::role(role)["quota"].take();
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
            let given = role_json::quotas(text.as_bytes());
            given
                .map_err(|problem| CliError::usage(format!("--json: {problem}")))?
                .update
        }
        (None, role) => {
            let quota = Quota {
                guarantees: args.guarantee,
                limits: args.limit,
            };
            if quota.is_default() {
                let problem = "neither --guarantee nor --limit is given";
                return Err(CliError::usage(problem).next("`meros quota reset` takes a quota away"));
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
                .map_err(|error| CliError::usage(error.to_string()))?;
            let given = |(role, weight): (&String, &f64)| format!("{role}={weight}");
            let given: Vec<_> = weights.iter().map(given).collect();
            change(&args.cluster, UpdateWeights { weights }).await?;
            out!("weights: {}", given.join(", "));
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
    let roles = operator.query(ViewRoles).await;
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
    changed.map_err(|error| CliError::because("nothing was changed", &error))
}
