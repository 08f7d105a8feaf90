//! A quinn socket on a virtual network.
//!
//! A send never blocks: datagrams that do not fit are dropped at the receiver, as with UDP.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::network::{ReceivedDatagram, VirtualUdpNetwork};

/// Datagrams in one send of quinn, like a system with segmentation offload.
const SEGMENTS_MAX: usize = 10;

/// A socket. Dropping it frees its address.
#[derive(Debug)]
pub(super) struct VirtualUdpSocket {
    network: VirtualUdpNetwork,
    address: SocketAddr,
    number: u64,
}

impl VirtualUdpSocket {
    /// Opens a socket at this address (port 0 takes the first free one) with a receive buffer of
    /// `room` bytes.
    pub(super) fn bind(
        network: &VirtualUdpNetwork,
        address: SocketAddr,
        room: usize,
    ) -> io::Result<Self> {
        let (address, number) = network.open(address, room)?;
        Ok(Self {
            network: network.clone(),
            address,
            number,
        })
    }

    /// The sender's address as this socket shows it: an IPv6 socket shows IPv4 peers as mapped
    /// addresses.
    fn shown_address(&self, from: SocketAddr) -> SocketAddr {
        match (self.address, from.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), from.port())
            }
            _ => from,
        }
    }

    fn fill(
        &self,
        found: &[ReceivedDatagram],
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> usize {
        let mut filled = 0;
        for datagram in found {
            let length = datagram.bytes.len();
            let Some(room) = buffers[filled].get_mut(..length) else {
                continue; // longer than any datagram that the reader accepts
            };
            room.copy_from_slice(&datagram.bytes);
            metas[filled] = RecvMeta {
                addr: self.shown_address(datagram.from),
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

impl Drop for VirtualUdpSocket {
    fn drop(&mut self) {
        self.network.remove(self.address, self.number);
    }
}

impl AsyncUdpSocket for VirtualUdpSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let to = transmit.destination;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let length = transmit.contents.len();
        let segment = transmit.segment_size.unwrap_or(length).max(1);
        for segment in transmit.contents.chunks(segment) {
            let datagram = ReceivedDatagram {
                from: self.address,
                ecn: transmit.ecn,
                bytes: Bytes::copy_from_slice(segment),
            };
            self.network.send(self.number, to, datagram);
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
                .network
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

/// A send on a virtual network never blocks.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
