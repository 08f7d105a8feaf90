//! Messages that only inform people and tools, kept in labels under reserved keys: discovery, and
//! details of executors' statuses.
//!
//! The value of such a label is the message's canonical JSON; with any other value it is an
//! ordinary label. So nothing is lost in either direction.

use std::collections::BTreeMap;

use protocol::task::network::NetworkInfo;
use protocol::text::reserved_labels::{
    CHECK_STATUS, CHECK_STATUSES, CONTAINER_STATUS, DISCOVERY, LIMITATION,
};
use resources::Resources;

use crate::convert::labels::OrderedLabels;
use crate::convert::{write, write_resources};
use crate::json;
use crate::limits::Limits;
use crate::message::Message;
use crate::schema::{
    CheckStatusInfo, ContainerStatus, DiscoveryInfo, NamedCheckStatus, NamedCheckStatuses,
    TaskResourceLimitation,
};

/// The discovery info in the labels of a task or an executor.
pub fn discovery(labels: &BTreeMap<String, String>) -> Option<DiscoveryInfo> {
    read_message(labels, DISCOVERY)
}

/// The check status in the labels of a status.
pub fn check_status(labels: &BTreeMap<String, String>) -> Option<CheckStatusInfo> {
    read_message(labels, CHECK_STATUS)
}

/// The statuses of named checks in the labels of a status.
pub fn check_statuses(labels: &BTreeMap<String, String>) -> Vec<NamedCheckStatus> {
    let statuses: Option<NamedCheckStatuses> = read_message(labels, CHECK_STATUSES);
    statuses.unwrap_or_default().check_statuses
}

/// The limitation in the labels of a status.
pub fn limitation(labels: &BTreeMap<String, String>) -> Option<TaskResourceLimitation> {
    read_message(labels, LIMITATION)
}

/// Adds the newest result of a task's check to the labels of a status.
pub fn keep_check_status(labels: &mut BTreeMap<String, String>, check: &CheckStatusInfo) {
    keep_message(labels, CHECK_STATUS, Some(check));
}

/// Adds the newest results of a task's named checks, if it has any, to the labels of a status.
pub fn keep_check_statuses(
    labels: &mut BTreeMap<String, String>,
    check_statuses: Vec<NamedCheckStatus>,
) {
    if !check_statuses.is_empty() {
        let statuses = NamedCheckStatuses { check_statuses };
        keep_message(labels, CHECK_STATUSES, Some(&statuses));
    }
}

/// Adds the limit that a task's container has exceeded to the labels of a status.
pub fn keep_limitation(labels: &mut BTreeMap<String, String>, exceeded: &Resources) {
    let limitation = TaskResourceLimitation {
        resources: write_resources(exceeded),
    };
    keep_message(labels, LIMITATION, Some(&limitation));
}

/// Adds the networks of a task's container to the labels of a status that has no container status.
pub fn keep_networks(labels: &mut BTreeMap<String, String>, networks: &[NetworkInfo]) {
    let status = ContainerStatus {
        network_infos: write(networks),
        ..ContainerStatus::default()
    };
    if !networks.is_empty() && container(labels).is_none() {
        keep_message(labels, CONTAINER_STATUS, Some(&status));
    }
}

/// The container status in the labels of a status, if it has more than a plain id.
pub(in crate::convert) fn container(labels: &BTreeMap<String, String>) -> Option<ContainerStatus> {
    let status: ContainerStatus = read_message(labels, CONTAINER_STATUS)?;
    let id = status.container_id.as_ref();
    let has_plain_id = id.is_some_and(|id| protocol::ContainerId::try_from(id).is_ok());
    (!has_plain_id && status != ContainerStatus::default()).then_some(status)
}

/// Reserved keys with a valid value; at most four in one place.
pub(in crate::convert) type ReservedKeys = [Option<&'static str>; 4];

/// Adds a message, if present, to these labels.
pub(in crate::convert) fn keep_message(
    labels: &mut BTreeMap<String, String>,
    key: &str,
    message: Option<&impl Message>,
) {
    // JSON is UTF-8, so nothing is lost.
    let text = message.map(|message| String::from_utf8_lossy(&json::write(message)).into_owned());
    labels.extend(text.map(|text| (key.to_owned(), text)));
}

/// The message under this key, if its value is canonical.
pub(in crate::convert) fn read_message<M: Message + Default>(
    labels: &BTreeMap<String, String>,
    key: &str,
) -> Option<M> {
    let text = labels.get(key)?;
    let message: M = json::read(text.as_bytes(), Limits::default()).ok()?;
    (json::write(&message) == text.as_bytes()).then_some(message)
}

/// The reserved keys of a task or an executor.
pub(in crate::convert) fn reserved_keys(labels: &BTreeMap<String, String>) -> ReservedKeys {
    [valid_key(labels, DISCOVERY, discovery), None, None, None]
}

/// The reserved keys of a status.
pub(in crate::convert) fn reserved_keys_of_status(
    labels: &BTreeMap<String, String>,
) -> ReservedKeys {
    [
        valid_key(labels, CONTAINER_STATUS, container),
        valid_key(labels, CHECK_STATUS, check_status),
        valid_key(labels, CHECK_STATUSES, |labels| {
            Some(check_statuses(labels)).filter(|statuses| !statuses.is_empty())
        }),
        valid_key(labels, LIMITATION, limitation),
    ]
}

/// This key, if its value is valid.
fn valid_key<M>(
    labels: &BTreeMap<String, String>,
    key: &'static str,
    read: impl Fn(&BTreeMap<String, String>) -> Option<M>,
) -> Option<&'static str> {
    let is_valid = labels.contains_key(key) && read(labels).is_some();
    is_valid.then_some(key)
}

/// The ordinary labels of a task or an executor.
pub fn other_labels(labels: &BTreeMap<String, String>) -> OrderedLabels<'_> {
    OrderedLabels::of(labels, reserved_keys(labels))
}

/// The ordinary labels of a status.
pub fn other_labels_of_status(labels: &BTreeMap<String, String>) -> OrderedLabels<'_> {
    OrderedLabels::of(labels, reserved_keys_of_status(labels))
}
