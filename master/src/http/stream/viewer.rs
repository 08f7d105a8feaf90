//! Who watches events, and whether it still sees what it is told (SPEC 3.7).
//!
//! Pure. Remembers by which ACLs it was judged, so that it costs next to nothing to ask again while they are the same.

use std::sync::Arc;

use authority::{Acls, Subject};
use http::Source;

use crate::permission::Asker;
use crate::sight::Sight;

/// Somebody who watches.
#[derive(Clone, Debug)]
pub(in crate::http) struct Viewer {
    sight: Sight,
    /// Who it is. None where nobody has said so: then each change of the ACLs may be about it.
    subject: Option<Subject>,
    /// By which it was judged last.
    acls: Option<Arc<Acls>>,
    /// Where it comes from, where that is known.
    source: Option<Source>,
}

impl From<Asker> for Viewer {
    fn from(asker: Asker) -> Self {
        Self {
            sight: asker.sight(),
            subject: Some(asker.subject),
            acls: Some(asker.acls),
            source: None,
        }
    }
}

impl From<Sight> for Viewer {
    fn from(sight: Sight) -> Self {
        Self {
            sight,
            subject: None,
            acls: None,
            source: None,
        }
    }
}

impl Viewer {
    /// The same at this address.
    pub fn at(self, source: Option<Source>) -> Self {
        Self { source, ..self }
    }

    /// Where it comes from.
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// What it sees, as it was judged last.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// What it is called.
    pub fn principal(&self) -> Option<&str> {
        self.subject.as_ref()?.principal.as_deref()
    }

    /// Judges it by these ACLs; gives whether it sees what it saw before.
    pub fn judge(&mut self, acls: &Arc<Acls>) -> bool {
        let Some(before) = self.acls.replace(acls.clone()) else {
            return true;
        };
        if Arc::ptr_eq(&before, acls) {
            return true;
        }
        match &self.subject {
            Some(subject) => {
                let now = Sight::of(acls, subject);
                std::mem::replace(&mut self.sight, now) == self.sight
            }
            None => before == *acls,
        }
    }
}
