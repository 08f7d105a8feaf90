//! The addresses that a download may follow. Pure.

use std::net::{IpAddr, Ipv6Addr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Most redirects of a download.
pub(crate) const REDIRECTS_MAX: usize = 10;

/// An `http` or `https` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebUri {
    pub(crate) is_secure: bool,
    /// The header that authenticates there. From the user and password before the host, if any.
    pub(crate) authorization: Option<String>,
    /// Whether a server has chosen it, for example by a redirect.
    pub(crate) is_foreign: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    /// `host:port` as given.
    pub(crate) authority: String,
    pub(crate) port: u16,
    /// With the query.
    pub(crate) path: String,
}

impl WebUri {
    /// Reads a URI. An error names the problem.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let text = text.split('#').next().unwrap_or_default();
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("its scheme `{scheme}` is neither http nor https")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (authorization, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(basic(user)), authority),
            None => (None, authority),
        };
        let wrong = || format!("`{authority}` is no host with an optional port");
        let parsed: hyper::http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        let port = match parsed.port_u16() {
            Some(port) => port,
            None if authority != parsed.host() => return Err(wrong()),
            None if is_secure => 443,
            None => 80,
        };
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        Ok(Self {
            is_secure,
            authorization,
            is_foreign: false,
            host: parsed.host().trim_matches(['[', ']']).to_owned(),
            authority: authority.to_owned(),
            port,
            // Characters that HTTP does not allow, for example spaces and other scripts.
            path: escaped(&path),
        })
    }

    /// Whether both have the same server.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.authority == other.authority && self.is_secure == other.is_secure
    }

    /// The target of a redirect from here.
    pub(crate) fn follow(&self, location: &str) -> Result<Self, String> {
        let scheme = if self.is_secure { "https" } else { "http" };
        let is_absolute = location.split(['/', '?', '#']).next();
        let is_absolute = is_absolute.is_some_and(|first| first.contains(':'));
        let here = || format!("{scheme}://{}", self.authority);
        let next = match location {
            _ if is_absolute => Self::read(location)?,
            _ if location.starts_with("//") => Self::read(&format!("{scheme}:{location}"))?,
            _ if location.starts_with('/') => Self::read(&format!("{}{location}", here()))?,
            _ => {
                let path = self.path.split('?').next().unwrap_or_default();
                let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
                Self::read(&format!("{}{folder}{location}", here()))?
            }
        };
        if self.is_secure && !next.is_secure {
            return Err("a redirect from https to http is refused".to_owned());
        }
        let is_same = next.is_same_server(self);
        let own = self.authorization.clone().filter(|_| is_same);
        Ok(Self {
            authorization: next.authorization.or(own),
            is_foreign: true,
            ..next
        })
    }
}

/// The header of HTTP Basic for `user:password`.
pub(crate) fn basic(user: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(user))
}

fn escaped(path: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(escape).collect()
}

/// Whether only the own link has this address. Clouds serve the secrets of a machine at one.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => is_unicast_link_local(address),
    }
}

fn is_unicast_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_is_read_and_escaped() {
        let read = |text| WebUri::read(text).map(|uri| (uri.host, uri.port, uri.path));
        let is = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        assert_eq!(read("http://h/a?b#c"), is("h", 80, "/a?b"));
        assert_eq!(read("HTTPS://h:1/a%20b"), is("h", 1, "/a%20b"));
        assert_eq!(
            read("https://[::1]:8443/ä b"),
            is("::1", 8443, "/%C3%A4%20b")
        );
        assert_eq!(read("http://h?x"), is("h", 80, "/?x"));
        let user = WebUri::read("http://me:secret@h/a").unwrap();
        assert_eq!(
            (user.authorization, user.authority.as_str()),
            (Some(basic("me:secret")), "h")
        );
        for wrong in [
            "ftp://h/a",
            "h/a",
            "http:///a",
            "http://h:port/a",
            "http://h:99999/a",
        ] {
            assert!(WebUri::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn redirect_keeps_https_and_drops_foreign_passwords() {
        let from = WebUri::read("https://me:secret@h:8/d/a?q").unwrap();
        let check = |location: &str, authority: &str, path: &str, keeps: bool| {
            let next = from.follow(location).unwrap();
            assert_eq!(
                (next.authority.as_str(), next.path.as_str()),
                (authority, path)
            );
            assert_eq!(next.authorization.is_some(), keeps, "{location}");
            assert!(next.is_secure && next.is_foreign);
        };
        check("https://other/x", "other", "/x", false);
        check("//other/x", "other", "/x", false);
        check("/x?y", "h:8", "/x?y", true);
        check("x", "h:8", "/d/x", true);
        for refused in [
            "http://h:8/x",
            "ftp://h/x",
            "file:///etc/passwd",
            "javascript:x",
        ] {
            assert!(from.follow(refused).is_err(), "{refused}");
        }
        let plain = WebUri::read("http://h/a").unwrap();
        assert!(plain.follow("https://h/a").unwrap().is_secure);
    }

    #[test]
    fn link_local_addresses_are_known() {
        let check = |address: &str| is_link_local(address.parse().unwrap());
        assert!(check("169.254.169.254") && check("fe80::1") && check("febf::1"));
        assert!(check("::ffff:169.254.169.254"));
        assert!(!check("10.0.0.1") && !check("127.0.0.1") && !check("fec0::1") && !check("::1"));
    }
}
