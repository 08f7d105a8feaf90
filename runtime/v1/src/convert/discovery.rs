//! How tasks and executors are found by others, which changes nothing here: it is kept among the labels, under a mark of its own.
//!
//! In that mark's label stands the JSON of the message, and no other text: what somebody else has written there is a label like any other. So nothing is lost in either direction.

use std::collections::BTreeMap;

use protocol::marks::DISCOVERY;

use super::{read_labels, write_pairs};
use crate::json;
use crate::limits::Limits;
use crate::schema::{DiscoveryInfo, Labels};

/// These labels, and the discovery as one of them.
pub(super) fn with_discovery(
    labels: Option<&Labels>,
    discovery: Option<&DiscoveryInfo>,
) -> BTreeMap<String, String> {
    let mut labels = read_labels(labels);
    // What is written is text: nothing of it is lost.
    let text = discovery.map(|info| String::from_utf8_lossy(&json::write(info)).into_owned());
    labels.extend(text.map(|text| (DISCOVERY.to_owned(), text)));
    labels
}

/// The discovery that is among these labels.
pub fn discovery(labels: &BTreeMap<String, String>) -> Option<DiscoveryInfo> {
    let text = labels.get(DISCOVERY)?;
    let info: DiscoveryInfo = json::read(text.as_bytes(), Limits::default()).ok()?;
    (json::write(&info) == text.as_bytes()).then_some(info)
}

/// The other labels of a task or an executor, in the order of their keys.
pub fn other_labels(
    labels: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&String, &String)> + Clone {
    let is_said = labels.contains_key(DISCOVERY) && discovery(labels).is_some();
    let is_other = move |(key, _): &(&String, &String)| !is_said || *key != DISCOVERY;
    labels.iter().filter(is_other)
}

/// The same as a message; none if there are none.
pub fn write_other_labels(labels: &BTreeMap<String, String>) -> Option<Labels> {
    write_pairs(other_labels(labels))
}
