//! A subscriber's identity and visibility.
//!
//! Pure. Remembers the ACLs it was evaluated with, so that a check against the same ACLs is cheap.

use std::sync::Arc;

use authority::{Acls, Subject};
use http::Source;

use crate::api::visibility::Visibility;
use crate::permission::Caller;

/// A subscriber's identity and visibility.
#[derive(Clone, Debug)]
pub(in crate::api) struct Viewer {
    visibility: Visibility,
    /// The identity. `None` if unknown: then every change of the ACLs may matter.
    subject: Option<Subject>,
    /// The ACLs of the last evaluation.
    acls: Option<Arc<Acls>>,
    /// The address it connects from, if known.
    source: Option<Source>,
}

impl From<Caller> for Viewer {
    fn from(caller: Caller) -> Self {
        Self {
            visibility: caller.visibility(),
            subject: Some(caller.subject),
            acls: Some(caller.acls),
            source: None,
        }
    }
}

impl From<Visibility> for Viewer {
    fn from(visibility: Visibility) -> Self {
        Self {
            visibility,
            subject: None,
            acls: None,
            source: None,
        }
    }
}

impl Viewer {
    /// The same with an address.
    pub fn at(self, source: Option<Source>) -> Self {
        Self { source, ..self }
    }

    /// The address it connects from.
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// The visibility by the last evaluation.
    pub fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// The principal.
    pub fn principal(&self) -> Option<&str> {
        self.subject.as_ref()?.principal.as_deref()
    }

    /// Evaluates these ACLs; returns whether the visibility is unchanged.
    pub fn reevaluate(&mut self, acls: &Arc<Acls>) -> bool {
        let Some(before) = self.acls.replace(acls.clone()) else {
            return true;
        };
        if Arc::ptr_eq(&before, acls) {
            return true;
        }
        match &self.subject {
            Some(subject) => {
                let now = Visibility::of(acls, subject);
                std::mem::replace(&mut self.visibility, now) == self.visibility
            }
            None => before == *acls,
        }
    }
}
