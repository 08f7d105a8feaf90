//! QUIC, Unix sockets and certificates under the runtime's links.
