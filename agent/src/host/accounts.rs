//! Accounts: the user that a task runs as, and whether this agent can run it.
//!
//! [`run_as`] decides. Only root can change its user, so an agent of another user refuses tasks
//! that name a third one instead of running them as itself. With `--switch_user=false` tasks name
//! no user.

use std::io;

use crate::host::sys::{self, Account};

/// The user of this process.
#[derive(Clone, Debug)]
pub struct OwnUser {
    uid: u32,
    account: Option<Account>,
}

/// The user that a task runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// The agent's own user.
    Own,
    /// Another user.
    Other(Account),
}

impl OwnUser {
    /// This process's user, without its name.
    pub fn unnamed() -> Self {
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            account: None,
        }
    }

    /// This process's user, with its account on the host.
    pub fn look_up() -> io::Result<Self> {
        let unnamed = Self::unnamed();
        Ok(Self {
            account: sys::account_of(unnamed.uid)?,
            ..unnamed
        })
    }

    /// Its account, if it was looked up and exists.
    pub fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn is_named(&self, user: &str) -> bool {
        let known = self.account.as_ref();
        self.is_root() && user == "root" || known.is_some_and(|account| account.name == user)
    }

    fn label(&self) -> String {
        let known = self.account.as_ref();
        known.map_or_else(|| self.uid.to_string(), |account| account.name.clone())
    }
}

/// The user for a task of `user`, or why this agent refuses it.
pub fn run_as(
    user: Option<&str>,
    own: &OwnUser,
    look_up: impl FnOnce(&str) -> io::Result<Option<Account>>,
) -> Result<RunAs, String> {
    let Some(user) = user.filter(|user| !user.is_empty() && !own.is_named(user)) else {
        return Ok(RunAs::Own);
    };
    match look_up(user) {
        Ok(Some(account)) if own.is_root() => Ok(RunAs::Other(account)),
        Ok(Some(account)) if account.credentials.uid == own.uid => Ok(RunAs::Own),
        Ok(Some(_)) => Err(format!(
            "user `{user}`: the agent runs as user `{}`, and only an agent of root can run tasks of another user; start the agent as \
             root, or with --switch_user=false to run all tasks as its own user",
            own.label()
        )),
        Ok(None) => Err(format!("user `{user}` is not known on this host")),
        Err(error) => Err(format!("user `{user}` cannot be looked up: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::sys::Credentials;

    fn account(name: &str, uid: u32) -> Account {
        Account {
            name: name.into(),
            home: format!("/home/{name}").into(),
            credentials: Credentials {
                uid,
                gid: uid,
                groups: vec![uid],
            },
        }
    }

    fn host(user: &str) -> io::Result<Option<Account>> {
        match user {
            "root" => Ok(Some(account("root", 0))),
            "alice" | "alias" => Ok(Some(account("alice", 1000))),
            "bob" => Ok(Some(account("bob", 1001))),
            "broken" => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(None),
        }
    }

    fn own(name: &str) -> OwnUser {
        let account = host(name).unwrap();
        let uid = account
            .as_ref()
            .map_or(77, |account| account.credentials.uid);
        OwnUser { uid, account }
    }

    #[test]
    fn root_runs_tasks_as_any_known_user() {
        let root = own("root");
        let asked = |user: &str| run_as(Some(user), &root, host);
        assert_eq!(asked("alice"), Ok(RunAs::Other(account("alice", 1000))));
        assert_eq!(asked("root"), Ok(RunAs::Own));
        assert_eq!(asked(""), Ok(RunAs::Own));
        assert_eq!(run_as(None, &root, host), Ok(RunAs::Own));
        assert!(asked("nemo").unwrap_err().contains("`nemo` is not known"));
        assert!(asked("broken").unwrap_err().contains("cannot be looked up"));
    }

    #[test]
    fn non_root_agent_refuses_tasks_of_other_users() {
        let alice = own("alice");
        for user in ["", "alice", "alias"] {
            assert_eq!(run_as(Some(user), &alice, host), Ok(RunAs::Own), "{user}");
        }
        for user in ["root", "bob"] {
            let refused = run_as(Some(user), &alice, host).unwrap_err();
            assert!(refused.contains(&format!("user `{user}`")), "{refused}");
            assert!(refused.contains("runs as user `alice`"), "{refused}");
            assert!(refused.contains("--switch_user=false"), "{refused}");
        }
        let unknown = run_as(Some("bob"), &own("unlisted"), host).unwrap_err();
        assert!(unknown.contains("runs as user `77`"), "{unknown}");
    }
}
