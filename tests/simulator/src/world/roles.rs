//! Resolves `leader`, `follower`, `masters`, `minority`, `majority` and `everyone` in faults.
//!
//! Pure. A fault means the nodes with that role at its begin, and keeps them until its end.

use crate::scenario::FaultKind;

/// The words for sets of nodes.
pub const ROLES: [&str; 6] = [
    "leader", "follower", "masters", "minority", "majority", "everyone",
];

/// The names of this number of masters.
pub fn masters(count: u32) -> Vec<String> {
    match count {
        0 | 1 => vec!["master".to_owned()],
        _ => (1..=count)
            .map(|number| format!("master-{number}"))
            .collect(),
    }
}

/// The nodes at one moment.
pub struct Present<'a> {
    /// All masters.
    pub masters: &'a [String],
    /// The leading master, if any.
    pub leader: Option<&'a str>,
    /// All nodes.
    pub everyone: &'a [String],
}

impl Present<'_> {
    /// The nodes of this word; a node's name stands for itself.
    fn named(&self, word: &str) -> Vec<String> {
        let leader = self
            .leader
            .filter(|leader| self.masters.iter().any(|one| one == leader));
        let leader = leader.or(self.masters.first().map(String::as_str));
        let others = || {
            self.masters
                .iter()
                .filter(|master| Some(master.as_str()) != leader)
        };
        let most = self.masters.len().saturating_sub(1) / 2;
        let beside = most.saturating_sub(1);
        match word {
            "leader" => leader.into_iter().map(str::to_owned).collect(),
            "follower" => others().take(1).cloned().collect(),
            "masters" => self.masters.to_vec(),
            "minority" => {
                let leader = leader.into_iter().map(str::to_owned);
                leader.chain(others().take(beside).cloned()).collect()
            }
            "majority" => others().skip(beside).cloned().collect(),
            "everyone" => self.everyone.to_vec(),
            name => vec![name.to_owned()],
        }
    }

    /// The faults of single nodes and paths that this one stands for.
    pub fn resolved(&self, kind: &FaultKind) -> Vec<FaultKind> {
        match kind {
            FaultKind::Partition { one, other } => {
                let ways = self.ways(one, other);
                ways.map(|(one, other)| FaultKind::Partition { one, other })
                    .collect()
            }
            FaultKind::OneWay { from, to } => {
                let ways = self.ways(from, to);
                ways.map(|(from, to)| FaultKind::OneWay { from, to })
                    .collect()
            }
            kind => {
                let nodes = kind.nodes().into_iter().flat_map(|node| self.named(node));
                nodes.map(|node| kind.on(&node)).collect()
            }
        }
    }

    fn ways(&self, from: &str, to: &str) -> impl Iterator<Item = (String, String)> + use<> {
        let (from, to) = (self.named(from), self.named(to));
        from.into_iter().flat_map(move |one| {
            let others = to.clone().into_iter().filter({
                let one = one.clone();
                move |other| *other != one
            });
            others.map(move |other| (one.clone(), other))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(count: u32, leader: Option<&str>, kind: &FaultKind) -> Vec<String> {
        let masters = masters(count);
        let mut everyone = masters.clone();
        everyone.push("agent-1".to_owned());
        let present = Present {
            masters: &masters,
            leader,
            everyone: &everyone,
        };
        present
            .resolved(kind)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn cut(one: &str, other: &str) -> FaultKind {
        FaultKind::Partition {
            one: one.to_owned(),
            other: other.to_owned(),
        }
    }

    fn crash(node: &str) -> FaultKind {
        FaultKind::Crash {
            node: node.to_owned(),
        }
    }

    #[test]
    fn role_words_resolve_to_nodes() {
        let leads = Some("master-2");
        assert_eq!(resolved(3, leads, &crash("leader")), ["crash master-2"]);
        assert_eq!(resolved(3, leads, &crash("follower")), ["crash master-1"]);
        assert_eq!(resolved(3, None, &crash("leader")), ["crash master-1"]);
        assert_eq!(
            resolved(1, Some("master"), &crash("leader")),
            ["crash master"]
        );
        assert!(resolved(1, Some("master"), &crash("follower")).is_empty());
        assert_eq!(resolved(5, leads, &crash("masters")).len(), 5);
        assert_eq!(
            resolved(7, leads, &cut("minority", "majority")).len(),
            3 * 4
        );
        assert_eq!(resolved(3, leads, &crash("agent-1")), ["crash agent-1"]);
    }

    #[test]
    fn partitions_cover_all_nodes() {
        let leads = Some("master-2");
        let alone = resolved(3, leads, &cut("leader", "everyone"));
        assert_eq!(
            alone,
            [
                "partition master-2 master-1",
                "partition master-2 master-3",
                "partition master-2 agent-1"
            ]
        );
        let split = resolved(5, leads, &cut("minority", "majority"));
        assert_eq!(split.len(), 2 * 3);
        assert!(split.contains(&"partition master-1 master-3".to_owned()));
        assert_eq!(resolved(3, leads, &cut("minority", "majority")).len(), 2);
        let not_reading = FaultKind::OneWay {
            from: "masters".to_owned(),
            to: "leader".to_owned(),
        };
        assert_eq!(
            resolved(3, leads, &not_reading),
            ["one_way master-1 master-2", "one_way master-3 master-2"]
        );
    }
}
