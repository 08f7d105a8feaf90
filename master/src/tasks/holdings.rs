//! Holdings: what each framework holds on one agent.
//!
//! Plain data. Few frameworks have something on one agent, so it is a list in the order of their ids: a tree would have room for eleven at
//! least, and resources are large. A framework that holds nothing is not in it.

use protocol::FrameworkId;
use resources::Resources;

/// What each framework holds, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holdings(Vec<(FrameworkId, Resources)>);

impl Holdings {
    /// What this one holds, if anything.
    pub fn of(&self, framework: &FrameworkId) -> Option<&Resources> {
        let at = self.find(framework).ok()?;
        Some(&self.0[at].1)
    }

    /// Who holds what.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &Resources)> {
        self.0.iter().map(|(framework, held)| (framework, held))
    }

    /// What is held.
    pub fn values(&self) -> impl Iterator<Item = &Resources> {
        self.0.iter().map(|(_, held)| held)
    }

    fn find(&self, framework: &FrameworkId) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(framework))
    }

    pub(super) fn hold(&mut self, framework: &FrameworkId, resources: &Resources) {
        if resources.is_empty() {
            return;
        }
        match self.find(framework) {
            Ok(at) => self.0[at].1 += resources,
            Err(at) => self.0.insert(at, (framework.clone(), resources.clone())),
        }
    }

    pub(super) fn free(&mut self, framework: &FrameworkId, resources: &Resources) {
        if let Ok(at) = self.find(framework) {
            let held = &mut self.0[at].1;
            held.subtract_what_is_there(resources);
            if held.is_empty() {
                self.0.remove(at);
            }
        }
    }
}

impl FromIterator<(FrameworkId, Resources)> for Holdings {
    fn from_iter<I: IntoIterator<Item = (FrameworkId, Resources)>>(held: I) -> Self {
        let mut all = Self::default();
        for (framework, resources) in held {
            all.hold(&framework, &resources);
        }
        all
    }
}
