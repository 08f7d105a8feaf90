//! Quotas: guarantees and limits of roles.

use std::collections::BTreeMap;

use crate::message::messages;
use crate::schema::{Resource, ValueScalar};

messages! {
    /// The guarantee of a role.
    QuotaInfo {
        1 role: Option<String>,
        /// The principal that set it.
        2 principal: Option<String>,
        3 guarantee: Vec<Resource>,
    }

    /// A request for a role's guarantee.
    QuotaRequest {
        /// Also beyond the cluster's capacity.
        1 force: Option<bool>,
        2 role: Option<String>,
        3 guarantee: Vec<Resource>,
    }

    /// Guarantees and limits of a role.
    QuotaConfig {
        1 role: String,
        /// By resource name.
        2 guarantees: BTreeMap<String, ValueScalar>,
        /// By resource name; resources that are not listed are unlimited.
        3 limits: BTreeMap<String, ValueScalar>,
    }

    /// The quotas.
    QuotaStatus {
        /// Deprecated: use `configs`.
        1 infos: Vec<QuotaInfo>,
        2 configs: Vec<QuotaConfig>,
    }
}
