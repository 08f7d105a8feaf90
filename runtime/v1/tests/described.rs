//! A description has the bytes of its message, in both encodings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;
// Not all of them are described.
#[allow(dead_code, reason = "shared with the conversions")]
mod values;

use chance::{Chance, fill};
use meros_v1::convert::AgentDescription;
use meros_v1::describe::{Describe, Each, Fields, Output, build};
use meros_v1::message::Table;
use meros_v1::schema::{self, agent, executor, master, scheduler};
use meros_v1::{Form, Message};

#[track_caller]
fn check<M: Message + Table + Default>(what: &impl Describe<M>, seed: u64) {
    let message: M = build(what);
    for form in [Form::Json, Form::Protobuf] {
        let (straight, written) = (form.describe(what), form.write(&message));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&straight), text(&written), "{form:?} of seed {seed}");
        assert!(straight == written, "{form:?} of seed {seed}");
    }
}

fn check_ours<Ours: Describe<M>, M: Message + Table + Default>(make: impl Fn(&mut Chance) -> Ours) {
    for seed in 0..200 {
        check(&make(&mut Chance(seed)), seed);
    }
}

#[test]
fn own_types_encode_like_their_messages() {
    check_ours::<_, schema::TaskStatus>(Chance::status);
    check_ours::<_, schema::Resource>(Chance::resource);
    check_ours::<_, schema::Offer>(Chance::offer);
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let info = chance.agent();
        let resources = &chance.resources();
        let said = AgentDescription {
            info: &info,
            id: None,
            resources,
        };
        check::<schema::AgentInfo>(&said, seed);
    }
}

fn check_messages<M: Message + Table + Default + Describe<M> + PartialEq>() {
    for seed in 0..20 {
        let mut message = M::default();
        fill(&mut message, &mut Chance(seed), 6);
        check(&message, seed);
        assert_eq!(build::<M>(&message), message, "seed {seed}");
    }
}

#[test]
fn a_message_describes_itself() {
    check_messages::<scheduler::Call>();
    check_messages::<scheduler::Event>();
    check_messages::<executor::Call>();
    check_messages::<master::Call>();
    check_messages::<master::Response>();
    check_messages::<master::Event>();
    check_messages::<agent::Response>();
}

/// A health check with few fields.
struct Sparse(u32);

impl Describe<schema::HealthCheck> for Sparse {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::HealthCheck, O>) {
        let said = |bit: u32| self.0 & bit != 0;
        if said(1) {
            fields.delay_seconds(said(2).then_some(f64::NAN));
        }
        if said(4) {
            fields.consecutive_failures(said(8).then_some(7));
        }
        if said(16) {
            fields.r#type(Some(schema::HealthCheckType::Tcp));
        }
    }
}

#[test]
fn defaults_are_written_for_absent_fields() {
    for bits in 0..32 {
        check(&Sparse(bits), bits.into());
    }
    let text = Form::Json.describe(&Sparse(4 + 8));
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"{"delay_seconds":15.0,"interval_seconds":10.0,"timeout_seconds":20.0,"consecutive_failures":7,"grace_period_seconds":10.0}"#
    );
}

/// Labels with values of these lengths.
struct Lengths<'a>(&'a [usize]);

impl Describe<schema::Labels> for Lengths<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::Labels, O>) {
        let label = |length: &usize| schema::Label {
            key: "k".to_owned(),
            value: Some("\u{1f}x".repeat(*length)),
        };
        fields.labels(Each(self.0.iter().map(label)));
    }
}

struct Around<'a>(Lengths<'a>);

impl Describe<schema::Port> for Around<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, schema::Port, O>) {
        let Lengths(lengths) = self.0;
        fields.number(80).labels(Some(Lengths(lengths)));
    }
}

/// The size of a length is guessed from the previous message.
#[test]
fn consecutive_messages_have_right_lengths() {
    for lengths in [
        &[][..],
        &[0],
        &[1, 61, 62, 63, 64, 1],
        &[100, 1, 10_000, 1, 2, 9000, 8188, 8189, 8190],
        &[2_000_000, 3],
    ] {
        check(&Lengths(lengths), 0);
        check(&Around(Lengths(lengths)), 0);
    }
}
