//! The messages of Mesos' v1 HTTP API: encoding, decoding and conversion.
//!
//! [`schema`] defines the messages. [`json`] and [`protobuf`] decode and encode them; values can
//! also be encoded directly ([`describe`]), and unchanged parts of an earlier answer are reused
//! ([`answer_cache`], [`body_parts`]). [`recordio`] frames them in streams. [`convert`] maps them
//! to and from the types of `protocol`, [`v0`] has the shared parts of the older pages, and
//! [`form`] negotiates content types. Pure: no HTTP, actors, clock or I/O.
//!
//! | module | contents |
//! |---|---|
//! | `answer_cache` | encoded bytes of values that have not changed since the last answer |
//! | `body_parts` | an answer as a sequence of parts, which other answers may share |
//! | `convert` | converts messages to and from the types of `protocol` and `resources` |
//! | `describe` | encodes messages directly from other types |
//! | `json` | the form `application/json` |
//! | `limits` | bounds of nesting depth and decoded memory |
//! | `media` | `Content-Type`, `Accept`, and the stream id |
//! | `message` | the description of a message: a struct with numbered fields |
//! | `protobuf` | the form `application/x-protobuf` (proto2) |
//! | `recordio` | streams of messages, each after its length |
//! | `schema` | the messages of the v1 API |
//! | `v0` | shared parts of the v0 pages, with Mesos' JSON keys |
//!
//! ```
//! use meros_v1::convert::scheduler::{SchedulerCall, to_protocol};
//! use meros_v1::{Form, Limits};
//!
//! let body = br#"{"framework_id": {"value": "m-0007"}, "type": "TEARDOWN"}"#;
//! let call = Form::Json.read(body, Limits::default())?;
//! let SchedulerCall::TearDown(teardown) = to_protocol(&call)?.call else { unreachable!() };
//! assert_eq!(teardown.framework_id.as_str(), "m-0007");
//!
//! let body = br#"{"type": "TEARDOWN"}"#;
//! let refused = to_protocol(&Form::Json.read(body, Limits::default())?).unwrap_err();
//! assert!(refused.to_string().ends_with("Expecting 'framework_id' to be present"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer_cache;
pub mod body_parts;
pub mod convert;
pub mod describe;
pub mod form;
pub mod json;
pub mod limits;
pub mod message;
pub mod protobuf;
pub mod recordio;
pub mod schema;
pub mod v0;

pub use form::{Content, Form};
pub use limits::Limits;
pub use message::Message;
pub use resources::Invalid;

/// The version of Mesos whose pages and APIs are served. It stands wherever Mesos has its version,
/// since clients select features by it; ours is `meros_version` beside it.
pub const MESOS_VERSION: &str = "1.11.0";
