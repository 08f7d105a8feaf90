//! The in-tree modules seen from outside: worked examples of sharing, stories in virtual time, and laws of the books.

mod cluster;
mod examples;
mod laws;
mod stories;
