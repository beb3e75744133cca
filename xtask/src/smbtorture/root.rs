//! The suite itself: Samba's newest version, from Debian's backports, unpacked into a folder with every library that it needs and
//! run there by chroot, because this system's version is years older and cannot use its libraries.
//!
//! The folder is built once, in the lab's cache. It gets its final name when it is complete, so an interrupted one is never used.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::sh::{Result, output};
use crate::trixie::{self, MIRROR, RELEASE, cache};

/// The version series for which the lists were made.
const SERIES: &str = "4.24";
/// The suite, and the tool by which it cuts connections of its clients.
const PACKAGES: [&str; 3] = ["samba-testsuite", "iptables", "dash"];
/// Folders that are below `usr` on current systems.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// File with the version.
const STAMP: &str = "version";
const PREFIX: &str = "smbtorture-";

/// Uses separate mounts, which end with the process: the root `$0` is read-only except for `/tmp`, which is the folder where the
/// process was started.
const ENTER: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && \
    mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && mount --bind . \"$0/tmp\" && \
    exec chroot \"$0\" smbtorture \"$@\"";

/// Where smbtorture puts its files; without these options it looks for folders of an installed Samba.
const OPTIONS: [&str; 9] = [
    "--configfile=/dev/null",
    "--basedir=/tmp",
    "--option=lock directory=/tmp",
    "--option=state directory=/tmp",
    "--option=cache directory=/tmp",
    "--option=private dir=/tmp",
    "--option=pid directory=/tmp",
    "--option=ncalrpc dir=/tmp",
    "--option=log file=/tmp/log",
];

/// A folder with the suite in it.
#[derive(Clone, Debug)]
pub(super) struct Root {
    dir: PathBuf,
    version: String,
}

impl Root {
    /// Returns the existing folder, or builds one.
    pub(super) fn get() -> Result<Root> {
        let cache = cache();
        let failed = |e| format!("{}: {e}", cache.display());
        fs::create_dir_all(&cache).map_err(failed)?;
        // Two runs at once build it only once.
        let lock = File::create(cache.join("smbtorture.lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if let Some(root) = newest(&cache) {
            return Ok(root);
        }
        let scratch = cache.join(format!("building-smbtorture-{}", std::process::id()));
        let built = build(&cache, &scratch).map_err(|e| {
            format!(
                "cannot unpack {} of {RELEASE}-backports: {e}\n    it takes {MIRROR}, by http, once; or copy the folder \
                 {PREFIX}VERSION of a machine that has it to {}",
                PACKAGES[0],
                cache.display()
            )
        });
        // Leftovers of a failed build are useless; a finished build was renamed.
        let _ = fs::remove_dir_all(&scratch);
        built
    }

    /// Returns the version that the program reports.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns true if the lists were made with this series.
    pub(super) fn is_of_the_lists(&self) -> bool {
        self.version.strip_prefix(SERIES).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns the words that run it.
    pub(super) fn words(&self) -> Vec<String> {
        let unshare = ["unshare", "--mount", "sh", "-ec", ENTER].map(str::to_owned);
        let mut words = Vec::from(unshare);
        words.push(self.dir.display().to_string());
        words.extend(OPTIONS.map(str::to_owned));
        words
    }
}

/// Returns a complete folder, the lists' series before any other.
fn newest(cache: &Path) -> Option<Root> {
    let complete = |dir: PathBuf| {
        let named = dir.file_name()?.to_str()?.strip_prefix(PREFIX)?.to_owned();
        let version = fs::read_to_string(dir.join(STAMP)).ok()?.trim().to_owned();
        (named == version).then_some(Root { dir, version })
    };
    let listing = fs::read_dir(cache).ok()?;
    let found = listing.flatten().filter_map(|e| complete(e.path()));
    found.max_by_key(|root| (root.is_of_the_lists(), root.version.clone()))
}

fn build(cache: &Path, scratch: &Path) -> Result<Root> {
    println!("unpacking smbtorture of {RELEASE}-backports");
    let packages = trixie::download(&scratch.join("apt"), &PACKAGES)?;
    let root = scratch.join("root");
    for name in MERGED {
        let failed = |e| format!("{}: {e}", root.display());
        fs::create_dir_all(root.join("usr").join(name)).map_err(failed)?;
        symlink(format!("usr/{name}"), root.join(name)).map_err(failed)?;
    }
    for place in ["proc", "dev", "tmp"] {
        let place = root.join(place);
        fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    for package in &packages {
        output(&["dpkg-deb", "--extract", package, &root.display().to_string()])?;
    }
    let (shown, shell) = (root.display().to_string(), root.join("usr/bin/sh"));
    if !shell.exists() {
        symlink("dash", &shell).map_err(|e| format!("{}: {e}", shell.display()))?;
    }
    let said = output(&["chroot", &shown, "smbtorture", "--version", OPTIONS[0]])?;
    let version = version_of(&said).ok_or_else(|| format!("smbtorture --version said {said}"))?;
    let failed = |e| format!("{shown}: {e}");
    fs::write(root.join(STAMP), format!("{version}\n")).map_err(failed)?;
    let dir = cache.join(format!("{PREFIX}{version}"));
    fs::rename(&root, &dir).map_err(failed)?;
    Ok(Root { dir, version })
}

/// Reads `smbtorture 4.24.7-Debian-...`.
fn version_of(said: &str) -> Option<String> {
    let named = said.lines().find_map(|l| l.strip_prefix("smbtorture "))?;
    let version: String = named.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    (!version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_version_is_read() {
        let said = "smbtorture 4.24.7-Debian-4.24.7+dfsg-1~bpo13+1\nVersion 4.24.7-Debian\n";
        assert_eq!(version_of(said).as_deref(), Some("4.24.7"));
        assert_eq!(version_of("no such thing"), None);
    }

    #[test]
    fn interrupted_build_is_not_used() {
        let cache = std::env::temp_dir().join(format!("smbtorture-roots-{}", std::process::id()));
        let make = |name: &str, stamp: Option<&str>| {
            let dir = cache.join(name);
            fs::create_dir_all(&dir).unwrap();
            if let Some(version) = stamp {
                fs::write(dir.join(STAMP), version).unwrap();
            }
        };
        make("smbtorture-4.24.9", None);
        make("smbtorture-4.24.8", Some("4.24.7\n"));
        make("building-smbtorture-1", Some("1\n"));
        assert!(newest(&cache).is_none());
        make("smbtorture-4.25.1", Some("4.25.1\n"));
        make("smbtorture-4.24.7", Some("4.24.7\n"));
        let found = newest(&cache).unwrap();
        assert_eq!((found.version(), found.is_of_the_lists()), ("4.24.7", true));
        fs::remove_dir_all(&cache).unwrap();
    }
}
