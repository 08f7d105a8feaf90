//! Tests: laws.
