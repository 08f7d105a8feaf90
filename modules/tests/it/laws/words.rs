//! Demands of frameworks and properties of agents, in protocol types.

use module_api::allocator::FrameworkAdded;
use proptest::prelude::*;
use protocol::Demand;
use protocol::agent::Domain;
use protocol::offers::wants::{Constraint, Predicate, Selector};
use resources::{
    Annotations, Attributes, DiskInfo, DiskSource, Label, Labels, Name, Quantities, Resource,
    SourceKind,
};

use super::facts::AGENTS;

/// The agent in another region.
pub const REMOTE: u32 = 3;

/// A demand.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Minimum and maximum of cpus.
    Cpus(u32, u32),
    /// Only these hosts, by bit.
    Hosts(u8),
    /// This rack, or any other.
    Rack(u32, bool),
}

pub fn wish() -> impl Strategy<Value = Option<Wish>> {
    let wish = prop_oneof![
        3 => (1_u32..4, 0_u32..3).prop_map(|(least, more)| Wish::Cpus(least, least + more)),
        1 => (1_u8..16).prop_map(Wish::Hosts),
        1 => (0..AGENTS / 2, any::<bool>()).prop_map(|(rack, is)| Wish::Rack(rack, is)),
    ];
    proptest::option::weighted(0.5, wish)
}

/// Converts to a protocol demand. Even amounts also demand some memory.
pub fn demand(wish: Wish) -> Demand {
    match wish {
        Wish::Cpus(least, most) => {
            let mem = if least == 2 { ";mem:40" } else { "" };
            let least = Quantities::parse(&format!("cpus:{least}{mem}")).unwrap();
            Demand::shaped(least, Quantities::parse(&format!("cpus:{most}")).unwrap())
        }
        Wish::Hosts(bits) => {
            let hosts = (0..AGENTS).filter(|n| bits >> n & 1 == 1);
            Demand::on_hosts(hosts.map(|n| format!("a{n}.example")))
        }
        Wish::Rack(rack, is) => {
            let rack = format!("r{rack}");
            let constraint = Constraint {
                selector: Selector::Attribute("rack".to_owned()),
                predicate: match is {
                    true => Predicate::TextEquals(rack),
                    false => Predicate::TextNotEquals(rack),
                },
            };
            Demand {
                agents: vec![vec![constraint]],
                ..Demand::default()
            }
        }
    }
}

/// The first agent is in no rack, the others are two in each.
pub fn rack(agent: u32) -> Option<String> {
    (agent > 0).then(|| format!("r{}", agent / 2))
}

pub fn attributes(agent: u32) -> Attributes {
    let rack = rack(agent).map(|rack| Attributes::parse(&format!("rack:{rack}")).unwrap());
    rack.unwrap_or_default()
}

pub fn labels() -> Labels {
    let (key, value) = ("rank".to_owned(), Some("high".to_owned()));
    Labels::new(vec![Label { key, value }])
}

/// The same demand in each role of the framework.
pub fn demand_in_each(fact: &mut FrameworkAdded, demand: Option<&Demand>) {
    let roles = fact.info.roles.iter();
    let demands = roles.filter_map(|role| Some((role.clone(), demand?.clone())));
    fact.wants.demands = demands.collect();
}

pub fn domain(agent: u32) -> Option<Domain> {
    let region = if agent == REMOTE { "far" } else { "home" };
    format!("{region}/zone").parse().ok()
}

/// A disk with a file system of its own.
pub fn mount(size: u32) -> Resource {
    let source = DiskSource {
        root: Some(format!("mnt/{size}")),
        ..DiskSource::new(SourceKind::Mount)
    };
    let disk = DiskInfo {
        source: Some(source),
        ..DiskInfo::default()
    };
    let annotations = Annotations {
        disk: Some(Box::new(disk)),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, resources::Scalar::whole(size), annotations).unwrap()
}

/// The same amount of the same disk, as a volume or not.
pub fn on_disk(one: &Resource, info: Option<DiskInfo>, shared: bool) -> Resource {
    let mut annotations = one.annotations().clone();
    annotations.shared = shared;
    let source = annotations.disk.and_then(|disk| disk.source);
    let bare = source.is_some().then(DiskInfo::default);
    let info = info.or(bare).map(|info| DiskInfo { source, ..info });
    annotations.disk = info.map(Box::new);
    Resource::annotated(one.name(), one.amount().unwrap(), annotations).unwrap()
}
