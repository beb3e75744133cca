//! `headgate demo`: serves a temporary folder on loopback to the project's own clients and compares every byte.
//!
//! *Operation.* The gateway runs in this process, on ports that the system chooses. The clients use NFS 3, NFS 4.1 and SMB
//! 3.1.1 over TCP and over RDMA (iWARP in user space on 127.0.0.1), and also signed and encrypted SMB Direct. Each one writes
//! a large file and several small ones, compares them in the folder, reads them back, compares them again and removes them.
//!
//! *Memory.* The data consists of views of one pattern of 2 MiB; only data in flight is held.
//!
//! *Errors.* A difference or a failed operation marks its row and makes the exit code 1; the other rows continue.

mod data;
mod show;
mod work;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;
use client::Target;
use client::smb::{Options, User};
use client::target::{Protocol, Transport, Version};
use config::{Identity, PrivilegedPorts, Rdma, Settings, Share, Signing, Source, Squash};

const SHARE: &str = "demo";

/// Upper bound in bytes for everything except the large file.
const SMALL: u64 = 16 << 20;
/// Time that running file operations have to finish when the demo ends.
const ENDING: std::time::Duration = std::time::Duration::from_secs(5);

/// A gateway in this process.
#[allow(async_fn_in_trait, reason = "one runtime polls it in place")]
pub trait Gateway: Sized {
    /// Starts to serve.
    ///
    /// # Errors
    /// One line with the reason.
    async fn start(settings: Settings) -> Result<Self, String>;

    /// Returns the addresses at which it listens.
    ///
    /// # Errors
    /// One line, if it does not listen for a protocol.
    fn addresses(&self) -> Result<Addresses, String>;

    /// Finishes the requests in work and ends.
    async fn stop(self);
}

/// Addresses at which a gateway listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub nfs: SocketAddr,
    pub nfs_rdma: SocketAddr,
    pub smb: SocketAddr,
    pub smb_direct: SocketAddr,
}

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

/// Runs the command. `Err` is one line for standard error; `Ok(false)` means that data differed, which the table shows.
pub fn run<G: Gateway>(args: &DemoArgs) -> Result<bool, String> {
    let size = args.size.0.clamp(1, 64 << 30);
    let folder = tempfile::Builder::new()
        .prefix("headgate-demo.")
        .tempdir()
        .map_err(|e| format!("cannot create a temporary folder: {e}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start threads: {e}"))?;
    let done = has_room(folder.path(), size).and_then(|()| {
        runtime.block_on(async {
            tokio::select! {
                // Polled first, to install the signal handlers before anything else: an earlier signal would leave the folder
                // behind.
                biased;
                () = crate::interrupt::signalled() => Err("interrupted; the temporary folder is removed".into()),
                done = demo::<G>(folder.path(), size, args.json) => done,
            }
        })
    });
    // Stop all writers before the folder is removed.
    runtime.shutdown_timeout(ENDING);
    let shown = folder.path().to_owned();
    let removed = folder.close().map_err(|e| format!("{}: {e}", shown.display()));
    done.and_then(|is_good| removed.map(|()| is_good))
}

/// Checks that the large file of one client and several small ones fit.
fn has_room(folder: &Path, size: u64) -> Result<(), String> {
    let Ok(found) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let (free, needed) = (found.f_bavail.saturating_mul(found.f_frsize), size + SMALL);
    if free >= needed {
        return Ok(());
    }
    let [needed, free] = [needed, free].map(crate::table::bytes);
    Err(format!(
        "the demo needs {needed} in {}, which has {free} free; give a smaller --size, or another folder by TMPDIR",
        folder.display()
    ))
}

async fn demo<G: Gateway>(folder: &Path, size: u64, json: bool) -> Result<bool, String> {
    let shared = folder.join("share");
    std::fs::create_dir(&shared).map_err(|e| format!("{}: {e}", shared.display()))?;
    let owner = std::fs::metadata(&shared).map_err(|e| e.to_string())?;
    let user = user(folder)?;
    let running = G::start(settings(folder, &shared, &owner, &user)?).await?;
    let at = running.addresses()?;
    if !json {
        show::begin(folder, &at);
    }
    let plan = work::Plan { folder: shared, user: (owner.uid(), owner.gid()), size };
    let bars = show::Bars::new();
    let mut rows = Vec::new();
    for target in targets(&at, &user) {
        rows.push(work::row(&target, &plan, &bars.row(&target, plan.bytes())).await);
    }
    drop(bars);
    running.stop().await;
    match json {
        true => show::json(&rows),
        false => show::table(&rows),
    }
    Ok(rows.iter().all(work::Row::is_good))
}

/// Creates the user for the SMB logon, with a random password that is valid only while the demo lasts.
fn user(folder: &Path) -> Result<User, String> {
    let mut password = [0; 12];
    getrandom::fill(&mut password).map_err(|e| format!("no random numbers: {e}"))?;
    let password: String = password.iter().map(|b| format!("{b:02x}")).collect();
    let mut file = std::fs::OpenOptions::new();
    let file = std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600)
        .write(true)
        .create_new(true)
        .open(password_file(folder));
    file.and_then(|mut f| std::io::Write::write_all(&mut f, password.as_bytes()))
        .map_err(|e| format!("cannot write the password file: {e}"))?;
    Ok(User { name: SHARE.into(), domain: String::new(), password })
}

fn password_file(folder: &Path) -> std::path::PathBuf {
    folder.join("password")
}

fn settings(
    folder: &Path,
    shared: &Path,
    owner: &std::fs::Metadata,
    user: &User,
) -> Result<Settings, String> {
    let mut settings = Settings {
        shares: vec![Share {
            // The clients act as the user who runs the demo; root must stay root to own the temporary folder.
            squash: Squash::None,
            ..Share::new(SHARE, Source::Folder(shared.into()))
        }],
        users: vec![config::User {
            name: user.name.clone(),
            password_file: Some(password_file(folder)),
            identity: Identity {
                uid: Some(owner.uid()),
                gid: Some(owner.gid()),
                groups: Some(Vec::new()),
            },
            limits: config::Rates::default(),
        }],
        bind: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        rdma: Rdma::Iwarp,
        nfs_port: 0,
        nfs_rdma_port: 0,
        state: folder.join("state"),
        // The clients cannot use ports below 1024 without root. The gateway then has only the rights of the same user.
        privileged_ports: match rustix::process::geteuid().is_root() {
            true => PrivilegedPorts::Local,
            false => PrivilegedPorts::Off,
        },
        ..Settings::default()
    };
    settings.smb.asked_for = true;
    (settings.smb.port, settings.smb.direct_port) = (0, 0);
    // Signing is optional, so that one row shows its cost against an unsigned row.
    settings.smb.signing = Signing::Offered;
    Ok(settings)
}

/// Returns the clients in the order of the table.
fn targets(at: &Addresses, user: &User) -> Vec<Target> {
    let nfs = |version| Protocol::Nfs { version, mount_port: Some(at.nfs.port()), security: None };
    let smb = |sign, seal| {
        let options = Options { sign, seal, ..Options::default() };
        Protocol::Smb { user: user.clone(), options }
    };
    [
        (nfs(Version::V3), Transport::Tcp, at.nfs),
        (nfs(Version::V3), Transport::Rdma, at.nfs_rdma),
        (nfs(Version::V41), Transport::Tcp, at.nfs),
        (nfs(Version::V41), Transport::Rdma, at.nfs_rdma),
        (smb(false, false), Transport::Tcp, at.smb),
        (smb(false, false), Transport::Rdma, at.smb_direct),
        (smb(true, false), Transport::Rdma, at.smb_direct),
        (smb(false, true), Transport::Rdma, at.smb_direct),
    ]
    .into_iter()
    .map(|(protocol, transport, at)| Target {
        host: at.ip().to_string(),
        port: at.port(),
        path: format!("/{SHARE}"),
        protocol,
        transport,
        crc: true,
        device: false,
    })
    .collect()
}
