//! Converts messages to and from the types of `protocol` and `resources`.
//!
//! `TryFrom` decodes a message; a field that Meros does not support is refused with field, value
//! and expected value. `From` encodes one and never fails; the bulk of large answers is encoded
//! directly ([`Describe`](crate::describe::Describe)). Ignored without an error are only fields
//! that inform people and tools: the `source` and `framework_id` of an executor, and the path of an
//! offer's URL. Mesos' deprecated fields are decoded where they have a meaning, and not encoded,
//! except for `FrameworkInfo.role`, which frameworks with a single role still read.
//!
//! | module | contents |
//! |---|---|
//! | `constraints` | offer constraints, minimum offers, and quota |
//! | `executor` | executors' calls and events |
//! | `framework` | frameworks and their filters |
//! | `ids` | conversions of ids |
//! | `labels` | labels without loss: order and duplicates survive |
//! | `legacy` | frameworks without `MULTI_ROLE` and `RESERVATION_REFINEMENT` |
//! | `maintenance` | machines, windows, inverse offers and their answers |
//! | `nodes` | agents and masters |
//! | `offer` | offers |
//! | `operation` | operations and their statuses |
//! | `operator` | operators' changes of a master, and calls about containers |
//! | `resource` | resources, attributes, usage and its corrections |
//! | `scheduler` | schedulers' calls and events |
//! | `status` | task statuses |
//! | `task` | tasks with their checks, commands, executors and settings of containers |

mod constraints;
pub mod executor;
mod framework;
mod ids;
mod labels;
pub mod legacy;
pub mod maintenance;
mod nodes;
mod offer;
mod operation;
pub mod operator;
mod resource;
pub mod scheduler;
mod status;
mod task;

pub use constraints::{constraints, demands, offer_filters};
pub use ids::{uuid, uuid_bytes};
pub use labels::messages::{
    check_status, check_statuses, discovery, keep_check_status, keep_check_statuses,
    keep_limitation, keep_networks, limitation, other_labels, other_labels_of_status,
};
pub use labels::{OrderedLabels, labels};
pub use nodes::{AGENT_CAPABILITIES, AgentDescription, MASTER_CAPABILITIES, master_info, pid};
pub use operation::known_operation;
pub use resource::{
    InBothForms, corrections, describe_in_both_forms, describe_resources, estimate, write_resources,
};
pub use status::{ContainerDescription, HostContainer, container_status};
pub use task::{check_result, write_container, write_limits};

use std::fmt::Display;
use std::time::Duration;

use resources::Invalid;

use crate::limits::within;
use crate::schema::DurationInfo;

/// Adds the position of a value to its error.
trait At<T> {
    /// In the field of this name, or at `[index]` of a list.
    fn at(self, outer: &str) -> Result<T, Invalid>;
}

impl<T> At<T> for Result<T, Invalid> {
    fn at(self, outer: &str) -> Result<T, Invalid> {
        self.map_err(|bad| within(bad, outer))
    }
}

/// Converts the values of a list.
fn each<'a, A: 'a, B>(
    name: &str,
    list: &'a [A],
    convert: impl Fn(&'a A) -> Result<B, Invalid>,
) -> Result<Vec<B>, Invalid> {
    let one = |(index, value)| convert(value).at(&format!("[{index}]"));
    list.iter()
        .enumerate()
        .map(one)
        .collect::<Result<_, _>>()
        .at(name)
}

/// Converts the values of a list by their `TryFrom`.
fn all<'a, A, B>(name: &str, list: &'a [A]) -> Result<Vec<B>, Invalid>
where
    B: TryFrom<&'a A, Error = Invalid>,
{
    each(name, list, B::try_from)
}

/// Converts an optional field by its `TryFrom`.
fn some<'a, A, B>(name: &str, value: Option<&'a A>) -> Result<Option<B>, Invalid>
where
    B: TryFrom<&'a A, Error = Invalid>,
{
    value.map(B::try_from).transpose().at(name)
}

/// A required field.
fn need<'a, A>(name: &str, value: Option<&'a A>, expected: &str) -> Result<&'a A, Invalid> {
    value.ok_or_else(|| Invalid::new(name, "absent", expected))
}

/// The field of a call that belongs to its type, with the message of Mesos.
fn part<'a, A>(name: &str, value: Option<&'a A>) -> Result<&'a A, Invalid> {
    value.ok_or_else(|| absent(name))
}

fn absent(name: &str) -> Invalid {
    Invalid::message(format!("Expecting '{name}' to be present"))
}

/// Refuses a field that Meros does not support.
fn refuse(name: &str, is_there: bool, found: impl Display, expected: &str) -> Result<(), Invalid> {
    match is_there {
        true => Err(Invalid::new(name, found, expected)),
        false => Ok(()),
    }
}

fn write<'a, A: 'a, B: From<&'a A>>(list: impl IntoIterator<Item = &'a A>) -> Vec<B> {
    list.into_iter().map(B::from).collect()
}

impl TryFrom<&DurationInfo> for Duration {
    type Error = Invalid;

    fn try_from(info: &DurationInfo) -> Result<Self, Invalid> {
        let nanoseconds = u64::try_from(info.nanoseconds).map_err(|_| {
            let expected = "no negative number of nanoseconds";
            Invalid::new("nanoseconds", info.nanoseconds, expected)
        })?;
        Ok(Self::from_nanos(nanoseconds))
    }
}

impl From<Duration> for DurationInfo {
    /// Durations above 292 years become 292 years.
    fn from(duration: Duration) -> Self {
        Self {
            nanoseconds: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

/// Below this number of seconds (136 years) microseconds survive a conversion to a double and back.
const SECONDS_MAX: f64 = 4_294_967_296.0;

/// Converts seconds in a double to microseconds: finer digits are rounding noise.
fn read_seconds(name: &str, seconds: Option<f64>) -> Result<Duration, Invalid> {
    let seconds = seconds.unwrap_or_default();
    if !(0.0..SECONDS_MAX).contains(&seconds) {
        let expected = format!("a number of seconds from 0 to {SECONDS_MAX}");
        return Err(Invalid::new(name, seconds, expected));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}
