//! The words of the v1 HTTP API, as frameworks, executors and tools written for Mesos speak them (SPEC 2).
//!
//! [`schema`] has the messages, each described once. [`json`] and [`protobuf`] read and write them, also straight from what has their
//! values ([`describe`]) and again as they were written before ([`pieces`], of which [`parts`] are sent), [`recordio`] puts them into streams,
//! [`convert`] says what they are in the words of `protocol`, [`v0`] what of them the older pages show, and [`media`] which form a request has and which it wants.
//! Pure: nothing here knows HTTP, an actor, a clock or I/O.
//!
//! ```
//! use meros_v1::convert::scheduler::{Said, said};
//! use meros_v1::{Form, Limits};
//!
//! let body = br#"{"framework_id": {"value": "m-0007"}, "type": "TEARDOWN"}"#;
//! let call = Form::Json.read(body, Limits::default())?;
//! let Said::TearDown(leaving) = said(&call)?.said else { unreachable!() };
//! assert_eq!(leaving.framework_id.as_str(), "m-0007");
//!
//! let refused = said(&Form::Json.read(br#"{"type": "TEARDOWN"}"#, Limits::default())?).unwrap_err();
//! assert!(refused.to_string().ends_with("Expecting 'framework_id' to be present"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod convert;
pub mod describe;
pub mod json;
pub mod limits;
pub mod media;
pub mod message;
pub mod parts;
pub mod pieces;
pub mod protobuf;
pub mod recordio;
pub mod schema;
pub mod v0;

pub use limits::Limits;
pub use media::{Content, Form};
pub use message::Message;
pub use resources::Invalid;

/// The version of Mesos whose pages and APIs are served. Clients choose by it which of them they use,
/// so it stands wherever Mesos has its own version; ours is `meros_version` beside it.
pub const MESOS_VERSION: &str = "1.11.0";
