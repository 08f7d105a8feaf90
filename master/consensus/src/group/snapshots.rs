//! Tests: snapshots.
