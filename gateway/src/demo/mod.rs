//! `headgate demo`: a temporary folder, served on loopback, used by the project's own clients, every byte compared.
//!
//! *Operation.* The gateway runs in this process, on ports that the system chooses. Each of NFS 3 and 4.1, over TCP and over
//! RDMA (iWARP in user space on 127.0.0.1), writes a large file and small ones, which are compared in the folder; reads them
//! back, which is compared again; and removes them.
//!
//! *Memory.* The data is views of one pattern of 2 MiB; nothing is held but what is on its way.
//!
//! *Errors.* A difference, or an operation that fails, marks its row and makes the exit code 1; the other rows go on.

mod data;
mod show;
mod work;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;
use client::Target;
use client::target::{Transport, Version};
use config::{Rdma, Settings, Share, Source, Squash};

use crate::serve::{self, Running};

/// Name of the share.
const SHARE: &str = "demo";

/// Options of `headgate demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Size of the large file that each client moves both ways
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    size: config::Size,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. `Err` is one line for standard error; `Ok(false)`: something differed, and was shown.
pub fn run(args: &DemoArgs) -> Result<bool, String> {
    let size = args.size.0.clamp(1, 64 << 30);
    let folder = tempfile::Builder::new()
        .prefix("headgate-demo.")
        .tempdir()
        .map_err(|e| format!("cannot make a temporary folder: {e}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start threads: {e}"))?;
    runtime.block_on(demo(folder.path(), size, args.json))
}

async fn demo(folder: &Path, size: u64, json: bool) -> Result<bool, String> {
    let shared = folder.join("share");
    std::fs::create_dir(&shared).map_err(|e| format!("{}: {e}", shared.display()))?;
    let owner = std::fs::metadata(&shared).map_err(|e| e.to_string())?;
    let running = serve::start(settings(folder, &shared)).await?;
    let (tcp, rdma) = addresses(&running)?;
    if !json {
        show::begin(folder, tcp, rdma);
    }
    let plan = work::Plan { folder: shared, user: (owner.uid(), owner.gid()), size };
    let bars = show::Bars::new();
    let mut rows = Vec::new();
    for version in [Version::V3, Version::V41] {
        for (transport, at) in [(Transport::Tcp, tcp), (Transport::Rdma, rdma)] {
            let target = Target {
                host: at.ip().to_string(),
                port: at.port(),
                mount_port: tcp.port(),
                path: format!("/{SHARE}"),
                version,
                transport,
                crc: true,
            };
            rows.push(work::row(&target, &plan, &bars.row(&target, plan.bytes())).await);
        }
    }
    drop(bars);
    running.stop().await;
    match json {
        true => show::json(&rows),
        false => show::table(&rows),
    }
    Ok(rows.iter().all(work::Row::is_good))
}

fn settings(folder: &Path, shared: &Path) -> Settings {
    Settings {
        shares: vec![Share {
            name: SHARE.into(),
            source: Source::Folder(shared.into()),
            read_only: false,
            // The clients are whoever runs this; as root they must stay root to own the temporary folder.
            squash: Squash::None,
            clients: None,
        }],
        bind: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        rdma: Rdma::Iwarp,
        nfs_port: 0,
        nfs_rdma_port: 0,
        state: folder.join("state"),
        ..Settings::default()
    }
}

fn addresses(running: &Running) -> Result<(SocketAddr, SocketAddr), String> {
    let first = |list: &[SocketAddr], what| {
        list.first().copied().ok_or_else(|| format!("the gateway does not listen for {what}"))
    };
    Ok((first(&running.nfs, "NFS over TCP")?, first(&running.nfs_rdma, "NFS over RDMA")?))
}
