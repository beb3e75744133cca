//! The Debian packages that the tests use, installed where they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sh::{Result, command, output};

/// To build the lab's kernel.
const KERNEL: &[&str] =
    &["flex", "bison", "bc", "libelf-dev", "libssl-dev", "xz-utils", "make", "gcc", "libc6-dev"];

/// Clients, RDMA tools, and what jobs call in the guest.
const LAB: &[&str] = &[
    "python3",
    "nfs-common",
    "cifs-utils",
    "iproute2",
    "mount",
    "rdma-core",
    "rdmacm-utils",
    "ibverbs-providers",
    "xfsprogs",
    "e2fsprogs",
    "util-linux",
    "acl",
    "attr",
    "nfs4-acl-tools",
    "procps",
    "bubblewrap",
    "binutils",
    "openssl",
    "krb5-kdc",
    "krb5-admin-server",
    "krb5-user",
];

/// Other people's clients and decoders, the headers of rdma-core, and a cluster of Ceph.
const THIRD: &[&str] = &[
    "libnfs-utils",
    "libnfs13",
    "python3-pip",
    "tshark",
    "tcpdump",
    "smbclient",
    "samba-common-bin",
    "krb5-kdc",
    "krb5-admin-server",
    "krb5-user",
    "faketime",
    "etcd-server",
    "iproute2",
    "python3-impacket",
    "python3-cryptography",
    "chromium-headless-shell",
    "binutils",
    "libibverbs-dev",
    "librdmacm-dev",
    "pkg-config",
    "ceph-mon",
    "ceph-osd",
    "ceph-mds",
    "ceph-mgr",
    "ceph-common",
    "libcephfs-dev",
];

/// A cluster of Ceph, and a client of it that is not ours.
const CEPH: &[&str] =
    &["ceph-mon", "ceph-osd", "ceph-mds", "ceph-mgr", "ceph-common", "libcephfs2", "ceph-fuse"];

/// Two kinds of servers of a CephFS, of which one goes.
const FAILOVER: &[&str] = &[
    "nfs-ganesha",
    "nfs-ganesha-ceph",
    "nfs-ganesha-rados-grace",
    "etcd-server",
    "iputils-arping",
    "iproute2",
];

/// What the registry's `rdma-sys` makes its bindings with; only Debian 12 has it.
const LIBCLANG: &[&str] = &["libclang1-14", "libclang-common-14-dev"];

/// To unpack Samba's conformance suite and run it in its own root.
const SMBTORTURE: &[&str] = &[
    "apt",
    "dpkg",
    "coreutils",
    "debian-archive-keyring",
    "iproute2",
    "mount",
    "util-linux",
    "xfsprogs",
];

/// The peer of the benchmarks, and what it needs.
const BENCH: &[&str] = &[
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "nfs-kernel-server",
    "fio",
    "rpcbind",
    "smbclient",
    "samba-common-bin",
    "samba-libs",
    "iproute2",
    "mount",
    "util-linux",
];

/// Samba's domain controller, and what of its libraries its client has not.
pub(crate) const DOMAIN_CONTROLLER: &[&str] = &[
    "samba",
    "samba-ad-provision",
    "samba-dsdb-modules",
    "samba-vfs-modules",
    "libgpgme11",
    "tdb-tools",
];

/// File systems in images.
const DISKS: &[&str] = &["e2fsprogs", "xfsprogs", "iproute2", "mount", "util-linux"];

/// To make a root file system.
const CLEAN_ROOT: &[&str] = &["mmdebstrap", "systemd-container", "util-linux"];

/// libFuzzer is C++.
const FUZZ: &[&str] = &["g++"];

/// Installs what the tiers need and what is not there.
pub(crate) fn install(tiers: &[&str]) -> Result<()> {
    let of_root: Vec<&str> = tiers
        .iter()
        .copied()
        .filter(|t| matches!(*t, "lab" | "third" | "smbtorture" | "clean-root"))
        .collect();
    if !of_root.is_empty() && output(&["id", "-u"])?.trim() != "0" {
        return Err(format!("{}: namespaces and guests take root", of_root.join(", ")));
    }
    let mut wanted: Vec<&str> = Vec::new();
    for tier in tiers {
        wanted.extend(match *tier {
            "lab" => [KERNEL, LAB].concat(),
            "third" => [KERNEL, LAB, THIRD, LIBCLANG, SMBTORTURE].concat(),
            "smbtorture" => SMBTORTURE.to_vec(),
            "ceph" => CEPH.to_vec(),
            "bench" => BENCH.to_vec(),
            "failover" => [CEPH, FAILOVER].concat(),
            "disks" => DISKS.to_vec(),
            "clean-root" => CLEAN_ROOT.to_vec(),
            "fuzz" => FUZZ.to_vec(),
            _ => Vec::new(),
        });
    }
    wanted.sort_unstable();
    wanted.dedup();
    let mut missing: Vec<&str> = wanted.into_iter().filter(|p| !is_installed(p)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !Path::new("/etc/debian_version").exists() {
        return Err(format!(
            "install these packages, by their Debian names: {}",
            missing.join(" ")
        ));
    }
    apt(&["update", "-qq"], Path::new("/"))?;
    missing.retain(|p| !LIBCLANG.contains(p) || output(&["apt-cache", "show", p]).is_ok());
    println!("installing {}", missing.join(" "));
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(&missing);
    apt(&words, Path::new("/"))
}

/// How long another program may keep the package lists or the database of packages: fresh machines install updates at their boot.
const LOCK_WAIT: Duration = Duration::from_secs(600);
/// How often a lock is tried that apt does not wait for.
const LOCK_TRY: Duration = Duration::from_secs(2);

/// Runs apt-get in a folder. While another program holds one of its locks it waits, and says for what.
pub(crate) fn apt(words: &[&str], dir: &Path) -> Result<()> {
    // apt itself waits for the lock of dpkg alone, and not for that of the lists.
    let timeout = format!("DPkg::Lock::Timeout={}", LOCK_WAIT.as_secs());
    let words = [&["apt-get", "-o", &timeout], words].concat();
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        let mut apt = command(&words);
        // tshark asks whether others than root may capture.
        apt.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").current_dir(dir);
        let done = apt.output().map_err(|e| format!("apt-get: {e}"))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        match held_lock(&said) {
            Some(lock) if begun.elapsed() < LOCK_WAIT => {
                if !is_told {
                    println!(
                        "waiting for {lock}, which another program holds, for {LOCK_WAIT:?} at most"
                    );
                    is_told = true;
                }
                std::thread::sleep(LOCK_TRY);
            }
            _ => return Err(format!("{}: {said}", words.join(" "))),
        }
    }
}

/// Returns the lock that apt-get could not get, as it says.
fn held_lock(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("Could not get lock ")?;
    let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.'))
}

/// Unpacks what a package holds below a folder, which is made, and gives this program of it. It is not installed: its service is
/// nobody's wish here.
pub(crate) fn unpack(package: &str, dir: &Path, program: &str) -> Result<PathBuf> {
    unpack_all(&[package], dir, program)
}

/// The same of several packages.
pub(crate) fn unpack_all(packages: &[&str], dir: &Path, program: &str) -> Result<PathBuf> {
    // apt wants its lists for itself.
    static APT: Mutex<()> = Mutex::new(());
    let _turn = APT.lock().map_err(|e| e.to_string())?;
    let program = dir.join(program);
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let download = || apt(&[&["download", "-qq"], packages].concat(), dir);
    // It is not found where the lists of packages are old or were thrown away.
    download().or_else(|_| apt(&["update", "-qq"], dir).and_then(|()| download()))?;
    let listing = fs::read_dir(dir).map_err(|e| e.to_string())?;
    let files = listing.flatten().map(|e| e.path());
    for file in files.filter(|p| p.extension().is_some_and(|e| e == "deb")) {
        output(&["dpkg-deb", "-x", &file.display().to_string(), &dir.display().to_string()])?;
    }
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{} have no {}", packages.join(", "), program.display())),
    }
}

fn is_installed(package: &str) -> bool {
    output(&["dpkg-query", "-W", "-f", "${Status}", package])
        .is_ok_and(|status| status == "install ok installed")
}

#[cfg(test)]
mod tests {
    use super::held_lock;

    #[test]
    fn a_lock_that_is_held_is_named() {
        let dpkg = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt-get)\nE: Unable to acquire";
        assert_eq!(held_lock(dpkg), Some("/var/lib/dpkg/lock-frontend"));
        let lists =
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt)\n";
        assert_eq!(held_lock(lists), Some("/var/lib/apt/lists/lock"));
        assert_eq!(held_lock("E: Unable to locate package x"), None);
    }
}
