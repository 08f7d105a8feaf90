//! The estimator that lends a constant amount, independent of usage.

use module_api::{ModuleError, Parameters};
use protocol::ResourceUsage;
use resources::{Resources, Revocable};

use super::EstimatorPolicy;

const KEY: &str = "resources";

/// Lends a constant total.
#[derive(Clone, Debug)]
pub struct Fixed {
    total: Resources,
}

impl Fixed {
    /// Reads the required parameter `resources`.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        given.only(&[KEY])?;
        given.required(
            KEY,
            "resources such as `cpus:14`, unreserved and not empty",
            Self::parse,
        )
    }

    /// Lends these resources, converted to revocable. `None` if the text is invalid, or the
    /// resources are reserved or empty.
    pub fn parse(text: &str) -> Option<Self> {
        let regular = Resources::parse(text).ok()?;
        let plain = regular.iter().all(|resource| !resource.is_reserved());
        let total = regular.to_revocable(Revocable::Throttleable).ok()?;
        (plain && !total.is_empty()).then_some(Self { total })
    }

    /// The constant total.
    pub fn total(&self) -> &Resources {
        &self.total
    }
}

impl EstimatorPolicy for Fixed {
    fn lendable(&self, _: &ResourceUsage) -> Resources {
        self.total.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S21: missing or unreadable `resources` fail the module's creation.
    // Covers S21.
    #[test]
    fn fixed_estimator_requires_valid_resources() {
        for text in ["", "cpus", "cpus:-1", "cpus(ads):4"] {
            let given = Parameters::none("fixed").with("resources", text);
            let error = Fixed::from_parameters(&given).unwrap_err();
            assert!(
                error.to_string().contains("parameter `resources` is `"),
                "{error}"
            );
        }
        let error = Fixed::from_parameters(&Parameters::none("fixed")).unwrap_err();
        assert!(
            error.to_string().contains("`resources` is missing"),
            "{error}"
        );
        let given = Parameters::none("fixed").with("resources", "cpus:14");
        let fixed = Fixed::from_parameters(&given).unwrap();
        assert!(
            fixed
                .total
                .iter()
                .all(|resource| resource.is_throttleable())
        );
        assert!(Fixed::from_parameters(&given.with("resource", "cpus:1")).is_err());
    }
}
