//! Requests to the kernel about interfaces in the network namespace of the calling thread
//! (rtnetlink).

use std::io;
use std::os::fd::AsRawFd;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// `RTM_NEWLINK`, `RTM_NEWQDISC` and `NLMSG_ERROR`.
const NEW_LINK: u16 = 16;
const NEW_QDISC: u16 = 36;
const ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`, and with `NLM_F_CREATE | NLM_F_REPLACE`.
const CHANGE: u16 = 5;
const CREATE: u16 = CHANGE | 0x500;
/// Length of a message's header.
const HEADER: usize = 16;
/// `IFF_UP`.
const UP: u32 = 1;
/// The loopback is the first interface of each namespace.
const LOOPBACK: u32 = 1;

/// `TC_H_ROOT`, `TCA_KIND` and `TCA_OPTIONS`.
const ROOT: u32 = u32::MAX;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// The attributes of a token bucket filter: its parameters, `TCA_TBF_RATE64` and `TCA_TBF_BURST`.
const PARAMETERS: u16 = 1;
const RATE: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: the kernel computes the times of packets itself.
const ETHERNET: u8 = 1;
/// Bytes that may be sent at once: the largest packet that an interface takes from a socket.
const BURST_MIN: u64 = 64 << 10;

/// Sets the loopback up.
pub(super) fn loopback_up() -> io::Result<()> {
    let mut body = vec![0; 4]; // family and type
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    body.extend(UP.to_ne_bytes()); // the flags that change
    request(NEW_LINK, CHANGE, &body)
}

/// Limits what an interface sends to so many bytes in a second, by a token bucket filter.
pub(super) fn limit_egress(interface: &str, rate: u64) -> io::Result<()> {
    let index = if_nametoindex(interface)?;
    request(NEW_QDISC, CREATE, &token_bucket(index, rate))
}

/// The body of the request for a token bucket filter. A burst lasts for 50 ms at most, and packets
/// that wait for more than about 100 ms are dropped.
fn token_bucket(interface: u32, rate: u64) -> Vec<u8> {
    let burst = (rate / 20).max(BURST_MIN);
    let queue = burst + (rate / 10).max(BURST_MIN);
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_ne_bytes();
    let mut parameters = vec![0, ETHERNET];
    parameters.extend([0; 6]);
    parameters.extend(narrow(rate));
    parameters.extend([0; 12]); // no peak rate
    parameters.extend(narrow(queue));
    parameters.extend([0; 8]); // the burst in ticks, and that of the peak rate
    let mut options = attribute(PARAMETERS, &parameters);
    options.extend(attribute(RATE, &rate.to_ne_bytes()));
    options.extend(attribute(BURST, &narrow(burst)));
    let mut body = vec![0; 4]; // family
    body.extend(interface.to_ne_bytes());
    body.extend([0; 4]); // the kernel chooses its handle
    body.extend(ROOT.to_ne_bytes());
    body.extend([0; 4]);
    body.extend(attribute(KIND, b"tbf\0"));
    body.extend(attribute(OPTIONS, &options));
    body
}

/// An attribute. The content is a multiple of four bytes long.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = (content.len() + 4) as u16;
    let mut attribute = Vec::with_capacity(length.into());
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(content);
    attribute
}

/// Blocking. Sends a request, and waits for its answer.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let protocol = SockProtocol::NetlinkRoute;
    let cloexec = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, cloexec, protocol)?;
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]); // sequence number and sender
    request.extend(body);
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &request, &kernel, MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match answer_code(&answer[..length]) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("unexpected answer of the kernel")),
    }
}

/// The error code of an answer, 0 for success.
fn answer_code(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..6)?.try_into().ok()?;
    let code = answer.get(HEADER..HEADER + 4)?.try_into().ok()?;
    (u16::from_ne_bytes(kind) == ERROR).then(|| i32::from_ne_bytes(code))
}
