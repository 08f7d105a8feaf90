//! Certificates on the command line: where they are looked for, how a verb gets its own, and the verb `meros certs`.
//!
//! One directory holds the authority's certificate and the identities of one machine, one per role. Where the authority's key is there
//! too (in a local cluster, and on the operator's own machine), a process issues itself an identity with a name of its own, so that any
//! number of them run side by side. Elsewhere it uses the one that was put there for its role.

use std::path::{Path, PathBuf};

use clap::Args;
use runtime::Role;
use transport::{Authority, Identity};

use crate::access;
use crate::failure::{Failure, Outcome};
use crate::out;

/// The authority's key; see `transport::certificates`.
const AUTHORITY_KEY: &str = "ca.key";
/// Beside the certificates of a local cluster: its master's address.
const MASTER_FILE: &str = "master";

/// Where a local cluster keeps its things when it is not told: `$XDG_STATE_HOME/meros/local`, else `~/.local/state/meros/local`.
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

/// Which certificates a verb uses.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct CertsFlag {
    /// Directory with this machine's certificates [default: those of `meros local`]
    #[arg(long, env = "MEROS_CERTS", value_name = "DIR")]
    pub certs: Option<PathBuf>,
}

impl CertsFlag {
    /// The directory meant.
    pub fn directory(&self) -> PathBuf {
        self.certs
            .clone()
            .unwrap_or_else(|| local_directory(&default_work_dir()))
    }

    /// An identity of `role`: issued under `name` where the authority's key is at hand, else the one kept there.
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
                .map_err(|error| Failure::because("cannot issue a certificate", &error));
        }
        Identity::load(&directory, role).map_err(|error| unusable(&directory, &error))
    }

    /// The masters' addresses as the local cluster left them, else the usual one.
    pub fn master(&self) -> String {
        let kept = std::fs::read_to_string(self.directory().join(MASTER_FILE)).ok();
        let kept = kept.and_then(|text| crate::flags::master_addresses(text.trim()).ok());
        kept.unwrap_or_else(|| "127.0.0.1:5050".to_owned())
    }
}

/// Leaves a local cluster's address where the verbs look for it.
pub fn leave_master(directory: &Path, address: &str) -> Outcome {
    let file = directory.join(MASTER_FILE);
    std::fs::write(&file, format!("{address}\n"))
        .map_err(|error| Failure::because(format!("cannot write {}", file.display()), &error))
}

fn unusable(directory: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::because("no usable certificate", error).next(format_args!(
        "start `meros local`, or name a directory made by `meros certs --dir` with --certs or MEROS_CERTS; looked in {}",
        directory.display()
    ))
}

/// Make the certificates of a cluster
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct CertsArgs {
    /// Where the authority is kept; made there if there is none
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Issue one certificate of this role: master, agent, framework, operator or module; needs --name
    #[arg(long, requires = "name", value_name = "ROLE")]
    role: Option<Role>,
    /// The node's name: letters, digits, dots, dashes and underscores. Written to DIR/NAME
    #[arg(long, requires = "role", value_name = "NAME")]
    name: Option<String>,
}

/// Makes an authority with an operator's and a framework's identity, or one more identity of an authority.
pub fn run(args: &CertsArgs) -> Outcome {
    let directory = &args.dir;
    let failed = |error| Failure::because("cannot make the certificates", &error);
    let authority = Authority::load_or_create(directory).map_err(failed)?;
    let (Some(role), Some(name)) = (args.role, &args.name) else {
        keep_operators(&authority, directory)?;
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

/// Leaves what an operator's verbs and frameworks need beside the authority.
pub fn keep_operators(authority: &Authority, directory: &Path) -> Outcome {
    for role in [Role::Operator, Role::Framework] {
        let kept = authority
            .issue(role, role.as_str())
            .and_then(|identity| identity.save(directory));
        kept.map_err(|error| Failure::because("cannot keep the certificates", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certs(directory: &Path) -> CertsFlag {
        CertsFlag {
            certs: Some(directory.to_owned()),
        }
    }

    #[test]
    fn beside_the_authoritys_key_every_process_has_a_name_of_its_own_and_elsewhere_the_one_kept() {
        let home = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(home.path()).unwrap();
        keep_operators(&authority, home.path()).unwrap();
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
    fn without_certificates_the_failure_says_how_to_get_some() {
        let empty = tempfile::tempdir().unwrap();
        let failure = certs(empty.path())
            .identity(Role::Operator, "x")
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("does not exist") && failure.contains("meros local"),
            "{failure}"
        );
    }

    #[test]
    fn verbs_look_for_the_master_where_a_local_cluster_left_its_address() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(certs(home.path()).master(), "127.0.0.1:5050");
        leave_master(home.path(), "127.0.0.1:7070").unwrap();
        assert_eq!(certs(home.path()).master(), "127.0.0.1:7070");
    }
}
