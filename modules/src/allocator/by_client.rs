//! A small map by client, as a sorted list: most agents have one or two entries, and there are very
//! many agents.

use module_api::sorter::Client;

/// Values by client, in the clients' order.
#[derive(Clone, Debug, PartialEq)]
pub struct ByClient<T>(Vec<(Client, T)>);

impl<T> Default for ByClient<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByClient<T> {
    /// This client's value.
    pub fn get(&self, client: Client) -> Option<&T> {
        self.seek(client).ok().map(|at| &self.0[at].1)
    }

    /// This client's value, mutable.
    pub fn get_mut(&mut self, client: Client) -> Option<&mut T> {
        self.seek(client).ok().map(|at| &mut self.0[at].1)
    }

    /// This client's value, made by `make` if there is none, and whether it was made.
    pub fn admit(&mut self, client: Client, make: impl FnOnce() -> T) -> (&mut T, bool) {
        let (at, new) = match self.seek(client) {
            Ok(at) => (at, false),
            Err(gap) => {
                // Capacity one at first: the default is four, and there is one list for each agent.
                if self.0.len() == self.0.capacity() {
                    self.0.reserve_exact(self.0.len().max(1));
                }
                self.0.insert(gap, (client, make()));
                (gap, true)
            }
        };
        (&mut self.0[at].1, new)
    }

    /// Removes and returns this client's value.
    pub fn remove(&mut self, client: Client) -> Option<T> {
        self.seek(client).ok().map(|at| self.0.remove(at).1)
    }

    /// All values in the order of their clients.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &T)> {
        self.0.iter().map(|(client, value)| (*client, value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn seek(&self, client: Client) -> Result<usize, usize> {
        self.0.binary_search_by_key(&client, |(own, _)| *own)
    }
}

impl<T> IntoIterator for ByClient<T> {
    type Item = (Client, T);
    type IntoIter = std::vec::IntoIter<(Client, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
