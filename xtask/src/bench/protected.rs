//! Measures signed and encrypted SMB against plain SMB: by SMB Direct with data placed directly and with data inside the messages,
//! and over TCP.

use std::process::Command;

use super::smb::{PASSWORD, Ports, USER, give_to_user, ours};
use super::{Folder, PROTECTED_PART, Pair, measure, rows, table_of_the_machine};
use crate::lab::gateway;
use crate::sh::{Result, output, run};

const PORTS: Ports = Ports { smb: 22445, direct: 22446, nfs: 22049, nfs_rdma: 22050 };
const WITHOUT_PAGES: Ports = Ports { smb: 23445, direct: 23446, nfs: 23049, nfs_rdma: 23050 };

/// Further arguments of `headgate bench`: each load for a second, 1 MiB, eight at a time.
const LOADS: [&str; 4] = ["--time", "1s", "--only", "write,read"];

const HEAD: &str = "| SMB 3.1.1 over | beside | load | rate | of that | ratio | CPU | of that | ratio |\n\
                    |---|---|---|---:|---:|---:|---:|---:|---:|\n";

/// Measures, and returns the part of the document.
pub(super) fn inside(args: &[String]) -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    // Inherited by the servers and by the client.
    output(&["chrt", "--rr", "--pid", "20", &std::process::id().to_string()])?;
    let folder = Folder::new("/tmp/headgate-bench-protected")?;
    let [files, others] = ["/dev/shm/headgate-bench-1", "/dev/shm/headgate-bench-2"];
    let (files, others) = (Folder::new(files)?, Folder::new(others)?);
    give_to_user(&files)?;
    give_to_user(&others)?;
    let us = ours(Command::new(gateway::program()), &folder, &files, PORTS)?;
    let mut without = Command::new("tests/lab/without-pipes.py");
    without.arg(gateway::program());
    let without = ours(without, &folder, &others, WITHOUT_PAGES)?;
    let mut text = format!(
        "{PROTECTED_PART}\nWritten by `cargo xtask bench protected`: one build, its own client, loopback, files on tmpfs, the \
         two ways in turns, 1 MiB at a\ntime, eight at once: MB/s, and the server's CPU seconds for a GiB. \"By Sends\" is the \
         same protection with `rdma_transforms` off: data\ntravels inside the messages. \"Without pages\" is a server for \
         which the system makes no pipes, so that it reads files into buffers\nas it does for data that it signs. Client and \
         server run at a real-time priority: what else the machine does takes no processor\nfrom them.\n\n{}\n{HEAD}",
        table_of_the_machine("headgate itself")?
    );
    let address = |port: u16| format!("127.0.0.1:{port}/share");
    let user = format!("{USER}:{PASSWORD}");
    let direct = |how: &str| format!("smb+rdma://{user}@{}{how}", address(PORTS.direct));
    let tcp = |port: u16, how: &str| format!("smb://{user}@{}{how}", address(port));
    let args: Vec<String> = LOADS.map(str::to_owned).into_iter().chain(args.to_vec()).collect();
    for (word, how) in [("signed", "sign"), ("encrypted", "seal")] {
        for (crc, off) in [("CRC on", ""), ("CRC off", "&crc=off")] {
            let placed = direct(&format!("?protect={how}{off}"));
            let unsigned = direct(&format!("?transforms=on{off}"));
            let by_sends = direct(&format!("?protect={how}&transforms=off{off}"));
            let title = format!("SMB Direct, {crc}, {word}");
            for (name, other) in [("unprotected", unsigned), ("by Sends", by_sends)] {
                let pair = Pair {
                    title: &title,
                    first: (word, placed.clone(), &us),
                    second: (name, other, &us),
                };
                compare(&mut text, &pair, &args)?;
            }
        }
        let how = format!("?protect={how}");
        let same = ("unprotected, without pages", tcp(WITHOUT_PAGES.smb, ""), &without);
        let paged = ("unprotected", tcp(PORTS.smb, ""), &us);
        for ((name, other, server), (first, by)) in
            [(same, (WITHOUT_PAGES.smb, &without)), (paged, (PORTS.smb, &us))]
        {
            let pair = Pair {
                title: &format!("TCP, {word}"),
                first: (word, tcp(first, &how), by),
                second: (name, other, server),
            };
            compare(&mut text, &pair, &args)?;
        }
    }
    Ok(text)
}

fn compare(text: &mut String, pair: &Pair<'_>, args: &[String]) -> Result<()> {
    println!("{}, beside {}", pair.title, pair.second.0);
    let mut of_pair = String::new();
    rows(&mut of_pair, &format!(" {} | {} |", pair.title, pair.second.0), &measure(pair, args)?)?;
    // All loads are of one size and depth.
    text.push_str(
        &of_pair.replace(" 1 MiB, a new file, depth 8", "").replace(" 1 MiB, depth 8", ""),
    );
    Ok(())
}
