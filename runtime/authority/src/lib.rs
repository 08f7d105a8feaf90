//! Who asks, what they may do, and how much (SPEC 3.7, 3.3).
//!
//! Pure: nothing here knows HTTP, an actor, a clock or I/O. Whoever takes a request finds its [`Subject`], by [`Credentials`] or by a
//! certificate; whoever answers it asks the [`Acls`] what that subject may do, and the [`Throttle`] whether it is its turn.

mod acls;
mod credentials;
mod limits;
mod shared;
mod subject;
mod throttle;
mod tree;

pub use acls::{Acls, Action, Approver, Forbidden};
pub use credentials::{Credentials, is_same};
pub use limits::{Limit, RateLimits};
pub use shared::Shared;
pub use subject::{Subject, UNNAMED_OPERATOR};
pub use throttle::{LINE_MAX, LINE_PATIENCE, TOO_MANY_COMMANDS, Throttle, Traffic, Turn};
