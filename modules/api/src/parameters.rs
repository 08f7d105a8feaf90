//! Parameters: the key-value configuration of a module.

use std::collections::BTreeMap;

use crate::error::ModuleError;

/// The parameters of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    module: String,
    /// What precedes each key in the configuration.
    prefix: String,
    values: BTreeMap<String, String>,
}

impl Parameters {
    /// No parameters, for the module of this name. Errors mention the name.
    pub fn none(module: impl Into<String>) -> Self {
        Self {
            module: module.into(),
            prefix: String::new(),
            values: BTreeMap::new(),
        }
    }

    /// Adds or replaces one parameter.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(key.into(), value.into());
        self
    }

    /// Name of the module.
    pub fn module(&self) -> &str {
        &self.module
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The parameters of a module within this one: those whose keys begin with `name.`, without
    /// that. Errors mention the whole key.
    pub fn with_prefix(&self, name: &str) -> Self {
        let prefix = format!("{name}.");
        let values = self.values.iter();
        let own = values.filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
        Self {
            module: self.module.clone(),
            values: own
                .map(|(key, value)| (key.to_owned(), value.clone()))
                .collect(),
            prefix: self.prefix.clone() + &prefix,
        }
    }

    /// The parameters whose keys begin with none of these names and a dot.
    pub fn without_prefixes(&self, names: &[String]) -> Self {
        let mut own = self.clone();
        own.values.retain(|key, _| {
            let scope = key.split_once('.').map(|(scope, _)| scope);
            !scope.is_some_and(|scope| names.iter().any(|name| name == scope))
        });
        own
    }

    /// All pairs, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of `key`, converted by `read`. A missing key is an error.
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

    /// The value of `key`, converted by `read`; `None` if the key is missing.
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

    /// Rejects unknown keys, so that a misspelt one is not silently ignored.
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
            key: self.prefix.chars().chain(key.chars()).take(80).collect(),
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
    fn invalid_parameter_error_has_value_and_expectation() {
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

    #[test]
    fn parameters_of_inner_modules_are_apart() {
        let given = Parameters::none("gate")
            .with("low", "1")
            .with("fixed.resources", "x");
        let own = given.without_prefixes(&["fixed".to_owned()]);
        let inner = given.with_prefix("fixed");
        assert_eq!(own.iter().collect::<Vec<_>>(), [("low", "1")]);
        assert_eq!(inner.iter().collect::<Vec<_>>(), [("resources", "x")]);
        assert_eq!(
            inner.only(&[]).unwrap_err().to_string(),
            "module `gate`, parameter `fixed.resources` is given: expected no parameters"
        );
    }
}
