//! Authentication, authorization and rate limits of callers.
//!
//! Pure: no HTTP, actor, clock or I/O. The receiver of a request finds its [`Subject`] by
//! [`Credentials`] or a certificate; the handler asks the [`Acls`] for permission, and the
//! [`Throttle`] for admission.
//!
//! | module | contents |
//! |---|---|
//! | `acls` | which principals may perform which actions on which objects (`--acls`) |
//! | `credentials` | the principals and their secrets (`--credentials`) |
//! | `limits` | messages per second that the master handles for each principal (`--rate_limits`) |
//! | `reloadable` | a setting that can be reloaded while a service runs |
//! | `subject` | the caller of a request |
//! | `throttle` | admission of messages by rate limits, and traffic counts by principal |
//! | `tree` | a JSON tree and a cursor that knows its path |

mod acls;
mod credentials;
mod limits;
mod reloadable;
mod subject;
mod throttle;
mod tree;

pub use acls::{Acls, Action, Approver, Forbidden};
pub use credentials::{Credentials, constant_time_eq};
pub use limits::{Limit, RateLimits};
pub use reloadable::Reloadable;
pub use subject::{Subject, UNNAMED_OPERATOR};
pub use throttle::{
    RateDecision, THROTTLE_QUEUE_MAX, THROTTLE_QUEUE_TIMEOUT, TOO_MANY_COMMANDS, Throttle, Traffic,
};
