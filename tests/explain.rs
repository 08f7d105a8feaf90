//! Explanations of missing offers: by the verb, by the page, and from followers.

use std::collections::BTreeSet;

use protocol::Filters;
use serde_json::Value;
use testkit::assert_contains;

use crate::scripted_framework::{ScriptedFramework, framework};
use crate::support::{Cluster, eventually, get, header, send_whole, stderr, stdout};

/// Refuses declined resources for an hour.
const AN_HOUR: Filters = Filters {
    refuse_seconds: 3600.0,
};

fn explain(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.output(["explain"].iter().chain(arguments).copied());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn refused(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.output(["explain"].iter().chain(arguments).copied());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let text = stderr(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn page(cluster: &Cluster, query: &str) -> Value {
    let (status, text) = get(cluster.port, &format!("/master/explain?{query}"));
    assert!(status.contains(" 200 "), "{query}: {status} {text}");
    serde_json::from_str(&text).expect("JSON")
}

// Covers W26.
#[test]
fn declines_suppression_and_limits_are_explained() {
    let cluster = Cluster::start(1, "cpus:4;mem:512;disk:0;ports:[]");
    let set = ["quota", "set", "eng", "--limit", "cpus:0;mem:0"];
    assert!(cluster.output(set).status.success());
    let agent = cluster.list("agents").remove(0);
    let (id, host) = (agent["id"].to_string(), agent["hostname"].to_string());
    let (id, host) = (id.trim_matches('"'), host.trim_matches('"'));

    let _limited = ScriptedFramework::subscribe(&cluster, framework("limited", "eng/web"));
    let mut picky = ScriptedFramework::subscribe(&cluster, framework("picky", "a"));
    let offer = picky.offer();
    let hoarding = explain(&cluster, &["picky"]);
    let first = hoarding.lines().next().expect("a line");
    assert!(first.ends_with("unanswered offers 1"), "{hoarding}");
    assert_contains!(hoarding, "1 agent: already offered to the framework");
    picky.decline(vec![offer.id], AN_HOUR);
    let mut quiet = ScriptedFramework::subscribe(&cluster, framework("quiet", "b"));
    let offer = quiet.offer();

    let went_first = explain(&cluster, &["picky", "--agent", host]);
    let holder = format!(
        "{} in role b holds cpus:4;mem:512 (share 1.000 against 0.000)",
        quiet.id
    );
    assert!(
        went_first.contains("1 agent: the resources went to other clients")
            && went_first.contains(&holder),
        "{went_first}"
    );
    let suppress = quiet.driver.suppress(BTreeSet::new());
    suppress.expect("the driver hears");
    quiet.decline(vec![offer.id], AN_HOUR);

    let filtered = eventually("the agent to be free", || {
        let text = explain(&cluster, &["picky", "--role", "a"]);
        text.contains("1 agent: the framework declined it recently")
            .then_some(text)
    });
    let detail = format!("{host} ({id}): cpus:4;mem:512 is filtered for another 3");
    assert!(filtered.contains(&detail), "{filtered}");
    let suppressed = explain(&cluster, &[quiet.id.as_str()]);
    let standing = "  everywhere: the framework suppressed offers in this role";
    assert!(suppressed.contains(standing), "{suppressed}");
    let limited = explain(&cluster, &["limited", "--agent", id]);
    let limit = "  1 agent: the quota limit of role eng leaves too little";
    assert!(limited.contains(limit), "{limited}");

    let answer = page(&cluster, "framework=limited&role=eng/web");
    let role = &answer["roles"][0];
    assert_eq!(
        (&answer["name"], &role["agents"]),
        (&"limited".into(), &1.into())
    );
    let reason = &role["reasons"][0];
    assert_eq!(reason["reason"], "quota_limit");
    assert_eq!(reason["examples"][0]["role"], "eng");
    assert_eq!(reason["examples"][0]["agent_id"], id);
    let answer = page(&cluster, "framework=picky");
    let example = &answer["roles"][0]["reasons"][0]["examples"][0];
    let left = example["seconds_left"].as_f64().expect("seconds");
    assert!(left > 3000.0 && left <= 3600.0, "{answer}");
    assert_eq!(example["offer"]["cpus"], 4.0);
    let answer = page(&cluster, "framework=quiet");
    assert_eq!(answer["roles"][0]["standing"][0]["reason"], "suppressed");
    let json: Value = serde_json::from_str(&explain(&cluster, &["quiet", "--json"])).expect("JSON");
    assert_eq!(json["framework_id"], answer["framework_id"]);

    let unknown = refused(&cluster, &["nobody"]);
    assert_contains!(
        unknown,
        "framework is `nobody`: expected the id or the name"
    );
    let unknown = refused(&cluster, &["picky", "--role", "b"]);
    assert_contains!(unknown, "role is `b`: expected one of the framework's, a");
    let unknown = refused(&cluster, &["picky", "--agent", "nowhere"]);
    assert_contains!(unknown, "agent is `nowhere`: expected the id or the host");
    for (query, problem) in [
        ("framework=nobody", "framework is `nobody`"),
        ("role=a", "expected `/explain?framework=ID`"),
        ("framework=picky&rule=a", "rule is `a`: expected"),
    ] {
        let (status, text) = get(cluster.port, &format!("/explain?{query}"));
        assert!(
            status.contains(" 400 ") && text.contains(problem),
            "{status} {text}"
        );
    }
}

/// Only the leader's allocator has the explanation.
#[test]
fn follower_redirects_explain_to_the_leader() {
    let (cluster, _others) = Cluster::of_three_masters();
    let scripted = ScriptedFramework::subscribe(&cluster, framework("web", "a"));
    let path = format!("/master/explain?framework={}", scripted.id);
    let mut sent = 0;
    for address in cluster.master.split(',') {
        let (_, port) = address.rsplit_once(':').expect("a port");
        let port = port.parse().expect("a port");
        let (head, body) = eventually("an answer that is not 503", || {
            let answer = send_whole(port, "GET", &path, "");
            (!answer.0.contains(" 503 ")).then_some(answer)
        });
        if head.contains(" 307 ") {
            let location = header(&head, "location").expect("a location");
            assert!(location.ends_with(&path), "{head}");
            sent += 1;
        } else {
            assert!(
                head.contains(" 200 ") && body.contains("\"agents\":0"),
                "{head} {body}"
            );
        }
    }
    assert_eq!(sent, 2);
    let text = explain(&cluster, &["web"]);
    assert!(text.ends_with("  no agents are registered\n"), "{text}");
}
