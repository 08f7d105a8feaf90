//! The laws of framework state: histories of changes against a plain model, and bounds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::message::state::STATE_VALUE_BYTES_MAX;
use runtime::Timestamp;
use storage::forgetful::ForgetfulDisk;
use storage::{Changes, Store};

use super::super::local::tests::framework;
use super::super::{RegistryOperation, RegistryState, record};
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

/// What one of several clients does next: look at the counter, or write back what it saw plus one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Look(usize),
    Increment(usize),
    /// Deletes the counter if it is as it was seen; the count begins anew.
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

/// A framework, a key, which version to expect of what there is (`None`: any), and a value's length (`None`: delete).
type Wish = (usize, usize, Option<bool>, Option<usize>);

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let expected = proptest::option::of(any::<bool>());
    let value = proptest::option::of(0..40_usize);
    proptest::collection::vec((0..2_usize, 0..3_usize, expected, value), 0..60)
}

proptest! {
    /// Whoever writes back what it has read can lose no other's write, however the clients take turns.
    #[test]
    fn no_increment_is_lost_whatever_the_order(steps in steps()) {
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

    /// A model of one map a framework says the same, and a store holds the same.
    #[test]
    fn a_history_of_changes_gives_what_a_plain_map_gives_in_memory_and_on_disk(wishes in wishes()) {
        let names = ["f1", "f2"];
        let mut state = admitted(&names);
        let mut model: BTreeMap<(usize, usize), (u64, usize)> = BTreeMap::new();
        let mut store = ForgetfulDisk::new().open().unwrap();
        for (framework, key, expected, length) in wishes {
            let found = model.get(&(framework, key)).map_or(0, |(version, _)| *version);
            // One that is right, or one that is not.
            let expected = expected.map(|right| if right { found } else { found + 1 });
            let value = length.map(|length| vec![1; length]);
            let operation = change(names[framework], &format!("k{key}"), expected, value.as_deref());
            let before = state.clone();
            let touched = match state.apply(&operation) {
                Ok(touched) => touched,
                Err(error) => {
                    prop_assert_eq!(error, RegistryError::Conflict { found });
                    prop_assert!(expected.is_some_and(|expected| expected != found));
                    prop_assert_eq!(&state, &before);
                    continue;
                }
            };
            prop_assert!(expected.is_none_or(|expected| expected == found));
            match length {
                Some(length) => drop(model.insert((framework, key), (state.version, length))),
                None => drop(model.remove(&(framework, key))),
            }
            let mut changes = Changes::new();
            record::write(&state, &touched, &mut changes).unwrap();
            store.commit(changes).unwrap();
        }
        let bytes: usize = model.values().map(|(_, length)| length + 2).sum();
        prop_assert_eq!(state.framework_states.bytes, bytes);
        let kept: Vec<_> = state.framework_states.iter().map(|(id, key, value)| (id.to_string(), key.to_owned(), value.version, value.value.len())).collect();
        let wanted: Vec<_> = model.iter().map(|((framework, key), (version, length))| (names[*framework].to_owned(), format!("k{key}"), *version, *length)).collect();
        prop_assert_eq!(kept, wanted);
        let loaded = record::load(&store).unwrap();
        prop_assert_eq!(loaded.framework_states, state.framework_states);
    }
}

#[test]
fn a_framework_that_is_removed_keeps_nothing_and_one_that_is_unknown_can_keep_nothing() {
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
    assert!(
        refused.to_string().starts_with("framework_id is `f1`"),
        "{refused}"
    );
}

#[test]
fn one_key_too_many_and_one_byte_too_many_are_refused_by_their_bounds() {
    let mut state = admitted(&["f1"]);
    for nth in 0..STATE_KEYS_MAX {
        let key = format!("k{nth}");
        state.change(&change("f1", &key, None, Some(b""))).unwrap();
    }
    let refused = state
        .change(&change("f1", "more", None, Some(b"")))
        .unwrap_err();
    assert!(
        refused.to_string().contains("expected at most 128"),
        "{refused}"
    );
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
    assert!(
        refused.starts_with("all frameworks would keep"),
        "{refused}"
    );
    assert!(state.framework_states.bytes <= STATE_BYTES_MAX);
}
