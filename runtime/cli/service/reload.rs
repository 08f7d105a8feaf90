//! Reload at SIGHUP: a master or an agent reads its certificates and access control files again
//! without a restart.
//!
//! Each file is validated completely before it takes effect; an invalid one is logged by flag and
//! field, and the old content stays in effect. Ends no links. Ends only connections whose HTTPS
//! client certificate may no longer be valid; new handshakes use the new files.

use transport::{Identity, Renewal};

use crate::output::error::{CliError, Outcome};
use crate::service::expiry::Expiry;
use crate::service::signals::Hangups;

/// The paragraph in `--help`.
pub const HELP: &str = "SIGHUP rereads its certificate, key and ca.pem, and the files of --http_certificate, --http_key, --http_client_ca, --crl, --acls, \
     --rate_limits and of credentials. Links and connections continue, new ones use the new files; an invalid file is logged and changes \
     nothing. If --http_client_ca or --crl has changed, HTTPS clients with a certificate must present it again: their connections end after \
     the present response.";

/// Something that is reloaded.
pub struct Reload {
    what: &'static str,
    renew: Box<dyn Fn() -> Outcome>,
}

impl Reload {
    /// A reload, which must be atomic.
    pub fn new(what: &'static str, renew: impl Fn() -> Outcome + 'static) -> Self {
        let renew = Box::new(renew);
        Self { what, renew }
    }

    /// Reads it and puts it into effect, or returns why it cannot be used.
    pub fn renew(&self) -> Outcome {
        (self.renew)()
    }
}

/// Reloads all of these at each SIGHUP. Never ends.
pub async fn follow(mut hangups: Hangups, all: Vec<Reload>) {
    while hangups.next().await {
        for reload in &all {
            let what = reload.what;
            match reload.renew() {
                Ok(()) => tracing::info!("{what}: reloaded"),
                Err(failure) => {
                    tracing::error!(reason = %failure, "{what}: reload failed, keeping the old one");
                }
            }
        }
    }
}

/// The reload of the certificate of links, by `read`.
pub fn identity(
    renewal: Renewal,
    expiry: &Expiry,
    read: impl Fn() -> Outcome<Identity> + 'static,
) -> Reload {
    let expiry = expiry.clone();
    Reload::new("the certificate of links", move || {
        let identity = read()?;
        let renewed = renewal.renew(&identity);
        renewed.map_err(|error| CliError::because("no usable certificate", &error))?;
        expiry.set(identity.expires());
        tracing::info!(node = %identity.subject(), "links use a new certificate");
        Ok(())
    })
}
