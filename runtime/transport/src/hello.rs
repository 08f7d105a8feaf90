//! The hello on the wire: four bytes of length, then the hello.
//!
//! Hears nothing and remembers nothing: the same for every kind of connection. Never believes a length above the
//! longest hello.

use runtime::{Hello, Node};

/// Our hello behind its length.
pub(crate) fn framed(node: &Node) -> Vec<u8> {
    let hello = node.hello();
    let length = u32::try_from(hello.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &hello].concat()
}

/// How long the hello is that follows these bytes.
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
