//! A page as it is written: its outer objects by hand, what is small in them by serde, and what may be kept of it piece by piece.
//!
//! Pure.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Error;
use v1::pieces::{Identity, Keeper};

/// What is an object of a page: keys and values.
pub(crate) trait Entries {
    /// Puts them into it.
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error>;
}

/// The text of the page that is this object, without what the keeper adds to it.
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
        self.serialize_key(key)?;
        self.text.push(b'[');
        for (number, object) in objects.enumerate() {
            if number > 0 {
                self.text.push(b',');
            }
            self.whole(&object)?;
        }
        self.text.push(b']');
        Ok(())
    }

    /// A list of values, of which those with an identity are kept; `whole` stands for what all of them are, if anything does.
    pub fn pieces<V: Serialize>(
        &mut self,
        key: &'static str,
        whole: Option<Identity>,
        pieces: impl Iterator<Item = (Option<Identity>, V)>,
    ) -> Result<(), Error> {
        self.serialize_key(key)?;
        let Self { text, keeper } = self;
        let Some(keeper) = keeper else {
            let mut to = serde_json::Serializer::new(text);
            return to.collect_seq(pieces.map(|(_, value)| value));
        };
        text.push(b'[');
        keeper.list(key, whole, pieces, text, |text, value| {
            serde_json::to_writer(text, value)
        })?;
        text.push(b']');
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
