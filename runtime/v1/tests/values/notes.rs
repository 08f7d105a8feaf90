//! Random labels, some with reserved keys.

use std::collections::BTreeMap;

use protocol::text::reserved_labels;

use crate::chance::Chance;

impl Chance {
    pub(super) fn pairs(&mut self) -> BTreeMap<String, String> {
        self.list(|chance| (chance.text(), chance.text()))
            .into_iter()
            .collect()
    }

    /// Labels, perhaps with a kept list, valid or not.
    pub(super) fn labels(&mut self) -> BTreeMap<String, String> {
        let said: &[(&[(&str, &str)], &str)] = &[
            (
                &[("k", "2")],
                r#"{"labels":[{"key":"k","value":"1"},{"key":"k","value":"2"}]}"#,
            ),
            (&[("k", "")], r#"{"labels":[{"key":"k"}]}"#),
            (
                &[("a", "1"), ("b", "")],
                r#"{"labels":[{"key":"b"},{"key":"a","value":"1"}]}"#,
            ),
            (&[("k", "1")], r#"{"labels":[{"key":"k","value":"1"}]}"#),
            (
                &[("k", "1")],
                r#"{"labels":[{"key":"k","value":"2"},{"key":"k"}]}"#,
            ),
            (&[], "{}"),
            (&[], "no JSON"),
        ];
        if self.half() {
            return self.pairs();
        }
        let (pairs, text) = self.pick(said);
        let mark = [(reserved_labels::LABELS, text)];
        let all = pairs.iter().chain(&mark);
        all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Labels, perhaps with discovery info, valid or not.
    pub(super) fn labels_of_what_is_found(&mut self) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        let found = self.some(|chance| {
            chance.pick(&[
                r#"{"visibility":"CLUSTER"}"#,
                r#"{"visibility":"EXTERNAL","name":"web","ports":{"ports":[{"number":80,"name":"http"}]}}"#,
                r#"{ "visibility": "CLUSTER" }"#,
                r#"{"visibility":"CLUSTER","unknown":1}"#,
                r#"{"name":"web"}"#,
                "no JSON",
            ])
        });
        labels.extend(found.map(|text| (reserved_labels::DISCOVERY.to_owned(), text.to_owned())));
        labels
    }

    /// Labels of a status, perhaps with an executor's details, valid or not.
    pub(super) fn labels_of_a_status(&mut self) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        let texts: [(&str, &[&str]); 4] = [
            (
                reserved_labels::CONTAINER_STATUS,
                &[
                    r#"{"network_infos":[{"ip_addresses":[{"protocol":"IPv4","ip_address":"172.17.0.2"}],"name":"bridge"}]}"#,
                    r#"{"cgroup_info":{"net_cls":{"classid":7}},"executor_pid":42}"#,
                    r#"{"container_id":{"value":"plain"},"executor_pid":42}"#,
                    "{}",
                    "no JSON",
                ],
            ),
            (
                reserved_labels::CHECK_STATUS,
                &[
                    r#"{"type":"HTTP","http":{"status_code":200}}"#,
                    r#"{"type":"COMMAND","command":{}}"#,
                    "{}",
                    r#"{"type": "TCP"}"#,
                ],
            ),
            (
                reserved_labels::CHECK_STATUSES,
                &[
                    r#"{"check_statuses":[{"name":"a","status":{"type":"TCP","tcp":{}}}]}"#,
                    r#"{"check_statuses":[]}"#,
                    "{}",
                ],
            ),
            (
                reserved_labels::LIMITATION,
                &[
                    r#"{"resources":[{"name":"mem","type":"SCALAR","scalar":{"value":64.0}}]}"#,
                    "{}",
                    r#"{"resources":[]}"#,
                ],
            ),
        ];
        for (mark, texts) in texts {
            let text = self.some(|chance| chance.pick(texts).to_owned());
            labels.extend(text.map(|text| (mark.to_owned(), text)));
        }
        labels
    }
}
