//! Messages as the JSON of Mesos: the text of `application/json`.
//!
//! Fields have their names in protobuf, enums are names, bytes are base64, and numbers of 64 bits are numbers. Reading is generous: fields and
//! enum values that are not known are passed over, one value may stand for a list of one, `null` is nothing, numbers and truths may be texts. But a
//! field that comes twice is refused, since one of the two would be forgotten without a word; a key of a map counts as it came last. Writing says an
//! absent field that means something (`"shell": true`), and the empty lists that clients index (`"agents": []`), as Mesos does.

mod describe;
mod read;
mod write;

pub use describe::describe;
pub use read::{read, read_list};
pub use write::{Json, write};
