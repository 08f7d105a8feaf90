//! The whitelist: the hosts of agents that are offered, from the file of `--whitelist`.
//!
//! Pure: parses the text. The file is read by the process, and enforced by the allocator.

use std::collections::BTreeSet;

use runtime::prelude::*;

/// Maximum hosts.
const HOSTS_MAX: usize = 1_000_000;
/// Maximum characters of a host name.
const HOST_MAX: usize = 253;

/// The hosts of agents that are offered; `None` means all, an empty set none.
pub type Hosts = Option<BTreeSet<String>>;

/// Offers agents of these hosts only, from now on. Sent by the process to a master or to its
/// supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitHosts(pub Hosts);

impl Message for AdmitHosts {
    type Result = ();
}

/// Parses a whitelist: one host per line. Empty lines and text after `#` are ignored.
pub fn parse(text: &str) -> Result<BTreeSet<String>, String> {
    let mut hosts = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let host = line.split('#').next().unwrap_or_default().trim();
        if host.is_empty() {
            continue;
        }
        if host.contains(char::is_whitespace) || host.len() > HOST_MAX {
            let shown: String = host.chars().take(80).collect();
            return Err(format!(
                "line {number} is `{shown}`: expected one host's name"
            ));
        }
        hosts.insert(host.to_lowercase());
        if hosts.len() > HOSTS_MAX {
            return Err(format!("line {number}: expected at most {HOSTS_MAX} hosts"));
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitelist_has_one_host_per_line() {
        let text = "# the rack at the door\nNode-1.example\n\n  node-2 # new\r\nnode-1.EXAMPLE\n";
        let hosts = parse(text).unwrap();
        assert_eq!(
            hosts,
            ["node-1.example", "node-2"].map(str::to_owned).into()
        );
        assert_eq!(parse("").unwrap(), BTreeSet::new());
        let problem = parse("a\nb c\n").unwrap_err();
        assert_eq!(problem, "line 2 is `b c`: expected one host's name");
    }
}
