//! Certificates on the command line: their directory, the identity of a verb, and the verb `meros
//! certs`.
//!
//! One directory contains the authority's certificate and the identities of one machine, one per
//! role. If it also contains the authority's key (in a local cluster, and on the operator's own
//! machine), a process issues itself an identity with its own name, so that any number of processes
//! run in parallel. Otherwise it uses the stored identity of its role.

use std::path::{Path, PathBuf};

use clap::Args;
use runtime::Role;
use transport::{Authority, Identity};

use crate::flags::access;
use crate::out;
use crate::output::error::{CliError, Outcome};

/// The file of the authority's key; see `transport::certificates`.
const AUTHORITY_KEY: &str = "ca.key";
/// The file with the master's address, beside the certificates of a local cluster.
const MASTER_FILE: &str = "master";

/// The default work directory of a local cluster: `$XDG_STATE_HOME/meros/local`, else
/// `~/.local/state/meros/local`.
pub fn default_work_dir() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(std::env::temp_dir).join("meros/local")
}

/// The directory `certs` of a local cluster's work directory.
pub fn local_directory(work_dir: &Path) -> PathBuf {
    work_dir.join("certs")
}

/// The certificates of a verb.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct CertsFlag {
    /// Directory with this machine's certificates [default: those of `meros local`]
    #[arg(long, env = "MEROS_CERTS", value_name = "DIR")]
    pub certs: Option<PathBuf>,
}

impl CertsFlag {
    /// The directory.
    pub fn directory(&self) -> PathBuf {
        self.certs
            .clone()
            .unwrap_or_else(|| local_directory(&default_work_dir()))
    }

    /// An identity of `role`: issued under `name` if the authority's key is available, else the
    /// stored one.
    pub fn identity(&self, role: Role, name: &str) -> Outcome<Identity> {
        let directory = self.directory();
        let keys = [AUTHORITY_KEY.to_owned(), format!("{role}.key")];
        for key in keys.map(|key| directory.join(key)) {
            access::warn_if_open("--certs", &key);
        }
        if directory.join(AUTHORITY_KEY).exists() {
            let authority =
                Authority::load(&directory).map_err(|error| unusable(&directory, &error))?;
            return authority
                .issue(role, name)
                .map_err(|error| CliError::because("cannot issue a certificate", &error));
        }
        Identity::load(&directory, role).map_err(|error| unusable(&directory, &error))
    }

    /// The masters' addresses that the local cluster stored, else the default address.
    pub fn master(&self) -> String {
        let kept = std::fs::read_to_string(self.directory().join(MASTER_FILE)).ok();
        let kept = kept.and_then(|text| crate::flags::master_addresses(text.trim()).ok());
        kept.unwrap_or_else(|| "127.0.0.1:5050".to_owned())
    }
}

/// Stores a local cluster's address for the other verbs.
pub fn store_master_address(directory: &Path, address: &str) -> Outcome {
    let file = directory.join(MASTER_FILE);
    std::fs::write(&file, format!("{address}\n"))
        .map_err(|error| CliError::because(format!("cannot write {}", file.display()), &error))
}

fn unusable(directory: &Path, error: &dyn std::error::Error) -> CliError {
    CliError::because("no usable certificate", error).next(format_args!(
        "start `meros local`, or name a directory made by `meros certs --dir` with --certs or MEROS_CERTS; looked in {}",
        directory.display()
    ))
}

/// Make the certificates of a cluster
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct CertsArgs {
    /// Directory of the authority; created if missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Issue one certificate of this role: master, agent, framework, operator or module; needs
    /// --name
    #[arg(long, requires = "name", value_name = "ROLE")]
    role: Option<Role>,
    /// Name of the node: letters, digits, dots, dashes and underscores. The certificate is written
    /// to DIR/NAME
    #[arg(long, requires = "role", value_name = "NAME")]
    name: Option<String>,
}

/// Creates an authority with an operator's and a framework's identity, or issues one more identity.
pub fn run(args: &CertsArgs) -> Outcome {
    let directory = &args.dir;
    let failed = |error| CliError::because("cannot make the certificates", &error);
    let authority = Authority::load_or_create(directory).map_err(failed)?;
    let (Some(role), Some(name)) = (args.role, &args.name) else {
        save_client_identities(&authority, directory)?;
        out!(
            "authority, operator and framework certificates are in {}",
            directory.display()
        );
        out!(
            "for each master and agent: meros certs --dir {} --role agent --name NAME, then copy the directory NAME there and name it with --certs",
            directory.display()
        );
        return Ok(());
    };
    let identity = authority.issue(role, name).map_err(failed)?;
    let target = directory.join(name);
    identity.save(&target).map_err(failed)?;
    out!("{} is in {}", identity.subject(), target.display());
    Ok(())
}

/// Stores the identities of operators and frameworks beside the authority.
pub fn save_client_identities(authority: &Authority, directory: &Path) -> Outcome {
    for role in [Role::Operator, Role::Framework] {
        let kept = authority
            .issue(role, role.as_str())
            .and_then(|identity| identity.save(directory));
        kept.map_err(|error| CliError::because("cannot keep the certificates", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    fn certs(directory: &Path) -> CertsFlag {
        CertsFlag {
            certs: Some(directory.to_owned()),
        }
    }

    #[test]
    fn identity_is_issued_or_else_loaded() {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(home.path()).unwrap();
        save_client_identities(&authority, home.path()).unwrap();
        let own = certs(home.path())
            .identity(Role::Operator, "operator-7")
            .unwrap();
        assert_eq!(own.subject().name, "operator-7");
        std::fs::remove_file(home.path().join(AUTHORITY_KEY)).unwrap();
        let kept = certs(home.path())
            .identity(Role::Operator, "operator-7")
            .unwrap();
        assert_eq!(kept.subject().name, "operator");
    }

    #[test]
    fn missing_certificates_give_advice() {
        let empty = tempfile::tempdir().unwrap();
        let failure = certs(empty.path())
            .identity(Role::Operator, "x")
            .unwrap_err()
            .to_string();
        assert_contains!(failure, "does not exist", "meros local");
    }

    #[test]
    fn verbs_find_the_local_clusters_master() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(certs(home.path()).master(), "127.0.0.1:5050");
        store_master_address(home.path(), "127.0.0.1:7070").unwrap();
        assert_eq!(certs(home.path()).master(), "127.0.0.1:7070");
    }
}
