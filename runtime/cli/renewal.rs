//! Renewal: a master or an agent reads its certificates, and who may do what, again when it is told to, and goes by what is new without a restart.
//!
//! Hears SIGHUP. What is read is checked whole before anything changes: what cannot be used is told in the log, by flag and field, and what was
//! there goes on; each file by itself. Remembers nothing. Ends no link, and no connection but of who has shown a certificate of HTTPS
//! that may count no more: new handshakes show and trust what is new.

use transport::{Identity, Renewal};

use crate::expiry::Expiry;
use crate::failure::{Failure, Outcome};
use crate::signals::Hangups;

/// What `--help` says of it.
pub const HELP: &str = "SIGHUP makes it read its certificate, key and ca.pem again, and the files of --http_certificate, --http_key, --http_client_ca, --crl, \
     --acls, --rate_limits and of credentials: links and connections go on, what comes then goes by what is new, and files that cannot be used \
     are told in the log and change nothing. When --http_client_ca or --crl has changed, who has shown a certificate over HTTPS shows it anew: its connection \
     ends after its answer.";

/// Something that is read again.
pub struct Again {
    what: &'static str,
    renew: Box<dyn Fn() -> Outcome>,
}

impl Again {
    /// This, whose renewal changes all or nothing.
    pub fn new(what: &'static str, renew: impl Fn() -> Outcome + 'static) -> Self {
        let renew = Box::new(renew);
        Self { what, renew }
    }

    /// Reads it, and goes by it from now on; or says why that cannot be.
    pub fn renew(&self) -> Outcome {
        (self.renew)()
    }
}

/// Renews each of these at each SIGHUP; never ends.
pub async fn follow(mut hangups: Hangups, all: Vec<Again>) {
    while hangups.next().await {
        for again in &all {
            let what = again.what;
            match again.renew() {
                Ok(()) => tracing::info!("{what}: what was read just now counts from now on"),
                Err(failure) => {
                    tracing::error!(reason = %failure, "{what}: what was read cannot be used, the old one goes on");
                }
            }
        }
    }
}

/// The certificate that links show, as `read` finds it.
pub fn identity(
    renewal: Renewal,
    expiry: &Expiry,
    read: impl Fn() -> Outcome<Identity> + 'static,
) -> Again {
    let expiry = expiry.clone();
    Again::new("the certificate of links", move || {
        let identity = read()?;
        let renewed = renewal.renew(&identity);
        renewed.map_err(|error| Failure::because("no usable certificate", &error))?;
        expiry.set(identity.expires());
        tracing::info!(node = %identity.subject(), "links show a certificate of this name");
        Ok(())
    })
}
