//! What the messages mean in the words of `protocol` and `resources`, in both directions.
//!
//! `TryFrom` reads a message: what it says that Meros has no words for is refused with field, value and what was expected. `From` writes
//! one, and never fails; what large answers are full of is written straight instead ([`Describe`](crate::describe::Describe)). Passed over without a word is only what informs people and tools and changes nothing: the `source` and
//! `framework_id` of an executor, the path of an offer's URL. Fields of Mesos that are deprecated are read where they mean something, and not written
//! but for `FrameworkInfo.role`, which frameworks with a single role still read.

mod constraints;
pub mod executor;
mod framework;
mod ids;
mod labels;
pub mod maintenance;
mod marked;
mod nodes;
mod offer;
pub mod older;
mod operation;
pub mod operator;
mod reserving;
mod resource;
pub mod scheduler;
mod status;
mod task;

pub use constraints::{constraints, demands, offer_filters};
pub use ids::{uuid, uuid_bytes};
pub use labels::{LabelsSaid, labels};
pub use marked::{check_status, discovery, limitation, other_labels, other_labels_of_status};
pub use nodes::{AGENT_CAPABILITIES, AgentSaid, MASTER_CAPABILITIES, master_info, pid};
pub use operation::known_operation;
pub use resource::{InBothForms, say_in_both_forms, say_resources, write_resources};
pub use status::{Contained, ContainedAs, contained};

use std::fmt::Display;
use std::time::Duration;

use resources::Invalid;

use crate::limits::within;
use crate::schema::DurationInfo;

/// Says where in a message a value was.
trait At<T> {
    /// In the field of this name, or with `[place]` in a list.
    fn at(self, outer: &str) -> Result<T, Invalid>;
}

impl<T> At<T> for Result<T, Invalid> {
    fn at(self, outer: &str) -> Result<T, Invalid> {
        self.map_err(|bad| within(bad, outer))
    }
}

/// The values of a list.
fn each<'a, A: 'a, B>(
    name: &str,
    list: &'a [A],
    convert: impl Fn(&'a A) -> Result<B, Invalid>,
) -> Result<Vec<B>, Invalid> {
    let one = |(place, value)| convert(value).at(&format!("[{place}]"));
    list.iter()
        .enumerate()
        .map(one)
        .collect::<Result<_, _>>()
        .at(name)
}

/// The values of a list, each by its own `TryFrom`.
fn all<'a, A, B>(name: &str, list: &'a [A]) -> Result<Vec<B>, Invalid>
where
    B: TryFrom<&'a A, Error = Invalid>,
{
    each(name, list, B::try_from)
}

/// The value of an optional field by its own `TryFrom`.
fn some<'a, A, B>(name: &str, value: Option<&'a A>) -> Result<Option<B>, Invalid>
where
    B: TryFrom<&'a A, Error = Invalid>,
{
    value.map(B::try_from).transpose().at(name)
}

/// A field that must be there.
fn need<'a, A>(name: &str, value: Option<&'a A>, expected: &str) -> Result<&'a A, Invalid> {
    value.ok_or_else(|| Invalid::new(name, "absent", expected))
}

/// Refuses a field that Meros has no words for.
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
    /// What is longer than 292 years is written as 292 years.
    fn from(duration: Duration) -> Self {
        Self {
            nanoseconds: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

/// Below this number of seconds (136 years) each microsecond survives being a double, and back.
const SECONDS_MAX: f64 = 4_294_967_296.0;

/// A double of seconds in microseconds: what is finer is its own noise.
fn read_seconds(name: &str, seconds: Option<f64>) -> Result<Duration, Invalid> {
    let seconds = seconds.unwrap_or_default();
    if !(0.0..SECONDS_MAX).contains(&seconds) {
        let expected = format!("a number of seconds from 0 to {SECONDS_MAX}");
        return Err(Invalid::new(name, seconds, expected));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}
