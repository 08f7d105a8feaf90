//! Conversions of operators' messages: maintenance, drains, operations, masters, in both encodings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

#[allow(dead_code, reason = "shared with the conversions")]
mod chance;
mod checks;
// Operators need only some of them.
#[allow(dead_code, reason = "shared with the conversions")]
mod values;

use chance::Chance;
use checks::{check, check_type};
use meros_v1::schema::allocator::{InverseOfferStatus, InverseOfferStatusStatus};
use meros_v1::schema::{self, DrainState};
use meros_v1::{Invalid, convert};
use protocol::agent::{Domain, Drain};
use protocol::maintenance::{DrainingMachine, InverseAnswer, MaintenanceStatus};
use protocol::{MachineId, MasterInfo, Operation, OperationStatus, Unavailability};
use runtime::Timestamp;

fn moment(info: &schema::TimeInfo) -> Timestamp {
    Timestamp::from_nanos(info.nanoseconds.try_into().unwrap())
}

fn answer(status: &InverseOfferStatus) -> Result<InverseAnswer, Invalid> {
    Ok(InverseAnswer {
        framework_id: (&status.framework_id).try_into()?,
        accepted: match status.status {
            InverseOfferStatusStatus::Accept => true,
            InverseOfferStatusStatus::Decline => false,
            other => panic!("{other}"),
        },
        at: moment(&status.timestamp),
    })
}

fn machines(list: &[schema::MachineID]) -> Result<Vec<MachineId>, Invalid> {
    list.iter().map(MachineId::try_from).collect()
}

/// SPEC 3.6.
#[test]
fn maintenance_survives_a_round_trip() {
    check_type::<Unavailability, schema::Unavailability>(Chance::unavailability);
    check_type::<_, schema::InverseOffer>(Chance::inverse_offer);
    check(
        Chance::windows,
        |windows| convert::maintenance::schedule(windows),
        convert::maintenance::windows,
    );
    check(
        Chance::inverse_answer,
        |ours| InverseOfferStatus::from(ours),
        answer,
    );
    check(
        Chance::maintenance_status,
        |ours| schema::maintenance::ClusterStatus::from(ours),
        |theirs| {
            let draining = theirs.draining_machines.iter().map(|machine| {
                Ok(DrainingMachine {
                    id: (&machine.id).try_into()?,
                    answers: machine
                        .statuses
                        .iter()
                        .map(answer)
                        .collect::<Result<_, _>>()?,
                })
            });
            Ok(MaintenanceStatus {
                draining: draining.collect::<Result<_, Invalid>>()?,
                down: machines(&theirs.down_machines)?,
            })
        },
    );
}

/// SPEC 2.8, an inverse offer is for a whole agent.
#[test]
fn an_inverse_offer_for_a_part_of_an_agent_is_refused() {
    let mut offer = schema::InverseOffer::from(&Chance(7).inverse_offer());
    offer.resources = vec![schema::Resource::default()];
    let refused = protocol::InverseOffer::try_from(&offer).unwrap_err();
    assert!(refused.to_string().starts_with("resources is `set`"));
    offer.resources.clear();
    offer.agent_id = None;
    let refused = protocol::InverseOffer::try_from(&offer).unwrap_err();
    assert!(refused.to_string().starts_with("agent_id is `absent`"));
}

/// SPEC 3.2.
#[test]
fn drains_survive_a_round_trip() {
    check(
        Chance::drain,
        |ours| schema::DrainInfo::from(ours),
        |theirs| {
            let grace = theirs.config.max_grace_period.as_ref();
            Ok(Drain {
                max_grace_period: grace.map(TryInto::try_into).transpose()?,
                mark_gone: theirs.config.mark_gone.unwrap(),
                since: Timestamp::from_nanos(0),
                drained: theirs.state == DrainState::Drained,
            })
        },
    );
}

/// SPEC 2.6, GET_OPERATIONS.
#[test]
fn known_operations_survive_a_round_trip() {
    let known = |chance: &mut Chance| {
        let conversion = match chance.operation() {
            Operation::Convert { conversion, .. } => Some(conversion),
            _ => None,
        };
        let framework: protocol::FrameworkId = "f".parse().unwrap();
        (framework, conversion, chance.operation_status())
    };
    check(
        known,
        |(framework, conversion, status)| {
            let said = convert::known_operation(framework, conversion.as_ref(), status);
            assert_eq!(said.statuses, std::slice::from_ref(&said.latest_status));
            said
        },
        |theirs| {
            let status = OperationStatus::try_from(&theirs.latest_status)?;
            let id = theirs.info.id.as_ref().map(TryInto::try_into).transpose()?;
            assert_eq!(id.as_ref(), Some(&status.operation_id));
            let agent = theirs
                .agent_id
                .as_ref()
                .map(TryInto::try_into)
                .transpose()?;
            assert_eq!(agent, status.agent_id);
            let uuid = status.uuid.map_or(vec![0; 16], |uuid| uuid.0.to_vec());
            assert_eq!(theirs.uuid.value, uuid);
            let conversion = match Operation::try_from(&theirs.info) {
                Ok(Operation::Convert { conversion, .. }) => Some(conversion),
                // Unknown parts are absent.
                _ => None,
            };
            let framework = theirs.framework_id.as_ref().unwrap();
            Ok((framework.try_into()?, conversion, status))
        },
    );
}

/// SPEC 2.8, MasterInfo.
#[test]
fn masters_survive_a_round_trip() {
    // Clients see Mesos' version as the master's.
    let master = |chance: &mut Chance| MasterInfo {
        version: meros_v1::MESOS_VERSION.to_owned(),
        ..chance.master()
    };
    check(master, convert::master_info, |theirs| {
        let address = theirs.address.as_ref().unwrap();
        let ip = address.ip.as_ref().map(|ip| ip.parse().unwrap());
        let bytes = ip.map_or([0; 4], |ip: std::net::Ipv4Addr| ip.octets());
        assert_eq!(theirs.ip.to_le_bytes(), bytes);
        assert_eq!(
            (&address.hostname, address.port as u32),
            (&theirs.hostname, theirs.port)
        );
        let pid = ip.map(|ip| format!("master@{ip}:{}", theirs.port));
        assert_eq!(theirs.pid, pid);
        let domain = theirs.domain.as_ref().map(|domain| {
            let domain = domain.fault_domain.as_ref().unwrap();
            Box::new(Domain {
                region: domain.region.name.clone(),
                zone: domain.zone.name.clone(),
            })
        });
        Ok(MasterInfo {
            id: theirs.id.parse().unwrap(),
            hostname: theirs.hostname.clone().unwrap(),
            port: theirs.port.try_into().unwrap(),
            version: theirs.version.clone().unwrap(),
            term: 0,
            address: ip,
            domain,
        })
    });
}

/// SPEC 2.8, Offer and InverseOffer: the URL of an agent's pages, in parts as in Mesos.
#[test]
fn offers_have_the_url_of_their_agent() {
    let endpoint = protocol::agent::HttpEndpoint {
        address: Some([10, 0, 0, 7].into()),
        port: 5051,
    };
    let offer = protocol::Offer {
        hostname: "a.example".to_owned(),
        endpoint: Some(endpoint),
        ..Chance(1).offer()
    };
    let inverse = protocol::InverseOffer {
        hostname: "a.example".to_owned(),
        endpoint: Some(endpoint),
        ..Chance(1).inverse_offer()
    };
    let url = schema::Offer::from(&offer).url.unwrap();
    assert_eq!(schema::InverseOffer::from(&inverse).url, Some(url.clone()));
    assert_eq!(
        String::from_utf8(meros_v1::json::write(&*url)).unwrap(),
        r#"{"scheme":"http","address":{"hostname":"a.example","ip":"10.0.0.7","port":5051},"path":"/slave(1)"}"#
    );
}
