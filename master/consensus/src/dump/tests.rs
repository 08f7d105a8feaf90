//! What a dump carries over.
