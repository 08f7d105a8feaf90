//! The verbs `meros masters list | add | remove | promote | transfer`: who forms the group of masters, and changes of that.
//!
//! Everybody is asked how it stands and the leader is told what is wanted, again after each look, until `Change` says that it is there or
//! the patience is spent. What comes between (another leader, an answer that was lost) is seen at the next look.

mod change;
mod view;

use std::time::Duration;

use clap::{Args, Subcommand};
use consensus::member::operator::{ChangeMasters, ChangeRefused};

use self::change::{Change, Next, Wanted, Which};
use self::view::Group;
use super::members::{Answers, Members};
use super::{ClusterFlags, ListArgs, list};
use crate::failure::{Failure, Outcome};
use crate::flags::{duration, master_address};
use crate::{out, table};

/// How long each master may take to say how it stands, when an operator looks.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// The same while a change is under way: whoever is late is asked again.
const GLANCE_PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two looks.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a change may take that waits for nobody but the group.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);

const HELP: &str = "\
Operating a group (runtime/cli/docs/high-availability.md has the procedures and their output):
  one more master    meros masters add HOST:PORT; start it there; meros masters promote HOST:PORT
  replace a dead one the same, with meros masters promote HOST:PORT --in_place_of ID
  rolling restart    each in turn: meros masters transfer if it leads; restart it; wait until `meros masters list` shows no lag
  one to three       stop it; meros registry dump and restore; start it; then add two
  majority lost      meros registry dump --work_dir on a survivor; restore; start it; then add the others";

/// Show and change the group of masters
#[derive(Subcommand, Debug)]
#[command(after_help = HELP)]
pub enum MastersArgs {
    /// Show every master: role, term, commit and applied index, lag behind the leader, bytes on its disk
    List(ListArgs),
    /// Give a new master a seat, as one that listens, and wait until it has caught up
    Add(AddArgs),
    /// Take a master out of the group
    Remove(WhichArgs),
    /// Let a master that listens vote
    Promote(PromoteArgs),
    /// Hand the leadership over
    Transfer(TransferArgs),
}

/// `meros masters add`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct AddArgs {
    /// Where the new master is, as the others reach it
    #[arg(value_name = "HOST:PORT", value_parser = master_address)]
    address: String,
    /// How long to wait until it has caught up; said again, the command goes on waiting
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
    whom: WhichArgs,
    /// Take this master out of the group in the same change: its number or HOST:PORT
    #[arg(long, value_name = "MASTER")]
    in_place_of: Option<Which>,
}

/// `meros masters remove | promote`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct WhichArgs {
    /// Which master: its number, as `meros masters list` shows it, or HOST:PORT
    #[arg(value_name = "MASTER")]
    which: Which,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros masters transfer`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct TransferArgs {
    /// To whom: its number or HOST:PORT [default: the follower that lacks least]
    #[arg(value_name = "TO")]
    to: Option<Which>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros masters`.
pub async fn run(args: MastersArgs) -> Outcome {
    match args {
        MastersArgs::List(args) => show(args).await,
        MastersArgs::Add(args) => {
            change(&args.cluster, Wanted::Added(args.address), args.wait).await
        }
        MastersArgs::Remove(args) => {
            change(&args.cluster, Wanted::Removed(args.which), CHANGE_PATIENCE).await
        }
        MastersArgs::Promote(args) => {
            let WhichArgs { which, cluster } = args.whom;
            let wanted = match args.in_place_of {
                Some(old) => Wanted::Replaced { old, new: which },
                None => Wanted::Promoted(which),
            };
            change(&cluster, wanted, CHANGE_PATIENCE).await
        }
        MastersArgs::Transfer(args) => {
            change(&args.cluster, Wanted::Leading(args.to), CHANGE_PATIENCE).await
        }
    }
}

async fn show(args: ListArgs) -> Outcome {
    let mut members = Members::open(&args.cluster)?;
    let answers = members.look(LOOK_PATIENCE).await;
    members.close().await;
    let group = Group::of(&answers);
    if answers.values().all(Result::is_err) {
        return Err(nobody(&answers));
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

/// Where the members are that have answered, the leader first.
pub(super) async fn in_order(members: &mut Members) -> Outcome<Vec<String>> {
    let answers = members.look(LOOK_PATIENCE).await;
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
        true => Err(nobody(&answers)),
        false => Ok(order),
    }
}

fn nobody(answers: &Answers) -> Failure {
    let reasons = answers.iter().map(|(address, answer)| match answer {
        Ok(status) => format!(
            "{address}: {}",
            status.waiting.as_deref().unwrap_or("it begins")
        ),
        Err(reason) => format!("{address}: {reason}"),
    });
    let reasons: Vec<String> = reasons.collect();
    Failure::new(format!(
        "no master of a group answers: {}",
        reasons.join("; ")
    ))
    .next("name those of the group with --master")
}

async fn change(cluster: &ClusterFlags, wanted: Wanted, patience: Duration) -> Outcome {
    let mut members = Members::open(cluster)?;
    if let Wanted::Added(address) = &wanted {
        members.know(address);
    }
    let outcome = pursue(&mut members, Change::new(wanted), patience).await;
    members.close().await;
    out!("{}", outcome?);
    Ok(())
}

/// Looks and does what is next, until it is done: in a line, what has changed.
async fn pursue(members: &mut Members, mut change: Change, patience: Duration) -> Outcome<String> {
    let clock = members.clock().clone();
    let begun = clock.now();
    let (mut said, mut late) = (String::new(), false);
    loop {
        let group = Group::of(&members.look(GLANCE_PATIENCE).await);
        if let Some(reason) = members.refusal() {
            return Err(Failure::new(format!("a master refused: {reason}")));
        }
        let waits_for = match change.next(&group) {
            Next::Done(line) => return Ok(line),
            Next::Refuse(reason) => return Err(Failure::new(reason)),
            Next::Wait(reason) => Some(reason),
            Next::Ask(wanted) => match ask(members, &group, wanted).await {
                Asked::Begun => None,
                Asked::NotNow(reason) => Some(reason),
                Asked::Refused(reason) => {
                    // It may be refused because an answer was lost, and it is done already.
                    let group = Group::of(&members.look(GLANCE_PATIENCE).await);
                    return match change.next(&group) {
                        Next::Done(line) => Ok(line),
                        _ => Err(Failure::new(format!("the leader refused: {reason}"))),
                    };
                }
            },
        };
        if clock.now() - begun >= patience {
            // What the leader has just begun is looked at once more.
            if waits_for.is_some() || late {
                let reason = waits_for.unwrap_or(said);
                return Err(Failure::new(format!("not within {patience:?}: {reason}"))
                    .next("run it again to go on; `meros masters list` shows how it stands"));
            }
            late = true;
        }
        if let Some(reason) = waits_for.filter(|reason| *reason != said) {
            out!("{reason}");
            said = reason;
        }
        clock.sleep(AGAIN).await;
    }
}

/// What the leader made of a wish.
enum Asked {
    Begun,
    NotNow(String),
    Refused(String),
}

async fn ask(members: &Members, group: &Group, wanted: ChangeMasters) -> Asked {
    let Some((_, address)) = &group.leader else {
        return Asked::NotNow(group.summary());
    };
    match members.ask(address, wanted).await {
        Ok(Ok(_)) => Asked::Begun,
        Ok(Err(ChangeRefused::Refused { reason })) => Asked::Refused(reason),
        Ok(Err(refused)) => Asked::NotNow(refused.to_string()),
        Err(lost) => Asked::NotNow(lost.to_string()),
    }
}

#[cfg(test)]
mod tests;
