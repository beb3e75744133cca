//! The snapshot in the text format of Prometheus (OpenMetrics 1.0). Names are a contract with dashboards: they stay.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::snapshot::{Moved, Snapshot};

/// The text.
pub fn encode(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("headgate");
    registry.register_collector(Box::new(Scrape(snapshot)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Scrape(Snapshot);

type Labels<'a> = [(&'a str, &'a str)];

fn gauge(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    value.encode(e.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counter(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(e.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// One metric with a value for each set of labels.
fn family<'a>(
    e: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
    values: impl Iterator<Item = (Vec<(&'a str, &'a str)>, u64)>,
) -> fmt::Result {
    let mut metric = e.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in values {
        let labels: &Labels<'_> = &labels;
        let encoder = metric.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
            _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)?,
        }
    }
    Ok(())
}

/// `nfs/tcp` as two labels.
fn way(key: &str) -> Vec<(&str, &str)> {
    let (protocol, transport) = key.split_once('/').unwrap_or((key, ""));
    vec![("protocol", protocol), ("transport", transport)]
}

impl Collector for Scrape {
    fn encode(&self, mut e: DescriptorEncoder<'_>) -> fmt::Result {
        let s = &self.0;
        gauge(&mut e, "ready", "1 while connections are taken", u64::from(s.ready))?;
        gauge(&mut e, "uptime_seconds", "Seconds since the start", s.uptime_seconds)?;
        self.connections(&mut e)?;
        self.traffic(&mut e)?;
        self.held(&mut e)?;
        self.pool(&mut e)?;
        family(
            &mut e,
            ("violations", "Rules that peers broke", MetricType::Counter),
            s.violations.iter().map(|(rule, n)| (vec![("rule", rule.as_str())], *n)),
        )
    }
}

impl Scrape {
    fn connections(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let s = &self.0;
        let mut open = std::collections::BTreeMap::new();
        for c in &s.connections {
            *open.entry((c.protocol.name(), c.transport.as_str())).or_insert(0) += 1;
        }
        family(
            e,
            ("connections_open", "Connections now", MetricType::Gauge),
            open.iter().map(|((p, t), n)| (vec![("protocol", *p), ("transport", *t)], *n)),
        )?;
        family(
            e,
            ("connections_opened", "Connections so far", MetricType::Counter),
            s.opened.iter().map(|(key, n)| (way(key), *n)),
        )?;
        counter(e, "connections_refused", "Connections refused by a limit", s.refused)
    }

    fn traffic(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let s = &self.0;
        family(
            e,
            ("requests", "Requests received", MetricType::Counter),
            s.moved.iter().map(|(key, m)| (way(key), m.requests)),
        )?;
        type Path = (&'static str, fn(&Moved) -> u64);
        let paths: [Path; 4] = [
            ("rdma_write", |m| m.rdma_write),
            ("rdma_read", |m| m.rdma_read),
            ("inline_in", |m| m.inline_in),
            ("inline_out", |m| m.inline_out),
        ];
        let bytes = s.moved.iter().flat_map(|(key, m)| {
            paths.iter().map(move |(path, of)| {
                let mut labels = way(key);
                labels.push(("path", *path));
                (labels, of(m))
            })
        });
        family(e, ("transferred_bytes", "Bytes by the way they went", MetricType::Counter), bytes)?;
        family(
            e,
            ("invalidations", "Sends with Invalidate", MetricType::Counter),
            s.moved.iter().map(|(key, m)| (way(key), m.invalidations)),
        )
    }

    fn held(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let s = &self.0.state;
        gauge(e, "held_files", "Files that a client holds open, locked or cached", s.nodes)?;
        gauge(e, "cached_files", "Files that a client may cache", s.grants)?;
        let counts = [
            ("recall", s.recalls),
            ("revocation", s.revocations),
            ("wait", s.waits),
            ("delay", s.delays),
            ("denial", s.denials),
        ];
        family(
            e,
            ("conflicts", "What conflicts between clients led to", MetricType::Counter),
            counts.into_iter().map(|(kind, n)| (vec![("outcome", kind)], n)),
        )
    }

    fn pool(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.pool.iter().map(|c| c.buffer_bytes.to_string()).collect();
        type Field = (&'static str, &'static str, fn(&super::snapshot::PoolStatus) -> u64);
        let fields: [Field; 3] = [
            ("pool_buffers_used", "Buffers in use", |c| c.used),
            ("pool_buffers_max", "Buffers there may be", |c| c.max),
            ("pool_waiting", "Requests that wait for a buffer", |c| c.waiting),
        ];
        for (name, help, of) in fields {
            let values = self.0.pool.iter().zip(&sizes);
            family(
                e,
                (name, help, MetricType::Gauge),
                values.map(|(c, size)| (vec![("bytes", size.as_str())], of(c))),
            )?;
        }
        Ok(())
    }
}
