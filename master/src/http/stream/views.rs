//! Who has subscribed to the operator API's events: those who see the same together, as one view.
//!
//! Plain data over the ends that are written to. Never waits and never asks anybody: who reads too slowly, or is one too many, is cut off.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use authority::Acls;
use bytes::Bytes;
use http::Source;
use http::api::{Batch, Events};
use runtime::Promise;
use v1::Form;
use v1::schema::master::EventLast;

use super::cuts::{Cut, Cuts};
use super::encoding::{ByForm, subscribed};
use super::unread::{Changes, Unread};
use super::viewer::Viewer;
use super::{NotNow, Subscribed, UNREAD_MAX};
use crate::books::Books;
use crate::sight::Sight;

/// Somebody who has subscribed.
#[derive(Debug)]
struct Subscriber {
    /// Rises with each that comes.
    number: u64,
    viewer: Viewer,
    events: Events,
}

impl Subscriber {
    /// It hears this reason, and nothing more.
    fn cut(&self, cut: Cut, details: &str, cuts: &Cuts) {
        cuts.note(cut, self.number, &self.viewer, details);
        let last = EventLast::because(format!("Disconnected: {details}"));
        self.events.cut(Some(&last));
    }
}

/// Somebody who waits for the first event.
type Joining = (Viewer, Events, Promise<Subscribed>);

/// All who see the same.
struct View {
    sight: Sight,
    /// What they know; none before the first of them has been told anything.
    books: Option<Arc<Books>>,
    /// The first event of who subscribes while the books are so.
    whole: ByForm<Option<Bytes>>,
    subscribers: Vec<Subscriber>,
    joining: Vec<Joining>,
    /// How many of those that wait are served by the look that is under way.
    served: usize,
}

/// What one view needs of a look at the books.
pub(super) struct Wanted {
    sight: Sight,
    before: Option<Arc<Books>>,
    whole: ByForm<Option<Bytes>>,
    /// Whether somebody in it reads this form.
    told: ByForm<bool>,
    /// Whether somebody who reads this form is to be told how all is.
    begun: ByForm<bool>,
}

/// What it got.
pub(super) struct Got {
    books: Arc<Books>,
    /// What has changed; none if that cannot be known.
    changed: Option<ByForm<Vec<Batch>>>,
    whole: ByForm<Option<Bytes>>,
}

impl Wanted {
    /// What of these books is for this view, where `changes` tells the records between two books that it sees.
    pub fn of(
        self,
        now: &Arc<Books>,
        changes: impl FnOnce(&Sight, &Books, &Books, &ByForm<bool>) -> Option<ByForm<Vec<Batch>>>,
        is_same: bool,
    ) -> Got {
        let books = match &self.before {
            Some(before) if is_same => before.clone(),
            _ => self.sight.books(now),
        };
        let is_known = |before: &Arc<Books>| Arc::ptr_eq(before, &books);
        let known = match self.before.as_ref().is_some_and(is_known) {
            true => self.whole,
            false => ByForm::default(),
        };
        let changed = match &self.before {
            Some(before) => changes(&self.sight, before, &books, &self.told),
            None => None,
        };
        let whole = ByForm::make(|form| match (known.of(form), self.begun.of(form)) {
            (Some(whole), _) => Some(whole.clone()),
            (None, true) => Some(subscribed(form, &books)),
            (None, false) => None,
        });
        Got {
            books,
            changed,
            whole,
        }
    }
}

/// All of them.
pub(super) struct Views {
    all: Vec<View>,
    /// The most subscribers.
    max: usize,
    next: u64,
    /// The first events that they have still to read.
    unread: Unread,
    /// The changes that they have still to read, and the most bytes of them: each view has its own.
    changes: Changes,
    changes_max: usize,
    /// The most bytes of first events that are kept for who comes next: each view has its own.
    kept_max: usize,
    cuts: Cuts,
}

impl Views {
    /// None yet; so many subscribers at most. Who is cut off is noted in `cuts`.
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

    /// How many have subscribed.
    pub fn len(&self) -> usize {
        self.all.iter().map(|view| view.subscribers.len()).sum()
    }

    /// Whether nobody has subscribed, nor waits to.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.is_joined()
    }

    /// How many bytes of first events they have still to read.
    pub fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Whether somebody waits for the first event.
    pub fn is_joined(&self) -> bool {
        self.all.iter().any(|view| !view.joining.is_empty())
    }

    /// Somebody waits for the first event.
    pub fn join(&mut self, viewer: Viewer, events: Events, promise: Promise<Subscribed>) {
        let mut sights = self.all.iter().map(|view| &view.sight);
        let place = sights.position(|sight| sight == viewer.sight());
        let place = place.unwrap_or_else(|| {
            self.all.push(View {
                sight: viewer.sight().clone(),
                books: None,
                whole: ByForm::default(),
                subscribers: Vec::new(),
                joining: Vec::new(),
                served: 0,
            });
            self.all.len() - 1
        });
        self.all[place].joining.push((viewer, events, promise));
    }

    /// A look begins: what each view needs of it, in their order.
    pub fn begin(&mut self) -> Vec<Wanted> {
        let wanted = |view: &mut View| {
            view.served = view.joining.len();
            let (joining, subscribers) = (&view.joining, &view.subscribers);
            let reads = |form: Form| subscribers.iter().any(|one| one.events.form() == form);
            let begins = |form: Form| joining.iter().any(|(_, events, _)| events.form() == form);
            Wanted {
                sight: view.sight.clone(),
                before: view.books.clone(),
                whole: view.whole.clone(),
                told: ByForm::make(reads),
                begun: ByForm::make(begins),
            }
        };
        self.all.iter_mut().map(wanted).collect()
    }

    /// The look that began last is over. Those who know the rest are told what has changed, and those who are new all of it.
    pub fn end(&mut self, got: Vec<Got>) {
        let mut room = self.kept_max;
        for (view, got) in self.all.iter_mut().zip(got) {
            match &got.changed {
                Some(changed) => {
                    let noted = |form| changed.of(form).iter().map(|one| self.changes.note(one));
                    let changed = ByForm::make(|form| noted(form).collect());
                    view.tell(&changed, &self.cuts);
                }
                // They would miss something: they subscribe again, and know all.
                None => view.cut(&self.cuts),
            }
            let waiting = view.joining.split_off(view.served.min(view.joining.len()));
            for (viewer, events, promise) in std::mem::replace(&mut view.joining, waiting) {
                let Some(whole) = got.whole.of(events.form()) else {
                    continue;
                };
                // Whoever has gone meanwhile needs no answer.
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
            (view.books, view.whole) = (Some(got.books), within(&mut room, &got.whole));
        }
        while self.len() > self.max {
            self.cut_oldest();
        }
        self.cut_slowest();
        self.all.retain(View::is_wanted);
    }

    /// All who have subscribed are told these records.
    pub fn tell(&mut self, records: &ByForm<Vec<Batch>>) {
        let cuts = &self.cuts;
        self.all
            .iter_mut()
            .for_each(|view| view.tell(records, cuts));
    }

    /// Those that have gone are forgotten, with what was kept for them. Not while a look is under way, which knows the views by their order.
    pub fn forget_gone(&mut self) {
        for view in &mut self.all {
            view.subscribers.retain(|one| !one.events.is_closed());
        }
        self.all.retain(View::is_wanted);
    }

    /// Who has subscribed and sees something else by these ACLs is cut off: it subscribes again, and is told that.
    pub fn judge(&mut self, acls: &Arc<Acls>) {
        let cuts = &self.cuts;
        self.all.iter_mut().for_each(|view| view.judge(acls, cuts));
    }

    /// All who have subscribed are cut off; those that wait still do.
    pub fn cut(&mut self) {
        let cuts = &self.cuts;
        self.all.iter_mut().for_each(|view| view.cut(cuts));
    }

    /// Nobody can subscribe.
    pub fn refuse(&mut self, why: &NotNow) {
        for (_, _, promise) in self.all.iter_mut().flat_map(|view| view.joining.drain(..)) {
            promise.answer(Err(why.clone()));
        }
        self.all.retain(|view| !view.subscribers.is_empty());
    }

    /// While all together leave too much of changes unread, who has waited longest before reading, or for the most, is cut off.
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
                "{bytes} bytes of events wait to be read by all subscribers together, which are more than {max}, and this one is the slowest"
            );
            for view in &mut self.all {
                let slowest = view.subscribers.extract_if(.., |one| one.number == number);
                slowest.for_each(|one| one.cut(Cut::Slow, &reason, &self.cuts));
            }
        }
    }

    /// Cuts off the oldest subscriber of the address that has most of them, so a flood from one address costs no other its own.
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
        let most = format!("a newer one has come, and {} are the most", self.max);
        for view in &mut self.all {
            let oldest = view.subscribers.extract_if(.., |one| one.number == number);
            oldest.for_each(|one| one.cut(Cut::Oldest, &most, &self.cuts));
        }
    }
}

/// Of these first events what there is room for, less than before by that much. What is not kept is made anew for who comes next.
fn within(room: &mut usize, whole: &ByForm<Option<Bytes>>) -> ByForm<Option<Bytes>> {
    ByForm::make(|form| {
        let whole = whole.of(form).as_ref()?;
        *room = room.checked_sub(whole.len())?;
        Some(whole.clone())
    })
}

impl View {
    /// Whether somebody has subscribed, or waits to.
    fn is_wanted(&self) -> bool {
        !self.subscribers.is_empty() || !self.joining.is_empty()
    }

    /// All are told these records; those that have gone are forgotten, and those that lag behind cut off.
    fn tell(&mut self, records: &ByForm<Vec<Batch>>, cuts: &Cuts) {
        self.subscribers.retain(|one| {
            let events = &one.events;
            // What was unread before: nobody can have read these records yet.
            if let Some(reason) = events.lag() {
                one.cut(Cut::Slow, &reason.to_string(), cuts);
                return false;
            }
            let mut records = records.of(events.form()).iter();
            records.all(|batch| events.write_batch(batch).is_ok()) && !events.is_closed()
        });
    }

    /// Who sees something else by these ACLs is cut off, without what it has not read yet.
    fn judge(&mut self, acls: &Arc<Acls>, cuts: &Cuts) {
        self.subscribers.retain_mut(|one| {
            let sees_the_same = one.viewer.judge(acls);
            if !sees_the_same {
                one.cut(Cut::Sight, "it sees something else now", cuts);
            }
            sees_the_same
        });
    }

    fn cut(&mut self, cuts: &Cuts) {
        for one in self.subscribers.drain(..) {
            let missed =
                "another master leads, or this one was late: what has changed is not known";
            one.cut(Cut::Missed, missed, cuts);
        }
        self.books = None;
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
    use http::api::Streams;
    use runtime::Node;
    use runtime::rehearsal::rehearse;
    use v1::Content;

    use super::super::BOUNDS;
    use super::*;
    use crate::mirror::tests::laws::books;

    /// Somebody joins who sees everything: the stream that it reads.
    fn join(views: &mut Views, node: &Node) -> Response {
        let (events, response) = Streams::new(node).open(Content::One(Form::Json), BOUNDS);
        let sight = Sight::of(&Acls::default(), &Subject::default());
        views.join(sight.into(), events, runtime::promise().0);
        response
    }

    /// Somebody joins who sees the tasks of one user, whom nobody else sees.
    fn join_apart(views: &mut Views, node: &Node, number: u32) -> Response {
        let (events, response) = Streams::new(node).open(Content::One(Form::Json), BOUNDS);
        let rule = format!(
            r#"{{"view_tasks":[{{"principals":{{"type":"ANY"}},"users":{{"values":["user-{number}"]}}}}]}}"#
        );
        let sight = Sight::of(&Acls::parse(&rule).unwrap(), &Subject::default());
        views.join(sight.into(), events, runtime::promise().0);
        response
    }

    #[test]
    fn one_address_takes_no_others_place_among_subscribers() {
        rehearse(|node| async move {
            let mut views = Views::new(3, Cuts::default());
            let books = Arc::new(books());
            let joins = |views: &mut Views, host: u8| {
                let (events, response) = Streams::new(&node).open(Content::One(Form::Json), BOUNDS);
                let viewer = Viewer::from(Sight::of(&Acls::default(), &Subject::default()));
                let source = Source::from(IpAddr::from([10, 0, 0, host]));
                views.join(viewer.at(Some(source)), events, runtime::promise().0);
                look(views, &books, false);
                response
            };
            let _streams = [1, 2, 2, 2, 2, 2].map(|host| joins(&mut views, host));
            let left = views.all.iter().flat_map(|view| &view.subscribers);
            let left: Vec<_> = left.map(|one| one.number).collect();
            assert_eq!(left, [0, 4, 5]);
        });
    }

    /// A look at these books.
    fn look(views: &mut Views, books: &Arc<Books>, is_same: bool) {
        let nothing = |_: &Sight, _: &Books, _: &Books, _: &ByForm<bool>| Some(ByForm::default());
        let wanted = views.begin().into_iter();
        let got = wanted.map(|wanted| wanted.of(books, nothing, is_same));
        let got = got.collect();
        views.end(got);
    }

    #[test]
    fn what_was_read_is_not_unread_though_it_is_kept_for_who_comes_next() {
        rehearse(|node| async move {
            let (mut views, books) = (Views::new(9, Cuts::default()), Arc::new(books()));
            let [one, other] = [join(&mut views, &node), join(&mut views, &node)];
            look(&mut views, &books, false);
            let mut one = one.into_body().into_data_stream();
            let first = one.next().await.unwrap().unwrap();
            assert_eq!(views.unread(), first.len());
            drop(other);
            let place = first.as_ptr();
            drop(first);
            assert_eq!(views.unread(), 0);

            let late = join(&mut views, &node);
            look(&mut views, &books, true);
            let mut late = late.into_body().into_data_stream();
            let first = late.next().await.unwrap().unwrap();
            assert_eq!((first.as_ptr(), views.unread()), (place, first.len()));
        });
    }

    /// W4: each sight has changes of its own, which nobody shares.
    #[test]
    fn however_many_see_each_something_else_what_they_leave_unread_together_is_bounded() {
        rehearse(|node| async move {
            const PIECE: usize = 100_000;
            let (mut views, books) = (Views::new(99, Cuts::default()), Arc::new(books()));
            views.changes_max = 45 * PIECE;
            let mut streams: Vec<_> = (0..20)
                .map(|number| join_apart(&mut views, &node, number))
                .map(|response| response.into_body().into_data_stream())
                .collect();
            look(&mut views, &books, false);
            assert_eq!(views.all.len(), 20, "each sees something else");
            let mut held = 0;
            for _ in 0..10 {
                // One of them reads, and the others do not.
                while let Some(Some(piece)) = streams[7].next().now_or_never() {
                    piece.unwrap();
                }
                node.clock().sleep(Duration::from_secs(1)).await;
                let changed = |_: &Sight, _: &Books, _: &Books, _: &ByForm<bool>| {
                    let piece = || vec![Bytes::from(vec![b'x'; PIECE])];
                    Some(ByForm::make(|form| match form {
                        Form::Json => vec![piece().into()],
                        Form::Protobuf => Vec::new(),
                    }))
                };
                let wanted = views.begin().into_iter();
                let got = wanted.map(|wanted| wanted.of(&books, changed, true));
                views.end(got.collect());
                assert!(views.changes.bytes() <= 45 * PIECE);
                held = views.changes.bytes().max(held);
            }
            assert!(held > 40 * PIECE, "{held}");
            // All wait for as long: those who came first are cut off first, but who reads.
            let kept: Vec<u64> = views
                .all
                .iter()
                .map(|view| view.subscribers[0].number)
                .collect();
            assert_eq!(kept, [7, 16, 17, 18, 19]);
            let last = streams[0].next().await.unwrap().unwrap();
            let last = String::from_utf8_lossy(&last).into_owned();
            assert!(last.contains("by all subscribers together"), "{last}");
            assert!(streams[0].next().await.is_none());
            streams.clear();
            views.forget_gone();
            assert_eq!(views.changes.bytes(), 0);
        });
    }

    /// W4: however many see each something else, what is kept for who comes next is bounded, and they are told all the same.
    #[test]
    fn first_events_are_kept_as_far_as_there_is_room() {
        rehearse(|node| async move {
            let (mut views, books) = (Views::new(99, Cuts::default()), Arc::new(books()));
            let first = join_apart(&mut views, &node, 0);
            look(&mut views, &books, false);
            let length = views.unread();
            views.kept_max = 3 * length + length / 2;
            let others: Vec<_> = (1..9)
                .map(|number| join_apart(&mut views, &node, number))
                .collect();
            look(&mut views, &books, true);
            let kept = |view: &View| view.whole.of(Form::Json).is_some();
            assert_eq!(views.all.iter().filter(|view| kept(view)).count(), 3);
            for response in others.into_iter().chain([first]) {
                let mut stream = response.into_body().into_data_stream();
                assert!(!stream.next().await.unwrap().unwrap().is_empty());
            }
        });
    }

    #[test]
    fn with_the_last_who_sees_the_same_goes_what_was_kept_for_them() {
        rehearse(|node| async move {
            let (mut views, books) = (Views::new(9, Cuts::default()), Arc::new(books()));
            let [one, other] = [join(&mut views, &node), join(&mut views, &node)];
            look(&mut views, &books, false);
            drop(one);
            views.forget_gone();
            assert_eq!((views.len(), Arc::strong_count(&books)), (1, 2));
            drop(other);
            views.forget_gone();
            assert_eq!((views.len(), Arc::strong_count(&books)), (0, 1));
            // Who waits is not forgotten.
            let _late = join(&mut views, &node);
            views.forget_gone();
            look(&mut views, &books, false);
            assert_eq!(views.len(), 1);
        });
    }
}
