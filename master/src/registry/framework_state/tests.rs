//! Properties of framework state: histories of changes against a simple model, and bounds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::message::state::STATE_VALUE_BYTES_MAX;
use runtime::Timestamp;
use testkit::{assert_contains, assert_starts};

use super::super::samples::framework;
use super::super::{RegistryOperation, RegistryState};
use super::*;

fn id(name: &str) -> FrameworkId {
    FrameworkId::new(name).unwrap()
}

fn change(
    framework: &str,
    key: &str,
    expected: Option<u64>,
    value: Option<&[u8]>,
) -> RegistryOperation {
    RegistryOperation::ChangeFrameworkState {
        framework_id: id(framework),
        key: key.to_owned(),
        expected,
        value: value.map(<[u8]>::to_vec),
    }
}

fn admitted(names: &[&str]) -> RegistryState {
    let mut state = RegistryState::default();
    for name in names {
        let info = framework(name);
        let deadline = Some(Timestamp::from_nanos(7));
        let admit = RegistryOperation::AdmitFramework { info, deadline };
        state.change(&admit).unwrap();
    }
    state
}

/// The next step of one of several clients: read the counter, or write back its value plus one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Look(usize),
    Increment(usize),
    /// Deletes the counter if it is unchanged; counting starts over.
    Reset(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_usize).prop_map(Step::Look),
        3 => (0..4_usize).prop_map(Step::Increment),
        1 => (0..4_usize).prop_map(Step::Reset),
    ];
    proptest::collection::vec(step, 0..60)
}

/// A framework, a key, the expected version (`None`: any), and a value's length (`None`: delete).
type Wish = (usize, usize, Option<bool>, Option<usize>);

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let expected = proptest::option::of(any::<bool>());
    let value = proptest::option::of(0..40_usize);
    proptest::collection::vec((0..2_usize, 0..3_usize, expected, value), 0..60)
}

proptest! {
    /// A client that writes back a read value never loses another's write, in any order.
    // Covers S134.
    #[test]
    fn no_increment_is_lost_in_any_order(steps in steps()) {
        let mut state = admitted(&["f1"]);
        let mut seen = [(0_u64, 0_u8); 4];
        let mut count = 0_u8;
        for step in steps {
            let now = state.framework_states.get(&id("f1"), "count").cloned();
            let version = now.as_ref().map_or(0, |now| now.version);
            match step {
                Step::Look(client) => seen[client] = (version, now.map_or(0, |now| now.value[0])),
                Step::Increment(client) => {
                    let (expected, read) = seen[client];
                    let written = state.change(&change("f1", "count", Some(expected), Some(&[read + 1])));
                    prop_assert_eq!(written.is_ok(), expected == version);
                    if let Ok(applied) = written {
                        prop_assert_eq!(read, count, "it has seen the newest");
                        prop_assert!(applied.version > version, "versions only grow");
                        count += 1;
                    }
                }
                Step::Reset(client) => {
                    let (expected, _) = seen[client];
                    if state.change(&change("f1", "count", Some(expected), None)).is_ok() {
                        count = 0;
                    }
                }
            }
            let now = state.framework_states.get(&id("f1"), "count");
            prop_assert_eq!(now.map_or(0, |now| now.value[0]), count);
        }
    }

    /// A model with one map per framework agrees.
    // Covers S134.
    #[test]
    fn framework_state_behaves_like_a_map(wishes in wishes()) {
        let names = ["f1", "f2"];
        let mut state = admitted(&names);
        let mut model: BTreeMap<(usize, usize), (u64, usize)> = BTreeMap::new();
        for (framework, key, expected, length) in wishes {
            let found = model.get(&(framework, key)).map_or(0, |(version, _)| *version);
            // One that is right, or one that is not.
            let expected = expected.map(|right| if right { found } else { found + 1 });
            let value = length.map(|length| vec![1; length]);
            let operation = change(names[framework], &format!("k{key}"), expected, value.as_deref());
            let before = state.clone();
            if let Err(error) = state.change(&operation) {
                prop_assert_eq!(error, RegistryError::Conflict { found });
                prop_assert!(expected.is_some_and(|expected| expected != found));
                prop_assert_eq!(&state, &before);
                continue;
            }
            prop_assert!(expected.is_none_or(|expected| expected == found));
            match length {
                Some(length) => drop(model.insert((framework, key), (state.version, length))),
                None => drop(model.remove(&(framework, key))),
            }
        }
        let bytes: usize = model.values().map(|(_, length)| length + 2).sum();
        prop_assert_eq!(state.framework_states.bytes, bytes);
        let kept: Vec<_> = state.framework_states.iter().map(|(id, key, value)| (id.to_string(), key.to_owned(), value.version, value.value.len())).collect();
        let wanted: Vec<_> = model.iter().map(|((framework, key), (version, length))| (names[*framework].to_owned(), format!("k{key}"), *version, *length)).collect();
        prop_assert_eq!(kept, wanted);
    }
}

#[test]
fn removed_and_unknown_frameworks_store_nothing() {
    let mut state = admitted(&["f1", "f2"]);
    for key in ["a", "b"] {
        state
            .change(&change("f1", key, None, Some(b"value")))
            .unwrap();
    }
    state
        .change(&change("f2", "a", None, Some(b"other")))
        .unwrap();
    let framework_id = id("f1");
    state
        .change(&RegistryOperation::RemoveFramework { framework_id })
        .unwrap();
    assert_eq!(state.framework_states.iter().count(), 1);
    assert_eq!(state.framework_states.bytes, "aother".len());
    let refused = state
        .change(&change("f1", "a", Some(0), Some(b"late")))
        .unwrap_err();
    assert_starts!(refused.to_string(), "framework_id is `f1`");
}

#[test]
fn excess_keys_and_bytes_are_refused() {
    let mut state = admitted(&["f1"]);
    for nth in 0..STATE_KEYS_MAX {
        let key = format!("k{nth}");
        state.change(&change("f1", &key, None, Some(b""))).unwrap();
    }
    let refused = state
        .change(&change("f1", "more", None, Some(b"")))
        .unwrap_err();
    assert_contains!(refused.to_string(), "expected at most 128");
    state
        .change(&change("f1", "k0", None, Some(b"changed")))
        .unwrap();
    state.change(&change("f1", "k0", None, None)).unwrap();
    state
        .change(&change("f1", "more", None, Some(b"")))
        .unwrap();

    let names: Vec<String> = (0..=(STATE_BYTES_MAX / (STATE_VALUE_BYTES_MAX * STATE_KEYS_MAX)))
        .map(|nth| format!("g{nth}"))
        .collect();
    let mut state = admitted(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let full = vec![0; STATE_VALUE_BYTES_MAX];
    let refused = names.iter().find_map(|name| {
        (0..STATE_KEYS_MAX).find_map(|nth| {
            state
                .change(&change(name, &format!("k{nth}"), None, Some(&full)))
                .err()
        })
    });
    let refused = refused.unwrap().to_string();
    assert_starts!(refused, "all frameworks would keep");
    assert!(state.framework_states.bytes <= STATE_BYTES_MAX);
}
