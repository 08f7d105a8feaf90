//! QUIC, Unix sockets and certificates under the runtime's links.

pub mod backoff;
pub mod certificates;
