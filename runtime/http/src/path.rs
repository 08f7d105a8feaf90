//! The path of a request as Mesos reads it: slashes that say nothing are passed over, and some clients percent-encode the parentheses of
//! `/slave(1)` (SPEC 3.9).
//!
//! Pure. Whoever stands behind it, be it a guard or a route, sees one spelling.

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// The same with the path that is meant; `None` if that is the one it has.
pub(crate) fn meant(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default();
    let mut meant = format!("/{}", first.replace("%28", "(").replace("%29", ")"));
    for part in parts {
        meant.push('/');
        meant.push_str(part);
    }
    if meant == path {
        return None;
    }
    if let Some(query) = uri.query() {
        meant.push('?');
        meant.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(meant).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_path_is_read_whatever_slashes_and_parentheses_it_is_written_with() {
        for (written, meant) in [
            ("/state", None),
            ("/", None),
            ("/slave(1)/state?a=//b/", None),
            ("//state", Some("/state")),
            ("/master//state/", Some("/master/state")),
            ("///", Some("/")),
            ("/slave%281%29/state", Some("/slave(1)/state")),
            (
                "//slave%281%29//flags/?jsonp=f",
                Some("/slave(1)/flags?jsonp=f"),
            ),
            // Only in the name of an actor.
            ("/quota/a%28b%29", None),
            ("/%2573tate", None),
        ] {
            let found = super::meant(&written.parse().unwrap());
            let found = found.map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), meant, "{written}");
        }
    }
}
