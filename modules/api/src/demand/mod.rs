//! Compiled demands: the agents that a framework accepts in a role.
//!
//! Rejects invalid constraints by the field's name, so that the master can report them to the
//! framework. The allocator then calls [`AgentTest::passes`] once for each agent. Expressions run
//! in time linear in the text, and the size of a compiled one is bounded. Host names are compared
//! without regard to case, except by regular expressions, which see the name as the agent reported
//! it.

mod expression;
mod unmet;

use std::collections::BTreeSet;

use protocol::agent::Domain;
use protocol::offers::wants::{Constraint, Demand, Predicate, Selector};
use resources::{AttributeValue, Attributes, Invalid, excerpt};

use expression::Expression;

/// Constraints in one demand, in all its groups together.
pub const CONSTRAINTS_MAX: usize = 10_000;
/// Bytes in one text or expression.
pub const TEXT_MAX: usize = 1_024;
/// Regular expressions of one framework, in all its demands together. Each takes at most 96 KiB, so
/// all of them take at most 9.4 MiB in each thread that uses them, for example in an allocator.
pub const EXPRESSIONS_MAX: usize = 100;

/// Number of regular expressions in a demand.
pub fn expressions(demand: &Demand) -> usize {
    let constraints = demand.agents.iter().flatten();
    let matches = |constraint: &&Constraint| {
        let predicate = &constraint.predicate;
        matches!(
            predicate,
            Predicate::TextMatches(_) | Predicate::TextNotMatches(_)
        )
    };
    constraints.filter(matches).count()
}

/// Properties of an agent that constraints can test.
#[derive(Clone, Copy, Debug)]
pub struct AgentProperties<'a> {
    /// Its host name.
    pub hostname: &'a str,
    /// Its configured attributes.
    pub attributes: &'a Attributes,
    /// Its region and zone, if configured.
    pub domain: Option<&'a Domain>,
}

/// The compiled constraints of one demand. Two are equal if their constraints are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentTest {
    groups: Vec<Vec<Test>>,
    /// Groups of only one host name, merged into a set: a long list of hosts costs one lookup.
    hosts: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    selector: Selector,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Exists(bool),
    Equals(bool, String),
    Matches(bool, Expression),
}

/// The tested property of an agent.
enum Value<'a> {
    Missing,
    Text(&'a str),
    Other,
}

impl<'a> Value<'a> {
    fn of(text: Option<&'a String>) -> Self {
        text.map_or(Self::Missing, |text| Self::Text(text))
    }
}

impl AgentTest {
    /// Compiles the constraints of the demand for this role.
    pub fn new(role: &str, demand: &Demand) -> Result<Self, Invalid> {
        let field = format!("demands[{}].agents", excerpt(role));
        let count: usize = demand.agents.iter().map(Vec::len).sum();
        if count > CONSTRAINTS_MAX {
            let expected = format!("at most {CONSTRAINTS_MAX} constraints");
            return Err(Invalid::new(field, count, expected));
        }
        let count = expressions(demand);
        if count > EXPRESSIONS_MAX {
            let expected = format!("at most {EXPRESSIONS_MAX} regular expressions");
            return Err(Invalid::new(field, count, expected));
        }
        let mut made = Self::default();
        for (n, group) in demand.agents.iter().enumerate() {
            let field = format!("{field}[{n}]");
            if group.is_empty() {
                let expected = "at least one constraint in each group";
                return Err(Invalid::new(field, "", expected));
            }
            if let [only] = group.as_slice()
                && let Some(host) = only_host(only)
            {
                made.hosts.insert(host.to_lowercase());
                continue;
            }
            let test = |constraint| Test::new(&field, constraint);
            let tests = group.iter().map(test).collect::<Result<_, _>>()?;
            made.groups.push(tests);
        }
        Ok(made)
    }

    /// Whether it accepts every agent, because there are no constraints.
    pub fn is_open(&self) -> bool {
        self.groups.is_empty() && self.hosts.is_empty()
    }

    /// Whether the framework accepts this agent.
    pub fn passes(&self, agent: AgentProperties<'_>) -> bool {
        self.is_open()
            || self.hosts.contains(&agent.hostname.to_lowercase())
            || self
                .groups
                .iter()
                .any(|group| group.iter().all(|test| test.passes(agent)))
    }
}

/// The host name, if the constraint only compares with one.
fn only_host(constraint: &Constraint) -> Option<&str> {
    match (&constraint.selector, &constraint.predicate) {
        (Selector::Hostname, Predicate::TextEquals(host)) if host.len() <= TEXT_MAX => Some(host),
        _ => None,
    }
}

impl Test {
    fn new(field: &str, constraint: &Constraint) -> Result<Self, Invalid> {
        if let Selector::Attribute(name) = &constraint.selector
            && (name.is_empty() || name.len() > TEXT_MAX)
        {
            let expected = format!("an attribute's name of 1 to {TEXT_MAX} bytes");
            return Err(Invalid::new(format!("{field}.selector"), name, expected));
        }
        let short = |text: &String| {
            if text.len() <= TEXT_MAX {
                return Ok(text.clone());
            }
            let expected = format!("at most {TEXT_MAX} bytes");
            Err(Invalid::new(format!("{field}.predicate"), text, expected))
        };
        let expression = |text: &String| {
            Expression::new(&short(text)?).map_err(|expected| {
                Invalid::new(format!("{field}.predicate.regex"), text, expected)
            })
        };
        let is_host = constraint.selector == Selector::Hostname;
        let own_case = |text: String| match is_host {
            true => text.to_lowercase(),
            false => text,
        };
        let condition = match &constraint.predicate {
            Predicate::Exists => Condition::Exists(true),
            Predicate::NotExists => Condition::Exists(false),
            Predicate::TextEquals(text) => Condition::Equals(true, own_case(short(text)?)),
            Predicate::TextNotEquals(text) => Condition::Equals(false, own_case(short(text)?)),
            Predicate::TextMatches(text) => Condition::Matches(true, expression(text)?),
            Predicate::TextNotMatches(text) => Condition::Matches(false, expression(text)?),
        };
        let selector = constraint.selector.clone();
        Ok(Self {
            selector,
            condition,
        })
    }

    /// The property of the agent that this test selects.
    fn value<'a>(&self, agent: AgentProperties<'a>) -> Value<'a> {
        match &self.selector {
            Selector::Hostname => Value::Text(agent.hostname),
            Selector::Region => Value::of(agent.domain.map(|domain| &domain.region)),
            Selector::Zone => Value::of(agent.domain.map(|domain| &domain.zone)),
            Selector::Attribute(name) => match agent.attributes.get(name) {
                None => Value::Missing,
                Some(AttributeValue::Text(text)) => Value::Text(text),
                Some(_) => Value::Other,
            },
        }
    }

    /// Whether the agent's text equals the wanted one, which is in lower case if it is a host name.
    fn is(&self, own: &str, text: &str) -> bool {
        match self.selector {
            Selector::Hostname => own.to_lowercase() == text,
            _ => own == text,
        }
    }

    fn passes(&self, agent: AgentProperties<'_>) -> bool {
        match (&self.condition, self.value(agent)) {
            (Condition::Exists(wanted), value) => *wanted != matches!(value, Value::Missing),
            (_, Value::Other) => true,
            (Condition::Equals(wanted, _) | Condition::Matches(wanted, _), Value::Missing) => {
                !*wanted
            }
            (Condition::Equals(wanted, text), Value::Text(own)) => *wanted == self.is(own, text),
            (Condition::Matches(wanted, text), Value::Text(own)) => *wanted == text.matches(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(agents: &[&[(Selector, Predicate)]]) -> Demand {
        let constraint = |(selector, predicate): &(Selector, Predicate)| Constraint {
            selector: selector.clone(),
            predicate: predicate.clone(),
        };
        let group = |group: &&[(Selector, Predicate)]| group.iter().map(constraint).collect();
        Demand {
            agents: agents.iter().map(group).collect(),
            ..Demand::default()
        }
    }

    fn attribute(name: &str) -> Selector {
        Selector::Attribute(name.to_owned())
    }

    fn passes(demand: &Demand) -> bool {
        let attributes = "rack:r-2;cores:8;rack:r-3;os:ubuntu".parse().unwrap();
        let domain = Domain {
            region: "eu".to_owned(),
            zone: "eu-1".to_owned(),
        };
        AgentTest::new("dev", demand)
            .unwrap()
            .passes(AgentProperties {
                hostname: "node-7.example",
                attributes: &attributes,
                domain: Some(&domain),
            })
    }

    /// SPEC 2.4: every predicate against a text, against a value of another type, and against none.
    // Covers 2.4 Offer constraints.
    #[test]
    fn predicates_match_the_table() {
        use Predicate::*;
        let text = |text: &str| text.to_owned();
        for (predicate, of_text, of_number, of_nothing) in [
            (Exists, true, true, false),
            (NotExists, false, false, true),
            (TextEquals(text("r-2")), true, true, false),
            (TextEquals(text("r-3")), false, true, false),
            (TextNotEquals(text("r-2")), false, true, true),
            (TextNotEquals(text("r-3")), true, true, true),
            (TextMatches(text("r-[0-9]")), true, true, false),
            (TextMatches(text("r-")), false, true, false),
            (TextNotMatches(text("r-[0-9]")), false, true, true),
            (TextNotMatches(text("r")), true, true, true),
        ] {
            let holds = |name| passes(&demand(&[&[(attribute(name), predicate.clone())]]));
            assert_eq!(
                [holds("rack"), holds("cores"), holds("gone")],
                [of_text, of_number, of_nothing],
                "{predicate:?}"
            );
        }
    }

    /// SPEC 2.4: any group, with all its constraints; the three values that are no attributes.
    // Covers 2.4 Offer constraints.
    #[test]
    fn any_group_suffices_with_all_its_constraints() {
        use Predicate::{Exists, TextEquals};
        let is = |selector: Selector, text: &str| (selector, TextEquals(text.to_owned()));
        let (os, rack) = (is(attribute("os"), "ubuntu"), is(attribute("rack"), "r-9"));
        assert!(passes(&demand(&[])), "no groups ask for nothing");
        assert!(!passes(&demand(&[&[os.clone(), rack.clone()]])));
        assert!(passes(&demand(&[std::slice::from_ref(&rack), &[os]])));
        assert!(passes(&demand(&[&[is(
            Selector::Hostname,
            "NODE-7.example"
        )]])));
        assert!(passes(&demand(&[&[
            is(Selector::Region, "eu"),
            is(Selector::Zone, "eu-1")
        ]])));
        assert!(!passes(&demand(&[&[is(Selector::Zone, "eu-2")]])));
        assert!(passes(&demand(&[&[(Selector::Zone, Exists)]])));
    }

    /// SPEC 2.4: host names, regions and zones are texts; without a domain the latter are missing.
    // Covers 2.4 Offer constraints.
    #[test]
    fn predicates_apply_to_hosts_regions_and_zones() {
        use Predicate::*;
        let attributes = Attributes::default();
        let domain = Domain {
            region: "eu".to_owned(),
            zone: "eu-1".to_owned(),
        };
        let passes = |selector: &Selector, predicate: &Predicate, domain: Option<&Domain>| {
            let demand = demand(&[&[(selector.clone(), predicate.clone())]]);
            let properties = AgentProperties {
                hostname: "Node-7",
                attributes: &attributes,
                domain,
            };
            AgentTest::new("dev", &demand).unwrap().passes(properties)
        };
        let text = |text: &str| text.to_owned();
        // Against the value, the value in another case, and a missing one.
        for (selector, same, other_case) in [
            (Selector::Region, "eu", "EU"),
            (Selector::Zone, "eu-1", "EU-1"),
        ] {
            for (predicate, of_text, of_nothing) in [
                (Exists, true, false),
                (NotExists, false, true),
                (TextEquals(text(same)), true, false),
                (TextEquals(text(other_case)), false, false),
                (TextNotEquals(text(same)), false, true),
                (TextNotEquals(text(other_case)), true, true),
                (TextMatches(text("eu.*")), true, false),
                (TextMatches(text("u.*")), false, false),
                (TextNotMatches(text("eu.*")), false, true),
                (TextNotMatches(text("u.*")), true, true),
            ] {
                let found = [Some(&domain), None].map(|of| passes(&selector, &predicate, of));
                assert_eq!(found, [of_text, of_nothing], "{selector:?} {predicate:?}");
            }
        }
        for (predicate, holds) in [
            (Exists, true),
            (NotExists, false),
            (TextEquals(text("nODE-7")), true),
            (TextEquals(text("node-70")), false),
            (TextNotEquals(text("nODE-7")), false),
            (TextNotEquals(text("node-70")), true),
            (TextMatches(text("Node-[0-9]")), true),
            (TextMatches(text("node-[0-9]")), false),
            (TextMatches(text("(?i)node-[0-9]")), true),
            (TextNotMatches(text("Node-[0-9]")), false),
            (TextNotMatches(text("ode")), true),
        ] {
            let found = passes(&Selector::Hostname, &predicate, None);
            assert_eq!(found, holds, "{predicate:?}");
            // The same result in a group with another constraint.
            let beside = (Selector::Hostname, Exists);
            let both = demand(&[&[(Selector::Hostname, predicate.clone()), beside]]);
            let found = AgentTest::new("dev", &both)
                .unwrap()
                .passes(AgentProperties {
                    hostname: "Node-7",
                    attributes: &attributes,
                    domain: None,
                });
            assert_eq!(found, holds, "{predicate:?} beside another");
        }
    }

    /// S126, the node list.
    // Covers S126.
    #[test]
    fn a_list_of_nodes_admits_those_nodes() {
        let list = (0..9).map(|n| format!("node-{n}.example"));
        assert!(passes(&Demand::on_hosts(list)));
        assert!(!passes(&Demand::on_hosts([
            "node-70.example",
            "ode-7.example"
        ])));
    }

    /// Before any is compiled: the last one would be refused by another field.
    #[test]
    fn too_many_expressions_are_rejected() {
        let one = |n: usize| {
            let text = match n {
                EXPRESSIONS_MAX => "a(".to_owned(),
                n => format!("node-{n}-[0-9]"),
            };
            let predicate = match n % 2 {
                0 => Predicate::TextMatches(text),
                _ => Predicate::TextNotMatches(text),
            };
            let exists = (Selector::Zone, Predicate::Exists);
            [(Selector::Hostname, predicate), exists]
        };
        let groups: Vec<_> = (0..=EXPRESSIONS_MAX).map(one).collect();
        let groups: Vec<&[_]> = groups.iter().map(<[_; 2]>::as_slice).collect();
        let most = demand(&groups[..EXPRESSIONS_MAX]);
        assert_eq!(expressions(&most), EXPRESSIONS_MAX);
        assert!(AgentTest::new("dev", &most).is_ok());
        let refused = AgentTest::new("dev", &demand(&groups)).unwrap_err();
        let expected = "demands[dev].agents is `101`: expected at most 100 regular expressions";
        assert_eq!(refused.to_string(), expected);
    }

    #[test]
    fn invalid_constraints_are_rejected_by_field() {
        let regex = |text: &str| {
            demand(&[&[(Selector::Hostname, Predicate::TextMatches(text.to_owned()))]])
        };
        let long = "x".repeat(TEXT_MAX + 1);
        for (wrong, field) in [
            (demand(&[&[]]), "agents[0]"),
            (regex("a("), "agents[0].predicate.regex"),
            (regex("a)|(b"), "agents[0].predicate.regex"),
            (regex("(x{1000}){1000}"), "agents[0].predicate.regex"),
            (regex(&long), "agents[0].predicate"),
            (
                demand(&[&[(attribute(""), Predicate::Exists)]]),
                "agents[0].selector",
            ),
        ] {
            let error = AgentTest::new("dev", &wrong).unwrap_err();
            assert_eq!(error.field, format!("demands[dev].{field}"), "{error}");
        }
        let error = AgentTest::new(&long, &demand(&[&[]])).unwrap_err();
        assert!(error.field.len() < 120, "{error}");
    }
}
