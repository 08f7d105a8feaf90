//! Tests: membership.
