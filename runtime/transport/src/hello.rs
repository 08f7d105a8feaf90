//! The hello on a QUIC stream: a length of four bytes, then the hello. On a Unix socket it is a
//! chunk.
//!
//! A length above the longest hello is rejected.

use runtime::{Hello, Node};

/// The node's hello with its length prefix.
pub(crate) fn framed(node: &Node) -> Vec<u8> {
    let hello = node.hello();
    let length = u32::try_from(hello.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &hello].concat()
}

/// The length of the hello that follows this prefix.
pub(crate) fn length(prefix: [u8; 4]) -> Result<usize, String> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length > Hello::LENGTH_MAX {
        return Err(format!(
            "hello of {length} bytes, expected at most {}",
            Hello::LENGTH_MAX
        ));
    }
    Ok(length)
}
