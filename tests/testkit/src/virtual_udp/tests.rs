//! The bounds and the addresses of the network; `runtime/transport/tests` has endpoints on it.

use std::net::SocketAddr;

use runtime::Clock;
use runtime::testing::run_simulated;

use super::socket::VirtualUdpSocket;
use super::*;

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, machine], 5050))
}

/// Delays every datagram by one millisecond.
fn calm(_: Datagram) -> DatagramFate {
    DatagramFate::After(Duration::from_millis(1))
}

#[test]
fn full_receive_buffer_drops_datagrams() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), |_: Datagram| {
            DatagramFate::After(Duration::ZERO)
        });
        let (_, sender) = network.open(address(1), 0).unwrap();
        let (_, number) = network.open(address(2), 3 * (100 + 512)).unwrap();
        let arrived = |length| network::ReceivedDatagram {
            from: address(1),
            ecn: None,
            bytes: vec![0; length].into(),
        };
        for _ in 0..5 {
            network.send(sender, address(2), arrived(100));
        }
        network.send(sender, address(3), arrived(100));
        let waker = futures_util::task::noop_waker();
        let found = network.read(address(2), number, 10, &waker);
        assert_eq!(found.len(), 3);
        let expected = Counts {
            sent: 6,
            delivered: 3,
            lost: 0,
            unreachable: 1,
            overflowed: 2,
        };
        assert_eq!(network.counts(), expected);
    });
}

#[test]
fn addresses_are_unique_and_port_zero_takes_a_free_one() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), calm);
        let bind = |address| VirtualUdpSocket::bind(&network, address, 1 << 20);
        let taken = bind(address(1)).unwrap();
        assert!(bind(address(1)).is_err(), "it is taken");
        assert!(bind(SocketAddr::from(([0, 0, 0, 0], 5050))).is_err());
        drop(taken);
        let _again = bind(address(1)).unwrap();
        let any = SocketAddr::from(([10, 0, 0, 1], 0));
        let (one, other) = (bind(any).unwrap(), bind(any).unwrap());
        let port =
            |socket: &VirtualUdpSocket| quinn::AsyncUdpSocket::local_addr(socket).unwrap().port();
        assert_ne!(port(&one), port(&other));
        assert!(port(&one) >= 49_152);
    });
}
