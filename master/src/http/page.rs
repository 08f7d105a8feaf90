//! A page as it is written: its outer objects by hand, what is small in them by serde, and what may be kept of it piece by piece.
//!
//! Pure.

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::Error;
use v1::pieces::{Identity, Keeper};

/// What is an object of a page: keys and values.
pub(crate) trait Entries {
    /// Puts them into it.
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error>;
}

/// The bytes of the page that is this object; what the keeper knows is copied.
pub(super) fn page(entries: &impl Entries, mut keeper: Option<&mut Keeper>) -> Vec<u8> {
    let text = keeper
        .as_mut()
        .map_or_else(Vec::new, |keeper| keeper.room());
    let mut object = Object { text, keeper };
    // Writing into memory does not fail, and no key is anything but text.
    let _ = object.whole(entries);
    object.text
}

/// The object that is being written, behind all that was written before it.
pub(crate) struct Object<'k> {
    text: Vec<u8>,
    keeper: Option<&'k mut Keeper>,
}

impl Object<'_> {
    fn whole(&mut self, entries: &impl Entries) -> Result<(), Error> {
        self.text.push(b'{');
        entries.put(self)?;
        self.text.push(b'}');
        Ok(())
    }

    /// A list of objects.
    pub fn objects<E: Entries>(
        &mut self,
        key: &str,
        objects: impl Iterator<Item = E>,
    ) -> Result<(), Error> {
        self.list(key, objects, |this, one| this.whole(&one))
    }

    /// A list of values, of which those with an identity are kept.
    pub fn pieces<V: Serialize>(
        &mut self,
        key: &str,
        pieces: impl Iterator<Item = (Option<Identity>, V)>,
    ) -> Result<(), Error> {
        self.list(key, pieces, Self::piece)
    }

    /// The same, and all of them together, as long as this stands for what they are.
    pub fn group<V: Serialize>(
        &mut self,
        key: &str,
        group: Identity,
        pieces: impl Iterator<Item = (Option<Identity>, V)>,
    ) -> Result<(), Error> {
        self.serialize_key(key)?;
        self.text.push(b'[');
        let keeper = self.keeper.as_mut();
        if !keeper.is_some_and(|keeper| keeper.open(group, &mut self.text)) {
            self.items(pieces, Self::piece)?;
            if let Some(keeper) = &mut self.keeper {
                keeper.close(self.text.len());
            }
        }
        self.text.push(b']');
        Ok(())
    }

    fn piece<V: Serialize>(
        &mut self,
        (identity, value): (Option<Identity>, V),
    ) -> Result<(), Error> {
        let from = self.text.len();
        if let (Some(identity), Some(keeper)) = (identity, &mut self.keeper)
            && keeper.copy(identity, &mut self.text)
        {
            return Ok(());
        }
        serde_json::to_writer(&mut self.text, &value)?;
        if let (Some(identity), Some(keeper)) = (identity, &mut self.keeper) {
            keeper.note(identity, from, self.text.len());
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        key: &str,
        values: impl Iterator<Item = T>,
        write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.serialize_key(key)?;
        self.text.push(b'[');
        self.items(values, write)?;
        self.text.push(b']');
        Ok(())
    }

    fn items<T>(
        &mut self,
        values: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let first = self.text.len();
        for value in values {
            if self.text.len() > first {
                self.text.push(b',');
            }
            write(self, value)?;
        }
        Ok(())
    }
}

impl SerializeMap for Object<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, key)?;
        self.text.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        serde_json::to_writer(&mut self.text, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}
