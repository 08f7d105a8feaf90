//! Refused: who refused what on one agent, laid out so that a run sees hundreds of clients at a glance.
//!
//! Pure. Remembers each client's [`Filters`], and of many clients a bit for each that refused what was refused last: who declines in turn
//! declines the same, and then one look tells for all of them. Never reads a clock: who asks says what time it is.

use std::hash::BuildHasher;
use std::sync::Arc;

use module_api::sorter::Client;
use resources::Resources;
use runtime::Instant;
use rustc_hash::FxBuildHasher;

use super::bits::Bits;
use super::filter::Filters;

/// With fewer clients than this they are looked at one by one.
const GLANCE_MIN: usize = 16;

/// How many different refusals are remembered, to be shared by whoever refuses the same elsewhere; a power of two.
const KNOWN: usize = 256;
/// What has more entries is not among them.
const KNOWN_ENTRIES_MAX: usize = 16;

/// What was refused on any agent of late. Many agents are alike, and where quota cuts offers a few different ones are declined everywhere: what
/// is refused alike is one value, and a look at it tells for all of them.
#[derive(Clone, Debug, Default)]
pub struct Known(Vec<Option<Arc<Resources>>>);

impl Known {
    /// The value to be shared with whoever has refused the same of late.
    fn share(&mut self, refused: Resources) -> Arc<Resources> {
        if refused.len() > KNOWN_ENTRIES_MAX {
            return Arc::new(refused);
        }
        self.0.resize(KNOWN, None);
        let place = FxBuildHasher.hash_one(&refused) as usize % KNOWN;
        match &mut self.0[place] {
            Some(known) if **known == refused => known.clone(),
            other => other.insert(Arc::new(refused)).clone(),
        }
    }
}

/// Who refused what on one agent. With nothing in it, it is one pointer: there are very many agents.
#[derive(Clone, Debug, Default)]
pub struct Refused(Option<Box<Table>>);

/// The two lists are of equal length and in no order: of hundreds of clients the newest is put at the end, and nothing is moved.
#[derive(Clone, Debug)]
struct Table {
    clients: Vec<Client>,
    filters: Vec<Filters>,
    /// What was refused last: who refuses the same shares it.
    last: Arc<Resources>,
    /// Who refused just that; not known where there are few.
    same: Option<Bits>,
}

/// What many clients refused alike.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    /// What.
    pub refused: &'a Resources,
    /// Who; each of them has a filter that hides this, unless it has ended.
    pub same: &'a Bits,
    /// How many clients have filters here and are not among them.
    pub others: usize,
}

impl Refused {
    /// What this client refused.
    pub fn get(&self, client: Client) -> Option<&Filters> {
        let table = self.0.as_deref()?;
        table.place(client).map(|at| &table.filters[at])
    }

    /// All who refused something, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &Filters)> {
        let table = self.0.as_deref().into_iter();
        table.flat_map(|table| table.clients.iter().copied().zip(&table.filters))
    }

    /// Whether nobody refused anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What many refused alike, if there are many.
    pub fn glance(&self) -> Option<Glance<'_>> {
        let table = self.0.as_deref()?;
        let same = table.same.as_ref()?;
        Some(Glance {
            refused: &table.last,
            same,
            others: table.clients.len() - same.count(),
        })
    }

    /// The client refuses this until then, which may be among what is known. Gives when the first of its filters ended before, and when it does now.
    pub fn add(
        &mut self,
        client: Client,
        refused: Resources,
        until: Instant,
        known: &mut Known,
    ) -> [Option<Instant>; 2] {
        let table = self.0.get_or_insert_with(|| Box::new(Table::new()));
        if *table.last != refused {
            table.last = known.share(refused);
            table.same.iter_mut().for_each(Bits::clear);
        }
        let at = table.admit(client);
        let before = table.filters[at].first_end();
        table.filters[at].add(table.last.clone(), until);
        table.note(at);
        [before, table.filters[at].first_end()]
    }

    /// The client refused this before the agent was told anew.
    pub fn restore(&mut self, client: Client, filters: Filters) {
        let table = self.0.get_or_insert_with(|| Box::new(Table::new()));
        let at = table.admit(client);
        table.filters[at] = filters;
        table.note(at);
    }

    /// Lets go of what this client refused.
    pub fn remove(&mut self, client: Client) -> Option<Filters> {
        let table = self.0.as_deref_mut()?;
        let at = table.place(client)?;
        table.clients.swap_remove(at);
        let filters = table.filters.swap_remove(at);
        if let Some(same) = &mut table.same {
            same.remove(client);
        }
        if table.clients.is_empty() {
            self.0 = None;
        }
        Some(filters)
    }

    /// Lets go of what of this client's refusals has ended; gives when the first of the others does. `None` if the client refused nothing.
    pub fn expire(&mut self, client: Client, now: Instant) -> Option<Option<Instant>> {
        let table = self.0.as_deref_mut()?;
        let at = table.place(client)?;
        table.filters[at].expire(now);
        let end = table.filters[at].first_end();
        match end {
            Some(_) => table.note(at),
            None => drop(self.remove(client)),
        }
        Some(end)
    }
}

impl Table {
    fn new() -> Self {
        Self {
            // One at first: a list begins with room for four, and there is one for each agent.
            clients: Vec::with_capacity(1),
            filters: Vec::with_capacity(1),
            last: Arc::default(),
            same: None,
        }
    }

    fn place(&self, client: Client) -> Option<usize> {
        self.clients.iter().position(|own| *own == client)
    }

    /// The place of this client, made if it has none.
    fn admit(&mut self, client: Client) -> usize {
        self.place(client).unwrap_or_else(|| {
            self.clients.push(client);
            self.filters.push(Filters::default());
            self.clients.len() - 1
        })
    }

    /// The filters at this place have changed: whether their client is seen at a glance is as they say.
    fn note(&mut self, at: usize) {
        if self.clients.len() < GLANCE_MIN {
            self.same = None;
            return;
        }
        let (clients, last) = (&self.clients, &self.last);
        let each = clients.iter().copied().zip(&self.filters);
        let mut changed = each.clone().skip(at).take(1);
        let same = self.same.get_or_insert_with(|| {
            let same = each.filter(|(_, filters)| filters.has(last));
            same.map(|(client, _)| client).collect()
        });
        if let Some((client, filters)) = changed.next() {
            match filters.has(last) {
                true => same.insert(client),
                false => same.remove(client),
            };
        }
    }
}

impl IntoIterator for Refused {
    type Item = (Client, Filters);
    type IntoIter = std::iter::Zip<std::vec::IntoIter<Client>, std::vec::IntoIter<Filters>>;

    fn into_iter(self) -> Self::IntoIter {
        let (clients, filters) = self
            .0
            .map_or_else(Default::default, |table| (table.clients, table.filters));
        clients.into_iter().zip(filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn resources(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    /// Who is seen at a glance, and how many are not.
    fn seen(refused: &Refused) -> Option<(Vec<Client>, usize)> {
        let glance = refused.glance()?;
        let same = (0..100).filter(|client| glance.same.has(*client));
        Some((same.collect(), glance.others))
    }

    #[test]
    fn many_who_refuse_the_same_are_seen_at_a_glance_and_few_are_not() {
        let (mut refused, mut known) = (Refused::default(), Known::default());
        for client in 0..15 {
            refused.add(client, resources("cpus:4"), at(5), &mut known);
        }
        assert_eq!(seen(&refused), None, "few");
        refused.add(15, resources("cpus:4"), at(5), &mut known);
        assert_eq!(seen(&refused), Some(((0..16).collect(), 0)));
        assert_eq!(*refused.glance().unwrap().refused, resources("cpus:4"));
        refused.add(20, resources("cpus:2"), at(5), &mut known);
        assert_eq!(seen(&refused), Some((vec![20], 16)), "the last counts");
        refused.add(21, resources("cpus:2"), at(5), &mut known);
        // What client 3 refused before covers it for longer, so that this is not kept.
        refused.add(3, resources("cpus:2"), at(4), &mut known);
        assert_eq!(seen(&refused), Some((vec![20, 21], 16)));
    }

    #[test]
    fn who_has_no_filter_any_more_is_not_seen() {
        let (mut refused, mut known) = (Refused::default(), Known::default());
        for client in 0..20 {
            let until = at(5 + u64::from(client));
            assert_eq!(
                refused.add(client, resources("cpus:4"), until, &mut known),
                [None, Some(until)]
            );
        }
        assert_eq!(refused.expire(30, at(5)), None, "it never refused anything");
        assert_eq!(refused.expire(0, at(5)), Some(None));
        assert_eq!(refused.expire(1, at(5)), Some(Some(at(6))));
        assert!(refused.remove(7).is_some() && refused.remove(7).is_none());
        let left: Vec<Client> = (1..20).filter(|client| *client != 7).collect();
        assert_eq!(seen(&refused), Some((left.clone(), 0)));
        assert!(refused.get(0).is_none() && refused.get(19).is_some());
        let mut listed: Vec<Client> = refused.iter().map(|(client, _)| client).collect();
        listed.sort_unstable();
        assert_eq!(listed, left);
        left.iter().for_each(|client| drop(refused.remove(*client)));
        assert!(refused.is_empty() && seen(&refused).is_none());
    }

    #[test]
    fn filters_that_are_put_back_hide_as_before() {
        let (mut before, mut known) = (Refused::default(), Known::default());
        for client in 0..20 {
            before.add(client, resources("cpus:4"), at(5), &mut known);
        }
        let mut after = Refused::default();
        for (client, filters) in before {
            after.restore(client, filters);
        }
        let offered = resources("cpus:1");
        let hides = |filters: &Filters| filters.hide(at(4), |own| own.contains(&offered));
        assert!((0..20).all(|client| after.get(client).is_some_and(hides)));
        after.add(2, resources("cpus:8"), at(9), &mut known);
        assert_eq!(seen(&after), Some((vec![2], 19)));
    }

    #[test]
    fn what_is_refused_alike_on_many_agents_is_one_value_and_what_is_large_is_not_kept_for_it() {
        let (mut agents, mut known) = (vec![Refused::default(); 50], Known::default());
        for (n, agent) in (0..).zip(&mut agents) {
            agent.add(n, resources("cpus:4;mem:8"), at(5), &mut known);
            agent.add(n + 50, resources("cpus:2"), at(5), &mut known);
        }
        let of = |n: usize, client| agents[n].get(client).unwrap();
        let first = &of(0, 0).clone();
        assert!((1..50).all(|n| of(n as usize, n) == first && of(n as usize, n + 50) != first));
        let mut alike = Vec::new();
        for agent in &agents {
            let mut all = agent.iter().map(|(_, filters)| filters);
            all.next().unwrap().hide(at(0), |refused| {
                alike.push(Arc::as_ptr(refused));
                true
            });
        }
        alike.dedup();
        assert_eq!(alike.len(), 1);
        let many: Vec<String> = (0..40).map(|n| format!("thing{n}:1")).collect();
        let many = resources(&many.join(";"));
        assert!(!Arc::ptr_eq(&known.share(many.clone()), &known.share(many)));
        assert!(known.0.len() == KNOWN && known.0.iter().flatten().count() <= 2);
    }
}
