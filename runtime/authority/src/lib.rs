//! Who asks, and what they may do (SPEC 3.7).
//!
//! Pure: nothing here knows HTTP, an actor, a clock or I/O. Whoever takes a request finds its [`Subject`], and whoever answers it asks what that
//! subject may do.

mod subject;

pub use subject::Subject;
