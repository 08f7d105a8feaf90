//! Holdings: the resources of each framework on one agent.
//!
//! Plain data. Few frameworks have resources on one agent, so this is a list sorted by id: a tree
//! node has room for at least eleven entries, and resources are large. Frameworks without resources
//! are not in it.

use protocol::FrameworkId;
use resources::Resources;

/// The resources of each framework, sorted by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holdings(Vec<(FrameworkId, Resources)>);

impl Holdings {
    /// The resources of this framework, if any.
    pub fn of(&self, framework: &FrameworkId) -> Option<&Resources> {
        let at = self.find(framework).ok()?;
        Some(&self.0[at].1)
    }

    /// Frameworks and their resources.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &Resources)> {
        self.0.iter().map(|(framework, held)| (framework, held))
    }

    /// The resources.
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
            held.saturating_sub_assign(resources);
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
