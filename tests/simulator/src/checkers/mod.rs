//! The checkers, one file for each invariant.
