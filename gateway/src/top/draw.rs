//! Draws the view on a terminal, or prints it as plain lines.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table, TableState, Wrap};
use rdma_transport::meter::Histogram;

use super::model::{Client, Operation, Pane, Screen, View};
use crate::admin::show::span;
use crate::admin::snapshot::{RateStatus, RefusedStatus};
use tools::table::{bytes, count};

const HELP: &str =
    "Tab 1 2 3 list   s sort   r reverse   ↑↓ select   Enter details   h help   q quit";

/// Formats bytes per second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A rate is small and not negative.
fn per_second(n: f64) -> String {
    format!("{}/s", bytes(n.max(0.0) as u64))
}

fn short(t: Option<Duration>) -> String {
    t.map_or_else(
        || "-".into(),
        |t| match t.as_micros() {
            0..10_000 => format!("{} us", t.as_micros()),
            10_000..10_000_000 => format!("{:.1} ms", t.as_secs_f64() * 1e3),
            _ => format!("{:.1} s", t.as_secs_f64()),
        },
    )
}

fn quantiles(h: &Histogram) -> [String; 3] {
    [500, 950, 990].map(|q| short(h.quantile(q)))
}

/// Describes the newest refusal.
fn refused_line(r: &RefusedStatus) -> String {
    let of = |what: &str, text: &str| match text {
        "" => String::new(),
        text => format!(" {what} {text}"),
    };
    let (user, share) = (of("user", &r.user), of("share", &r.share));
    let ago = span(r.age_seconds);
    format!(
        "refused {} {}{user}{share}, {} times, last {ago} ago: {}",
        r.client, r.rule, r.count, r.remedy
    )
}

/// Most rates that are shown above the lists.
const RATES_SHOWN: usize = 4;

/// Describes the rates that are nearest to their limit.
fn rates(all: &[(f64, RateStatus)]) -> Option<String> {
    #[allow(clippy::cast_precision_loss)] // For reading.
    let used = |(passes, r): &(f64, RateStatus)| passes / r.rate.max(1) as f64;
    let mut all: Vec<_> = all.iter().collect();
    all.sort_by(|a, b| b.1.waiting.cmp(&a.1.waiting).then(used(b).total_cmp(&used(a))));
    let more = all.len().saturating_sub(RATES_SHOWN);
    let told = all.iter().take(RATES_SHOWN).map(|(passes, r)| {
        #[allow(clippy::cast_precision_loss)] // For reading.
        let of = r.rate as f64;
        let show = |n: f64| if r.is_bytes() { per_second(n) } else { format!("{}/s", count(n)) };
        let waiting = if r.waiting > 0 { format!(" {} wait", r.waiting) } else { String::new() };
        format!("{} {} of {}{waiting}", r.title(), show(*passes), show(of))
    });
    let told: Vec<String> = told.collect();
    let more = if more > 0 { format!("; {more} more") } else { String::new() };
    (!told.is_empty()).then(|| format!("rates: {}{more}", told.join("; ")))
}

/// Returns the lines above the lists.
fn summary(v: &View) -> Vec<String> {
    let m = &v.moved;
    let [p50, p95, p99] = quantiles(&v.latency);
    let state = if v.ready { "serving" } else { "stopping" };
    let refused = if v.refused > 0 { format!(", {} refused", v.refused) } else { String::new() };
    let pool: Vec<String> = v
        .pool
        .iter()
        .map(|c| {
            let waiting =
                if c.waiting > 0 { format!(" {} wait", c.waiting) } else { String::new() };
            format!("{} {}/{}{waiting}", bytes(c.buffer_bytes), c.used, c.max)
        })
        .collect();
    let trouble = v.store.iter().map(|what| format!("NOT READY: {what}"));
    let mut lines = vec![
        format!(
            "headgate {} {state} for {}: {} connections{refused}",
            v.version,
            span(v.uptime_seconds),
            v.clients.len()
        ),
        format!(
            "RDMA Write {}  RDMA Read {}  inline out {}  inline in {}",
            per_second(m.rdma_write),
            per_second(m.rdma_read),
            per_second(m.inline_out),
            per_second(m.inline_in)
        ),
        format!(
            "requests {}/s  errors {}/s  latency p50 {p50}  p95 {p95}  p99 {p99}",
            count(m.requests),
            count(v.errors)
        ),
        format!("buffers {}  credits waiting {}", pool.join("  "), v.credits_waiting),
    ];
    lines.extend(rates(&v.limits));
    lines.extend(trouble);
    lines.extend(v.refused_last.as_ref().map(refused_line));
    lines
}

fn client_cells(c: &Client) -> Vec<String> {
    let s = &c.status;
    let fact = |name: &str| s.facts.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v);
    let version = if s.protocol.name() == "smb" { fact("dialect") } else { fact("NFS") };
    let r = &c.rates;
    vec![
        s.peer.clone(),
        format!("{} {version}", s.protocol.name()),
        s.transport.clone(),
        span(s.age_seconds),
        count(r.requests),
        per_second(r.rdma_write + r.rdma_read),
        per_second(r.inline_out + r.inline_in),
        s.why_not.as_ref().map_or_else(String::new, |w| w.reason.clone()),
    ]
}

fn operation_cells(o: &Operation) -> Vec<String> {
    let [p50, p95, p99] = quantiles(&o.took);
    let share = if o.share.is_empty() { "-".into() } else { o.share.clone() };
    let figures = [count(o.rate), count(o.errors), per_second(o.bytes), p50, p95, p99];
    [share, o.way.clone(), o.name.clone()].into_iter().chain(figures).collect()
}

const CLIENT_HEAD: [&str; 8] =
    ["client", "protocol", "by", "age", "requests/s", "by RDMA", "inline", "why not RDMA"];
const OPERATION_HEAD: [&str; 9] =
    ["share", "way", "operation", "rate/s", "errors/s", "data", "p50", "p95", "p99"];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View, screen: &mut Screen) {
    let summary = summary(view);
    let height = u16::try_from(summary.len()).unwrap_or(4);
    let [top, tabs, list, foot] = Layout::vertical([
        Constraint::Length(height),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary.join("\n")), top);
    frame.render_widget(Paragraph::new(tab_line(screen)), tabs);
    if screen.inside {
        inside(frame, list, view, screen);
    } else {
        table(frame, list, view, screen);
    }
    let hint = if screen.help { HELP } else { "h help   q quit" };
    let dim = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(hint).style(dim), foot);
}

fn tab_line(screen: &Screen) -> Line<'static> {
    let mut spans = Vec::new();
    for (n, pane) in Pane::ALL.into_iter().enumerate() {
        let chosen = pane == screen.pane;
        let style =
            if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::styled(format!(" {} {} ", n + 1, pane.title()), style));
    }
    let order = if screen.reverse { ", reversed" } else { "" };
    let by = screen.pane.sorts()[screen.sort];
    spans.push(Span::raw(format!("  by {by}{order}")));
    Line::from(spans)
}

fn table(frame: &mut Frame<'_>, area: Rect, view: &View, screen: &Screen) {
    let (head, rows): (&[&str], Vec<Vec<String>>) = match screen.pane {
        Pane::Clients => {
            (&CLIENT_HEAD, screen.clients(view).into_iter().map(client_cells).collect())
        }
        Pane::Operations => {
            let all = screen.operations(&view.operations);
            (&OPERATION_HEAD, all.into_iter().map(operation_cells).collect())
        }
        Pane::Shares => {
            let all = screen.operations(&view.shares);
            (&OPERATION_HEAD, all.into_iter().map(operation_cells).collect())
        }
    };
    let widths: Vec<Constraint> = (0..head.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count());
            let most = cells.chain([head[column].len()]).max().unwrap_or(0);
            Constraint::Length(u16::try_from(most).unwrap_or(u16::MAX))
        })
        .collect();
    let header = Row::new(head.to_vec()).style(Style::new().add_modifier(Modifier::BOLD));
    let marked = Style::new().bg(Color::Blue).fg(Color::White);
    let table = Table::new(rows.into_iter().map(Row::new), widths)
        .header(header)
        .column_spacing(2)
        .row_highlight_style(marked);
    let mut state = TableState::new().with_selected(screen.selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Draws the details of the selected connection.
fn inside(frame: &mut Frame<'_>, area: Rect, view: &View, screen: &Screen) {
    let clients = screen.clients(view);
    let Some(c) = clients.get(screen.selected) else { return };
    let s = &c.status;
    let mut lines =
        vec![format!("{} to {}, {} over {}", s.peer, s.local, s.protocol.name(), s.transport)];
    if let Some(why) = &s.why_not {
        lines.push(format!("no RDMA ({}): {}", why.reason, why.text));
    }
    lines.extend(s.facts.iter().map(|(name, value)| format!("{name}: {value}")));
    let m = &s.moved;
    lines.push(format!(
        "{} requests, RDMA Write {}, RDMA Read {}, inline out {}, in {}, {} invalidations, {} credits waiting",
        m.requests,
        bytes(m.rdma_write),
        bytes(m.rdma_read),
        bytes(m.inline_out),
        bytes(m.inline_in),
        m.invalidations,
        s.credits_waiting
    ));
    let block = Block::bordered().title(" one connection (Esc: back) ");
    let text = Paragraph::new(lines.join("\n")).wrap(Wrap { trim: false }).block(block);
    frame.render_widget(text, area);
}

/// Returns the text for output other than a terminal: the summary and the operations of the interval.
pub(super) fn plain(view: &View) -> String {
    let screen = Screen { pane: Pane::Operations, ..Screen::default() };
    let mut text = summary(view).join("\n") + "\n";
    for o in screen.operations(&view.operations).into_iter().filter(|o| o.rate > 0.0) {
        let [p50, p95, p99] = quantiles(&o.took);
        let share = if o.share.is_empty() { "-" } else { &o.share };
        text += &format!(
            "  {share} {} {}: {}/s, {} with an error, {}, p50 {p50} p95 {p95} p99 {p99}\n",
            o.way,
            o.name,
            count(o.rate),
            count(o.errors),
            per_second(o.bytes)
        );
    }
    text + "\n"
}
