//! Flags of Mesos that have nothing to say any more: whoever gives one, or has it in the environment, is told what to use now.
//!
//! Masters agree among themselves and are named by their addresses, so nothing is left to say of ZooKeeper, quorums or logs. None of these
//! ever has a value, so nothing reads them.

use std::convert::Infallible;

use clap::Args;

/// Those of a master.
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct RetiredMasterFlags {
    /// Not used any more: the group knows its members
    #[arg(long, env = "MESOS_QUORUM", hide = true, value_parser = no_quorum)]
    quorum: Option<Infallible>,
    /// Not used any more: masters need no ZooKeeper
    #[arg(long, env = "MESOS_ZK", hide = true, value_parser = no_zookeeper)]
    zk: Option<Infallible>,
    /// Not used any more: elections have a time of their own
    #[arg(long, env = "MESOS_ZK_SESSION_TIMEOUT", hide = true, value_parser = no_session)]
    zk_session_timeout: Option<Infallible>,
    /// Not used any more: masters elect one of themselves
    #[arg(long, env = "MESOS_MASTER_CONTENDER", hide = true, value_parser = no_contender)]
    master_contender: Option<Infallible>,
    /// Not used any more: masters know who leads
    #[arg(long, env = "MESOS_MASTER_DETECTOR", hide = true, value_parser = no_contender)]
    master_detector: Option<Infallible>,
    /// Not used any more: a group begins once, with those that are named
    #[arg(long, alias = "no_log_auto_initialize", env = "MESOS_LOG_AUTO_INITIALIZE", hide = true, value_parser = no_log,
        num_args = 0..=1, default_missing_value = "true")]
    log_auto_initialize: Option<Infallible>,
}

/// Those of an agent.
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct RetiredAgentFlags {
    /// Not used any more: masters know who leads
    #[arg(long, env = "MESOS_MASTER_DETECTOR", hide = true, value_parser = no_detector)]
    master_detector: Option<Infallible>,
    /// Not used any more: agents need no ZooKeeper
    #[arg(long, env = "MESOS_ZK_SESSION_TIMEOUT", hide = true, value_parser = no_detector)]
    zk_session_timeout: Option<Infallible>,
}

fn no_quorum(value: &str) -> Result<Infallible, String> {
    Err(format!(
        "`{value}` has no meaning here: a majority of the group's members decides; use --initial_masters"
    ))
}

/// The value may hold a password, and is not repeated.
fn no_zookeeper(_: &str) -> Result<Infallible, String> {
    Err(
        "masters need no ZooKeeper, and agree among themselves: use --initial_masters, and --master HOST:PORT,... elsewhere"
            .to_owned(),
    )
}

fn no_session(_: &str) -> Result<Infallible, String> {
    Err(
        "masters need no ZooKeeper: --election_tick and --election_ticks say how soon a leader that is silent is replaced"
            .to_owned(),
    )
}

fn no_contender(_: &str) -> Result<Infallible, String> {
    Err(
        "masters elect one of themselves, and know which: use --initial_masters, and --master HOST:PORT,... elsewhere"
            .to_owned(),
    )
}

fn no_log(_: &str) -> Result<Infallible, String> {
    Err(
        "a group begins once, with those that --initial_masters names: use that, and `meros masters add` for one more"
            .to_owned(),
    )
}

fn no_detector(_: &str) -> Result<Infallible, String> {
    Err("each master knows which one leads: use --master HOST:PORT,...".to_owned())
}
