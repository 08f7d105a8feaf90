//! Roles: who is meant where a fault names `leader`, `follower`, `masters`, `minority`, `majority` or `everyone`.
//!
//! Pure. A fault means those who are it when the fault begins, and they stay the ones until it ends.

use crate::scenario::FaultKind;

/// The words that stand for nodes.
pub const ROLES: [&str; 6] = [
    "leader", "follower", "masters", "minority", "majority", "everyone",
];

/// The names of so many masters.
pub fn masters(count: u32) -> Vec<String> {
    match count {
        0 | 1 => vec!["master".to_owned()],
        _ => (1..=count)
            .map(|number| format!("master-{number}"))
            .collect(),
    }
}

/// Who there is at one moment.
pub struct Present<'a> {
    /// All masters.
    pub masters: &'a [String],
    /// The one that acts; none if nobody does.
    pub leader: Option<&'a str>,
    /// All nodes.
    pub everyone: &'a [String],
}

impl Present<'_> {
    /// The nodes that this word stands for: a name for itself.
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

    /// The faults of single nodes and ways that this one means.
    pub fn meant(&self, kind: &FaultKind) -> Vec<FaultKind> {
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

    fn meant(count: u32, leader: Option<&str>, kind: &FaultKind) -> Vec<String> {
        let masters = masters(count);
        let mut everyone = masters.clone();
        everyone.push("agent-1".to_owned());
        let present = Present {
            masters: &masters,
            leader,
            everyone: &everyone,
        };
        present
            .meant(kind)
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
    fn a_word_means_those_who_are_it_and_a_name_itself() {
        let leads = Some("master-2");
        assert_eq!(meant(3, leads, &crash("leader")), ["crash master-2"]);
        assert_eq!(meant(3, leads, &crash("follower")), ["crash master-1"]);
        assert_eq!(meant(3, None, &crash("leader")), ["crash master-1"]);
        assert_eq!(meant(1, Some("master"), &crash("leader")), ["crash master"]);
        assert!(meant(1, Some("master"), &crash("follower")).is_empty());
        assert_eq!(meant(5, leads, &crash("masters")).len(), 5);
        assert_eq!(meant(7, leads, &cut("minority", "majority")).len(), 3 * 4);
        assert_eq!(meant(3, leads, &crash("agent-1")), ["crash agent-1"]);
    }

    #[test]
    fn ways_are_between_different_nodes_and_both_sides_of_a_split_are_everybody() {
        let leads = Some("master-2");
        let alone = meant(3, leads, &cut("leader", "everyone"));
        assert_eq!(
            alone,
            [
                "partition master-2 master-1",
                "partition master-2 master-3",
                "partition master-2 agent-1"
            ]
        );
        let split = meant(5, leads, &cut("minority", "majority"));
        assert_eq!(split.len(), 2 * 3);
        assert!(split.contains(&"partition master-1 master-3".to_owned()));
        assert_eq!(meant(3, leads, &cut("minority", "majority")).len(), 2);
        let deaf = FaultKind::OneWay {
            from: "masters".to_owned(),
            to: "leader".to_owned(),
        };
        assert_eq!(
            meant(3, leads, &deaf),
            ["one_way master-1 master-2", "one_way master-3 master-2"]
        );
    }
}
