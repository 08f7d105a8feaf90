//! Values of the protocol with plain content.

use protocol::digest::{DigestKey, Fingerprinter};
use protocol::message::registration::{AgentInventory, RegisterAgent, ReregisterAgent};
use protocol::{AgentInfo, MasterId, MasterInfo};
use resources::Resources;
use runtime::Pid;

/// A registration of an agent without tasks and operations.
pub fn registration(agent: AgentInfo, pid: Pid) -> RegisterAgent {
    RegisterAgent {
        agent,
        pid,
        version: "1".to_owned(),
        held: AgentInventory::default(),
        digest_key: DigestKey::new([7; 16]),
        oversubscribed: Resources::default(),
        resources: None,
        term_seen: 0,
    }
}

/// The registration that has only a summary of the same content.
pub fn summary_of(whole: RegisterAgent) -> ReregisterAgent {
    ReregisterAgent {
        agent: whole.agent,
        pid: whole.pid,
        version: whole.version,
        summary: Fingerprinter::new(whole.digest_key).summary(&whole.held),
        report: None,
        oversubscribed: whole.oversubscribed,
        resources: whole.resources,
        term_seen: whole.term_seen,
    }
}

/// A master in term 0, in which no real one leads.
pub fn master() -> MasterInfo {
    MasterInfo {
        id: MasterId::new("m").unwrap(),
        hostname: "host".to_owned(),
        port: 5050,
        version: "1".to_owned(),
        term: 0,
        address: None,
        domain: None,
    }
}
