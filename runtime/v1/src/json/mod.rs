//! Mesos' JSON: the text of `application/json`.
//!
//! Fields have their protobuf names, enums are names, bytes are base64, and 64-bit integers are
//! numbers. Decoding is lenient: unknown fields and enum values are skipped, a single value may
//! stand for a list of one, `null` means absent, and numbers and booleans may be texts. But a
//! duplicate field is refused, since one of the two would be lost silently; for a duplicate map key
//! the last value counts. Encoding writes the defaults of absent fields (`"shell": true`), and the
//! empty lists that clients index (`"agents": []`), as Mesos does.

mod describe;
mod read;
mod write;

pub use describe::describe;
pub use read::{read, read_list};
pub use write::{Json, write};
