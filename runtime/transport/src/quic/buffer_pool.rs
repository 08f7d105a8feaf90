//! A pool of buffers for bulks, shared by all connections of an endpoint.
//!
//! Allocating a fresh megabyte costs about a tenth of receiving it, and large messages come in
//! series. A buffer is reused only when it has no other reader: a link may keep a bulk for any
//! time.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

/// Largest pooled buffer, in bytes.
pub(super) const BUFFER_MAX: usize = 2 << 20;
/// Maximum pooled buffers.
const BUFFERS_MAX: usize = 2;

#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Bytes>>);

impl BufferPool {
    /// An empty buffer with capacity for about `length` bytes.
    pub(super) fn take(&self, length: usize) -> BytesMut {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unshared = buffers.iter().position(Bytes::is_unique);
        let buffer = unshared.and_then(|at| buffers.swap_remove(at).try_into_mut().ok());
        drop(buffers);
        let mut memory = buffer.unwrap_or_default();
        memory.clear();
        memory.reserve(length.min(BUFFER_MAX));
        memory
    }

    /// Returns a buffer to the pool, unless it is too large or the pool is full.
    pub(super) fn put(&self, buffer: Bytes) {
        if buffer.len() > BUFFER_MAX {
            return;
        }
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(memory: &mut BytesMut, length: usize) -> Bytes {
        memory.resize(length, 7);
        std::mem::take(memory).freeze()
    }

    #[test]
    fn buffer_is_reused_after_its_last_reader() {
        let pool = BufferPool::default();
        let read = bulk(&mut pool.take(100_000), 100_000);
        let address = read.as_ptr();
        pool.put(read.clone());
        assert_ne!(pool.take(100_000).as_ptr(), address, "still read");
        drop(read);
        let memory = pool.take(100_000);
        assert_eq!((memory.as_ptr(), memory.len()), (address, 0));
    }

    #[test]
    fn pool_keeps_few_buffers_and_no_large_one() {
        let pool = BufferPool::default();
        (0..=BUFFERS_MAX).for_each(|_| pool.put(Bytes::from(vec![0; 1000])));
        pool.put(Bytes::from(vec![0; BUFFER_MAX + 1]));
        assert_eq!(pool.0.lock().unwrap().len(), BUFFERS_MAX);
    }
}
