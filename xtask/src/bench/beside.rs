//! Measures the kernel's client on the gateway and on the kernel's servers, in guests of the lab.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{DEVICES_PART, NFS_PROTECTED_PART};
use crate::lab::{Beside, Measured};
use crate::sh::Result;

const HOW: &str = "One guest of the lab has both servers and the client on one processor; a system call costs a program several \
                   microseconds\nthere, a clock that is read included. One file of 64 MiB on tmpfs, direct I/O by fio; the best \
                   of 3 rounds in turns. MB/s for 1 MiB,\noperations per second for 4 KiB; \"per CPU s\": for a second in which \
                   the guest was busy, with client and server.\n";

const HEAD: &str = "| load | headgate | the kernel | ratio | per CPU s: headgate | the kernel | ratio |\n\
                    |---|---:|---:|---:|---:|---:|---:|\n";

const OF_SYS: &str = "| load | headgate | the kernel | ratio | per CPU s: headgate | the kernel | ratio | of its `sys`: headgate | \
                      the kernel |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";

/// Writes a section of the first part of the document.
pub(super) fn by_iwarp() -> Result<String> {
    let mut text = format!(
        "\n## The kernel's client over RDMA (siw; our side iWARP in user space), beside the kernel's server\n\n{HOW}"
    );
    for one in crate::lab::beside_the_kernel(Measured::ByIwarp)? {
        // Writing to a string does not fail.
        let _ = write!(text, "\n### NFS {}\n\n{HEAD}{}", one.version, rows(&one));
    }
    Ok(text)
}

/// Writes the part about devices.
pub(super) fn by_device() -> Result<String> {
    let mut text = format!(
        "{DEVICES_PART}\nWritten by `cargo xtask bench devices`. The kernel's client, and both servers by the same device: the \
         gateway through\nlibibverbs, the kernel's own within the kernel. No card was measured.\n{HOW}"
    );
    for one in crate::lab::beside_the_kernel(Measured::ByDevice)? {
        let (what, peer) = if one.is_smb { ("SMB", "ksmbd") } else { ("NFS", "knfsd") };
        let device = match one.device {
            "rxe" => "rxe (RoCE v2)",
            _ => "siw (iWARP)",
        };
        let _ = write!(
            text,
            "\n## {what} {} on {device}, beside {peer}\n\n{HEAD}{}",
            one.version,
            rows(&one)
        );
    }
    Ok(text)
}

/// Writes the part about encrypted and signed NFS.
pub(super) fn protected() -> Result<String> {
    let mut text = format!(
        "{NFS_PROTECTED_PART}\nWritten by `cargo xtask bench nfs-protected`. NFS 4.2 over TCP by the kernel's client, beside the \
         kernel's own server, each by\n`sec=sys`, `krb5`, `krb5i`, `krb5p` and `xprtsec=tls`. A guest of the lab has no AES \
         instructions in its kernel, which is where the\nclient and the kernel's server encrypt: compare each server with itself \
         by `sys`, not one with the other.\nWhere the kernel's server \
         is below 0.05 of its `sys` by `krb5`, the guest was idle meanwhile: calls were dropped and sent again.\n{HOW}"
    );
    let measured = crate::lab::beside_the_kernel(Measured::Protected)?;
    let rate = |figure: &str, n: usize| {
        figure.split(" | ").nth(n).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let plain = measured.first().map(|one| one.figures.clone()).unwrap_or_default();
    for one in &measured {
        // Writing to a string does not fail.
        let _ = write!(text, "\n## `{}`\n\n{OF_SYS}", one.options);
        for (figure, base) in one.figures.iter().zip(&plain) {
            let of = |n| rate(figure, n) / rate(base, n);
            let _ = writeln!(text, "{} {:.2} | {:.2} |", row(figure).trim_end(), of(1), of(2));
        }
    }
    Ok(text)
}

/// System calls of a change, as strace counts them with 16 clients: 17 to 20.
const CALLS: u32 = 17;

/// Writes a section of the part about durability.
pub(super) fn changes() -> Result<String> {
    let mut text = format!(
        "\n## ext4 in a guest, beside the kernel's NFS server\n\nBoth servers and the client run in one guest of the lab, which \
         is held on one processor, each server with an ext4 of its own,\n`strict` here and `sync` with 16 threads there. \
         Operations per second by NFS 3 over TCP, the best of 4 rounds in turns; \"per CPU s\"\nis the same for a second in \
         which the guest was busy, with client, server and file system. The kernel's server makes no system\ncall; here one \
         costs a program what the second table says, many times as much as without a guest, and a change\ntakes \
         about {CALLS} of them and two threads: the last rows say what a server without any code of its own could reach so.\nThis \
         says what the guest costs, and the tables above what a machine takes.\n\n{}",
        HEAD.replacen("load", "change, clients", 1)
    );
    let measured = crate::lab::beside_the_kernel(Measured::Changes)?;
    let (mut limits, mut beside, mut rates) = (String::new(), String::new(), BTreeMap::new());
    for figure in measured.iter().flat_map(|one| &one.figures) {
        match figure.strip_prefix("limit ") {
            Some(limit) => {
                limits.push_str(&format!("| {limit} |\n"));
                rates.extend(limit.split_once(" | ").and_then(|(n, r)| Some((n, r.parse().ok()?))));
            }
            None => beside.push_str(&row(figure)),
        }
    }
    text.push_str(&beside);
    text.push_str("\n| a few lines in the guest, without any server | per second |\n|---|---:|\n");
    text.push_str(&limits);
    text.push_str(&of_a_server(&rates));
    Ok(text)
}

/// Computes the rate that 16 clients would get from a server that does only a change, its message, and as many system calls as the
/// gateway.
fn of_a_server(rates: &BTreeMap<&str, f64>) -> String {
    let takes = |what: &str| rates.get(what).map_or(f64::NAN, |rate| 1.0 / rate);
    let alone = f64::from(CALLS) * takes("stat") + takes("message to and fro");
    let changes = ["create, 16", "setattr, 16", "remove, 16"].into_iter();
    changes
        .map(|c| {
            format!(
                "| {c}, with a message and {CALLS} `stat` | {:.0} |\n",
                1.0 / (alone + takes(c))
            )
        })
        .collect()
}

fn rows(one: &Beside) -> String {
    one.figures.iter().map(|figure| row(figure)).collect()
}

fn row(figure: &str) -> String {
    let mut fields = figure.split(" | ");
    let mut next = || fields.next().unwrap_or_default();
    let [load, ours, theirs, our_cpu, their_cpu] = [next(), next(), next(), next(), next()];
    let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    let (ratio, cpu) = (number(ours) / number(theirs), number(our_cpu) / number(their_cpu));
    format!(
        "| {load} | {ours} | {theirs} | **{ratio:.2}** | {our_cpu} | {their_cpu} | **{cpu:.2}** |\n"
    )
}
