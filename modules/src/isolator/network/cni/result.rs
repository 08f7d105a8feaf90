//! Results of plugins, and the files in `/etc` that follow from them. Pure.

use std::fmt::Write;
use std::net::IpAddr;

use protocol::task::check::IpProtocol;
use protocol::task::network::NetworkAddress;
use serde_json::Value;

/// The addresses of a result, of any version of the specification.
pub(super) fn addresses(result: &Value) -> Vec<IpAddr> {
    let list = result["ips"].as_array().into_iter().flatten();
    let list = list.filter_map(|ip| ip["address"].as_str());
    let older = ["ip4", "ip6"].into_iter();
    let older = older.filter_map(|key| result[key]["ip"].as_str());
    let ip = |text: &str| text.split('/').next()?.parse().ok();
    list.chain(older).filter_map(ip).collect()
}

/// An address as a status has it.
pub(super) fn in_status(address: &IpAddr) -> NetworkAddress {
    NetworkAddress {
        protocol: match address {
            IpAddr::V4(_) => IpProtocol::V4,
            IpAddr::V6(_) => IpProtocol::V6,
        },
        address: Some(address.to_string()),
    }
}

/// `/etc/hosts` of a container with these addresses.
pub(super) fn hosts(hostname: &str, addresses: &[IpAddr]) -> String {
    let first = addresses.iter().find(|address| address.is_ipv4());
    let first = first.or(addresses.first());
    let own = first.map(|address| format!("{address} {hostname}\n"));
    format!("127.0.0.1 localhost\n{}", own.unwrap_or_default())
}

/// `/etc/resolv.conf` of a container with these results; `None` if no network has name servers, and
/// those of the host count.
pub(super) fn resolv_conf<'a>(results: impl Iterator<Item = &'a Value>) -> Option<String> {
    let list = |dns: &Value, key: &str| -> Vec<String> {
        let list = dns[key].as_array().into_iter().flatten();
        let list = list.filter_map(Value::as_str);
        // It ends a line, not an entry.
        list.filter(|one| !one.contains('\n'))
            .map(str::to_owned)
            .collect()
    };
    let (mut domain, mut search, mut options, mut servers) =
        (None, Vec::new(), Vec::new(), Vec::new());
    for result in results {
        let dns = &result["dns"];
        let own = list(dns, "nameservers");
        if own.is_empty() {
            continue;
        }
        servers.extend(own);
        let own = dns["domain"].as_str();
        domain = own
            .filter(|one| !one.is_empty() && !one.contains('\n'))
            .or(domain);
        search.extend(list(dns, "search"));
        options.extend(list(dns, "options"));
    }
    if servers.is_empty() {
        return None;
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} {value}"); // A string takes all.
    };
    if let Some(domain) = domain {
        line("domain", domain);
    }
    for (key, values) in [("search", &search), ("options", &options)] {
        if !values.is_empty() {
            line(key, &values.join(" "));
        }
    }
    for server in &servers {
        line("nameserver", server);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_all_versions_are_read() {
        let newer = json!({ "ips": [{ "version": "4", "address": "10.1.0.2/24" },
            { "version": "6", "address": "fd00::2/64" }] });
        let expected: Vec<IpAddr> = vec!["10.1.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        assert_eq!(addresses(&newer), expected);
        let older = json!({ "ip4": { "ip": "10.1.0.2/24" }, "ip6": { "ip": "fd00::2/64" } });
        assert_eq!(addresses(&older), expected);
        assert_eq!(addresses(&json!({})), Vec::<IpAddr>::new());
        assert_eq!(
            hosts("box", &expected),
            "127.0.0.1 localhost\n10.1.0.2 box\n"
        );
        assert_eq!(hosts("box", &[]), "127.0.0.1 localhost\n");
    }

    #[test]
    fn name_servers_come_from_all_networks() {
        let with = json!({ "dns": { "nameservers": ["10.1.0.1"], "domain": "a.example",
            "search": ["a.example", "b.example"], "options": ["ndots:2"] } });
        let none = json!({ "dns": {} });
        assert_eq!(
            resolv_conf([&none, &with].into_iter()).as_deref(),
            Some(
                "domain a.example\nsearch a.example b.example\noptions ndots:2\nnameserver 10.1.0.1\n"
            )
        );
        assert_eq!(resolv_conf([&none].into_iter()), None);
    }
}
