//! A JSON tree and a cursor that knows its path, so that each error names its field.
//!
//! Stricter than JSON: a duplicate key is refused, since one of the two would silently be lost. An
//! error shows no value unless the caller adds it: it may be a secret.

use std::collections::BTreeMap;
use std::fmt;

use resources::Invalid;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A JSON value.
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

impl Tree {
    /// Parses the text of the flag `name`.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self, Invalid> {
        serde_json::from_str(text).map_err(|error| {
            let found = match error.is_eof() {
                true => "cut off",
                false => "no JSON",
            };
            Invalid::new(name, found, format!("a JSON object: {error}"))
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, Tree>()? {
            if object.contains_key(&key) {
                let key: String = key.chars().take(60).collect();
                return Err(de::Error::custom(format!("key `{key}` comes twice")));
            }
            object.insert(key, value);
        }
        Ok(Tree::Object(object))
    }
}

/// A position in a tree.
pub(crate) struct At<'a> {
    pub(crate) path: String,
    tree: &'a Tree,
}

impl<'a> At<'a> {
    pub(crate) fn root(name: &str, tree: &'a Tree) -> Self {
        let path = name.to_owned();
        Self { path, tree }
    }

    /// An error here, which shows only the kind of the value found.
    pub(crate) fn wrong(&self, expected: impl Into<String>) -> Invalid {
        Invalid::new(&self.path, self.tree.kind(), expected)
    }

    /// The entries of an object, by key.
    pub(crate) fn entries(&self) -> Result<impl Iterator<Item = (&'a str, At<'a>)>, Invalid> {
        let Tree::Object(object) = self.tree else {
            return Err(self.wrong("an object"));
        };
        let entry = |(key, tree): (&'a String, &'a Tree)| {
            let path = format!("{}.{key}", self.path);
            (key.as_str(), At { path, tree })
        };
        Ok(object.iter().map(entry).collect::<Vec<_>>().into_iter())
    }

    /// The fields of an object with exactly these allowed names, in this order.
    pub(crate) fn fields<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<At<'a>>; N], Invalid> {
        let mut fields = [const { None }; N];
        for (key, at) in self.entries()? {
            let Some(place) = names.iter().position(|name| *name == key) else {
                let expected = format!("a key of these: {}", names.join(", "));
                return Err(Invalid::new(&self.path, key, expected));
            };
            fields[place] = Some(at);
        }
        Ok(fields)
    }

    /// A required field.
    pub(crate) fn required(&self, field: Option<At<'a>>, name: &str) -> Result<At<'a>, Invalid> {
        let missing = || Invalid::new(format!("{}.{name}", self.path), "absent", "a value");
        field.ok_or_else(missing)
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Result<impl Iterator<Item = At<'a>>, Invalid> {
        let Tree::List(list) = self.tree else {
            return Err(self.wrong("a list"));
        };
        let path = self.path.clone();
        Ok(list.iter().enumerate().map(move |(index, tree)| At {
            path: format!("{path}[{index}]"),
            tree,
        }))
    }

    pub(crate) fn text(&self) -> Result<&'a str, Invalid> {
        match self.tree {
            Tree::Text(text) => Ok(text),
            _ => Err(self.wrong("a text")),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, Invalid> {
        match self.tree {
            Tree::Bool(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// A number above zero.
    pub(crate) fn positive(&self) -> Result<f64, Invalid> {
        match self.tree {
            Tree::Number(number) if number.is_finite() && *number > 0.0 => Ok(*number),
            Tree::Number(number) => Err(Invalid::new(&self.path, number, "a number above zero")),
            _ => Err(self.wrong("a number above zero")),
        }
    }

    /// A non-negative integer.
    pub(crate) fn whole(&self) -> Result<u64, Invalid> {
        let expected = "a whole number from 0 on";
        match self.tree {
            // The range in which f64 is exact.
            Tree::Number(number) if number.fract() == 0.0 && (0.0..=9e15).contains(number) => {
                Ok(*number as u64)
            }
            Tree::Number(number) => Err(Invalid::new(&self.path, number, expected)),
            _ => Err(self.wrong(expected)),
        }
    }
}
