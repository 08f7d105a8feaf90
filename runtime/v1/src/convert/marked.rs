//! What only informs people and tools: how tasks and executors are found by others, and what executors say in their statuses. It is kept among the labels, under marks of its own.
//!
//! In a mark's label stands the JSON of the message, and no other text: what somebody else has written there is a label like any other. So nothing is lost in either direction.

use std::collections::BTreeMap;

use protocol::marks::{CHECK_STATUS, CONTAINER_STATUS, DISCOVERY, LIMITATION};

use super::labels::LabelsSaid;
use crate::json;
use crate::limits::Limits;
use crate::message::Message;
use crate::schema::{CheckStatusInfo, ContainerStatus, DiscoveryInfo, TaskResourceLimitation};

/// How a task or an executor is found, as its labels say it.
pub fn discovery(labels: &BTreeMap<String, String>) -> Option<DiscoveryInfo> {
    kept(labels, DISCOVERY)
}

/// The newest result of a check, as the labels of a status say it.
pub fn check_status(labels: &BTreeMap<String, String>) -> Option<CheckStatusInfo> {
    kept(labels, CHECK_STATUS)
}

/// What a task wanted more of, as the labels of its status say it.
pub fn limitation(labels: &BTreeMap<String, String>) -> Option<TaskResourceLimitation> {
    kept(labels, LIMITATION)
}

/// What an executor says of its container beside a plain id, as the labels of its status say it.
pub(super) fn container(labels: &BTreeMap<String, String>) -> Option<ContainerStatus> {
    let status: ContainerStatus = kept(labels, CONTAINER_STATUS)?;
    let id = status.container_id.as_ref();
    let has_plain_id = id.is_some_and(|id| protocol::ContainerId::try_from(id).is_ok());
    (!has_plain_id && status != ContainerStatus::default()).then_some(status)
}

/// Marks whose labels say something. There are at most three in one place.
pub(super) type Marks = [Option<&'static str>; 3];

/// Keeps a message, if it is there, among these labels.
pub(super) fn keep(
    labels: &mut BTreeMap<String, String>,
    mark: &str,
    message: Option<&impl Message>,
) {
    // What is written is text: nothing of it is lost.
    let text = message.map(|message| String::from_utf8_lossy(&json::write(message)).into_owned());
    labels.extend(text.map(|text| (mark.to_owned(), text)));
}

/// The message that is kept under this mark.
pub(super) fn kept<M: Message + Default>(
    labels: &BTreeMap<String, String>,
    mark: &str,
) -> Option<M> {
    let text = labels.get(mark)?;
    let message: M = json::read(text.as_bytes(), Limits::default()).ok()?;
    (json::write(&message) == text.as_bytes()).then_some(message)
}

/// The marks of a task or an executor.
pub(super) fn marks(labels: &BTreeMap<String, String>) -> Marks {
    [said(labels, DISCOVERY, discovery), None, None]
}

/// The marks of a status.
pub(super) fn marks_of_status(labels: &BTreeMap<String, String>) -> Marks {
    [
        said(labels, CONTAINER_STATUS, container),
        said(labels, CHECK_STATUS, check_status),
        said(labels, LIMITATION, limitation),
    ]
}

/// This mark, if its label says something.
fn said<M>(
    labels: &BTreeMap<String, String>,
    mark: &'static str,
    read: impl Fn(&BTreeMap<String, String>) -> Option<M>,
) -> Option<&'static str> {
    let is_said = labels.contains_key(mark) && read(labels).is_some();
    is_said.then_some(mark)
}

/// The other labels of a task or an executor.
pub fn other_labels(labels: &BTreeMap<String, String>) -> LabelsSaid<'_> {
    LabelsSaid::of(labels, marks(labels))
}

/// The other labels of a status.
pub fn other_labels_of_status(labels: &BTreeMap<String, String>) -> LabelsSaid<'_> {
    LabelsSaid::of(labels, marks_of_status(labels))
}
