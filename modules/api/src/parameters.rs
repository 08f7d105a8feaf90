//! Parameters: what a module is told when it is made, keys with texts (SPEC 5.9).

use std::collections::BTreeMap;

use crate::error::ModuleError;

/// One module's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    module: String,
    values: BTreeMap<String, String>,
}

impl Parameters {
    /// No parameters for the module of this name, which errors will mention.
    pub fn none(module: impl Into<String>) -> Self {
        Self {
            module: module.into(),
            values: BTreeMap::new(),
        }
    }

    /// The same with one more.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(key.into(), value.into());
        self
    }

    /// Whose they are.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The text of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Keys and texts in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// What `read` makes of the text of `key`, which must be there.
    pub fn required<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ModuleError> {
        match self.optional(key, expected, read)? {
            Some(value) => Ok(value),
            None => Err(self.bad(key, "missing", expected)),
        }
    }

    /// What `read` makes of the text of `key`, if it is there.
    pub fn optional<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ModuleError> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.bad(key, &quoted(text), expected)),
        }
    }

    /// Refuses keys that the module does not know, so that a misspelt one is not passed over.
    pub fn only(&self, known: &[&str]) -> Result<(), ModuleError> {
        match self.iter().find(|(key, _)| !known.contains(key)) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => Err(self.bad(key, "given", "no parameters")),
            Some((key, _)) => Err(self.bad(key, "given", &format!("only {}", known.join(" or ")))),
        }
    }

    fn bad(&self, key: &str, value: &str, expected: &str) -> ModuleError {
        ModuleError::Parameter {
            module: self.module.clone(),
            key: key.chars().take(80).collect(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

fn quoted(text: &str) -> String {
    format!("`{}`", text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_parameter_is_named_with_its_value_and_what_was_expected() {
        let given = Parameters::none("load").with("load_threshold_5min", "much");
        let read = |key| given.required(key, "a number", |text| text.parse::<f64>().ok());
        assert_eq!(
            read("load_threshold_5min").unwrap_err().to_string(),
            "module `load`, parameter `load_threshold_5min` is `much`: expected a number"
        );
        assert_eq!(
            read("other").unwrap_err().to_string(),
            "module `load`, parameter `other` is missing: expected a number"
        );
        assert_eq!(
            given.only(&["resources"]).unwrap_err().to_string(),
            "module `load`, parameter `load_threshold_5min` is given: expected only resources"
        );
    }
}
