//! The whitelist: the hosts whose agents are offered, as an operator's file names them (SPEC 3.8 `--whitelist`).
//!
//! Pure: reads the text. Who reads the file, and when again, is for the roof; who is offered what, for the allocator.

use std::collections::BTreeSet;

use runtime::prelude::*;

/// The most hosts.
const HOSTS_MAX: usize = 1_000_000;
/// The most characters of one host's name.
const HOST_MAX: usize = 253;

/// The hosts whose agents are offered; `None` is all, and an empty set is none.
pub type Hosts = Option<BTreeSet<String>>;

/// Offer agents of these hosts only, from now on. Said by the roof, to a master or to the office that appoints one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitHosts(pub Hosts);

impl Message for AdmitHosts {
    type Result = ();
}

/// Reads a whitelist: a host a line. Empty lines and what follows a `#` are passed over.
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
    fn a_host_a_line_is_read_and_two_are_refused_by_their_line() {
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
