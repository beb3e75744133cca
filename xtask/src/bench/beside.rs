//! The kernel's client on us and on the kernel's servers, in guests of the lab.

use std::fmt::Write as _;

use super::DEVICES_PART;
use crate::lab::Beside;
use crate::sh::Result;

const HOW: &str = "Both servers and the client run in one guest of the lab, which is held on one processor and where a system call \
                   costs\na program several microseconds, a clock that is read included. One file of 64 MiB on tmpfs, direct \
                   I/O by fio; the best of\n3 rounds in turns. MB/s for 1 MiB, operations per second for 4 KiB; \"per CPU s\" is \
                   the same for a second in which the guest was\nbusy, with client and server.\n";

const HEAD: &str = "| load | headgate | the kernel | ratio | per CPU s: headgate | the kernel | ratio |\n\
                    |---|---:|---:|---:|---:|---:|---:|\n";

/// A section of the first part of the document.
pub(super) fn by_iwarp() -> Result<String> {
    let mut text = format!(
        "\n## The kernel's client over RDMA (siw; our side iWARP in user space), beside the kernel's server\n\n{HOW}"
    );
    for one in crate::lab::beside_the_kernel(false)? {
        // Writing to a string does not fail.
        let _ = write!(text, "\n### NFS {}\n\n{HEAD}{}", one.version, rows(&one));
    }
    Ok(text)
}

/// The part about devices.
pub(super) fn by_device() -> Result<String> {
    let mut text = format!(
        "{DEVICES_PART}\nWritten by `cargo xtask bench devices`. The kernel's client, and both servers by the same device: the \
         gateway through\nlibibverbs, the kernel's own within the kernel. No card was measured.\n{HOW}"
    );
    for one in crate::lab::beside_the_kernel(true)? {
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

fn rows(one: &Beside) -> String {
    let row = |figure: &String| {
        let mut fields = figure.split(" | ");
        let mut next = || fields.next().unwrap_or_default();
        let [load, ours, theirs, our_cpu, their_cpu] = [next(), next(), next(), next(), next()];
        let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
        let (ratio, cpu) = (number(ours) / number(theirs), number(our_cpu) / number(their_cpu));
        format!(
            "| {load} | {ours} | {theirs} | **{ratio:.2}** | {our_cpu} | {their_cpu} | **{cpu:.2}** |\n"
        )
    };
    one.figures.iter().map(row).collect()
}
