//! Rate limits: messages per second that the master handles for each principal (`--rate_limits`).
//!
//! Pure data; [`Throttle`](crate::Throttle) enforces it.

use std::collections::BTreeMap;

use resources::Invalid;

use crate::tree::{At, Tree};

/// The limit of one principal, or of all unnamed ones together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Messages per second, above zero.
    pub qps: f64,
    /// Maximum number of waiting HTTP calls; further ones are dropped. `None` is the built-in
    /// default. Native drivers keep their own waiting messages.
    pub capacity: Option<u64>,
}

/// The configured limits. Default: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimits {
    /// The named principals; `None` is unlimited.
    principals: BTreeMap<String, Option<Limit>>,
    /// The limit of all others together, including callers without a principal.
    others: Option<Limit>,
}

/// The principals that share one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane<'a> {
    Of(&'a str),
    Others,
}

impl RateLimits {
    /// Reads `{"limits": [{"principal", "qps", "capacity"}], "aggregate_default_qps",
    /// "aggregate_default_capacity"}`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let tree = Tree::read("rate_limits", text)?;
        let root = At::root("rate_limits", &tree);
        let [limits, qps, capacity] = root.fields([
            "limits",
            "aggregate_default_qps",
            "aggregate_default_capacity",
        ])?;
        let mut principals = BTreeMap::new();
        if let Some(limits) = limits {
            for entry in limits.items()? {
                let [principal, qps, capacity] = entry.fields(["principal", "qps", "capacity"])?;
                let principal = entry.required(principal, "principal")?;
                let name = principal.text()?;
                if name.is_empty() {
                    return Err(Invalid::new(principal.path, "", "a principal"));
                }
                if principals
                    .insert(name.to_owned(), limit(qps, capacity)?)
                    .is_some()
                {
                    return Err(Invalid::new(principal.path, name, "each principal once"));
                }
            }
        }
        Ok(Self {
            principals,
            others: limit(qps, capacity)?,
        })
    }

    /// The names of principals (or of the key) with a capacity above the maximum queue length.
    pub fn capacities_beyond(&self, line: u64) -> Vec<&str> {
        let named = self.principals.iter();
        let named = named.filter_map(|(name, limit)| Some((name.as_str(), limit.as_ref()?)));
        let others = self.others.iter();
        let all = named.chain(others.map(|limit| ("aggregate_default_capacity", limit)));
        all.filter(|(_, limit)| limit.capacity.is_some_and(|capacity| capacity > line))
            .map(|(name, _)| name)
            .collect()
    }

    /// Whether this principal is named, with or without a limit.
    pub(crate) fn is_named(&self, principal: &str) -> bool {
        self.principals.contains_key(principal)
    }

    /// The limit of this principal, and the lane that shares it.
    pub(crate) fn of<'a>(&self, principal: Option<&'a str>) -> Option<(Lane<'a>, Limit)> {
        let named = principal.and_then(|name| Some((name, self.principals.get(name)?)));
        match named {
            Some((name, limit)) => limit.map(|limit| (Lane::Of(name), limit)),
            None => self.others.map(|limit| (Lane::Others, limit)),
        }
    }
}

fn limit(qps: Option<At<'_>>, capacity: Option<At<'_>>) -> Result<Option<Limit>, Invalid> {
    let qps = qps.map(|at| at.positive()).transpose()?;
    let Some(at) = capacity else {
        return Ok(qps.map(|qps| Limit {
            qps,
            capacity: None,
        }));
    };
    let capacity = Some(at.whole()?);
    match qps {
        Some(qps) => Ok(Some(Limit { qps, capacity })),
        None => Err(at.wrong("no capacity, or also a `qps`")),
    }
}

#[cfg(test)]
mod tests {
    use testkit::rows;

    use super::*;

    /// SPEC 3.3.
    #[test]
    fn named_principals_have_own_limits_others_share_one() {
        let limits = RateLimits::parse(
            r#"{"limits":[{"principal":"foo","qps":55.5,"capacity":100000},{"principal":"bar","qps":300},{"principal":"baz"}],
                "aggregate_default_qps":333,"aggregate_default_capacity":1000000}"#,
        )
        .unwrap();
        let limit = |qps, capacity| Limit { qps, capacity };
        assert_eq!(
            limits.of(Some("foo")),
            Some((Lane::Of("foo"), limit(55.5, Some(100_000))))
        );
        assert_eq!(
            limits.of(Some("bar")),
            Some((Lane::Of("bar"), limit(300.0, None)))
        );
        assert_eq!(limits.of(Some("baz")), None);
        let beyond = limits.capacities_beyond(99_999);
        assert_eq!(beyond, ["foo", "aggregate_default_capacity"]);
        let beyond = limits.capacities_beyond(100_000);
        assert_eq!(beyond, ["aggregate_default_capacity"]);
        assert!(limits.capacities_beyond(1_000_000).is_empty());
        let others = Some((Lane::Others, limit(333.0, Some(1_000_000))));
        assert_eq!(limits.of(Some("qux")), others);
        assert_eq!(limits.of(None), others);
        let none = RateLimits::parse(r#"{"limits":[]}"#).unwrap();
        assert_eq!((none.of(None), none), (None, RateLimits::default()));
    }

    #[test]
    fn invalid_limits_are_refused_by_path() {
        for [text, field, words] in rows(
            r#"
             | rate_limits | JSON
            {"limit":[]} | rate_limits | limits, aggregate_default_qps
            {"limits":[{"qps":1}]} | rate_limits.limits[0].principal | absent
            {"limits":[{"principal":"a","qps":0}]} | rate_limits.limits[0].qps | `0`: expected a number above zero
            {"limits":[{"principal":"a","qps":"5"}]} | rate_limits.limits[0].qps | a text
            {"limits":[{"principal":"a","qps":1,"capacity":1.5}]} | rate_limits.limits[0].capacity | whole
            {"limits":[{"principal":"a","capacity":1}]} | rate_limits.limits[0].capacity | also a `qps`
            {"limits":[{"principal":"a"},{"principal":"a"}]} | rate_limits.limits[1].principal | once
            {"aggregate_default_capacity":5} | rate_limits.aggregate_default_capacity | qps
            {"aggregate_default_qps":-1} | rate_limits.aggregate_default_qps | `-1`
        "#,
        ) {
            let invalid = RateLimits::parse(text).unwrap_err();
            let shown = invalid.to_string();
            assert_eq!(invalid.field, field, "{text}: {shown}");
            assert!(shown.contains(words), "{text}: {shown}");
        }
    }
}
