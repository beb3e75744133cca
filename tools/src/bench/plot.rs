//! Draws the figures: bars of rates, and below them the spread of latency, one colour for each server.

use std::fmt::Write;
use std::time::Duration;

use super::Peer;
use super::report::{rate, short};
use super::sample::Sample;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 250.0;
const BAR: f64 = 16.0;
const COLOURS: [&str; 2] = ["#1565c0", "#c2410c"];

/// Draws the picture. Each load has a separate linear scale for rates, up to the best; latencies share a logarithmic scale.
pub(super) fn svg(peers: &[Peer]) -> String {
    let loads = peers.first().map_or(0, |p| p.best.len());
    #[allow(clippy::cast_precision_loss)] // A few.
    let (group, servers) = (peers.len() as f64 * BAR + 22.0, peers.len() as f64);
    let head = 24.0 + servers * 16.0;
    #[allow(clippy::cast_precision_loss)]
    let section = loads as f64 * group + 52.0;
    let height = head + 2.0 * section;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" \
        font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (n, peer) in peers.iter().enumerate() {
        let y = 20.0 + BAR * index(n);
        text(&mut out, (20.0, y), COLOURS[n % 2], &peer.target.to_string());
    }
    text(&mut out, (20.0, head + 14.0), "black", "Rate, more is better");
    text(
        &mut out,
        (20.0, head + section + 14.0),
        "black",
        "Latency from the median to 99 %, less is better",
    );
    let groups = head + 24.0 + index(loads) * group;
    axis(&mut out, (head + 20.0, groups), &RATES);
    axis(&mut out, (head + section + 20.0, groups + section), &LATENCIES);
    for load in 0..loads {
        let all: Vec<&Sample> = peers.iter().filter_map(|p| p.best.get(load)).collect();
        let top = head + 24.0 + index(load) * group;
        rates(&mut out, top, &all);
        latencies(&mut out, top + section, &all);
    }
    out + "</svg>\n"
}

/// Marks on the axis of rates, as fractions of each load's best.
const RATES: [(f64, &str); 5] =
    [(0.0, "0"), (0.25, "25 %"), (0.5, "50 %"), (0.75, "75 %"), (1.0, "best")];
/// Marks on the axis of latency, one for each power of ten.
const LATENCIES: [(f64, &str); 8] = [
    (0.0, "1 us"),
    (1.0 / 7.0, "10 us"),
    (2.0 / 7.0, "100 us"),
    (3.0 / 7.0, "1 ms"),
    (4.0 / 7.0, "10 ms"),
    (5.0 / 7.0, "100 ms"),
    (6.0 / 7.0, "1 s"),
    (1.0, "10 s"),
];

/// Draws an axis below bars, with a line up from each of its marks.
fn axis(out: &mut String, (top, bottom): (f64, f64), marks: &[(f64, &str)]) {
    let span = WIDTH - LEFT - 110.0;
    for (part, words) in marks {
        let x = LEFT + span * part;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#d9dfe8\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" fill=\"#5c6878\" font-size=\"10\" text-anchor=\"middle\">{words}</text>",
            bottom + 11.0
        );
    }
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{bottom:.1}\" x2=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#5c6878\"/>",
        LEFT + span
    );
}

#[allow(clippy::cast_precision_loss)] // A few.
fn index(n: usize) -> f64 {
    n as f64
}

fn rates(out: &mut String, top: f64, all: &[&Sample]) {
    let best = all.iter().map(|s| s.rate).fold(f64::MIN_POSITIVE, f64::max);
    for (n, s) in all.iter().enumerate() {
        let y = top + index(n) * BAR;
        let width = (WIDTH - LEFT - 110.0) * s.rate / best;
        bar(out, (LEFT, y, width), COLOURS[n % 2]);
        text(out, (LEFT + width + 6.0, y + 12.0), "black", &rate(s));
        if n == 0 {
            text(out, (20.0, y + 12.0), "black", &s.to_string());
        }
    }
}

/// Returns the position of a latency on the axis from 1 us to 10 s.
fn place(latency: Duration) -> f64 {
    let decades = (latency.as_secs_f64() * 1e6).max(1.0).log10().min(7.0);
    LEFT + (WIDTH - LEFT - 110.0) * decades / 7.0
}

fn latencies(out: &mut String, top: f64, all: &[&Sample]) {
    for (n, s) in all.iter().enumerate() {
        let (y, median, high) = (top + index(n) * BAR, s.latency.p50, s.latency.p99);
        let (from, to) = (place(median), place(high));
        bar(out, (from, y, (to - from).max(2.0)), COLOURS[n % 2]);
        text(out, (to + 6.0, y + 12.0), "black", &format!("{} to {}", short(median), short(high)));
        if n == 0 {
            text(out, (20.0, y + 12.0), "black", &s.to_string());
        }
    }
}

fn bar(out: &mut String, (x, y, width): (f64, f64, f64), colour: &str) {
    let height = BAR - 3.0;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample::{Kind, Latency};

    fn peer(target: &str, rate: f64) -> Peer {
        let [p50, p95, p99, p999, max] = [1, 2, 3, 4, 5].map(Duration::from_millis);
        let latency = Latency { p50, p95, p99, p999, max };
        let (client_cpu, server_cpu) = (Duration::ZERO, None);
        let sample =
            |kind| Sample { kind, depth: 1, block: 4096, rate, client_cpu, server_cpu, latency };
        let best = [Kind::Read, Kind::Mixed].map(sample).into();
        Peer { target: target.parse().unwrap(), pid: None, best, rates: vec![vec![rate]; 2] }
    }

    #[test]
    fn the_plot_shows_each_load_of_each_server_to_scale() {
        let a = peer("nfs://a/x?version=4.2&transport=rdma", 200.0);
        let picture = svg(&[a, peer("nfs://b/x", 100.0)]);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<rect x=").count(), 8);
        // The full width is 860 - 250 - 110; the other bar has half of it.
        assert_eq!(picture.matches("width=\"500.0\"").count(), 2);
        assert_eq!(picture.matches("width=\"250.0\"").count(), 2);
        assert!(picture.contains("transport=rdma") && picture.contains("&amp;"), "{picture}");
        assert!(!picture.contains("3&transport"), "it is escaped");
        for (_, mark) in RATES.iter().chain(&LATENCIES) {
            assert!(picture.contains(&format!(">{mark}</text>")), "{mark}");
        }
        // The mark of a power of ten has the position of a bar that begins with that latency.
        assert!((place(Duration::from_millis(10)) - (LEFT + 500.0 * LATENCIES[4].0)).abs() < 0.1);
        assert!(picture.contains("1000 us to 3000 us"), "{picture}");
    }

    #[test]
    fn latency_beyond_all_scales_stays_in_the_picture() {
        assert!((place(Duration::ZERO) - LEFT).abs() < 0.1);
        assert!(place(Duration::from_secs(1000)) < WIDTH);
    }
}
