//! The `meros` command: a whole cluster, its parts, and what an operator does with it.
//!
//! This is the roof: the only place that opens sockets for services, names concrete modules, and knows all crates. [`main`] is the
//! command. [`local::LocalCluster`] is a whole cluster in this process, for `meros run`, for benchmarks and for tests. Decides nothing
//! about the cluster; that is for the services.

pub mod access;
pub mod agent;
pub mod bench;

pub mod certs;
mod discreet;
pub mod door;
pub mod expiry;
mod failure;
pub mod flags;
mod huge;
pub mod local;
pub mod logging;
pub mod master;
pub mod member;
pub mod operator;
pub mod print;
mod removed_flags;
pub mod renewal;
pub mod run;
pub mod signals;
pub mod simulate;
mod table;
pub mod whitelist;

use std::ffi::OsString;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nix::sys::stat::{Mode, umask};
use tokio::task::LocalSet;

use crate::failure::{Failure, Outcome, USAGE};
use crate::signals::{Hangup, Signals};

/// Share one cluster among many frameworks
#[derive(Parser, Debug)]
#[command(
    name = "meros",
    version,
    max_term_width = 110,
    after_help = "Try it: meros run -- echo hello"
)]
struct Cli {
    /// What is logged to standard error: a level, or `target=level` pairs [default: info for services, off for simulate, warn for other verbs]
    #[arg(long, global = true, env = "MEROS_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Master(Box<master::MasterArgs>),
    Agent(Box<agent::AgentArgs>),
    Local(Box<local::LocalArgs>),
    Run(run::RunArgs),
    /// List the agents
    Agents(operator::ListArgs),
    /// List the tasks, ended ones too
    Tasks(operator::ListArgs),
    /// List the frameworks, ended ones too
    Frameworks(operator::ListArgs),
    /// Show the whole cluster at a glance
    State(operator::ListArgs),
    /// List the roles: weight, quota, and what they hold
    Roles(operator::ListArgs),
    Explain(operator::explain::ExplainArgs),
    #[command(subcommand)]
    Quota(operator::roles::QuotaArgs),
    #[command(subcommand)]
    Weights(operator::roles::WeightsArgs),
    /// Reserve resources of an agent for a role
    Reserve(operator::owners::ReserveArgs),
    /// Give reserved resources back to all roles
    Unreserve(operator::owners::ReserveArgs),
    #[command(subcommand)]
    Volume(operator::owners::VolumeArgs),
    #[command(subcommand)]
    Maintenance(operator::maintenance::MaintenanceArgs),
    Kill(operator::kill::KillArgs),
    Logs(operator::logs::LogsArgs),
    #[command(subcommand)]
    Masters(operator::masters::MastersArgs),
    #[command(subcommand)]
    Registry(operator::registry::RegistryArgs),
    Certs(certs::CertsArgs),
    Simulate(Box<simulate::SimulateArgs>),
    #[command(subcommand)]
    Bench(bench::BenchArgs),
    /// Starts executors on behalf of an agent
    #[command(hide = true, name = "executor-zygote")]
    ExecutorZygote,
}

/// The umask of every verb, whatever its starter's was: files are private to their user, unless their mode is set explicitly.
/// Others can pass through directories, where tasks of other users may have their sandboxes; those that keep state are closed to them.
const UMASK: nix::libc::mode_t = 0o066;

impl Verb {
    /// What is logged unless the user says otherwise.
    fn log_default(&self) -> &'static str {
        match self {
            Self::Master(_) | Self::Agent(_) | Self::Local(_) => "info",
            // Its cluster complains about faults that are meant.
            Self::Simulate(_) => "off",
            _ => "warn",
        }
    }

    /// The meaning of SIGHUP.
    fn hangup(&self) -> Hangup {
        match self {
            Self::Master(_) | Self::Agent(_) | Self::Local(_) => Hangup::Rereads,
            // They have tasks or processes to end.
            Self::Run(_) | Self::Bench(_) => Hangup::Stops,
            _ => Hangup::EndsProcess,
        }
    }
}

/// The `meros` command: reads the command line, does what it says, and gives the exit code (0 done, 1 failed, 2 not understood).
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// The whole command line: each verb with its flags.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// The flags of Mesos that `meros` does not have.
pub fn removed_flags() -> Vec<&'static str> {
    removed_flags::table::names().collect()
}

/// Reads a command line and the environment; gives also the settings of Mesos that have no effect.
fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Cli, Vec<String>), clap::Error> {
    let arguments = flags::underscored(arguments);
    let settings = removed_flags::judge(&command_line(), arguments, environment)?;
    let cli = Cli::try_parse_from(settings.arguments).map_err(discreet::discreet)?;
    Ok((cli, settings.warnings))
}

/// Prints help, the version, or why a command line was not understood.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        _ if error.use_stderr() => ExitCode::from(USAGE),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print::report(&print::unwritable("standard output", &error)).into(),
    }
}

fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (cli, ignored) = match read(arguments, std::env::vars_os()) {
        Ok(read) => read,
        Err(error) => return explain(&error),
    };
    if let Verb::ExecutorZygote = cli.verb {
        return ::agent::zygote::main();
    }
    umask(Mode::from_bits_truncate(UMASK));
    match perform(cli, &ignored) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print::report(&failure).into(),
    }
}

fn perform(cli: Cli, ignored: &[String]) -> Outcome {
    let filter = cli.log.as_deref().unwrap_or(cli.verb.log_default());
    logging::start(filter)?;
    for setting in ignored {
        tracing::warn!("{setting}");
    }
    if let Verb::Simulate(args) = cli.verb {
        return simulate::run(*args); // It needs no farewell: a signal may end it at once.
    }
    let signals = Signals::take(cli.verb.hangup())?;
    match cli.verb {
        Verb::Master(args) => master::run(*args, signals),
        Verb::Agent(args) => agent::run(*args, signals),
        Verb::Local(args) => local::run(*args, signals),
        Verb::Run(args) => on_this_thread(run::run(args, signals))?,
        Verb::Agents(args) => on_this_thread(operator::list::agents(args))?,
        Verb::Tasks(args) => on_this_thread(operator::list::tasks(args))?,
        Verb::Frameworks(args) => on_this_thread(operator::list::frameworks(args))?,
        Verb::State(args) => on_this_thread(operator::list::state(args))?,
        Verb::Roles(args) => on_this_thread(operator::roles::list(args))?,
        Verb::Explain(args) => on_this_thread(operator::explain::run(args))?,
        Verb::Quota(args) => on_this_thread(operator::roles::quota(args))?,
        Verb::Weights(args) => on_this_thread(operator::roles::weights(args))?,
        Verb::Reserve(args) => on_this_thread(operator::owners::reserve(args))?,
        Verb::Unreserve(args) => on_this_thread(operator::owners::unreserve(args))?,
        Verb::Volume(args) => on_this_thread(operator::owners::volume(args))?,
        Verb::Maintenance(args) => on_this_thread(operator::maintenance::run(args))?,
        Verb::Kill(args) => on_this_thread(operator::kill::run(args))?,
        Verb::Logs(args) => on_this_thread(operator::logs::run(args, signals))?,
        Verb::Masters(args) => on_this_thread(operator::masters::run(args))?,
        Verb::Registry(args) => on_this_thread(operator::registry::run(args))?,
        Verb::Certs(args) => certs::run(&args),
        Verb::Bench(args) => bench::run(args, signals),
        Verb::Simulate(_) | Verb::ExecutorZygote => Ok(()), // Handled before any thread began.
    }
}

/// Runs a future with actors on this thread, and gives what it gives.
pub fn on_this_thread<F: Future>(future: F) -> Outcome<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("cannot start", &error))?;
    Ok(LocalSet::new().block_on(&runtime, future))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// SPEC 3.14: who comes from Mesos may have a password in a URL of ZooKeeper.
    #[test]
    fn a_command_line_that_is_not_understood_is_told_without_its_passwords() {
        let url = "zk://mesos:secret@10.0.0.7:2181/mesos";
        for (given, words) in [
            (&["master", "--zk", url][..], "--initial_masters"),
            (&["master", &format!("--zk={url}")], "...@10.0.0.7:2181"),
            (&["agent", "--master", url], "HOST:PORT,HOST:PORT"),
            (
                &["agents", "--master", "http://ops:secret@a:5050/x"],
                "is not HOST:PORT",
            ),
            (&["master", url], "unexpected argument"),
            (&["master", &format!("--zkk={url}")], "--zkk"),
            (&["master", &format!("--port={url}")], "--port"),
            (&[url], "unrecognized subcommand"),
        ] {
            let all = ["meros"].iter().chain(given).map(OsString::from);
            let error = read(all, []).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn flags_are_spelled_as_mesos_spells_them_and_the_dash_form_is_accepted() {
        for work_dir in ["--work_dir=/x", "--work-dir=/x"] {
            let given = ["meros", "agent", "--master=a:1,b:2", work_dir].map(OsString::from);
            let cli = Cli::try_parse_from(flags::underscored(given)).unwrap();
            assert!(matches!(cli.verb, Verb::Agent(_)));
        }
    }

    #[test]
    fn a_tasks_own_flags_are_not_ours() {
        let given = [
            "meros",
            "run",
            "--instances=2",
            "--",
            "sh",
            "-c",
            "--work-dir",
        ]
        .map(OsString::from);
        let cli = Cli::try_parse_from(flags::underscored(given)).unwrap();
        let Verb::Run(args) = cli.verb else {
            panic!("expected run")
        };
        assert_eq!(args.command, ["sh", "-c", "--work-dir"]);
    }
}
