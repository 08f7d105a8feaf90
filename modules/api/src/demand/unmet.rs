//! Explains which constraints of a demand an agent does not meet.
//!
//! Uses the same tests as [`AgentTest::passes`]. For display only.

use protocol::offers::wants::Selector;
use protocol::view::explain::UnmetConstraint;

use super::{AgentProperties, AgentTest, Condition, Test, Value};

/// Characters of one text in an explanation.
const SHOWN_MAX: usize = 120;

impl AgentTest {
    /// The reasons why the framework does not accept this agent: for each of the first `most`
    /// groups its first failed constraint, and the number of further groups. Empty for an accepted
    /// agent.
    pub fn unmet(&self, agent: AgentProperties<'_>, most: usize) -> (Vec<UnmetConstraint>, u64) {
        if self.passes(agent) {
            return (Vec::new(), 0);
        }
        let hosts = (!self.hosts.is_empty()).then(|| self.of_hosts(agent));
        let of_group = |group: &Vec<Test>| {
            let test = group.iter().find(|test| !test.passes(agent))?;
            Some(test.unmet(agent))
        };
        let mut all = hosts
            .into_iter()
            .chain(self.groups.iter().filter_map(of_group));
        let first: Vec<UnmetConstraint> = all.by_ref().take(most).collect();
        (first, all.count() as u64)
    }

    fn of_hosts(&self, agent: AgentProperties<'_>) -> UnmetConstraint {
        let mut hosts = self.hosts.iter();
        let constraint = match (hosts.next(), hosts.len()) {
            (Some(host), 0) => format!("hostname is `{host}`"),
            (Some(host), more) => format!("hostname is `{host}` or one of {more} more"),
            (None, _) => "hostname is one of none".to_owned(),
        };
        unmet(&constraint, Some(agent.hostname))
    }
}

impl Test {
    fn unmet(&self, agent: AgentProperties<'_>) -> UnmetConstraint {
        let of = match &self.selector {
            Selector::Hostname => "hostname".to_owned(),
            Selector::Region => "region".to_owned(),
            Selector::Zone => "zone".to_owned(),
            Selector::Attribute(name) => format!("attribute {name}"),
        };
        let wanted = match &self.condition {
            Condition::Exists(true) => "exists".to_owned(),
            Condition::Exists(false) => "does not exist".to_owned(),
            Condition::Equals(true, text) => format!("is `{text}`"),
            Condition::Equals(false, text) => format!("is not `{text}`"),
            Condition::Matches(wanted, expression) => {
                let not = if *wanted { "matches" } else { "does not match" };
                format!("{not} `{}`", expression.text())
            }
        };
        let has = match self.value(agent) {
            Value::Missing => None,
            Value::Text(text) => Some(text),
            Value::Other => Some("(no text)"),
        };
        unmet(&format!("{of} {wanted}"), has)
    }
}

fn unmet(constraint: &str, has: Option<&str>) -> UnmetConstraint {
    let shown = |text: &str| match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    UnmetConstraint {
        constraint: shown(constraint),
        has: has.map(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Demand;
    use protocol::offers::wants::{Constraint, Predicate};
    use resources::Attributes;

    fn constraint(selector: Selector, predicate: Predicate) -> Constraint {
        Constraint {
            selector,
            predicate,
        }
    }

    fn unmet(demand: &Demand, most: usize) -> (Vec<String>, u64) {
        let attributes: Attributes = "rack:r7;cores:8".parse().unwrap();
        let properties = AgentProperties {
            hostname: "node-7",
            attributes: &attributes,
            domain: None,
        };
        let test = AgentTest::new("dev", demand).unwrap();
        let (unmet, more) = test.unmet(properties, most);
        assert_eq!(unmet.is_empty(), test.passes(properties));
        (unmet.iter().map(ToString::to_string).collect(), more)
    }

    #[test]
    fn first_failed_constraint_of_each_group_is_named() {
        let rack = || Selector::Attribute("rack".to_owned());
        let matches = Predicate::TextMatches("r[12]".to_owned());
        let group = vec![
            constraint(Selector::Hostname, Predicate::Exists),
            constraint(rack(), matches),
            constraint(Selector::Zone, Predicate::Exists),
        ];
        let other = vec![constraint(
            Selector::Region,
            Predicate::TextEquals("eu".to_owned()),
        )];
        let cores = vec![constraint(
            Selector::Attribute("cores".to_owned()),
            Predicate::NotExists,
        )];
        let mut demand = Demand {
            agents: vec![group, other, cores],
            ..Demand::default()
        };
        let said = [
            "attribute rack matches `r[12]`; the agent has `r7`",
            "region is `eu`; the agent has no value",
            "attribute cores does not exist; the agent has `(no text)`",
        ];
        assert_eq!(unmet(&demand, 9), (said.map(str::to_owned).to_vec(), 0));
        assert_eq!(unmet(&demand, 1), (vec![said[0].to_owned()], 2));
        demand.agents.extend(Demand::on_hosts(["a", "b"]).agents);
        let first = "hostname is `a` or one of 1 more; the agent has `node-7`";
        assert_eq!(unmet(&demand, 1), (vec![first.to_owned()], 3));
        demand.agents.extend(Demand::on_hosts(["NODE-7"]).agents);
        assert_eq!(unmet(&demand, 9), (vec![], 0));
    }
}
