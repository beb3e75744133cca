//! Shows progress during the run, then prints tables or JSON.

use std::io::IsTerminal;
use std::time::Duration;

use client::Target;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::Peer;
use super::sample::{Kind, Latency, Sample};
use crate::table::{Table, Tone, count};

/// A progress bar on standard error, if that is a terminal.
pub(super) struct Progress(ProgressBar);

/// Steps of the bar for one load.
const PARTS: u64 = 100;

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64 * PARTS), target);
        if let Ok(style) =
            ProgressStyle::with_template("  {bar:30.cyan/dim} {percent:>3} %  {prefix}  {msg}")
        {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self(bar)
    }

    pub(super) fn target(&self, target: &Target) {
        self.0.set_prefix(target.to_string());
    }

    pub(super) fn kind(&self, kind: Kind) {
        self.0.set_message(kind.word());
    }

    /// Reports that the file is being written for the read loads.
    pub(super) fn preparing(&self) {
        self.0.set_message("writing the file");
    }

    /// Sets the progress of the current load, from 0 to 1.
    pub(super) fn within(&self, part: f64) {
        // Truncation is intended, and a part is never below 0.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let parts = (part * PARTS as f64) as u64;
        let done = self.0.position() / PARTS * PARTS;
        self.0.set_position(done + parts.min(PARTS - 1));
    }

    /// Completes the current load.
    pub(super) fn step(&self) {
        self.0.set_position((self.0.position() / PARTS + 1) * PARTS);
    }

    pub(super) fn done(&self) {
        self.0.finish_and_clear();
    }
}

pub(super) fn rate(s: &Sample) -> String {
    if s.kind.is_bulk() { format!("{:.0} MB/s", s.rate) } else { format!("{}/s", count(s.rate)) }
}

fn cost(kind: Kind, cpu: Duration) -> String {
    match kind.is_bulk() {
        true => format!("{:.2} s/GiB", cpu.as_secs_f64()),
        false => format!("{:.1} us", cpu.as_secs_f64() * 1e6),
    }
}

pub(super) fn short(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 10_000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1e3) }
}

fn row(s: &Sample) -> Vec<String> {
    let server = s.server_cpu.map_or("-".to_owned(), |c| cost(s.kind, c));
    let mut cells = vec![format!("{s}, depth {}", s.depth), rate(s)];
    let Latency { p50, p95, p99, p999, max } = s.latency;
    cells.extend([p50, p95, p99, p999, max].map(short));
    cells.extend([cost(s.kind, s.client_cpu), server]);
    cells
}

/// Prints a table per server, and one of ratios if there are two.
pub(super) fn tables(peers: &[Peer], rounds: usize) {
    let colour = std::io::stdout().is_terminal();
    for peer in peers {
        let best = if rounds > 1 { format!("  (best of {rounds})") } else { String::new() };
        say!("\n  {}{best}\n", peer.target);
        let mut head = vec![
            "load",
            "rate",
            "p50",
            "p95",
            "p99",
            "p99.9",
            "longest",
            "client CPU",
            "server CPU",
        ];
        if rounds > 1 {
            head.insert(2, "of all rounds");
        }
        let mut table = Table::new(&head, 1, colour);
        for (s, rates) in peer.best.iter().zip(&peer.rates) {
            let mut cells = row(s);
            if rounds > 1 {
                let [low, high] = spread(rates.iter().copied());
                let shown = |rate_of| rate(&Sample { rate: rate_of, ..*s });
                cells.insert(2, format!("{} to {}", shown(low), shown(high)));
            }
            table.row(cells, Tone::Plain);
        }
        say_as_is!("{}", table.render());
    }
    if let [a, b] = peers {
        say!("\n  the first in proportion to the second\n");
        let mut table = Table::new(&["load", "rate", "round by round", "server CPU"], 1, colour);
        for (n, (x, y)) in a.best.iter().zip(&b.best).enumerate() {
            let cpu = ratio_of_cpu(x, y).map_or("-".to_owned(), |r| format!("{r:.2}"));
            let [low, high] = ratios(peers, n);
            let cells = vec![
                x.to_string(),
                format!("{:.2}", x.rate / y.rate),
                format!("{low:.2} to {high:.2}"),
                cpu,
            ];
            table.row(cells, Tone::Plain);
        }
        say_as_is!("{}", table.render());
    }
}

/// Returns the lowest and the highest value.
fn spread(all: impl Iterator<Item = f64>) -> [f64; 2] {
    all.fold([f64::INFINITY, 0.0], |[low, high], one| [low.min(one), high.max(one)])
}

/// Returns the lowest and the highest ratio of rounds that ran one after the other.
fn ratios(peers: &[Peer], load: usize) -> [f64; 2] {
    let rates = |n: usize| peers.get(n).and_then(|p| p.rates.get(load)).into_iter().flatten();
    spread(rates(0).zip(rates(1)).map(|(a, b)| a / b))
}

fn ratio_of_cpu(x: &Sample, y: &Sample) -> Option<f64> {
    let (x, y) = (x.server_cpu?.as_secs_f64(), y.server_cpu?.as_secs_f64());
    (y > 0.0).then(|| x / y)
}

fn sample_json(s: &Sample) -> serde_json::Value {
    let us = |d: Duration| (d.as_secs_f64() * 1e7).round() / 10.0;
    // Round to nanoseconds: a small operation costs a few microseconds, so a tenth of one would be up to a twentieth of the value.
    let cpu = |d: Duration| (d.as_secs_f64() * 1e9).round() / 1e3;
    let Latency { p50, p95, p99, p999, max } = s.latency;
    let unit = if s.kind.is_bulk() { ("MB/s", "GiB") } else { ("op/s", "op") };
    json!({
        "load": s.kind.word(),
        "depth": s.depth,
        "block": s.block,
        "rate": (s.rate * 10.0).round() / 10.0,
        "rate_unit": unit.0,
        "cpu_per": unit.1,
        "client_cpu_us": cpu(s.client_cpu),
        "server_cpu_us": s.server_cpu.map(cpu),
        "latency_us": {
            "p50": us(p50), "p95": us(p95), "p99": us(p99), "p99.9": us(p999), "max": us(max),
        },
    })
}

/// Prints everything as one JSON value.
pub(super) fn json(peers: &[Peer]) {
    let targets: Vec<_> = peers
        .iter()
        .map(|p| {
            let loads: Vec<_> = p
                .best
                .iter()
                .zip(&p.rates)
                .map(|(s, rates)| {
                    let mut told = sample_json(s);
                    told["rates"] = rates.iter().map(|r| (r * 10.0).round() / 10.0).collect();
                    told
                })
                .collect();
            json!({ "target": p.target.to_string(), "loads": loads })
        })
        .collect();
    let ratios: Vec<_> = match peers {
        [a, b] => a
            .best
            .iter()
            .zip(&b.best)
            .enumerate()
            .map(|(n, (x, y))| {
                let hundredth = |r: f64| (r * 1000.0).round() / 1000.0;
                let [low, high] = ratios(peers, n);
                json!({
                    "load": x.kind.word(),
                    "rate": hundredth(x.rate / y.rate),
                    "rate_lowest": hundredth(low),
                    "rate_highest": hundredth(high),
                    "server_cpu": ratio_of_cpu(x, y).map(hundredth),
                })
            })
            .collect(),
        _ => Vec::new(),
    };
    say!("{}", json!({ "targets": targets, "ratios": ratios }));
}
