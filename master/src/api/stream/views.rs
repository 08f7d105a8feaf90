//! Subscribers of the operator API's events, grouped by visibility into views.
//!
//! Plain data over the streams' writing ends. Never waits: a reader that is too slow, or one too
//! many, is cut off.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use authority::Acls;
use bytes::Bytes;
use http::Source;
use http::api::{Batch, EventWriter};
use runtime::Promise;
use v1::Form;
use v1::schema::master::EventLast;

use super::cuts::{Cut, Cuts};
use super::encoding::{ByForm, subscribed};
use super::unread::{Changes, Unread};
use super::viewer::Viewer;
use super::{NotNow, Subscribed, UNREAD_MAX};
use crate::api::visibility::Visibility;
use crate::state::MasterState;

/// A subscriber.
#[derive(Debug)]
struct Subscriber {
    /// In order of subscription.
    number: u64,
    viewer: Viewer,
    events: EventWriter,
}

impl Subscriber {
    /// Ends the stream with this reason.
    fn cut(&self, cut: Cut, details: &str, cuts: &Cuts) {
        cuts.note(cut, self.number, &self.viewer, details);
        let last = EventLast::because(format!("Disconnected: {details}"));
        self.events.cut(Some(&last));
    }
}

/// A subscriber that waits for the first event.
type Joining = (Viewer, EventWriter, Promise<Subscribed>);

/// All subscribers with the same visibility.
struct View {
    visibility: Visibility,
    /// The state that they know; `None` before the first event.
    state: Option<Arc<MasterState>>,
    /// The first event of this state, for later subscribers.
    whole: ByForm<Option<Bytes>>,
    subscribers: Vec<Subscriber>,
    joining: Vec<Joining>,
    /// How many of the joining subscribers the current snapshot serves.
    served: usize,
}

/// One view's request for a snapshot.
pub(super) struct ViewRequest {
    visibility: Visibility,
    before: Option<Arc<MasterState>>,
    whole: ByForm<Option<Bytes>>,
    /// Whether a subscriber reads this form.
    told: ByForm<bool>,
    /// Whether a joining subscriber reads this form.
    begun: ByForm<bool>,
}

/// The result for one view.
pub(super) struct ViewResult {
    state: Arc<MasterState>,
    /// The changes; `None` if unknown.
    changed: Option<ByForm<Vec<Batch>>>,
    whole: ByForm<Option<Bytes>>,
}

impl ViewRequest {
    /// The result for this view; `changes` computes the visible records between two states.
    pub fn of(
        self,
        now: &Arc<MasterState>,
        changes: impl FnOnce(
            &Visibility,
            &MasterState,
            &MasterState,
            &ByForm<bool>,
        ) -> Option<ByForm<Vec<Batch>>>,
        is_same: bool,
    ) -> ViewResult {
        let state = match &self.before {
            Some(before) if is_same => before.clone(),
            _ => self.visibility.filter(now),
        };
        let is_known = |before: &Arc<MasterState>| Arc::ptr_eq(before, &state);
        let known = match self.before.as_ref().is_some_and(is_known) {
            true => self.whole,
            false => ByForm::default(),
        };
        let changed = match &self.before {
            Some(before) => changes(&self.visibility, before, &state, &self.told),
            None => None,
        };
        let whole = ByForm::make(|form| match (known.of(form), self.begun.of(form)) {
            (Some(whole), _) => Some(whole.clone()),
            (None, true) => Some(subscribed(form, &state)),
            (None, false) => None,
        });
        ViewResult {
            state,
            changed,
            whole,
        }
    }
}

/// All views.
pub(super) struct Views {
    all: Vec<View>,
    /// Maximum subscribers.
    max: usize,
    next: u64,
    /// Unread first events.
    unread: Unread,
    /// Unread changes, and the maximum of their bytes over all views.
    changes: Changes,
    changes_max: usize,
    /// Maximum bytes of first events that are cached over all views.
    kept_max: usize,
    cuts: Cuts,
}

impl Views {
    /// No views; at most `max` subscribers. Cuts are recorded in `cuts`.
    pub fn new(max: usize, cuts: Cuts) -> Self {
        Self {
            all: Vec::new(),
            max: max.max(1),
            next: 0,
            unread: Unread::default(),
            changes: Changes::default(),
            changes_max: UNREAD_MAX,
            kept_max: UNREAD_MAX,
            cuts,
        }
    }

    /// Number of subscribers.
    pub fn len(&self) -> usize {
        self.all.iter().map(|view| view.subscribers.len()).sum()
    }

    /// Whether there are no subscribers, joining ones included.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_joined()
    }

    /// Unread bytes of first events.
    pub fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Whether a subscriber waits for the first event.
    pub fn is_joined(&self) -> bool {
        self.all.iter().any(|view| !view.joining.is_empty())
    }

    /// Adds a subscriber that waits for the first event.
    pub fn join(&mut self, viewer: Viewer, events: EventWriter, promise: Promise<Subscribed>) {
        let mut sights = self.all.iter().map(|view| &view.visibility);
        let place = sights.position(|visibility| visibility == viewer.visibility());
        let place = place.unwrap_or_else(|| {
            self.all.push(View {
                visibility: viewer.visibility().clone(),
                state: None,
                whole: ByForm::default(),
                subscribers: Vec::new(),
                joining: Vec::new(),
                served: 0,
            });
            self.all.len() - 1
        });
        self.all[place].joining.push((viewer, events, promise));
    }

    /// Starts a snapshot: the requests of all views, in order.
    pub fn begin(&mut self) -> Vec<ViewRequest> {
        let wanted = |view: &mut View| {
            view.served = view.joining.len();
            let (joining, subscribers) = (&view.joining, &view.subscribers);
            let reads = |form: Form| subscribers.iter().any(|one| one.events.form() == form);
            let begins = |form: Form| joining.iter().any(|(_, events, _)| events.form() == form);
            ViewRequest {
                visibility: view.visibility.clone(),
                before: view.state.clone(),
                whole: view.whole.clone(),
                told: ByForm::make(reads),
                begun: ByForm::make(begins),
            }
        };
        self.all.iter_mut().map(wanted).collect()
    }

    /// Distributes the results of the last snapshot: changes to subscribers, and the whole state to
    /// joining ones.
    pub fn end(&mut self, got: Vec<ViewResult>) {
        let mut room = self.kept_max;
        for (view, got) in self.all.iter_mut().zip(got) {
            match &got.changed {
                Some(changed) => {
                    let noted = |form| changed.of(form).iter().map(|one| self.changes.note(one));
                    let changed = ByForm::make(|form| noted(form).collect());
                    view.publish(&changed, &self.cuts);
                }
                // They would miss changes: they subscribe again and get the whole state.
                None => view.cut(&self.cuts),
            }
            let waiting = view.joining.split_off(view.served.min(view.joining.len()));
            for (viewer, events, promise) in std::mem::replace(&mut view.joining, waiting) {
                let Some(whole) = got.whole.of(events.form()) else {
                    continue;
                };
                // A subscriber that has gone needs no answer.
                if events.write_record(self.unread.give(whole)).is_ok() {
                    let number = self.next;
                    self.next += 1;
                    view.subscribers.push(Subscriber {
                        number,
                        viewer,
                        events,
                    });
                    promise.answer(Ok(()));
                }
            }
            (view.state, view.whole) = (Some(got.state), fit(&mut room, &got.whole));
        }
        while self.len() > self.max {
            self.cut_oldest();
        }
        self.cut_slowest();
        self.all.retain(View::is_wanted);
    }

    /// Sends these records to all subscribers.
    pub fn publish(&mut self, records: &ByForm<Vec<Batch>>) {
        let cuts = &self.cuts;
        self.all
            .iter_mut()
            .for_each(|view| view.publish(records, cuts));
    }

    /// Forgets closed streams, and empty views with their caches. Not during a snapshot, which
    /// identifies views by position.
    pub fn forget_closed(&mut self) {
        for view in &mut self.all {
            view.subscribers.retain(|one| !one.events.is_closed());
        }
        self.all.retain(View::is_wanted);
    }

    /// Cuts off subscribers that may see more or less by these ACLs: they subscribe again.
    pub fn reevaluate(&mut self, acls: &Arc<Acls>) {
        let cuts = &self.cuts;
        self.all
            .iter_mut()
            .for_each(|view| view.reevaluate(acls, cuts));
    }

    /// Cuts off all subscribers; joining ones stay.
    pub fn cut(&mut self) {
        let cuts = &self.cuts;
        self.all.iter_mut().for_each(|view| view.cut(cuts));
    }

    /// Refuses the joining subscribers.
    pub fn refuse(&mut self, why: &NotNow) {
        for (_, _, promise) in self.all.iter_mut().flat_map(|view| view.joining.drain(..)) {
            promise.answer(Err(why.clone()));
        }
        self.all.retain(|view| !view.subscribers.is_empty());
    }

    /// While the unread changes exceed their bound, cuts off the subscriber that has not read for
    /// the longest time, or has the most unread.
    fn cut_slowest(&mut self) {
        let max = self.changes_max;
        if self.changes.bytes() <= max {
            return;
        }
        let all = self.all.iter().flat_map(|view| &view.subscribers);
        let waits = all.filter_map(|one| Some((one.events.waits()?, one.number)));
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable_by_key(|(waits, number)| (Reverse(*waits), *number));
        for (_, number) in waits {
            let bytes = self.changes.bytes();
            if bytes <= max {
                return;
            }
            let reason = format!(
                "all subscribers together have {bytes} unread bytes of events, more than {max}, and this one is the slowest"
            );
            for view in &mut self.all {
                let slowest = view.subscribers.extract_if(.., |one| one.number == number);
                slowest.for_each(|one| one.cut(Cut::Slow, &reason, &self.cuts));
            }
        }
    }

    /// Cuts off the oldest subscriber of the address with the most subscribers, so that a flood
    /// from one address affects only itself.
    fn cut_oldest(&mut self) {
        let all = || self.all.iter().flat_map(|view| &view.subscribers);
        let mut counts = BTreeMap::<Option<Source>, usize>::new();
        for one in all() {
            *counts.entry(one.viewer.source()).or_default() += 1;
        }
        let rank = |one: &&Subscriber| (counts.get(&one.viewer.source()), Reverse(one.number));
        let Some(number) = all().max_by_key(rank).map(|one| one.number) else {
            return;
        };
        let most = format!(
            "replaced by a newer subscriber: at most {} are allowed",
            self.max
        );
        for view in &mut self.all {
            let oldest = view.subscribers.extract_if(.., |one| one.number == number);
            oldest.for_each(|one| one.cut(Cut::Oldest, &most, &self.cuts));
        }
    }
}

/// The first events that fit into the cache, whose room they reduce. Others are rendered again when
/// needed.
fn fit(room: &mut usize, whole: &ByForm<Option<Bytes>>) -> ByForm<Option<Bytes>> {
    ByForm::make(|form| {
        let whole = whole.of(form).as_ref()?;
        *room = room.checked_sub(whole.len())?;
        Some(whole.clone())
    })
}

impl View {
    /// Whether it has subscribers, joining ones included.
    fn is_wanted(&self) -> bool {
        !self.subscribers.is_empty() || !self.joining.is_empty()
    }

    /// Sends records to all; forgets closed streams and cuts off slow ones.
    fn publish(&mut self, records: &ByForm<Vec<Batch>>, cuts: &Cuts) {
        self.subscribers.retain(|one| {
            let events = &one.events;
            // The bytes unread before: the new records cannot have been read yet.
            if let Some(reason) = events.lag() {
                one.cut(Cut::Slow, &reason.to_string(), cuts);
                return false;
            }
            let mut records = records.of(events.form()).iter();
            records.all(|batch| events.write_batch(batch).is_ok()) && !events.is_closed()
        });
    }

    /// Cuts off subscribers that may see more or less by these ACLs, discarding unread events.
    fn reevaluate(&mut self, acls: &Arc<Acls>, cuts: &Cuts) {
        self.subscribers.retain_mut(|one| {
            let sees_the_same = one.viewer.reevaluate(acls);
            if !sees_the_same {
                one.cut(Cut::Visibility, "its visibility has changed", cuts);
            }
            sees_the_same
        });
    }

    fn cut(&mut self, cuts: &Cuts) {
        for one in self.subscribers.drain(..) {
            let missed = "another master leads, or this one was late: changes are unknown";
            one.cut(Cut::Missed, missed, cuts);
        }
        self.state = None;
        self.whole = ByForm::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use authority::Subject;
    use std::net::IpAddr;

    use axum::response::Response;
    use futures_util::{FutureExt, StreamExt};
    use http::api::EventStreams;
    use runtime::Node;
    use runtime::testing::simulate;
    use v1::Content;

    use super::super::BOUNDS;
    use super::*;
    use crate::leadership::mirror::tests::properties::state;

    /// Adds a subscriber that sees everything; returns its stream.
    fn join(views: &mut Views, node: &Node) -> Response {
        let (events, response) = EventStreams::new(node).open(Content::One(Form::Json), BOUNDS);
        let visibility = Visibility::of(&Acls::default(), &Subject::default());
        views.join(visibility.into(), events, runtime::promise().0);
        response
    }

    /// Adds a subscriber with a visibility of its own.
    fn join_apart(views: &mut Views, node: &Node, number: u32) -> Response {
        let (events, response) = EventStreams::new(node).open(Content::One(Form::Json), BOUNDS);
        let rule = format!(
            r#"{{"view_tasks":[{{"principals":{{"type":"ANY"}},"users":{{"values":["user-{number}"]}}}}]}}"#
        );
        let visibility = Visibility::of(&Acls::parse(&rule).unwrap(), &Subject::default());
        views.join(visibility.into(), events, runtime::promise().0);
        response
    }

    #[test]
    fn address_displaces_only_its_own_subscribers() {
        simulate(|node| async move {
            let mut views = Views::new(3, Cuts::default());
            let state = Arc::new(state());
            let joins = |views: &mut Views, host: u8| {
                let (events, response) =
                    EventStreams::new(&node).open(Content::One(Form::Json), BOUNDS);
                let viewer = Viewer::from(Visibility::of(&Acls::default(), &Subject::default()));
                let source = Source::from(IpAddr::from([10, 0, 0, host]));
                views.join(viewer.at(Some(source)), events, runtime::promise().0);
                look(views, &state, false);
                response
            };
            let _streams = [1, 2, 2, 2, 2, 2].map(|host| joins(&mut views, host));
            let left = views.all.iter().flat_map(|view| &view.subscribers);
            let left: Vec<_> = left.map(|one| one.number).collect();
            assert_eq!(left, [0, 4, 5]);
        });
    }

    /// Takes a snapshot of this state.
    fn look(views: &mut Views, state: &Arc<MasterState>, is_same: bool) {
        let nothing = |_: &Visibility, _: &MasterState, _: &MasterState, _: &ByForm<bool>| {
            Some(ByForm::default())
        };
        let wanted = views.begin().into_iter();
        let got = wanted.map(|wanted| wanted.of(state, nothing, is_same));
        let got = got.collect();
        views.end(got);
    }

    #[test]
    fn cached_first_event_does_not_count_as_unread() {
        simulate(|node| async move {
            let (mut views, state) = (Views::new(9, Cuts::default()), Arc::new(state()));
            let [one, other] = [join(&mut views, &node), join(&mut views, &node)];
            look(&mut views, &state, false);
            let mut one = one.into_body().into_data_stream();
            let first = one.next().await.unwrap().unwrap();
            assert_eq!(views.unread(), first.len());
            drop(other);
            let place = first.as_ptr();
            drop(first);
            assert_eq!(views.unread(), 0);

            let late = join(&mut views, &node);
            look(&mut views, &state, true);
            let mut late = late.into_body().into_data_stream();
            let first = late.next().await.unwrap().unwrap();
            assert_eq!((first.as_ptr(), views.unread()), (place, first.len()));
        });
    }

    /// W4: each visibility has its own changes, which are not shared.
    #[test]
    fn unread_changes_are_bounded_over_all_visibilities() {
        simulate(|node| async move {
            const PIECE: usize = 100_000;
            let (mut views, state) = (Views::new(99, Cuts::default()), Arc::new(state()));
            views.changes_max = 45 * PIECE;
            let mut streams: Vec<_> = (0..20)
                .map(|number| join_apart(&mut views, &node, number))
                .map(|response| response.into_body().into_data_stream())
                .collect();
            look(&mut views, &state, false);
            assert_eq!(views.all.len(), 20, "each sees something else");
            let mut held = 0;
            for _ in 0..10 {
                // One of them reads, and the others do not.
                while let Some(Some(piece)) = streams[7].next().now_or_never() {
                    piece.unwrap();
                }
                node.clock().sleep(Duration::from_secs(1)).await;
                let changed =
                    |_: &Visibility, _: &MasterState, _: &MasterState, _: &ByForm<bool>| {
                        let piece = || vec![Bytes::from(vec![b'x'; PIECE])];
                        Some(ByForm::make(|form| match form {
                            Form::Json => vec![piece().into()],
                            Form::Protobuf => Vec::new(),
                        }))
                    };
                let wanted = views.begin().into_iter();
                let got = wanted.map(|wanted| wanted.of(&state, changed, true));
                views.end(got.collect());
                assert!(views.changes.bytes() <= 45 * PIECE);
                held = views.changes.bytes().max(held);
            }
            assert!(held > 40 * PIECE, "{held}");
            // All have waited equally long: the oldest are cut off first, except the reader.
            let kept: Vec<u64> = views
                .all
                .iter()
                .map(|view| view.subscribers[0].number)
                .collect();
            assert_eq!(kept, [7, 16, 17, 18, 19]);
            let last = streams[0].next().await.unwrap().unwrap();
            let last = String::from_utf8_lossy(&last).into_owned();
            assert!(last.contains("all subscribers together"), "{last}");
            assert!(streams[0].next().await.is_none());
            streams.clear();
            views.forget_closed();
            assert_eq!(views.changes.bytes(), 0);
        });
    }

    /// W4: the cache is bounded for any number of visibilities, and all get their events.
    #[test]
    fn first_events_are_cached_within_a_bound() {
        simulate(|node| async move {
            let (mut views, state) = (Views::new(99, Cuts::default()), Arc::new(state()));
            let first = join_apart(&mut views, &node, 0);
            look(&mut views, &state, false);
            let length = views.unread();
            views.kept_max = 3 * length + length / 2;
            let others: Vec<_> = (1..9)
                .map(|number| join_apart(&mut views, &node, number))
                .collect();
            look(&mut views, &state, true);
            let kept = |view: &View| view.whole.of(Form::Json).is_some();
            assert_eq!(views.all.iter().filter(|view| kept(view)).count(), 3);
            for response in others.into_iter().chain([first]) {
                let mut stream = response.into_body().into_data_stream();
                assert!(!stream.next().await.unwrap().unwrap().is_empty());
            }
        });
    }

    #[test]
    fn cache_is_dropped_with_its_last_subscriber() {
        simulate(|node| async move {
            let (mut views, state) = (Views::new(9, Cuts::default()), Arc::new(state()));
            let [one, other] = [join(&mut views, &node), join(&mut views, &node)];
            look(&mut views, &state, false);
            drop(one);
            views.forget_closed();
            assert_eq!((views.len(), Arc::strong_count(&state)), (1, 2));
            drop(other);
            views.forget_closed();
            assert_eq!((views.len(), Arc::strong_count(&state)), (0, 1));
            // A joining subscriber is not forgotten.
            let _late = join(&mut views, &node);
            views.forget_closed();
            look(&mut views, &state, false);
            assert_eq!(views.len(), 1);
        });
    }
}
