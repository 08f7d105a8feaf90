//! Explanations agree with runs: no reason is given exactly where a run would grant something.

use super::capabilities::{refined, shared};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Quota(usize, usize, usize),
    Grant(usize, usize, bool),
    Decline(usize, u64),
    Wait(u64),
    Off(usize, bool),
    Whitelist(usize),
    /// Capabilities of the framework, by bit.
    Can(usize, u8),
}

const ROLES: [&str; 4] = ["a", "a/b", "c", "a/b/d"];
const AMOUNTS: [&str; 4] = ["", "cpus:1;mem:32", "cpus:2", "cpus:4;mem:128;disk:10"];
/// The capabilities.
const CAPABILITIES: [Capability; 4] = [
    Capability::GpuResources,
    Capability::RegionAware,
    Capability::SharedResources,
    Capability::ReservationRefinement,
];
/// The first agent is in another region, the second has a shared volume, the third a refined
/// reservation.
const TOTALS: [&str; 6] = [
    "cpus:2;mem:64",
    "cpus:1;mem(a):64",
    "cpus(c):1;mem(a/b):64;disk:20",
    "mem:16;cpus(a):0.005",
    "cpus:4;mem:128;gpus:1",
    "cpus:8;mem:31;ports:[1-9]",
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_usize, 0..4_usize, 0..4_usize).prop_map(|(role, g, l)| Step::Quota(role, g, l)),
        (0..4_usize, 0..6_usize, any::<bool>()).prop_map(|(f, a, s)| Step::Grant(f, a, s)),
        (any::<usize>(), 1..9_u64).prop_map(|(n, seconds)| Step::Decline(n, seconds)),
        (0..3_u64).prop_map(Step::Wait),
        (0..6_usize, any::<bool>()).prop_map(|(a, on)| Step::Off(a, on)),
        (0..9_usize).prop_map(Step::Whitelist),
        (0..4_usize, 0..16_u8).prop_map(|(f, can)| Step::Can(f, can)),
    ]
}

fn hosted(n: usize) -> AgentAdded {
    let mut added = added(&format!("a{n}"), TOTALS[n], vec![]);
    added.info.attributes = format!("rack:r{}", n % 2).parse().unwrap();
    match n {
        0 => added.info.domain = "far/away".parse().ok(),
        1 => added.info.resources += &shared("a"),
        2 => added.info.resources += &refined("a/b", "cpus:1;mem:20"),
        _ => {}
    }
    added
}

/// The framework's registration.
fn frame(scene: &mut Scene, f: usize, can: u8) {
    let bits = CAPABILITIES.iter().enumerate();
    let can: Vec<Capability> = bits
        .filter(|(n, _)| can >> n & 1 == 1)
        .map(|(_, capability)| *capability)
        .collect();
    let mut added = subscribed(&format!("f{f}"), ROLES[f], &can);
    let demand = match f {
        0 => {
            let least = "mem:20".parse().unwrap();
            Some(Demand::shaped(
                least,
                "cpus:1;mem:40;disk:15".parse().unwrap(),
            ))
        }
        3 => Some(Demand {
            agents: vec![rack_is("r1")],
            ..Demand::default()
        }),
        _ => None,
    };
    let demands = demand.map(|demand| (ROLES[f].to_owned(), demand));
    added.wants.demands = demands.into_iter().collect();
    scene.state.framework_added(added);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same predicates as in a run: no reason exactly where a run would grant something.
    // Covers W26.
    #[test]
    fn an_explanation_agrees_with_what_a_run_would_grant(steps in proptest::collection::vec(step(), 0..30)) {
        let mut scene = Scene::in_region("home");
        (0..6).for_each(|n| scene.state.agent_added(hosted(n)));
        (0..ROLES.len()).for_each(|f| frame(&mut scene, f, if f == 2 { 1 } else { 0 }));
        let mut held: Vec<(usize, usize, String)> = Vec::new();
        for step in steps {
            match step {
                Step::Quota(role, guarantees, limits) => {
                    scene.quota(ROLES[role], AMOUNTS[guarantees], AMOUNTS[limits]);
                }
                Step::Grant(f, a, sure) => {
                    let stage = if sure { Stage::Guarantees } else { Stage::Fair };
                    let granted = scene.grant(stage, &format!("f{f}"), ROLES[f], &format!("a{a}"));
                    held.extend(granted.map(|text| (f, a, text)));
                }
                Step::Decline(n, seconds) if !held.is_empty() => {
                    let (f, a, text) = held.remove(n % held.len());
                    scene.decline(&format!("f{f}"), ROLES[f], &format!("a{a}"), &text, seconds);
                }
                Step::Decline(..) => {}
                Step::Wait(seconds) => scene.now = scene.now + Duration::from_secs(seconds),
                Step::Whitelist(n) => scene.whitelist((n < 6).then(|| (0..=n).map(|n| format!("a{n}.example")))),
                Step::Can(f, can) => frame(&mut scene, f, can),
                Step::Off(a, active) => scene.state.agent_activity(&AgentActivity {
                    agent_id: agent(&format!("a{a}")),
                    active,
                }),
            }
        }
        let shares = Shares::of(&scene.state, Pool::Regular);
        for (f, role) in ROLES.iter().enumerate() {
            let name = format!("f{f}");
            let client = scene.client(&name, role).unwrap();
            let case = scene.state.case(client).unwrap();
            for a in 0..6 {
                let on = format!("a{a}");
                let slot = scene.state.slot_of(&agent(&on)).unwrap();
                let reasons = scene.state.reasons(&case, slot, Pool::Regular, &shares, scene.now);
                let mut granted = [Stage::Guarantees, Stage::Fair].into_iter().filter_map(|stage| {
                    scene.clone().grant(stage, &name, role, &on)
                });
                let granted = granted.next();
                prop_assert!(!reasons.is_empty());
                prop_assert_eq!(
                    reasons == [NoOfferReason::Open], granted.is_some(),
                    "{} on {}: {:?}, granted {:?}", name, on, reasons, granted
                );
            }
        }
    }
}
