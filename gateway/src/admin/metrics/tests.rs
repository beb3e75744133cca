use super::*;
use crate::admin::testing;

/// Returns the text of docs/metrics.md.
fn documented() -> String {
    let mut out = String::from(
        "# Metrics\n\n<!-- Made by `HEADGATE_WRITE_DOCS=1 cargo test -p gateway` from gateway/src/admin/metrics.rs. -->\n\n\
         `http://ADMIN/metrics` answers in the text format of Prometheus. The names are stable; a new version \
         uses new names for new metrics. For NFSv4, SEQUENCE and operations that only set the file handle count as part of \
         the operation after them, unless they fail; `transport` is `tcp` or the RDMA provider (`iwarp`, `verbs`). \
         [`deploy/grafana.json`](../deploy/grafana.json) is a dashboard \
         of them, [`deploy/prometheus-alerts.yaml`](../deploy/prometheus-alerts.yaml) rules for alerts.\n\n\
         The number of series is bounded: each share has `read`, `write` and `other`, and latency per operation is reported \
         only for the usual ones. Twenty shares whose clients use every operation over every transport make fewer than \
         5000.\n\n\
         Rates of the last minutes and latency: `sum by (operation) (rate(headgate_operation_seconds_count[5m]))` and \
         `histogram_quantile(0.99, sum by (le, operation) (rate(headgate_operation_seconds_bucket[5m])))`.\n\n\
         | metric | kind | labels | what it says |\n|---|---|---|---|\n",
    );
    for m in TABLE.iter().chain(PROCESS) {
        let labels: Vec<String> = m.labels.iter().map(|l| format!("`{l}`")).collect();
        let series: Vec<String> = m.series().iter().map(|s| format!("`{s}`")).collect();
        let (kind, labels) = (m.kind(), labels.join(", "));
        out += &format!("| {} | {kind} | {labels} | {} |\n", series.join("<br>"), m.help);
    }
    out += "\n## Rules\n\nThe values of `rule` in `headgate_violations_total`. Every rule and every \
            [limit](limits.md) exists from the start, with 0, so `increase(headgate_violations_total[5m]) > 0` \
            also sees the first violation.\n\n| rules of | names |\n|---|---|\n";
    let quoted =
        |names: &[&str]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    for family in rules::families() {
        out += &format!("| {} | {} |\n", family.of, quoted(&family.names));
    }
    out += &format!(
        "\n## Refusals\n\nThe values of `rule` in `headgate_refusals_total`: {}. `headgate status` names the refused client, \
         the request and the remedy.\n",
        quoted(&rules::refusals())
    );
    let statuses: Vec<&str> = failures::names().collect();
    out += &format!(
        "\n## Failures of RDMA devices\n\nThe values of `status` in `headgate_rdma_failures_total`: {}. \
         [RDMA networks](rdma.md#when-work-fails) says what each may mean.\n",
        quoted(&statuses)
    );
    out
}

#[test]
fn the_page_of_metrics_is_in_step() {
    testing::in_step("docs/metrics.md", &documented());
}

#[test]
fn what_has_ended_is_zero_and_not_gone() {
    let mut snapshot = testing::snapshot();
    snapshot.connections.clear();
    let text = encode(snapshot).unwrap();
    for line in [
        "headgate_connections_open{protocol=\"smb\",transport=\"tcp\"} 0",
        "headgate_credits_waiting{protocol=\"smb\",transport=\"tcp\"} 0",
        "headgate_connections_without_rdma{protocol=\"smb\",reason=\"not-asked\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn a_gateway_whose_state_folder_cannot_be_written_is_not_ready() {
    let text = encode(testing::full()).unwrap();
    for line in ["headgate_ready 0", "headgate_state_folder_writable 0"] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn what_never_happened_is_zero_from_the_start() {
    let text = encode(testing::snapshot()).unwrap();
    for line in [
        "headgate_violations_total{rule=\"iwarp_crc_mismatch\"} 0",
        "headgate_violations_total{rule=\"smb-silent\"} 0",
        "headgate_rdma_failures_total{status=\"remote-access\"} 0",
        "headgate_rdma_failures_total{status=\"retries-exceeded\"} 2",
        "headgate_violations_total{rule=\"rpcrdma.header.short\"} 0",
        "headgate_limits_met_total{limit=\"connections\"} 0",
        "headgate_limits_met_total{limit=\"opens-of-session\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    let series = text.lines().filter(|l| l.starts_with("headgate_violations_total")).count();
    assert!((90..150).contains(&series), "{series} series of rules");
}

#[test]
fn every_metric_has_its_stable_names_and_all_its_labels() {
    let text = encode(testing::snapshot()).unwrap();
    for m in TABLE {
        for series in m.series() {
            let line = text
                .lines()
                .find(|l| l.split(['{', ' ']).next() == Some(series.as_str()))
                .unwrap_or_else(|| panic!("{series} in\n{text}"));
            for label in m.labels {
                assert!(line.contains(&format!("{label}=\"")), "{label} in {line}");
            }
        }
    }
    for line in [
        "headgate_ready 1",
        "headgate_state_folder_writable 1",
        "headgate_connections_open{protocol=\"smb\",transport=\"tcp\"} 1",
        "headgate_connections_opened_total{protocol=\"smb\",transport=\"tcp\"} 3",
        "headgate_connections_refused_total 2",
        "headgate_refusals_total{rule=\"logon\"} 12",
        "headgate_refusals_total{rule=\"share-clients\"} 0",
        "headgate_storage_losses_total{share=\"data\"} 3",
        "headgate_syncs_total 8",
        "headgate_connections_without_rdma{protocol=\"smb\",reason=\"not-asked\"} 1",
        "headgate_requests_total{protocol=\"smb\",transport=\"tcp\"} 7",
        "headgate_transferred_bytes_total{protocol=\"smb\",transport=\"tcp\",path=\"rdma_write\"} 4194304",
        "headgate_held_files 5",
        "headgate_callbacks_total{operation=\"CB_RECALL\",outcome=\"answered\"} 2",
        "headgate_nlm_total{event=\"granted\"} 4",
        "headgate_limits_met_total{limit=\"opens-of-session\"} 3",
        "headgate_violations_total{rule=\"smb-signature\"} 1",
        "headgate_operation_errors_total{protocol=\"smb\",transport=\"tcp\",operation=\"READ\"} 1",
        "headgate_operations_total{protocol=\"smb\",transport=\"tcp\",operation=\"READ\"} 10",
        "headgate_share_operation_errors_total{share=\"data\",operation=\"read\"} 1",
        "headgate_share_operation_bytes_total{share=\"data\",operation=\"read\"} 40960",
        "headgate_smb_logons_total{outcome=\"refused\"} 12",
        "headgate_reloads_total{outcome=\"done\"} 2",
        "headgate_reload_refused 1",
        "process_cpu_seconds_total 1.25",
        "process_open_fds 33",
        "process_start_time_seconds 1700000000",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    let read = "protocol=\"smb\",transport=\"tcp\",operation=\"READ\"";
    for (end, within) in [("0.000064", 9), ("+Inf", 10)] {
        let line = format!("headgate_operation_seconds_bucket{{le=\"{end}\",{read}}} {within}");
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

/// Checks that every metric in a text exists, and returns how many the text names.
fn exist(text: &str) -> usize {
    let known: Vec<String> = TABLE.iter().chain(PROCESS).flat_map(Metric::series).collect();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_ours = |w: &&str| w.starts_with("headgate_") || w.starts_with("process_");
    let asked: Vec<&str> = words.filter(is_ours).collect();
    for word in &asked {
        assert!(known.iter().any(|k| k == word), "there is no metric {word}");
    }
    asked.len()
}

#[test]
fn the_alarms_ask_for_metrics_that_exist_and_say_what_to_do() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prometheus-alerts.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let rules: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let groups = rules["groups"].as_sequence().unwrap();
    let rules: Vec<_> = groups.iter().flat_map(|g| g["rules"].as_sequence().unwrap()).collect();
    assert!(rules.len() >= 12);
    // Check against an encoded snapshot, labels included: an alarm on a series that never exists would never fire.
    let encoded = encode(testing::snapshot()).unwrap();
    for rule in rules {
        let (name, expr) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        assert!(exist(expr) > 0 || expr.starts_with("up"), "{name}");
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].as_str().is_some_and(|t| t.len() > 10), "{name}");
        }
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        for (series, label) in selectors(expr) {
            let of = encoded.lines().filter(|l| l.starts_with(&format!("{series}{{")));
            let mut of = of.peekable();
            assert!(
                of.peek().is_some() && of.all(|l| l.contains(&format!("{label}="))),
                "{name}: {series}"
            );
        }
    }
}

/// Returns the metric names in an expression that have a selector, each with the selector's first label.
fn selectors(expr: &str) -> Vec<(&str, &str)> {
    expr.match_indices('{')
        .filter_map(|(at, _)| {
            let begin = expr[..at].rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let label = expr[at + 1..].split(['=', '!']).next()?;
            Some((&expr[begin.map_or(0, |b| b + 1)..at], label))
        })
        // Prometheus adds the label `job` itself, to metrics of any source.
        .filter(|(_, label)| *label != "job")
        .collect()
}

#[test]
fn twenty_shares_whose_clients_do_everything_stay_below_five_thousand_series() {
    let mut snapshot = testing::snapshot();
    let one = snapshot.operations.remove(0);
    let nfs: std::collections::BTreeSet<&str> =
        (0..=u8::MAX).map(nfsrdma::operation::name).collect();
    let smb: std::collections::BTreeSet<&str> =
        (0..=u8::MAX).map(smb_proto::smb2::Command::name_of).collect();
    assert!(nfs.len() > 70 && smb.len() >= 19, "{} {}", nfs.len(), smb.len());
    let shares: Vec<String> = (0..20).map(|n| format!("share{n}")).collect();
    let empty = String::new();
    for share in shares.iter().chain([&empty]) {
        for transport in ["tcp", "iwarp", "verbs"] {
            for (protocol, names) in [(Protocol::Nfs, &nfs), (Protocol::Smb, &smb)] {
                snapshot.operations.extend(names.iter().map(|name| OperationStatus {
                    share: share.clone(),
                    transport: transport.into(),
                    protocol,
                    operation: (*name).into(),
                    ..one.clone()
                }));
            }
        }
    }
    let (ways, total) =
        (["nfs/tcp", "nfs/iwarp", "nfs/verbs", "smb/tcp", "smb/iwarp", "smb/verbs"], &one);
    snapshot.opened = ways.map(|way| (way.to_owned(), total.count)).into();
    snapshot.moved = ways.map(|way| (way.to_owned(), Moved::default())).into();
    snapshot.shares = shares
        .iter()
        .map(|name| crate::admin::usage::ShareStatus {
            name: name.clone(),
            space: Some(Space::default()),
            ..Default::default()
        })
        .collect();
    let text = encode(snapshot).unwrap();
    let series = text.lines().filter(|l| !l.starts_with('#')).count();
    assert!(series < 5000, "{series} series");
    for line in [
        "headgate_share_operation_seconds_count{share=\"share7\",operation=\"read\"} 90",
        "headgate_operation_seconds_count{protocol=\"nfs\",transport=\"tcp\",operation=\"READ\"} 210",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grafana.json");
    let dashboard = std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(json["panels"].as_array().is_some_and(|p| p.len() >= 10));
    assert!(exist(&dashboard) > 20);
    let labels: Vec<&str> = TABLE.iter().flat_map(|m| m.labels).copied().collect();
    for part in dashboard.split("by (").skip(1) {
        let list = part.split(')').next().unwrap_or_default();
        for label in list.split(',').map(str::trim) {
            assert!(label == "le" || labels.contains(&label), "a sum by {label}");
        }
    }
}
