//! The `meros` command: a whole cluster, its parts, and an operator's requests.
//!
//! The top of the product: the only crate that opens sockets for services, names concrete modules,
//! and depends on all others (`meros-lab` is for developers). [`main`] is the command.
//! [`service::local::LocalCluster`] is a whole cluster in this process, for `meros run`, benchmarks
//! and tests. Makes no decisions about the cluster; the services do.
//!
//! | module | contents |
//! |---|---|
//! | `certs` | the verb `meros certs` |
//! | `flags` | common parsing of flags for all verbs |
//! | `heap` | mimalloc, called by its fastest functions |
//! | `operator` | the operator's verbs, over one connection to a master |
//! | `output` | logs, lines and tables for people, and errors |
//! | `run` | the verb `meros run` |
//! | `service` | the verbs `meros master`, `meros agent` and `meros local` |

pub mod certs;
pub mod flags;
pub mod heap;
pub mod operator;
pub mod output;
pub mod run;
pub mod service;

use std::ffi::OsString;
use std::future::Future;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nix::sys::stat::{Mode, umask};
use tokio::task::LocalSet;

use crate::output::error::{CliError, Outcome, USAGE};
use crate::service::signals::{Hangup, Signals};

/// Share one cluster among many frameworks
#[derive(Parser, Debug)]
#[command(
    name = "meros",
    version,
    max_term_width = 110,
    after_help = "Try it: meros run -- echo hello"
)]
struct Cli {
    /// Log filter for standard error: a level, or `target=level` pairs [default: info for services,
    /// warn for other verbs]
    #[arg(long, global = true, env = "MEROS_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Master(Box<service::master::MasterArgs>),
    Agent(Box<service::agent::AgentArgs>),
    Local(Box<service::local::LocalArgs>),
    Run(run::RunArgs),
    /// List the agents
    Agents(operator::ListArgs),
    /// List the tasks, including ended ones
    Tasks(operator::ListArgs),
    /// List the frameworks, including ended ones
    Frameworks(operator::ListArgs),
    /// Show a summary of the whole cluster
    State(operator::ListArgs),
    /// List the roles: weight, quota, and allocated resources
    Roles(operator::ListArgs),
    Explain(operator::explain::ExplainArgs),
    Oversubscription(operator::oversubscription::OversubscriptionArgs),
    #[command(subcommand)]
    Quota(operator::roles::QuotaArgs),
    #[command(subcommand)]
    Weights(operator::roles::WeightsArgs),
    /// Reserve resources of an agent for a role
    Reserve(operator::reservations::ReserveArgs),
    /// Return reserved resources to all roles
    Unreserve(operator::reservations::ReserveArgs),
    #[command(subcommand)]
    Volume(operator::reservations::VolumeArgs),
    #[command(subcommand)]
    Maintenance(operator::maintenance::MaintenanceArgs),
    Kill(operator::kill::KillArgs),
    Logs(operator::logs::LogsArgs),
    Exec(operator::exec::ExecArgs),
    Attach(operator::exec::attach::AttachArgs),
    #[command(subcommand)]
    Masters(operator::masters::MastersArgs),
    #[command(subcommand)]
    Registry(operator::registry::RegistryArgs),
    Certs(certs::CertsArgs),
    /// Moved to `meros-lab simulate`
    #[command(hide = true, disable_help_flag = true)]
    Simulate(MovedArgs),
    /// Moved to `meros-lab bench`
    #[command(hide = true, disable_help_flag = true)]
    Bench(MovedArgs),
    /// Starts executors for an agent
    #[command(hide = true, name = "executor-zygote")]
    ExecutorZygote,
    /// Fetches the files of a container for an agent
    #[command(hide = true)]
    Fetcher,
    /// Pulls an image for an agent
    #[command(hide = true, name = "image-puller")]
    ImagePuller,
    /// Starts the program of a module for an agent
    #[command(hide = true, name = service::modules::STARTER)]
    ModuleStarter(service::modules::StarterArgs),
    /// Unpacks an image for an agent
    #[command(hide = true, name = "image-unpacker")]
    ImageUnpacker,
}

/// The arguments of a verb that has moved to `meros-lab`.
#[derive(clap::Args, Debug)]
struct MovedArgs {
    /// Repeated in the error, for the new command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The umask of every verb, regardless of the parent's: files are private to their user unless a
/// mode is set explicitly. Other users can pass through directories, because tasks of other users
/// may have sandboxes there; state directories are closed to them.
const UMASK: nix::libc::mode_t = 0o066;

impl Verb {
    /// The log filter without `--log`.
    fn log_default(&self) -> &'static str {
        match self {
            Self::Master(_) | Self::Agent(_) | Self::Local(_) => "info",
            _ => "warn",
        }
    }

    /// The meaning of SIGHUP.
    fn hangup(&self) -> Hangup {
        match self {
            Self::Master(_) | Self::Agent(_) | Self::Local(_) => Hangup::Rereads,
            // It must end its tasks.
            Self::Run(_) => Hangup::Stops,
            _ => Hangup::EndsProcess,
        }
    }
}

/// Sets the umask of this process, before any thread starts.
pub fn restrict_umask() {
    umask(Mode::from_bits_truncate(UMASK));
}

/// The `meros` command: parses the command line, runs the verb, and returns the exit code (0
/// success, 1 failure, 2 usage error).
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// The whole command line: each verb with its flags.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// The flags of Mesos that `meros` does not have.
pub fn removed_flags() -> Vec<&'static str> {
    flags::removed::table::names().collect()
}

/// Parses a command line and the environment. Also returns warnings about settings of Mesos without
/// effect.
fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Cli, Vec<String>), clap::Error> {
    let arguments = flags::underscored(arguments);
    let settings = flags::removed::check(&command_line(), arguments, environment)?;
    let cli = Cli::try_parse_from(settings.arguments).map_err(flags::redact::redact)?;
    Ok((cli, settings.warnings))
}

/// Prints help, the version, or a usage error.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        _ if error.use_stderr() => ExitCode::from(USAGE),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::print::report(&output::print::unwritable("standard output", &error)).into()
        }
    }
}

fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (cli, ignored) = match read(arguments, std::env::vars_os()) {
        Ok(read) => read,
        Err(error) => return explain(&error),
    };
    match cli.verb {
        Verb::ExecutorZygote => return ::agent::zygote::main(),
        Verb::Fetcher => return ::agent::fetcher::main(),
        Verb::ImagePuller => return ::agent::images::puller::main(),
        Verb::ImageUnpacker => return ::agent::images::unpacker::main(),
        Verb::ModuleStarter(args) => return service::modules::start(&args),
        _ => {}
    }
    restrict_umask();
    match perform(cli, &ignored) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::print::report(&failure).into(),
    }
}

fn perform(cli: Cli, ignored: &[String]) -> Outcome {
    let filter = cli.log.as_deref().unwrap_or(cli.verb.log_default());
    output::logging::start(filter)?;
    for setting in ignored {
        tracing::warn!("{setting}");
    }
    let signals = Signals::take(cli.verb.hangup())?;
    match cli.verb {
        Verb::Master(args) => service::master::run(*args, signals),
        Verb::Agent(args) => service::agent::run(*args, signals),
        Verb::Local(args) => service::local::run(*args, signals),
        Verb::Run(args) => on_this_thread(run::run(args, signals))?,
        Verb::Agents(args) => on_this_thread(operator::list::agents(args))?,
        Verb::Tasks(args) => on_this_thread(operator::list::tasks(args))?,
        Verb::Frameworks(args) => on_this_thread(operator::list::frameworks(args))?,
        Verb::State(args) => on_this_thread(operator::list::state(args))?,
        Verb::Roles(args) => on_this_thread(operator::roles::list(args))?,
        Verb::Explain(args) => on_this_thread(operator::explain::run(args))?,
        Verb::Oversubscription(args) => on_this_thread(operator::oversubscription::run(args))?,
        Verb::Quota(args) => on_this_thread(operator::roles::quota(args))?,
        Verb::Weights(args) => on_this_thread(operator::roles::weights(args))?,
        Verb::Reserve(args) => on_this_thread(operator::reservations::reserve(args))?,
        Verb::Unreserve(args) => on_this_thread(operator::reservations::unreserve(args))?,
        Verb::Volume(args) => on_this_thread(operator::reservations::volume(args))?,
        Verb::Maintenance(args) => on_this_thread(operator::maintenance::run(args))?,
        Verb::Kill(args) => on_this_thread(operator::kill::run(args))?,
        Verb::Logs(args) => on_this_thread(operator::logs::run(args, signals))?,
        Verb::Exec(args) => on_this_thread(operator::exec::run(args, signals))?,
        Verb::Attach(args) => on_this_thread(operator::exec::attach::run(args, signals))?,
        Verb::Masters(args) => on_this_thread(operator::masters::run(args))?,
        Verb::Registry(args) => on_this_thread(operator::registry::run(args))?,
        Verb::Certs(args) => certs::run(&args),
        Verb::Simulate(args) => Err(moved("simulate", &args)),
        Verb::Bench(args) => Err(moved("bench", &args)),
        // Handled before any thread starts.
        Verb::ExecutorZygote
        | Verb::Fetcher
        | Verb::ImagePuller
        | Verb::ImageUnpacker
        | Verb::ModuleStarter(_) => Ok(()),
    }
}

/// The error that names the new command of a moved verb.
fn moved(verb: &str, args: &MovedArgs) -> CliError {
    let arguments = args
        .arguments
        .iter()
        .map(|argument| argument.to_string_lossy());
    let arguments: String = arguments.map(|argument| format!(" {argument}")).collect();
    CliError::usage(format!("`meros {verb}` has moved to another binary")).next(format!(
        "in a checkout of Meros: cargo run --release -p meros-lab -- {verb}{arguments}"
    ))
}

/// Runs a future with actors on this thread, and returns its output.
pub fn on_this_thread<F: Future>(future: F) -> Outcome<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::because("cannot start", &error))?;
    Ok(LocalSet::new().block_on(&runtime, future))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A URL of ZooKeeper, as used with Mesos, may contain a password.
    #[test]
    fn usage_errors_contain_no_passwords() {
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
    fn flags_accept_underscores_and_dashes() {
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
