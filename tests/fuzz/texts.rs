//! Text formats and JSON written by operators, frameworks and configuration files.
//!
//! Each value is parsed, formatted and parsed again; both values must be equal.

use std::fmt::{Debug, Display};

use authority::{Acls, Credentials, RateLimits};
use module_api::Manifest;
use module_api::demand::{AgentProperties, AgentTest};
use protocol::Demand;
use protocol::offers::wants::{Constraint, Predicate, Selector};
use resources::{Attributes, Invalid, Quantities, Resources, Role, json};
use simulator::Fault;
use simulator::report::history::InvalidFault;

use crate::generate::generate;
use crate::rng::Rng;
use crate::target::{HeapLimit, Target, Verdict, rejected, same_again};

/// One letter of text may become a resource, and JSON is first parsed into a tree.
const TEXT: HeapLimit = HeapLimit {
    per_byte: 400,
    fixed: 16 << 10,
};

/// A class of two characters in an expression becomes all its ranges during compilation, in several
/// forms.
const EXPRESSION: HeapLimit = HeapLimit {
    per_byte: 16 << 10,
    fixed: 1 << 20,
};

/// A target of text.
fn text(
    name: &str,
    seeds: &[&str],
    check: impl Fn(&str) -> Verdict + 'static,
    generate: impl Fn(&mut Rng) -> Option<String> + 'static,
) -> Target {
    let check = move |bytes: &[u8]| check(&String::from_utf8_lossy(bytes));
    let generate = move |rng: &mut Rng| generate(rng).map(String::into_bytes);
    let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    Target {
        text: true,
        ..Target::new(name, check, generate).with_seeds(seeds)
    }
}

/// A format with a parser and a formatter.
fn form<T: Debug + 'static, E: Display + Debug>(
    name: &str,
    seeds: &[&str],
    read: impl Fn(&str) -> Result<T, E> + 'static,
    write: impl Fn(&T) -> String + 'static,
    generate: impl Fn(&mut Rng) -> Option<String> + 'static,
) -> Target {
    let check = move |text: &str| match TEXT.enforce(text.len(), || read(text))? {
        Err(error) => rejected(&error),
        Ok(value) => {
            let written = write(&value);
            let again = same_again(&value, read(&written));
            again.map_err(|problem| format!("printed {written:?}: {problem}"))
        }
    };
    text(name, seeds, check, generate)
}

/// A format with a parser only.
fn read_only<T, E: Display>(
    name: &str,
    seeds: &[&str],
    read: impl Fn(&str) -> Result<T, E> + 'static,
) -> Target {
    read_within(TEXT, name, seeds, read)
}

/// The same with another memory limit.
fn read_within<T, E: Display>(
    bound: HeapLimit,
    name: &str,
    seeds: &[&str],
    read: impl Fn(&str) -> Result<T, E> + 'static,
) -> Target {
    let check = move |text: &str| {
        let read = bound.enforce(text.len(), || read(text))?;
        read.map_or_else(|error| rejected(&error), |_| Ok(()))
    };
    Target {
        weight: 1,
        ..text(name, seeds, check, |_| None)
    }
}

/// Resources with few copies, because JSON repeats each copy.
fn random_resources(rng: &mut Rng) -> Option<Resources> {
    let resources: Resources = generate(rng)?;
    let few = resources.iter().all(|resource| resource.copies() < 10);
    few.then_some(resources)
}

/// All targets of this module.
pub fn targets() -> Vec<Target> {
    vec![
        form(
            "resources text",
            &[
                "cpus:4;mem:2048;cpus(ads):8;mem(ads):4096;ports:[21000-29000];bugs:{a,b,c}",
                "cpus(ads, ops):1.5;disk:10;ports:[1-2, 5-9]",
            ],
            Resources::parse,
            // Text has no annotations, so parsed resources have none.
            |resources: &Resources| resources.to_string(),
            |rng| Some(random_resources(rng)?.to_string()),
        ),
        form(
            "resources json",
            &[
                r#"[{"name":"cpus","type":"SCALAR","scalar":{"value":4},"role":"role1"}]"#,
                r#"{"name":"ports","type":"RANGES","ranges":{"range":[{"begin":1,"end":2},{"begin":5,"end":9}]}}"#,
                r#"[{"name":"disk","type":"SCALAR","scalar":{"value":1},"role":"ads","disk":{"persistence":{"id":"p"},"volume":{"container_path":"a","mode":"RW"}}}]"#,
                r#"[{"name":"bugs","type":"SET","set":{"item":["a","b"]},"revocable":{}},]"#,
                r#"[{"name":"cpus","type":"SCALAR","scalar":{"value":1},"reservations":[{"type":"STATIC","role":"a"},{"type":"DYNAMIC","role":"a/b","principal":"p","labels":{"labels":[{"key":"k","value":"v"}]}}],"allocation_info":{"role":"a/b"},"provider_id":{"value":"x"},"shared":{}}]"#,
            ],
            json::parse_resources,
            |resources: &Resources| print(&json::Resources(resources.clone())),
            |rng| Some(print(&json::Resources(random_resources(rng)?))),
        ),
        form(
            "attributes text",
            &["rack:rack-2;datacenter:europe;cores:[1-4];weight:1.5;tags:{a,b}"],
            Attributes::parse,
            |attributes: &Attributes| attributes.to_string(),
            |rng| Some(generate::<Attributes>(rng)?.to_string()),
        ),
        form(
            "attributes json",
            &[r#"[{"name":"rack","type":"TEXT","text":{"value":"rack-2"}}]"#],
            json::parse_attributes,
            |attributes: &Attributes| print(&json::Attributes(attributes.clone())),
            |rng| Some(print(&json::Attributes(generate(rng)?))),
        ),
        form(
            "quantities text",
            &["cpus:1;mem:2.5"],
            Quantities::parse,
            |quantities: &Quantities| quantities.to_string(),
            |rng| Some(generate::<Quantities>(rng)?.to_string()),
        ),
        form(
            "quantities json",
            &[r#"{"cpus":{"value":4},"mem":3}"#],
            |text: &str| serde_json::from_str::<json::Quantities>(text),
            |quantities: &json::Quantities| print(quantities),
            |rng| Some(print(&json::Quantities(generate(rng)?))),
        ),
        form(
            "role",
            &["ads/web", "*"],
            |text: &str| Role::new(text),
            |role: &Role| role.to_string(),
            |rng| Some(generate::<Role>(rng)?.to_string()),
        ),
        form(
            "duration",
            &["15secs", "1.5mins", "0ns", "100weeks"],
            protocol::text::duration::parse,
            |duration| protocol::text::duration::format(*duration),
            |rng| {
                let duration = std::time::Duration::from_nanos(rng.number());
                Some(protocol::text::duration::format(duration))
            },
        ),
        form(
            "fault",
            &[
                "10secs+5secs partition master agent-1",
                "1mins+2.5secs packet_faults agent-2 0.1 0.01 200ms",
                "0ns+1secs drift agent-0 -50000",
            ],
            |text: &str| {
                // The error also lists all valid forms, which is long.
                text.parse()
                    .map_err(|error: InvalidFault| format!("{}: {}", error.text, error.problem))
            },
            Fault::to_string,
            |_| None,
        ),
        form(
            "domain",
            &[
                "europe/europe-1",
                r#"{"fault_domain":{"region":{"name":"europe"},"zone":{"name":"europe-1"}}}"#,
            ],
            meros::flags::domain,
            |domain| format!("{}/{}", domain.region, domain.zone),
            |_| None,
        ),
        form(
            "masters",
            &["node-1,http://node-2:80/,[::1]:5050"],
            meros::flags::master_addresses,
            String::clone,
            |_| None,
        ),
        form(
            "whitelist",
            &["node-1 # the first\n\nNODE-2\n"],
            master::agents::whitelist::parse,
            |hosts| Vec::from_iter(hosts.iter().cloned()).join("\n"),
            |_| None,
        ),
        form(
            "address",
            &["node-1:5050", "agent@[::1]:5051"],
            transport::Address::parse,
            |address| format!("{}@{}", address.role, address.host),
            |_| None,
        ),
        read_only(
            "modules",
            &[
                r#"{"libraries":[{"file":"/lib/x.so","modules":[{"name":"org_apache_mesos_FixedResourceEstimator","parameters":[{"key":"resources","value":"cpus:14"}]}]}]}"#,
                r#"{"libraries":{"name":"x","modules":{"name":"load","parameters":{"key":"load_threshold_5min","value":"6"}}}}"#,
            ],
            // Anything that does not look like JSON would be a path.
            |text: &str| match text.trim_start().starts_with(['{', '[']) {
                true => Manifest::parse(text).map_err(|error| error.to_string()),
                false => Manifest::parse(&format!("[{text}")).map_err(|error| error.to_string()),
            },
        ),
        read_within(
            EXPRESSION,
            "expression",
            &["node-[0-9]+", r"(?i)^(a|b)*\w{2,9}$", r"[\pL--a-z]?.*"],
            expression,
        ),
        read_only("weights", &["ads=2,web/eu=0.5"], |text: &str| {
            master::Config::parse_weights(text)
        }),
        read_only("roles", &["ads,web/eu,*"], |text: &str| {
            master::Config::parse_roles(text)
        }),
        read_only(
            "quota body",
            &[
                r#"{"force":true,"quota_configs":[{"role":"eng","guarantees":{"cpus":{"value":2}},"limits":{"cpus":{"value":8},"mem":{"value":1024}}},{"role":"ads"}]}"#,
                r#"{"role":"eng","force":false,"guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":2}}]}"#,
            ],
            |text: &str| master::api::v0::role_json::quotas(text.as_bytes()),
        ),
        read_only(
            "weights body",
            &[r#"[{"role":"eng","weight":2.5},{"role":"ads/web","weight":1}]"#],
            |text: &str| master::api::v0::role_json::weights(text.as_bytes()),
        ),
        read_only(
            "credentials",
            &[r#"{"credentials":[{"principal":"ops","secret":"hush"}]}"#],
            Credentials::parse,
        ),
        read_only(
            "acls",
            &[
                r#"{"permissive":false,"run_tasks":[{"principals":{"values":["a","b"]},"users":{"type":"ANY"}},{"principals":{"type":"NONE"},"users":{"values":["root"]}}]}"#,
                r#"{"register_frameworks":[{"principals":{"type":"SOME","values":["a"]},"roles":{"values":["eng/%","ads"]}}],"get_endpoints":[{"principals":{"type":"ANY"},"paths":{"values":["/metrics/snapshot"]}}],"view_flags":[{"principals":{"type":"ANY"},"flags":{"type":"NONE"}}]}"#,
            ],
            Acls::parse,
        ),
        read_only(
            "rate limits",
            &[
                r#"{"limits":[{"principal":"foo","qps":55.5,"capacity":100000},{"principal":"baz"}],"aggregate_default_qps":333,"aggregate_default_capacity":1000000}"#,
            ],
            RateLimits::parse,
        ),
    ]
}

/// Tests a framework's expression against a long and a short host name.
fn expression(text: &str) -> Result<bool, Invalid> {
    let constraint = Constraint {
        selector: Selector::Hostname,
        predicate: Predicate::TextMatches(text.to_owned()),
    };
    let demand = Demand {
        agents: vec![vec![constraint]],
        ..Demand::default()
    };
    let test = AgentTest::new("ads", &demand)?;
    let attributes = Attributes::default();
    let passes = |hostname: &str| {
        test.passes(AgentProperties {
            hostname,
            attributes: &attributes,
            domain: None,
        })
    };
    Ok(passes(&"ab.".repeat(84)) || passes("node-1"))
}

fn print(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
