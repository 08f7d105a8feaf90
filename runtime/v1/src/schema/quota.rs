//! Quota: what roles are sure of, and what they may not go beyond.

use std::collections::BTreeMap;

use crate::message::messages;
use crate::schema::{Resource, ValueScalar};

messages! {
    /// What a role is sure of.
    QuotaInfo {
        1 role: Option<String>,
        /// Who said so.
        2 principal: Option<String>,
        3 guarantee: Vec<Resource>,
    }

    /// What a role should be sure of.
    QuotaRequest {
        /// Also if the cluster has not so much.
        1 force: Option<bool>,
        2 role: Option<String>,
        3 guarantee: Vec<Resource>,
    }

    /// What a role is sure of, and what it may not go beyond.
    QuotaConfig {
        1 role: String,
        /// By the name of the resource.
        2 guarantees: BTreeMap<String, ValueScalar>,
        /// By the name of the resource; one that is not listed is not limited.
        3 limits: BTreeMap<String, ValueScalar>,
    }

    /// The quotas.
    QuotaStatus {
        /// Read `configs` instead. Deprecated.
        1 infos: Vec<QuotaInfo>,
        2 configs: Vec<QuotaConfig>,
    }
}
