//! Depth-first search for an order of calls that explains every answer (Wing and Gong; Lowe's
//! cache).
//!
//! Sets of taken calls are cached with the state they lead to, so that no such pair is searched
//! twice. A call without effect is taken as soon as it fits, an unknown call only where it changes
//! the state, and of several unknown calls with the same request only the first. The number of
//! states is bounded.

use std::cmp::Ordering;

use rustc_hash::FxHashSet;

use super::{Call, Model};

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is an order.
    Order,
    /// There is none. These calls are of the attempt that explained the most answers.
    None {
        /// In the order of the attempt.
        ordered: Vec<usize>,
        /// None of these could be next.
        blocked: Vec<usize>,
    },
    /// The bound of states was reached.
    GaveUp,
}

/// One call in the search.
struct Item<'a, M: Model> {
    operation: &'a M::Operation,
    answer: Option<&'a M::Answer>,
    invoked: usize,
    /// The index of its answer's report; the maximum for an unknown one.
    answered: usize,
    /// The unknown call before it with the same request.
    twin: Option<usize>,
}

/// A list of calls in the order of their invocations. Calls can be removed and put back, the last
/// removed first.
struct Links {
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Links {
    /// A list of these out of `count` calls. Index `count` is the list's border.
    fn of(calls: impl Iterator<Item = usize>, count: usize) -> Self {
        let mut links = Self {
            next: vec![count; count + 1],
            before: vec![count; count + 1],
        };
        let mut last = count;
        for call in calls {
            links.next[last] = call;
            links.before[call] = last;
            last = call;
        }
        links.before[count] = last;
        links
    }

    fn border(&self) -> usize {
        self.next.len() - 1
    }

    fn is_empty(&self) -> bool {
        self.next[self.border()] == self.border()
    }

    fn take(&mut self, call: usize) {
        let (before, next) = (self.before[call], self.next[call]);
        self.next[before] = next;
        self.before[next] = before;
    }

    fn put_back(&mut self, call: usize) {
        let (before, next) = (self.before[call], self.next[call]);
        self.next[before] = call;
        self.before[next] = call;
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let border = self.border();
        let mut at = border;
        std::iter::from_fn(move || {
            at = self.next[at];
            (at != border).then_some(at)
        })
    }
}

/// A set of calls.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Taken(Box<[u64]>);

impl Taken {
    fn has(&self, call: usize) -> bool {
        self.0[call / 64] & (1 << (call % 64)) != 0
    }

    fn flip(&mut self, call: usize) {
        self.0[call / 64] ^= 1 << (call % 64);
    }
}

/// A choice, and its alternatives.
struct Choice<S> {
    taken: usize,
    others: Vec<(usize, S)>,
}

/// One search.
pub(super) struct Search<'a, M: Model> {
    model: &'a M,
    items: Vec<Item<'a, M>>,
    known: Links,
    unknown: Links,
    taken: Taken,
    /// The positions of known answers, sorted.
    places: Vec<u64>,
    seen: FxHashSet<(Taken, M::State)>,
    choices: Vec<Choice<M::State>>,
    best: (Vec<usize>, Vec<usize>),
    /// The number of visited states.
    pub(super) states: usize,
}

impl<'a, M: Model> Search<'a, M> {
    /// The search over those of `calls` that began among the first `reports` of their history.
    /// Later answers are unknown.
    pub(super) fn new(
        model: &'a M,
        calls: &[&'a Call<M::Operation, M::Answer>],
        reports: usize,
    ) -> Self {
        let item = |call: &&'a Call<M::Operation, M::Answer>| {
            let answer = call.answer_within(reports);
            Item {
                operation: &call.operation,
                answer,
                invoked: call.report,
                answered: answer.and(call.answered()).unwrap_or(usize::MAX),
                twin: None,
            }
        };
        let begun = calls.iter().take_while(|call| call.report < reports);
        let mut items: Vec<Item<'a, M>> = begun.map(item).collect();
        let count = items.len();
        let (known, unknown): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|call| items[*call].answer.is_some());
        for (number, call) in unknown.iter().enumerate() {
            let same = |other: &&usize| items[**other].operation == items[*call].operation;
            items[*call].twin = unknown[..number].iter().rev().find(same).copied();
        }
        let answers = items.iter().filter_map(|item| item.answer);
        let mut places: Vec<u64> = answers.filter_map(|answer| model.place(answer)).collect();
        places.sort_unstable();
        Self {
            model,
            known: Links::of(known.into_iter(), count),
            unknown: Links::of(unknown.into_iter(), count),
            taken: Taken(vec![0; count.div_ceil(64)].into()),
            items,
            places,
            seen: FxHashSet::default(),
            choices: Vec::new(),
            best: (Vec::new(), Vec::new()),
            states: 0,
        }
    }

    /// Searches from `state`, visiting at most `states_max` states.
    pub(super) fn run(&mut self, mut state: M::State, states_max: usize) -> Found {
        while !self.known.is_empty() {
            if self.states >= states_max {
                return Found::GaveUp;
            }
            self.states += 1;
            let mut next = match self.destined(&state) {
                Some(call) => self.advanced(call, state),
                None => {
                    let mut next = self.next(&state);
                    if next.len() > 1 && !self.seen.insert((self.taken.clone(), state)) {
                        next.clear();
                    } else if next.is_empty() {
                        self.note_dead_end();
                    }
                    next
                }
            };
            let (call, after) = loop {
                if let Some(choice) = next.pop() {
                    break choice;
                }
                let Some(choice) = self.choices.pop() else {
                    let (ordered, blocked) = std::mem::take(&mut self.best);
                    return Found::None { ordered, blocked };
                };
                self.put_back(choice.taken);
                next = choice.others;
            };
            self.take(call);
            self.choices.push(Choice {
                taken: call,
                others: next,
            });
            state = after;
        }
        Found::Order
    }

    /// The only call that can be next, by the positions of answers: one has the next position, and
    /// calls with other positions cannot take it.
    fn destined(&self, state: &M::State) -> Option<usize> {
        let place = self.model.next_place(state)?;
        let mut answered_first = usize::MAX;
        let mut destined = None;
        for call in self.known.iter() {
            let item = &self.items[call];
            if item.invoked > answered_first {
                break;
            }
            answered_first = answered_first.min(item.answered);
            // A call without a position, or with an earlier one, requires the full search.
            let its_place = item.answer.and_then(|answer| self.model.place(answer))?;
            match its_place.cmp(&place) {
                Ordering::Less => return None,
                Ordering::Equal if destined.replace(call).is_some() => return None,
                Ordering::Equal | Ordering::Greater => {}
            }
        }
        destined
    }

    /// The only call that can be next, with the state after it; empty if its answer does not fit.
    fn advanced(&mut self, call: usize, state: M::State) -> Vec<(usize, M::State)> {
        let item = &self.items[call];
        let after = item
            .answer
            .and_then(|answer| self.model.advance(state, item.operation, answer));
        if after.is_none() {
            self.note_dead_end();
        }
        after.map(|after| (call, after)).into_iter().collect()
    }

    /// The calls that may be next, with the state after each; the likeliest last.
    fn next(&self, state: &M::State) -> Vec<(usize, M::State)> {
        let mut answered_first = usize::MAX;
        let mut next = Vec::new();
        for call in self.known.iter() {
            let item = &self.items[call];
            if item.invoked > answered_first {
                break;
            }
            answered_first = answered_first.min(item.answered);
            let Some(answer) = item.answer else { continue };
            if self.model.too_late(state, answer) {
                return Vec::new();
            }
            if let Some(after) = self.model.step(state, item.operation, Some(answer)) {
                if self.model.only_looks(item.operation, answer) {
                    return vec![(call, after)];
                }
                next.push((call, after));
            }
        }
        // The call that was answered first has probably taken effect first.
        next.sort_by_key(|(call, _)| std::cmp::Reverse(self.items[*call].answered));
        let claimed = |place| self.places.binary_search(&place).is_ok();
        if self.model.next_place(state).is_some_and(claimed) {
            return next;
        }
        let mut unknown = Vec::new();
        for call in self.unknown.iter() {
            let item = &self.items[call];
            if item.invoked > answered_first {
                break;
            }
            if item.twin.is_some_and(|twin| !self.taken.has(twin)) {
                continue;
            }
            let after = self.model.step(state, item.operation, None);
            unknown.extend(
                after
                    .filter(|after| after != state)
                    .map(|after| (call, after)),
            );
        }
        // A recent unknown call has more probably taken effect than an old one, and an answered one
        // more than either.
        unknown.extend(next);
        unknown
    }

    fn list(&mut self, call: usize) -> &mut Links {
        match self.items[call].answer {
            Some(_) => &mut self.known,
            None => &mut self.unknown,
        }
    }

    fn take(&mut self, call: usize) {
        self.taken.flip(call);
        self.list(call).take(call);
    }

    fn put_back(&mut self, call: usize) {
        self.taken.flip(call);
        self.list(call).put_back(call);
    }

    fn note_dead_end(&mut self) {
        if !self.best.1.is_empty() && self.choices.len() <= self.best.0.len() {
            return;
        }
        let mut answered_first = usize::MAX;
        let mut blocked = Vec::new();
        for call in self.known.iter() {
            if self.items[call].invoked > answered_first {
                break;
            }
            answered_first = answered_first.min(self.items[call].answered);
            blocked.push(call);
        }
        let ordered = self.choices.iter().map(|choice| choice.taken).collect();
        self.best = (ordered, blocked);
    }
}
