//! Measures the gateway beside an earlier build of itself: the same loads by the same client, in turns.

use std::fs;
use std::process::Command;

use super::smb::{PASSWORD, Ports, USER, ours};
use super::{EARLIER_PART, Folder, Pair, UNITS, section, table_of_the_machine};
use crate::lab::gateway;
use crate::sh::{Result, output, run};

const NOW: Ports = Ports { smb: 22445, direct: 22446, nfs: 22049, nfs_rdma: 22050 };
const BEFORE: Ports = Ports { smb: 23445, direct: 23446, nfs: 23049, nfs_rdma: 23050 };

/// Measures beside the program that `args` begins with, and returns the part of the document.
pub(super) fn inside(args: &[String]) -> Result<String> {
    let Some((program, args)) =
        args.split_first().filter(|(program, _)| fs::metadata(program).is_ok())
    else {
        return Err(
            "name the program of the earlier build: cargo xtask bench earlier PROGRAM".into()
        );
    };
    run(&["ip", "link", "set", "lo", "up"])?;
    // Inherited by the servers and by the client.
    output(&["chrt", "--rr", "--pid", "20", &std::process::id().to_string()])?;
    let folder = Folder::new("/tmp/headgate-bench-earlier")?;
    let [files, others] = ["/dev/shm/headgate-bench-1", "/dev/shm/headgate-bench-2"];
    let (files, others) = (Folder::new(files)?, Folder::new(others)?);
    // The user of SMB and the squashed root of NFS write there.
    output(&["chmod", "0777", &files.0.display().to_string(), &others.0.display().to_string()])?;
    let now = ours(Command::new(gateway::program()), &folder, &files, NOW)?;
    let before = ours(Command::new(program), &folder, &others, BEFORE)?;
    let version = output(&[program, "--version"])?;
    let mut text = format!(
        "{EARLIER_PART}\nWritten by `cargo xtask bench earlier PROGRAM`: this build and an earlier one, measured in turns by the \
         client of this\nbuild, over loopback, files on tmpfs. Client and servers run at a real-time priority: what else the \
         machine does takes no\nprocessor from them.\n{UNITS}\n\n{}",
        table_of_the_machine(&format!("headgate itself: {}", version.trim()))?
    );
    let user = format!("{USER}:{PASSWORD}");
    let nfs = |p: Ports, version: &str| {
        format!("nfs://127.0.0.1:{}/share?version={version}&transport=tcp&mountport={0}", p.nfs)
    };
    let smb = |p: Ports, how: &str| format!("smb://{user}@127.0.0.1:{}/share{how}", p.smb);
    let direct = |p: Ports| format!("smb+rdma://{user}@127.0.0.1:{}/share", p.direct);
    let loads: [(&str, &str, [String; 2]); 6] = [
        ("NFS 3", "over TCP", [NOW, BEFORE].map(|p| nfs(p, "3"))),
        ("NFS 4.1", "over TCP", [NOW, BEFORE].map(|p| nfs(p, "4.1"))),
        ("SMB 3.1.1", "over TCP", [NOW, BEFORE].map(|p| smb(p, ""))),
        ("SMB 3.1.1", "over TCP, signed", [NOW, BEFORE].map(|p| smb(p, "?protect=sign"))),
        ("SMB 3.1.1", "over TCP, encrypted", [NOW, BEFORE].map(|p| smb(p, "?protect=seal"))),
        ("SMB 3.1.1", "over SMB Direct (iWARP in user space)", [NOW, BEFORE].map(direct)),
    ];
    for (protocol, title, [first, second]) in loads {
        let pair = Pair { title, first: ("now", first, &now), second: ("before", second, &before) };
        section(&mut text, protocol, &pair, args)?;
    }
    Ok(text)
}
