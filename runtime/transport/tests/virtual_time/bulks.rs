//! Bulks that wait for permits block nothing else, and are read once there are permits.

use super::*;

const BULKS: u64 = 6;
const LENGTH: usize = 700_000;
const DECODING: Duration = Duration::from_secs(4);

/// Permits for one bulk, and windows that a few bulks fill.
fn narrow() -> Options {
    Options {
        bulk_room: 1 << 20,
        receive_window: 256 << 10,
        stream_receive_window: 128 << 10,
        ..Options::default()
    }
}

/// Two nodes, of which one decodes each bulk in `decoding`; its recorder, and the recorded notes.
async fn narrowly(decoding: Duration) -> (Node, Node, [Endpoint; 2], Pid, Notes) {
    let network = VirtualUdpNetwork::new(Clock::paused(), calm);
    let (master, served) = member_with(&network, "master-1", Role::Master, 1, 1, narrow());
    let (agent, dialling) = member_with(&network, "agent-1", Role::Agent, 2, 1, narrow());
    master.slow_blocking(decoding);
    let notes = Notes::default();
    master.spawn("noter", Noter(notes.clone())).unwrap();
    master.spawn("other", Noter(notes.clone())).unwrap();
    let found = agent.find("10.0.0.1:5050", "noter", 10 * SECOND);
    let noter = found.await.unwrap();
    (master, agent, [served, dialling], noter, notes)
}

#[test]
fn concurrent_bulks_do_not_deadlock() {
    run_simulated(async {
        let (_master, agent, _endpoints, noter, notes) = narrowly(Duration::ZERO).await;
        for number in 0..BULKS {
            agent.tell(&noter, large(number, LENGTH)).unwrap();
        }
        let answer = agent
            .ask(&noter, ReverseBytes(vec![1, 2]), 60 * SECOND)
            .await;
        assert_eq!(answer, Ok(vec![2, 1]));
        assert_eq!(notes.len() as u64, BULKS);
    });
}

#[test]
fn waiting_bulks_block_no_lane() {
    run_simulated(async {
        let (_master, agent, _endpoints, noter, notes) = narrowly(DECODING).await;
        for number in 0..BULKS {
            agent.tell(&noter, large(number, LENGTH)).unwrap();
        }
        let other = agent.find("10.0.0.1:5050", "other", SECOND);
        let other = other.await.unwrap();
        let mut expected = Vec::new();
        for second in 0..6 {
            agent.clock().sleep(SECOND).await;
            agent.tell(&noter, Pinged(second)).unwrap();
            let answer = agent
                .ask(&other, ReverseBytes(vec![1, 2]), SECOND / 10)
                .await;
            assert_eq!(answer, Ok(vec![2, 1]), "after {second} s");
            if second == 4 {
                expected.push("0".to_owned()); // decoded by then
            }
            expected.push(format!("ping {second}"));
            assert_eq!(notes.all(), expected);
        }
        let answer = agent
            .ask(&noter, ReverseBytes(vec![1, 2]), 60 * SECOND)
            .await;
        assert_eq!(answer, Ok(vec![2, 1]));
        expected.extend((1..BULKS).map(|number| number.to_string()));
        assert_eq!(notes.all(), expected);
    });
}
