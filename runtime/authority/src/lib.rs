//! Authentication, authorization and rate limits of callers.
//!
//! Pure: no HTTP, actor, clock or I/O. The receiver of a request finds its [`Subject`] by
//! [`Credentials`] or a certificate; the handler asks the [`Acls`] for permission, and the
//! [`Throttle`] for admission.

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
