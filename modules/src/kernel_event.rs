//! Events of a descriptor, awaited without a thread.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A registration at the kernel for events. It ends when it is dropped.
#[derive(Debug)]
pub struct KernelEvent {
    source: OwnedFd,
    interest: Interest,
}

impl KernelEvent {
    /// The events that make the descriptor ready for this interest.
    pub fn new(source: OwnedFd, interest: Interest) -> Self {
        Self { source, interest }
    }

    /// Completes at the next event, with the registration for later ones. Needs a runtime with I/O.
    pub async fn next(self) -> io::Result<Self> {
        let interest = self.interest;
        // SAFETY: an `OwnedFd` is open, and the same descriptor, until it is dropped.
        #[allow(unsafe_code)]
        let source = unsafe { AsyncFd::register_with_interest(self.source, interest) }?;
        source.ready(interest).await?.retain_ready();
        Ok(Self::new(source.into_inner(), interest))
    }
}
