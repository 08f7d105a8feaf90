//! Defence against other sites' pages in a user's browser: DNS rebinding and cross-site request
//! forgery.
//!
//! A browser sends requests on behalf of every page that it shows, from behind any firewall. Two
//! facts about such a request are beyond the page's control: the name by which it found the service
//! (`Host`), and where the page comes from (`Origin`, `Sec-Fetch-Site`). Pure decisions over a
//! request's head. Never looks at credentials, and never refuses a client that sends none of these
//! headers: it is no browser.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use v1::Invalid;

use crate::api::Refusal;
use crate::pages::TOGGLE;
use crate::realm::bare;

/// Set by browsers alone: how the page's site relates to the service (W3C Fetch Metadata).
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The host names under which a service answers. IP addresses and `localhost` are always among
/// them: no stranger's DNS record can point those elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    any: bool,
    names: BTreeSet<String>,
    /// Each with its leading dot.
    suffixes: BTreeSet<String>,
}

impl AllowedHosts {
    /// Every name: for a service that no browser reaches.
    #[must_use]
    pub fn any() -> Self {
        Self {
            any: true,
            ..Self::default()
        }
    }

    /// Adds names. `*.example.com` allows every name below `example.com`, `*` any name.
    #[must_use]
    pub fn with<T: AsRef<str>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        for name in names {
            let name = normal(name.as_ref());
            match name.strip_prefix('*') {
                Some("") => self.any = true,
                Some(suffix) => drop(self.suffixes.insert(suffix.to_owned())),
                None => drop(self.names.insert(name)),
            }
        }
        self
    }

    fn allows(&self, host: &str) -> bool {
        let host = normal(host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        self.any
            || bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names.contains(&host)
            || self.suffixes.iter().any(|suffix| host.ends_with(suffix))
    }

    /// Checks the head of a request.
    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let target = target(uri, headers)?;
        if let Some(target) = &target
            && !self.allows(target.host())
        {
            let expected = "an IP address, localhost, the service's --hostname or machine name, or a name in --allowed_hosts";
            return Err(Refusal::forbidden(Invalid::new("Host", target, expected)));
        }
        match is_change(method, uri) {
            true => check_site(headers, target.as_ref()),
            false => Ok(()),
        }
    }
}

/// The name in lower case, without a trailing dot.
fn normal(name: &str) -> String {
    let name = name.trim();
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The authority of the request; `None` if the client sends none, as HTTP/1.0 allows.
fn target(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Refusal> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.clone())); // It overrides `Host` (RFC 9112, 3.2.2).
    }
    let mut lines = headers.get_all(HOST).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(line.as_bytes());
    let wrong = |expected| Refusal::bad(Invalid::new("Host", &text, expected));
    if lines.next().is_some() {
        return Err(wrong("one line"));
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let authority = text
        .trim()
        .parse()
        .map_err(|_| wrong("HOST or HOST:PORT"))?;
    Ok(Some(authority))
}

/// Whether a request may change something. Reads of the operator API count as changes, since both
/// are POSTs; no page of another site needs them, as it could not read the answer.
fn is_change(method: &Method, uri: &Uri) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read || (bare(uri.path()) == TOGGLE && uri.query().is_some())
}

/// Refuses a request that a browser sends for a page of another origin.
fn check_site(headers: &HeaderMap, target: Option<&Authority>) -> Result<(), Refusal> {
    let text = |name: &str| {
        let line = headers.get(name)?;
        Some(String::from_utf8_lossy(line.as_bytes()).into_owned())
    };
    let refuse = |name: &str, found: String| {
        let expected = "the service's own pages, since other sites may not change anything here (a proxy must pass Host on as it came)";
        Err(Refusal::forbidden(Invalid::new(name, found, expected)))
    };
    if let Some(site) = text(SEC_FETCH_SITE) {
        return match site.as_str() {
            "same-origin" | "none" => Ok(()),
            _ => refuse("Sec-Fetch-Site", site),
        };
    }
    match text(ORIGIN.as_str()) {
        Some(origin) if !is_own(&origin, target) => refuse("Origin", origin),
        _ => Ok(()),
    }
}

/// Whether an origin is the requested authority. The schemes may differ: a proxy may end TLS.
fn is_own(origin: &str, target: Option<&Authority>) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false; // `null` is a page that hides its origin.
    };
    let (Ok(origin), Some(target)) = (authority.parse::<Authority>(), target) else {
        return false;
    };
    let port = |authority: &Authority| {
        let usual = if scheme == "https" { 443 } else { 80 };
        authority.port_u16().unwrap_or(usual)
    };
    normal(origin.host()) == normal(target.host()) && port(&origin) == port(target)
}

/// Serves a request unless a browser sends it for a page of another site.
pub(crate) async fn refuse_other_sites(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The refusal of `?jsonp=` where it is disabled.
pub(crate) fn jsonp_is_off(name: &str) -> Refusal {
    let expected = "no such parameter: any page in a browser could read the answer, so it is off unless the service is started with --jsonp";
    Refusal::new(StatusCode::FORBIDDEN, Invalid::new("jsonp", name, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> AllowedHosts {
        AllowedHosts::default().with(["Node1.example.com", "*.svc.cluster.local"])
    }

    /// The status for a request with this head; 200 if it passes.
    fn status(method: &str, path: &str, lines: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let (method, uri) = (method.parse().unwrap(), path.parse().unwrap());
        let checked = hosts().check(&method, &uri, &headers);
        checked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn unknown_host_names_are_refused() {
        for (host, expected) in [
            ("127.0.0.1:5050", 200),
            ("10.0.0.7", 200),
            ("[::1]:5050", 200),
            ("localhost:5050", 200),
            ("LOCALHOST.", 200),
            ("ui.localhost", 200),
            ("node1.example.com:5050", 200),
            ("NODE1.example.com.", 200),
            ("meros.default.svc.cluster.local:5050", 200),
            ("", 200),
            ("evil.com:5050", 403),
            ("example.com", 403),
            ("a.node1.example.com", 403),
            ("node1.example.com.evil.com", 403),
            ("svc.cluster.local", 403),
            ("localhost.evil.com", 403),
            ("127.0.0.1.evil.com", 403),
            ("127.0.0.1@evil.com", 403),
            ("a b", 400),
        ] {
            assert_eq!(
                status("GET", "/state", &[("host", host)]),
                expected,
                "{host}"
            );
        }
        assert_eq!(status("GET", "/state", &[]), 200, "HTTP/1.0");
        assert_eq!(status("POST", "/teardown", &[]), 200);
        let two = [("host", "localhost"), ("host", "evil.com")];
        assert_eq!(status("GET", "/state", &two), 400);
        let absolute = "http://evil.com/state";
        assert_eq!(status("GET", absolute, &[("host", "localhost")]), 403);
        let any = AllowedHosts::default().with(["*"]);
        assert!(any.allows("evil.com") && AllowedHosts::any().allows("evil.com"));
    }

    #[test]
    fn changes_for_other_sites_are_refused() {
        let host = ("host", "node1.example.com:5050");
        for (name, value, expected) in [
            ("origin", "http://node1.example.com:5050", 200),
            ("origin", "https://NODE1.example.com:5050", 200),
            ("origin", "http://node1.example.com", 403),
            ("origin", "http://node1.example.com:8080", 403),
            ("origin", "http://evil.com", 403),
            ("origin", "http://evil.com:5050", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            let lines = [host, (name, value)];
            for (method, path) in [
                ("POST", "/teardown"),
                ("PUT", "/weights"),
                ("DELETE", "/quota/r"),
                ("POST", "/api/v1"),
                ("POST", "/api/v1/scheduler"),
                ("POST", "/slave(1)/api/v1/executor"),
                ("GET", "/master/logging/toggle?level=3&duration=1mins"),
            ] {
                let found = status(method, path, &lines);
                assert_eq!(found, expected, "{method} {path} {name}: {value}");
            }
            for (method, path) in [
                ("GET", "/state"),
                ("HEAD", "/state"),
                ("OPTIONS", "/teardown"),
                ("GET", "/logging/toggle"),
            ] {
                assert_eq!(status(method, path, &lines), 200, "{method} {path} {value}");
            }
        }
        // A default port may be omitted.
        let usual = [("host", "localhost"), ("origin", "https://localhost:443")];
        assert_eq!(status("POST", "/teardown", &usual), 200);
        let nowhere = [("origin", "http://localhost")];
        assert_eq!(status("POST", "/teardown", &nowhere), 403);
    }

    #[test]
    fn a_refused_host_names_the_flag() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "evil.com:5050".parse().unwrap());
        let refused = hosts().check(&Method::GET, &"/state".parse().unwrap(), &headers);
        let problem = refused.unwrap_err().problem;
        assert!(
            problem.starts_with("Host is `evil.com:5050`: expected"),
            "{problem}"
        );
        assert!(problem.contains("--allowed_hosts"), "{problem}");
    }
}
