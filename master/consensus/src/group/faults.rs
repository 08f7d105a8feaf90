//! Tests: faults.
