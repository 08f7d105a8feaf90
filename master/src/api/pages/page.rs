//! The writer of a page: outer objects by hand, small values by serde, cacheable parts piece by
//! piece.
//!
//! Pure.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Error;
use v1::answer_cache::{AnswerWriter, Identity};

/// An object of a page.
pub(crate) trait Entries {
    /// Writes its entries.
    fn put(&self, object: &mut Object<'_>) -> Result<(), Error>;
}

/// The text of a page with this object; parts may come from the cache of `writer`.
pub(in crate::api) fn page(
    entries: &impl Entries,
    mut writer: Option<&mut AnswerWriter>,
) -> Vec<u8> {
    let text = writer
        .as_mut()
        .map_or_else(Vec::new, |writer| writer.room());
    let mut object = Object { text, writer };
    // Writing to memory does not fail, and all keys are strings.
    let _ = object.whole(entries);
    object.text
}

/// The object being written, after all earlier text.
pub(crate) struct Object<'k> {
    text: Vec<u8>,
    writer: Option<&'k mut AnswerWriter>,
}

impl Object<'_> {
    fn whole(&mut self, entries: &impl Entries) -> Result<(), Error> {
        self.text.push(b'{');
        entries.put(self)?;
        self.text.push(b'}');
        Ok(())
    }

    /// Writes a list of objects.
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

    /// Writes a list of values; values with an identity are cached. `whole` is the identity of the
    /// whole list, if it has one.
    pub fn pieces<V: Serialize>(
        &mut self,
        key: &'static str,
        whole: Option<Identity>,
        pieces: impl Iterator<Item = (Option<Identity>, V)>,
    ) -> Result<(), Error> {
        self.serialize_key(key)?;
        let Self { text, writer } = self;
        let Some(writer) = writer else {
            let mut to = serde_json::Serializer::new(text);
            return to.collect_seq(pieces.map(|(_, value)| value));
        };
        text.push(b'[');
        writer.list(key, whole, pieces, text, |text, value| {
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
