//! The verbs `meros masters list | add | remove | promote | transfer`: the members of the group of
//! masters, and their changes.
//!
//! Queries the status of all masters and sends requests to the leader, repeatedly, until `Change`
//! reports success or the time limit has passed. A new leader or a lost answer is noticed by the
//! next query.

mod change;
mod view;

use std::time::Duration;

use clap::{Args, Subcommand};
use consensus::member::operator::{ChangeMasters, ChangeRefused};

use self::change::{Change, Goal, MasterRef, Next};
use self::view::Group;
use super::members::{Answers, Members};
use super::{ClusterFlags, ListArgs, list};
use crate::flags::{duration, master_address};
use crate::out;
use crate::output::error::{CliError, Outcome};
use crate::output::table;

/// The time limit for each master's status.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// The same during a change: late masters are queried again.
const CHANGE_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two queries.
const QUERY_PAUSE: Duration = Duration::from_millis(100);
/// The time limit for changes that only depend on the group.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

const HELP: &str = "\
Operating a group (runtime/cli/docs/high-availability.md has the procedures and their output):
  one more master    meros masters add HOST:PORT; start it there
  one to three       add two
  replace a dead one meros masters add --learner HOST:PORT; meros masters promote HOST:PORT --in_place_of ID
  rolling restart    each in turn: meros masters transfer if it leads; restart it; wait until `meros masters list` shows no lag
  majority lost      meros registry dump --work_dir on a survivor; restore; start it; then add the others";

/// Show and change the group of masters
#[derive(Subcommand, Debug)]
#[command(after_help = HELP)]
pub enum MastersArgs {
    /// Show every master: role, term, commit and applied index, lag behind the leader, bytes on its
    /// disk
    List(ListArgs),
    /// Add a new master: wait until it has caught up, then make it a voter
    Add(AddArgs),
    /// Remove a master from the group
    Remove(MasterRefArgs),
    /// Make a learner a voter
    Promote(PromoteArgs),
    /// Transfer the leadership
    Transfer(TransferArgs),
}

/// `meros masters add`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct AddArgs {
    /// Address of the new master, as the others reach it
    #[arg(value_name = "HOST:PORT", value_parser = master_address)]
    address: String,
    /// Leave it a learner, which has no vote
    #[arg(long)]
    learner: bool,
    /// Time to wait until it has caught up; the command may be repeated to continue waiting
    #[arg(long, default_value = "2mins", value_parser = duration, value_name = "DURATION")]
    wait: Duration,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros masters promote`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct PromoteArgs {
    #[command(flatten)]
    target: MasterRefArgs,
    /// Remove this master from the group in the same change: its number or HOST:PORT
    #[arg(long, value_name = "MASTER")]
    in_place_of: Option<MasterRef>,
}

/// `meros masters remove | promote`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct MasterRefArgs {
    /// The master: its number, as `meros masters list` shows it, or HOST:PORT
    #[arg(value_name = "MASTER")]
    which: MasterRef,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros masters transfer`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct TransferArgs {
    /// The new leader: its number or HOST:PORT [default: the follower with the smallest lag]
    #[arg(value_name = "TO")]
    to: Option<MasterRef>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros masters`.
pub async fn run(args: MastersArgs) -> Outcome {
    match args {
        MastersArgs::List(args) => show(args).await,
        MastersArgs::Add(args) => {
            let (address, learner) = (args.address, args.learner);
            change(&args.cluster, Goal::Added { address, learner }, args.wait).await
        }
        MastersArgs::Remove(args) => {
            change(&args.cluster, Goal::Removed(args.which), CHANGE_TIMEOUT).await
        }
        MastersArgs::Promote(args) => {
            let MasterRefArgs { which, cluster } = args.target;
            let goal = match args.in_place_of {
                Some(old) => Goal::Replaced { old, new: which },
                None => Goal::Promoted(which),
            };
            change(&cluster, goal, CHANGE_TIMEOUT).await
        }
        MastersArgs::Transfer(args) => {
            change(&args.cluster, Goal::Leading(args.to), CHANGE_TIMEOUT).await
        }
    }
}

async fn show(args: ListArgs) -> Outcome {
    let mut members = Members::open(&args.cluster)?;
    let answers = members.query(QUERY_TIMEOUT).await;
    members.close().await;
    let group = Group::of(&answers);
    if answers.values().all(Result::is_err) {
        return Err(no_answer_error(&answers));
    }
    if args.json {
        return list::print_json(&group.json());
    }
    let rows: Vec<_> = group.masters.iter().map(view::cells).collect();
    for line in table::lines(view::HEADINGS, &rows) {
        out!("{line}");
    }
    out!("{}", group.summary());
    Ok(())
}

/// The addresses of the members that have answered, the leader first.
pub(super) async fn in_order(members: &mut Members) -> Outcome<Vec<String>> {
    let answers = members.query(QUERY_TIMEOUT).await;
    let group = Group::of(&answers);
    let first = group.leader.iter().map(|(_, address)| address.clone());
    let others = group.masters.iter().filter(|row| row.log.is_some());
    let mut order: Vec<String> = first.collect();
    for row in others.filter(|row| row.role != "stranger") {
        if !order.contains(&row.address) {
            order.push(row.address.clone());
        }
    }
    match order.is_empty() {
        true => Err(no_answer_error(&answers)),
        false => Ok(order),
    }
}

fn no_answer_error(answers: &Answers) -> CliError {
    let reasons = answers.iter().map(|(address, answer)| match answer {
        Ok(status) => format!(
            "{address}: {}",
            status.waiting.as_deref().unwrap_or("it is starting")
        ),
        Err(reason) => format!("{address}: {reason}"),
    });
    let reasons: Vec<String> = reasons.collect();
    CliError::new(format!(
        "no master of a group answers: {}",
        reasons.join("; ")
    ))
    .next("name those of the group with --master")
}

async fn change(cluster: &ClusterFlags, goal: Goal, timeout: Duration) -> Outcome {
    let mut members = Members::open(cluster)?;
    if let Goal::Added { address, .. } = &goal {
        members.add_address(address);
    }
    let outcome = run_change(&mut members, Change::new(goal), timeout).await;
    members.close().await;
    out!("{}", outcome?);
    Ok(())
}

/// The error if masters of two groups answer: a change could reach the wrong one.
fn two_groups(group: &Group) -> CliError {
    let others = group.others.iter();
    let others: Vec<_> = others
        .map(|(address, id)| format!("{address} of group {id:016x}"))
        .collect();
    CliError::new(format!(
        "masters of two groups answer: {} beside group {:016x}",
        others.join(", "),
        group.id.unwrap_or_default()
    ))
    .next(
        "start a master that is to be added with an empty --work_dir and with --initial_masters; name only masters of one group with \
         --master",
    )
}

/// Repeats queries and requests until the change is complete. Returns the result in one line.
async fn run_change(
    members: &mut Members,
    mut change: Change,
    timeout: Duration,
) -> Outcome<String> {
    let clock = members.clock().clone();
    let begun = clock.now();
    let (mut last_reason, mut late) = (String::new(), false);
    loop {
        let group = Group::of(&members.query(CHANGE_QUERY_TIMEOUT).await);
        if let Some(reason) = members.refusal() {
            return Err(CliError::new(format!("a master refused: {reason}")));
        }
        let waits_for = match change.next(&group) {
            Next::Refuse(reason) => return Err(CliError::new(reason)),
            _ if !group.others.is_empty() => return Err(two_groups(&group)),
            Next::Done(line) => return Ok(line),
            Next::Wait(reason) => Some(reason),
            Next::Send(request) => match ask(members, &group, request).await {
                Answer::Started => None,
                Answer::NotNow(reason) => Some(reason),
                Answer::Refused(reason) => {
                    // It may be refused because an earlier answer was lost and it is already done.
                    let group = Group::of(&members.query(CHANGE_QUERY_TIMEOUT).await);
                    return match change.next(&group) {
                        Next::Done(line) => Ok(line),
                        _ => Err(CliError::new(format!("the leader refused: {reason}"))),
                    };
                }
            },
        };
        if clock.now() - begun >= timeout {
            // One more query after the leader has started the change.
            if waits_for.is_some() || late {
                let reason = waits_for.unwrap_or(last_reason);
                return Err(
                    CliError::new(format!("not within {timeout:?}: {reason}")).next(
                        "repeat the command to continue; `meros masters list` shows the status",
                    ),
                );
            }
            late = true;
        }
        if let Some(reason) = waits_for.filter(|reason| *reason != last_reason) {
            out!("{reason}");
            last_reason = reason;
        }
        clock.sleep(QUERY_PAUSE).await;
    }
}

/// The leader's answer to a request.
enum Answer {
    Started,
    NotNow(String),
    Refused(String),
}

async fn ask(members: &Members, group: &Group, request: ChangeMasters) -> Answer {
    let Some((_, address)) = &group.leader else {
        return Answer::NotNow(group.summary());
    };
    match members.ask(address, request).await {
        Ok(Ok(_)) => Answer::Started,
        Ok(Err(ChangeRefused::Refused { reason })) => Answer::Refused(reason),
        Ok(Err(refused)) => Answer::NotNow(refused.to_string()),
        Err(lost) => Answer::NotNow(lost.to_string()),
    }
}

#[cfg(test)]
mod tests;
