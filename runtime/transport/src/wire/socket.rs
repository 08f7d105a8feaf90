//! A socket on an ether, as quinn knows sockets.
//!
//! Hears datagrams from quinn, which it hands to the ether one by one, and reads those that have arrived. Remembers its
//! address. Never blocks a sender: what does not fit is dropped at the receiver, as by UDP.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::ether::{Arrived, Ether};

/// Datagrams that quinn may hand over at once, as a system with segmentation offload lets it.
const SEGMENTS_MAX: usize = 10;

/// A socket; dropping it gives its address back.
#[derive(Debug)]
pub(crate) struct Socket {
    ether: Ether,
    address: SocketAddr,
    number: u64,
}

impl Socket {
    /// Opens a socket at this address (port 0 takes the first free one), which lets `room` bytes wait unread.
    pub(crate) fn bind(ether: &Ether, address: SocketAddr, room: usize) -> io::Result<Self> {
        let (address, number) = ether.plug(address, room)?;
        Ok(Self {
            ether: ether.clone(),
            address,
            number,
        })
    }

    /// The sender's address as this socket shows it: an IPv6 socket shows IPv4 peers as mapped ones.
    fn shown(&self, from: SocketAddr) -> SocketAddr {
        match (self.address, from.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), from.port())
            }
            _ => from,
        }
    }

    fn fill(
        &self,
        found: &[Arrived],
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> usize {
        let mut filled = 0;
        for datagram in found {
            let length = datagram.bytes.len();
            let Some(room) = buffers[filled].get_mut(..length) else {
                continue; // longer than any datagram the reader has agreed to
            };
            room.copy_from_slice(&datagram.bytes);
            metas[filled] = RecvMeta {
                addr: self.shown(datagram.from),
                len: length,
                stride: length,
                ecn: datagram.ecn,
                dst_ip: Some(self.address.ip()),
            };
            filled += 1;
        }
        filled
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.ether.leave(self.address, self.number);
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let to = transmit.destination;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let length = transmit.contents.len();
        let segment = transmit.segment_size.unwrap_or(length).max(1);
        for segment in transmit.contents.chunks(segment) {
            let datagram = Arrived {
                from: self.address,
                ecn: transmit.ecn,
                bytes: Bytes::copy_from_slice(segment),
            };
            self.ether.send(self.number, to, datagram);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = buffers.len().min(metas.len());
        loop {
            let found = self
                .ether
                .read(self.address, self.number, count, context.waker());
            if found.is_empty() {
                return Poll::Pending;
            }
            match self.fill(&found, buffers, metas) {
                0 => continue,
                filled => return Poll::Ready(Ok(filled)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// There is always room on the ether.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
