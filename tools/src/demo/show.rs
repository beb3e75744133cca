//! Output of the demo: progress bars and a table for people, JSON for programs.

use std::io::IsTerminal;
use std::path::Path;

use client::Target;
use client::target::Transport;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::Addresses;
use super::work::Row;
use crate::table::{Table, Tone, bytes};

/// Prints the addresses and the kinds of client before the demo starts.
pub(super) fn begin(folder: &Path, at: &Addresses) {
    say!("\n  headgate serves {} to its own clients:", folder.display());
    say!("  NFS over TCP on {}, SMB over TCP on {},", at.nfs, at.smb);
    say!(
        "  NFS over RDMA on {}, SMB Direct on {} (iWARP in user space, no device)\n",
        at.nfs_rdma,
        at.smb_direct
    );
}

/// One progress bar per client, shown only on a terminal.
pub(super) struct Bars(MultiProgress);

impl Bars {
    pub(super) fn new() -> Self {
        Self(MultiProgress::with_draw_target(match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        }))
    }

    pub(super) fn row(&self, target: &Target, size: u64) -> ProgressBar {
        let bar = self.0.add(ProgressBar::new(size));
        let template =
            "  {prefix:25} {bar:36.cyan/dim} {bytes:>11} {binary_bytes_per_sec:>12}  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        let protected = protected(target.protocol.protection());
        bar.set_prefix(format!("{} {}{protected}", target.protocol, transport(target.transport)));
        bar
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        // A terminal without escape codes keeps the bars; the table follows anyway.
        let _ = self.0.clear();
    }
}

fn transport(t: Transport) -> &'static str {
    match t {
        Transport::Tcp => "TCP",
        Transport::Rdma => "RDMA",
    }
}

fn protected(protection: &str) -> &'static str {
    match protection {
        "sign" => ", signed",
        "seal" => ", encrypted",
        _ => "",
    }
}

fn moved(row: &Row, n: u64) -> String {
    if row.transport == Transport::Tcp { "-".into() } else { bytes(n) }
}

/// Prints the table and the faults.
pub(super) fn table(rows: &[Row]) {
    let colour = std::io::stdout().is_terminal();
    let head = [
        "protocol",
        "transport",
        "RDMA Write",
        "RDMA Read",
        "inline",
        "write",
        "read",
        "CPU time",
        "verified",
    ];
    let mut table = Table::new(&head, 2, colour);
    for row in rows {
        let per_second = |r: f64| format!("{:.0} MB/s", r / 1e6);
        let cells = vec![
            row.protocol.clone(),
            match row.transport {
                Transport::Tcp => "TCP".into(),
                Transport::Rdma => format!("RDMA (iWARP){}", protected(row.protection)),
            },
            moved(row, row.by_rdma_write),
            moved(row, row.by_rdma_read),
            bytes(row.inline),
            per_second(row.write_rate),
            per_second(row.read_rate),
            format!("{:.2} s", row.cpu.as_secs_f64()),
            match row.is_good() {
                true => format!("{} ✓", bytes(row.verified)),
                false => "FAILED".into(),
            },
        ];
        table.row(cells, if row.is_good() { Tone::Plain } else { Tone::Bad });
    }
    say!("{}", table.render());
    for row in rows {
        if let Some(why) = &row.fault {
            let protected = protected(row.protection);
            say!("  {} over {}{protected}: {why}", row.protocol, transport(row.transport));
        }
    }
    if rows.iter().all(Row::is_good) {
        say!(
            "  Every byte was compared twice: in the folder, and after it was read back. CPU time is that of server"
        );
        say!(
            "  and client together. RDMA Write is what clients read, RDMA Read what they wrote.\n"
        );
    }
}

/// Prints one JSON value.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Rates are positive and far below 2^63.
pub(super) fn json(rows: &[Row]) {
    let rows: Vec<_> = rows
        .iter()
        .map(|r| {
            json!({
                "protocol": r.protocol.to_lowercase().replace(' ', ""),
                "transport": r.transport.to_string(),
                "protection": r.protection,
                "rdma_write_bytes": r.by_rdma_write,
                "rdma_read_bytes": r.by_rdma_read,
                "inline_bytes": r.inline,
                "write_bytes_per_second": r.write_rate as u64,
                "read_bytes_per_second": r.read_rate as u64,
                "cpu_seconds": (r.cpu.as_secs_f64() * 1e3).round() / 1e3,
                "verified_bytes": r.verified,
                "fault": r.fault,
            })
        })
        .collect();
    say!("{}", json!({ "rows": rows }));
}
