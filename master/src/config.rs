//! Configuration of a master, checked once at startup.
//!
//! Independent of the command line, which fills it in. [`Config::check`] refuses every harmful
//! value (an interval of zero, a negative weight), by name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use authority::{Acls, Reloadable, Throttle};
use protocol::agent::Domain;
use resources::Role;

use crate::agents::whitelist::Hosts;
use crate::offers::expiry::OfferBudget;

/// Maximum interval or timeout: a year.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An operator's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The host name published to others.
    pub hostname: String,
    /// The port published to others.
    pub port: u16,
    /// The address published to HTTP clients besides the host name.
    pub address: Option<Ipv4Addr>,
    /// The version published to others.
    pub version: String,
    /// Interval of the allocator's batches (1 s). Shorter: fresher offers for more work.
    pub allocation_interval: Duration,
    /// Weights of roles other than 1.
    pub weights: BTreeMap<String, f64>,
    /// The master's fault domain: agents of another region are offered only to frameworks that are
    /// `REGION_AWARE`.
    pub domain: Option<Domain>,
    /// The roles that frameworks may have; `None` allows all.
    pub roles: Option<BTreeSet<String>>,
    /// The hosts of agents that are offered at first:
    /// [`AdmitHosts`](crate::agents::whitelist::AdmitHosts) changes them.
    pub whitelist: Hosts,
    /// Time between two pings of an agent (15 s).
    pub agent_ping_timeout: Duration,
    /// Unanswered pings in a row after which an agent is unreachable (5).
    pub max_agent_ping_timeouts: u32,
    /// How long agents and frameworks of the registry may take to return after the master's own
    /// restart (10 minutes).
    pub agent_reregister_timeout: Duration,
    /// An unanswered offer is rescinded after this time (10 minutes, longer than schedulers hold
    /// offers on purpose); `None` disables it.
    pub offer_timeout: Option<Duration>,
    /// Maximum unanswered offers per framework, in all its roles (`None`: no limit). Lower: an
    /// unresponsive framework holds less of the cluster, and a responsive one gets a large cluster
    /// in more parts.
    pub offer_budget: Option<OfferBudget>,
    /// Whether frameworks and tasks may run as `root`.
    pub root_submissions: bool,
    /// Access control lists (all allowed). Shared by all users, and replaceable at run time.
    pub acls: Reloadable<Acls>,
    /// Whether a native framework's principal must be the name in its certificate. Otherwise it is
    /// not verified.
    pub authenticate_frameworks: bool,
    /// Maximum call rate of each principal (no limit). Shared by all entrances of a node.
    pub throttle: Throttle,
    /// Ended frameworks that are remembered (50).
    pub max_completed_frameworks: usize,
    /// Ended tasks that are remembered per framework (1000).
    pub max_completed_tasks_per_framework: usize,
    /// Tasks on unreachable agents that are remembered per framework (1000).
    pub max_unreachable_tasks_per_framework: usize,
    /// Whether each framework has its own metrics, about sixty.
    pub publish_per_framework_metrics: bool,
    /// Maximum subscribers of the operator API's events; one more closes the oldest (1000).
    pub max_operator_event_stream_subscribers: usize,
    /// All flags as given, for `/state`.
    pub flags: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            port: 5050,
            address: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            allocation_interval: Duration::from_secs(1),
            weights: BTreeMap::new(),
            domain: None,
            roles: None,
            whitelist: None,
            agent_ping_timeout: Duration::from_secs(15),
            max_agent_ping_timeouts: 5,
            agent_reregister_timeout: Duration::from_secs(600),
            offer_timeout: Some(Duration::from_secs(600)),
            offer_budget: None,
            root_submissions: true,
            acls: Reloadable::default(),
            authenticate_frameworks: false,
            throttle: Throttle::default(),
            max_completed_frameworks: 50,
            max_completed_tasks_per_framework: 1000,
            max_unreachable_tasks_per_framework: 1000,
            publish_per_framework_metrics: true,
            max_operator_event_stream_subscribers: 1000,
            flags: BTreeMap::new(),
        }
    }
}

/// An invalid setting: its flag, the given value and the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is `{value}`: expected {expected}")]
pub struct InvalidConfig {
    /// The flag's name, without dashes.
    pub field: &'static str,
    /// The given value, cut to 80 characters.
    pub value: String,
    /// The accepted values.
    pub expected: &'static str,
}

impl InvalidConfig {
    fn new(field: &'static str, value: impl ToString, expected: &'static str) -> Self {
        Self {
            field,
            value: value.to_string().chars().take(80).collect(),
            expected,
        }
    }
}

impl Config {
    /// Time without an answer to pings after which an agent is unreachable (75 s).
    pub fn total_ping_timeout(&self) -> Duration {
        self.agent_ping_timeout
            .saturating_mul(self.max_agent_ping_timeouts)
    }

    /// Refuses the first harmful value, by name.
    pub fn check(&self) -> Result<(), InvalidConfig> {
        if self.hostname.is_empty() || self.hostname.chars().any(char::is_whitespace) {
            let expected = "a host name or address without blanks";
            return Err(InvalidConfig::new("hostname", &self.hostname, expected));
        }
        let durations = [
            ("allocation_interval", self.allocation_interval),
            ("agent_ping_timeout", self.agent_ping_timeout),
            ("agent_reregister_timeout", self.agent_reregister_timeout),
            (
                "offer_timeout",
                self.offer_timeout.unwrap_or(Duration::from_secs(1)),
            ),
        ];
        for (field, value) in durations {
            if value < Duration::from_millis(1) || value > DURATION_MAX {
                let given = protocol::text::duration::format(value);
                return Err(InvalidConfig::new(field, given, "1ms to 365days"));
            }
        }
        if self.max_agent_ping_timeouts == 0 {
            return Err(InvalidConfig::new(
                "max_agent_ping_timeouts",
                0,
                "at least 1",
            ));
        }
        if self.max_operator_event_stream_subscribers == 0 {
            let field = "max_operator_event_stream_subscribers";
            return Err(InvalidConfig::new(field, 0, "at least 1"));
        }
        for (role, weight) in &self.weights {
            check_role("weights", role)?;
            check_weight(*weight, || format!("{role}={weight}"))?;
        }
        for role in self.roles.iter().flatten() {
            check_role("roles", role)?;
        }
        Ok(())
    }

    /// Parses `--weights`, for example `dev=2,qa=1,prod=3`.
    pub fn parse_weights(text: &str) -> Result<BTreeMap<String, f64>, InvalidConfig> {
        let mut weights = BTreeMap::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let expected = "role=weight pairs with commas between, as in `dev=2,qa=1`";
            let (role, weight) = pair
                .split_once('=')
                .ok_or_else(|| InvalidConfig::new("weights", pair, expected))?;
            let role = role.trim();
            check_role("weights", role)?;
            let weight: f64 = weight
                .trim()
                .parse()
                .map_err(|_| InvalidConfig::new("weights", pair, expected))?;
            check_weight(weight, || pair.to_owned())?;
            if weights.insert(role.to_owned(), weight).is_some() {
                return Err(InvalidConfig::new("weights", pair, "each role once"));
            }
        }
        Ok(weights)
    }

    /// Parses `--roles`, for example `dev,qa,prod`. Always includes the role `*`.
    pub fn parse_roles(text: &str) -> Result<BTreeSet<String>, InvalidConfig> {
        let mut roles = BTreeSet::from(["*".to_owned()]);
        for role in text
            .split(',')
            .map(str::trim)
            .filter(|role| !role.is_empty())
        {
            check_role("roles", role)?;
            roles.insert(role.to_owned());
        }
        Ok(roles)
    }
}

fn check_role(field: &'static str, role: &str) -> Result<(), InvalidConfig> {
    match Role::new(role) {
        Ok(_) => Ok(()),
        Err(_) => Err(InvalidConfig::new(
            field,
            role,
            "a role: `*`, or a path such as `eng/dev` without blanks",
        )),
    }
}

fn check_weight(weight: f64, given: impl Fn() -> String) -> Result<(), InvalidConfig> {
    if weight.is_finite() && weight > 0.0 {
        return Ok(());
    }
    Err(InvalidConfig::new(
        "weights",
        given(),
        "a weight above zero",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Covers S88 in part: all but weights that are not whole.
    #[test]
    fn the_seeds_roles_and_weights_are_understood() {
        let weights = Config::parse_weights("dev=2,qa=1,prod=3").unwrap();
        assert_eq!(
            weights,
            BTreeMap::from([
                ("dev".to_owned(), 2.0),
                ("qa".to_owned(), 1.0),
                ("prod".to_owned(), 3.0)
            ])
        );
        let roles = Config::parse_roles("dev,qa,prod").unwrap();
        assert!(roles.contains("dev") && roles.contains("*") && !roles.contains("ops"));
    }

    #[test]
    fn a_harmful_choice_is_refused_by_name() {
        assert_eq!(Config::default().check(), Ok(()));
        let zero_interval = Config {
            allocation_interval: Duration::ZERO,
            ..Config::default()
        };
        let no_ping = Config {
            max_agent_ping_timeouts: 0,
            ..Config::default()
        };
        for (config, field) in [
            (zero_interval, "allocation_interval"),
            (no_ping, "max_agent_ping_timeouts"),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
        for text in "dev dev=x dev=0 dev=-1 dev=NaN a//b=1 dev=1,dev=2".split(' ') {
            assert_eq!(
                Config::parse_weights(text).unwrap_err().field,
                "weights",
                "{text}"
            );
        }
        assert_eq!(Config::parse_roles("ok,/bad").unwrap_err().value, "/bad");
    }

    #[test]
    fn five_pings_of_fifteen_seconds_are_seventy_five() {
        assert_eq!(
            Config::default().total_ping_timeout(),
            Duration::from_secs(75)
        );
    }
}
