//! Warnings about certificates that expire soon: at the start and daily, until they are replaced.
//!
//! `warning` decides; [`follow`] calls it. Renews nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use runtime::{Clock, Timestamp};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The time before expiry at which warnings start.
const NOTICE: Duration = Duration::from_secs(14 * 24 * 3600);

/// A certificate in use.
pub struct Watched {
    /// Its purpose, for example "the certificate of links".
    what: &'static str,
    /// Its expiry since the Unix epoch, if known.
    expires: Box<dyn Fn() -> Option<Duration>>,
}

/// The expiry of the certificate of links. Clones share it.
pub type Expiry = Rc<Cell<Option<Duration>>>;

impl Watched {
    /// The certificate of links.
    pub fn links(expiry: &Expiry) -> Self {
        let expiry = expiry.clone();
        Self {
            what: "the certificate of links (--certs)",
            expires: Box::new(move || expiry.get()),
        }
    }

    /// The certificate of pages, if HTTPS is enabled.
    pub fn pages(options: &http::HttpOptions) -> Option<Self> {
        let tls = options.tls.clone()?;
        Some(Self {
            what: "the certificate of HTTPS (--http_certificate)",
            expires: Box::new(move || tls.expires()),
        })
    }
}

/// The warning for a certificate that expires within 14 days or has expired.
fn warning(expires: Duration, now: Timestamp) -> Option<String> {
    let now = Duration::from_nanos(now.as_nanos());
    let Some(left) = expires.checked_sub(now) else {
        return Some(
            "has expired: new connections are refused; replace it and send SIGHUP".to_owned(),
        );
    };
    let days = left.as_secs() / DAY.as_secs();
    (left <= NOTICE).then(|| {
        format!(
            "expires in {days} days: replace it and send SIGHUP, or new connections will be refused"
        )
    })
}

/// Warns about them now and daily. Never ends.
pub async fn follow(clock: Clock, watched: Vec<Watched>) {
    loop {
        for Watched { what, expires } in &watched {
            if let Some(warning) = expires().and_then(|expires| warning(expires, clock.wall())) {
                tracing::warn!("{what} {warning}");
            }
        }
        clock.sleep(DAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_warned_of_14_days_before() {
        let day = |day: u64| DAY * u32::try_from(day).unwrap();
        let now = Timestamp::from_nanos(u64::try_from(day(20_000).as_nanos()).unwrap());
        let second = Duration::from_secs(1);
        assert_eq!(warning(day(20_014) + second, now), None);
        for (expires, words) in [
            (day(20_014), "expires in 14 days"),
            (day(20_001) - second, "expires in 0 days"),
            (day(20_000) - second, "has expired"),
        ] {
            let warned = warning(expires, now).unwrap();
            assert!(warned.starts_with(words), "{warned}");
        }
        // Certificates of `meros certs` are valid until the year 4096.
        assert_eq!(warning(Duration::from_secs(67_090_118_400), now), None);
    }
}
