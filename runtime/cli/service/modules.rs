//! `--modules` and `--modules_dir`: the modules that a service can use, and their parameters.

use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ::modules::foreign::{self, Starter};
use clap::Args;
use module_api::{Manifest, ManifestError, Registry};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::flags::Text;
use crate::output::error::{CliError, Outcome};

/// The hidden verb that starts a module.
pub const STARTER: &str = "module-starter";

/// The flags of modules.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct ModulesFlags {
    /// Modules and their parameters: JSON, or a file of it. The `file` of a module that is not
    /// linked in is an executable, which serves it
    #[arg(long, env = "MESOS_MODULES", value_name = "JSON")]
    pub modules: Option<Text>,
    /// Directory with files of such JSON, read in the order of their names
    #[arg(
        long,
        env = "MESOS_MODULES_DIR",
        value_name = "DIR",
        conflicts_with = "modules"
    )]
    pub modules_dir: Option<PathBuf>,
}

impl ModulesFlags {
    /// The modules, and the operator's parameters. `program` is `meros`, which starts those that
    /// are executables.
    pub fn read(&self, program: &Path) -> Outcome<(Registry, Manifest)> {
        let mut registry = ::modules::registry();
        let usage = |error: ManifestError| CliError::usage(error.to_string());
        let manifest = match (&self.modules, &self.modules_dir) {
            (Some(Text(text)), _) => Manifest::parse(text).map_err(usage)?,
            (None, Some(directory)) => Manifest::read_directory(directory).map_err(usage)?,
            (None, None) => Manifest::default(),
        };
        let starter = Starter {
            program: program.to_owned(),
            arguments: vec![STARTER.to_owned(), std::process::id().to_string()],
        };
        let executables = manifest.foreign(&registry).map_err(usage)?;
        foreign::register(&mut registry, executables, Some(&starter));
        Ok((registry, manifest))
    }
}

/// The arguments of the hidden verb [`STARTER`].
#[derive(Args, Clone, Debug)]
pub struct StarterArgs {
    /// The agent's process id
    agent: u32,
    /// The module's program
    program: PathBuf,
}

/// Becomes the program of a module, in a process that is killed when the agent ends.
pub fn start(args: &StarterArgs) -> ExitCode {
    let failed = |error: &dyn std::fmt::Display| {
        eprintln!(
            "cannot start the module {}: {error}",
            args.program.display()
        );
        ExitCode::FAILURE
    };
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return failed(&error);
    }
    // The agent's own are closed by that anyway, but not those that it has inherited.
    if let Err(error) = ::agent::host::sys::close_inherited() {
        return failed(&error);
    }
    // The agent may have ended before.
    match parent_id() == args.agent {
        true => failed(&Command::new(&args.program).exec()),
        false => failed(&"its agent is gone"),
    }
}
