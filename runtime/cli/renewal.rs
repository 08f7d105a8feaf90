//! Renewal: a master or an agent reads its certificate again when it is told to, and shows the new one without a restart.
//!
//! Hears SIGHUP. What is read is checked whole before anything changes: files that cannot be used are told in the log, and the identity
//! that was there goes on. Remembers nothing. Never ends a link: new handshakes show and trust what is new.

use transport::{Identity, Renewal};

use crate::failure::{Failure, Outcome};
use crate::signals::Hangups;

/// What `--help` says of it.
pub const HELP: &str = "SIGHUP makes it read its certificate, key and ca.pem again: links go on, new connections use what is new, and files \
     that cannot be used are told in the log and change nothing.";

/// Reads the identity at each SIGHUP and shows it from then on; never ends.
pub async fn follow(mut hangups: Hangups, renewal: Renewal, read: impl Fn() -> Outcome<Identity>) {
    while hangups.next().await {
        match renew(&renewal, &read) {
            Ok(identity) => {
                tracing::info!(node = %identity.subject(), "shows a new certificate from now on");
            }
            Err(failure) => {
                tracing::error!(reason = %failure, "the new certificate cannot be used, the old one goes on");
            }
        }
    }
}

fn renew(renewal: &Renewal, read: &impl Fn() -> Outcome<Identity>) -> Outcome<Identity> {
    let identity = read()?;
    let renewed = renewal.renew(&identity);
    renewed.map_err(|error| Failure::because("no usable certificate", &error))?;
    Ok(identity)
}
