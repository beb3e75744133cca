//! Runs programs of the next Debian, for which this system is too old: downloads them with their libraries and runs them without an
//! installation.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sh::{Result, output};

/// The release, whose backports count as well.
pub(crate) const RELEASE: &str = "trixie";
/// Mirror of its packages.
pub(crate) const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys of both systems' archives.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the lab's cache, the same as in `tests/lab/build-kernel`.
pub(crate) fn cache() -> PathBuf {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let home = || var("HOME").unwrap_or_default().join(".cache");
    let lab = || var("XDG_CACHE_HOME").unwrap_or_else(home).join("headgate-lab");
    var("LAB_CACHE").unwrap_or_else(lab)
}

/// Downloads these packages and all their dependencies by a separate apt configuration without installed packages; returns the
/// paths of the files.
pub(crate) fn download(apt: &Path, packages: &[&str]) -> Result<Vec<String>> {
    let folder = |name: &str| {
        let dir = apt.join(name);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok::<_, String>(dir)
    };
    let archives = folder("cache/archives/partial")?.join("..");
    folder("state/lists/partial")?;
    let etc = folder("etc/parts")?.join("..");
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let source = |suite: &str| format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n");
    let backports = format!("{RELEASE}-backports");
    let status = apt.join("status");
    write(&status, "")?;
    write(&etc.join("sources.list"), &(source(RELEASE) + &source(&backports)))?;
    let options = [
        format!("Dir::State={}", apt.join("state").display()),
        format!("Dir::State::status={}", status.display()),
        format!("Dir::Cache={}", apt.join("cache").display()),
        format!("Dir::Etc::sourcelist={}", etc.join("sources.list").display()),
        format!("Dir::Etc::sourceparts={}", etc.join("parts").display()),
        format!("Dir::Etc::preferencesparts={}", etc.join("parts").display()),
        "Dir::Etc::preferences=/dev/null".into(),
        "APT::Install-Recommends=false".into(),
        "APT::Sandbox::User=root".into(),
        "APT::Update::Error-Mode=any".into(),
    ];
    let with = |words: &[&str]| {
        let mut all = vec!["apt-get", "-qq"];
        all.extend(options.iter().flat_map(|o| ["-o", o.as_str()]));
        all.extend(words);
        output(&all).map_err(|e| last_lines(&e))
    };
    with(&["update"])?;
    let install = ["install", "--yes", "--download-only", "-t", &backports];
    with(&[&install[..], packages].concat())?;
    let listing = fs::read_dir(&archives).map_err(|e| format!("{}: {e}", archives.display()))?;
    let paths = listing.flatten().map(|e| e.path().display().to_string());
    Ok(paths.filter(|p| p.ends_with(".deb")).collect())
}

/// Returns the end of apt's output, which follows a long command line.
fn last_lines(said: &str) -> String {
    let said: Vec<&str> = said.lines().filter(|l| !l.trim().is_empty()).collect();
    said[said.len().saturating_sub(3)..].join("; ")
}
