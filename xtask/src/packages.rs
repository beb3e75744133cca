//! Installs the Debian packages of the tests where they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sh::{Result, command, output};

/// Packages to build the lab's kernel.
const KERNEL: &[&str] =
    &["flex", "bison", "bc", "libelf-dev", "libssl-dev", "xz-utils", "make", "gcc", "libc6-dev"];

/// Clients, RDMA tools, and programs of the guests' jobs.
const LAB: &[&str] = &[
    "python3",
    "nfs-common",
    "cifs-utils",
    "iproute2",
    "kmod",
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
    "smbclient",
];

/// Clients and decoders of other projects, the headers of rdma-core, and a Ceph cluster.
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
    "libglib2.0-bin",
    "dbus-bin",
    "dbus-daemon",
    "libsmbclient",
    "avahi-daemon",
    "avahi-utils",
    "wsdd",
    "nmap",
    "python3-zeroconf",
    "python3-netifaces",
    "python3-click",
];

/// A Ceph cluster, and a client of it from another project.
const CEPH: &[&str] =
    &["ceph-mon", "ceph-osd", "ceph-mds", "ceph-mgr", "ceph-common", "libcephfs2", "ceph-fuse"];

/// Two kinds of servers of a CephFS, one of which is made to fail.
const FAILOVER: &[&str] = &[
    "nfs-ganesha",
    "nfs-ganesha-ceph",
    "nfs-ganesha-rados-grace",
    "etcd-server",
    "iputils-arping",
    "iproute2",
];

/// The registry's `rdma-sys` generates its bindings with it; only Debian 12 has it.
const LIBCLANG: &[&str] = &["libclang1-14", "libclang-common-14-dev"];

/// Programs to unpack Samba's conformance suite and run it in a separate root.
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

/// The other server of the benchmarks, and its dependencies.
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

/// Samba's domain controller, and the libraries that its client does not install.
pub(crate) const DOMAIN_CONTROLLER: &[&str] = &[
    "samba",
    "samba-ad-provision",
    "samba-dsdb-modules",
    "samba-vfs-modules",
    "winbind",
    "libnss-winbind",
    "libgpgme11",
    "tdb-tools",
];

/// The server of a directory, its tools and the libraries of both.
pub(crate) const DIRECTORY: &[&str] = &[
    "slapd",
    "ldap-utils",
    "libldap-2.5-0",
    "libltdl7",
    "libodbc2",
    "libargon2-1",
    "libwrap0",
    "libsasl2-2",
];

/// SSSD and adcli, which joins a machine, with the libraries that the client does not install.
pub(crate) const SSSD: &[&str] = &[
    "sssd-common",
    "sssd-ad",
    "sssd-ad-common",
    "sssd-krb5-common",
    "adcli",
    "libbasicobjects0",
    "libc-ares2",
    "libcollection4",
    "libdhash1",
    "libini-config5",
    "libjansson4",
    "libkeyutils1",
    "libnfsidmap1",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpath-utils1",
    "libref-array1",
    "libsasl2-2",
    "libsasl2-modules-gssapi-mit",
    "libsemanage2",
    "libsepol2",
    "libsmbclient",
    "libsss-certmap0",
    "libsss-idmap0",
    "libsss-nss-idmap0",
];

/// Tools for file systems in images.
const DISKS: &[&str] = &["btrfs-progs", "e2fsprogs", "xfsprogs", "iproute2", "mount", "util-linux"];

/// Tools to make a root file system.
const CLEAN_ROOT: &[&str] = &["mmdebstrap", "systemd-container", "util-linux"];

/// libFuzzer is C++.
const FUZZ: &[&str] = &["g++"];

/// Installs the missing packages of these tiers.
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

/// Installs these packages, unless there is such a program already, from whatever package.
pub(crate) fn install_program(program: &str, packages: &[&str]) -> Result<()> {
    if output(&[program, "--version"]).is_ok() {
        return Ok(());
    }
    apt(&["update", "-qq"], Path::new("/"))?;
    let words = ["install", "-y", "-qq", "--no-install-recommends"];
    apt(&[&words[..], packages].concat(), Path::new("/"))
}

/// How long another program may hold the package lists or the database of packages: new machines install updates at boot.
const LOCK_WAIT: Duration = Duration::from_secs(600);
/// Pause between tries for a lock that apt does not wait for.
const LOCK_TRY: Duration = Duration::from_secs(2);

/// Runs apt-get in a folder. While another program holds one of its locks, waits and prints which lock.
pub(crate) fn apt(words: &[&str], dir: &Path) -> Result<()> {
    // apt itself waits only for the lock of dpkg, and not for the lock of the lists.
    let timeout = format!("DPkg::Lock::Timeout={}", LOCK_WAIT.as_secs());
    let words = [&["apt-get", "-o", &timeout], words].concat();
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        let mut apt = command(&words);
        // tshark asks whether users other than root may capture.
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

/// Returns the lock that apt-get could not get, from its message.
fn held_lock(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("Could not get lock ")?;
    let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.'))
}

/// Unpacks a package below a new folder, and returns the path of this program in it. The package is not installed, because that
/// would start its service.
pub(crate) fn unpack(package: &str, dir: &Path, program: &str) -> Result<PathBuf> {
    unpack_all(&[package], dir, program)
}

/// Like [`unpack`], for several packages.
pub(crate) fn unpack_all(packages: &[&str], dir: &Path, program: &str) -> Result<PathBuf> {
    // Two instances of apt cannot use the lists at once.
    static APT: Mutex<()> = Mutex::new(());
    let _turn = APT.lock().map_err(|e| e.to_string())?;
    let program = dir.join(program);
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let download = || apt(&[&["download", "-qq"], packages].concat(), dir);
    // The download fails if the package lists are old or were deleted.
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
    fn held_lock_is_named() {
        let dpkg = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt-get)\nE: Unable to acquire";
        assert_eq!(held_lock(dpkg), Some("/var/lib/dpkg/lock-frontend"));
        let lists =
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt)\n";
        assert_eq!(held_lock(lists), Some("/var/lib/apt/lists/lock"));
        assert_eq!(held_lock("E: Unable to locate package x"), None);
    }
}
