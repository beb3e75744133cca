//! CephFS folders as the source of a share.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::paths::USER;
use crate::reader::shown;

/// Prefix of a `--share` path that denotes a CephFS folder.
pub(crate) const PREFIX: &str = "ceph:";

/// Maximum length of a path, in bytes (`PATH_MAX`).
const PATH_MAX: usize = 4095;

/// A folder of a CephFS file system, and the credentials with which the gateway accesses the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceph {
    /// Name of the file system.
    pub fs: String,
    /// Path of the folder in the file system: absolute, without `.` and `..`, and without a trailing slash except for the root.
    pub path: String,
    /// Ceph user without `client.`; `None`: `admin`.
    pub user: Option<String>,
    /// Ceph configuration file; `None`: /etc/ceph/ceph.conf.
    pub config: Option<PathBuf>,
    /// Keyring file, by default the one that the Ceph configuration names.
    pub keyring: Option<PathBuf>,
    /// No other client of the cluster changes files in the folder.
    pub exclusive: bool,
}

impl Ceph {
    /// Builds a folder with default values for all other settings.
    pub(crate) fn new(fs: String, path: String) -> Self {
        Self { fs, path, user: None, config: None, keyring: None, exclusive: true }
    }
}

/// Parses `FS` or `FS/PATH`.
impl FromStr for Ceph {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (fs, path) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, "/"),
        };
        Ok(Self::new(file_system(fs)?, folder(path)?))
    }
}

impl fmt::Display for Ceph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}{}", self.fs, self.path)
    }
}

/// Checks that the text is a valid name of a file system or user.
fn word(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.len() <= 255 && text.chars().all(good)
}

/// Parses the name of a file system.
pub(crate) fn file_system(text: &str) -> Result<String, String> {
    match word(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "`{}` is not the name of a file system of Ceph (`ceph fs ls` lists them)",
            shown(text)
        )),
    }
}

/// Parses the name of a user.
pub(crate) fn user(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("client.").unwrap_or(text);
    match word(name) {
        true => Ok(name.into()),
        false => Err(format!(
            "`{}` is not a user of Ceph; write `NAME` for `client.NAME`, as `ceph auth ls` lists it",
            shown(text)
        )),
    }
}

/// Parses a path inside a file system.
pub(crate) fn folder(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("`{}` is not an absolute path; begin it with `/`", shown(text)));
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| [".", ".."].contains(part)) || text.contains('\0') {
        return Err(format!("`{}` contains `.`, `..` or a NUL byte", shown(text)));
    }
    if parts.iter().any(|part| part.contains(USER)) {
        return Err(format!(
            "a folder for each user (`{USER}`) is possible on this host's file systems only, not in CephFS"
        ));
    }
    if text.len() > PATH_MAX {
        return Err(format!("a path has at most {PATH_MAX} bytes"));
    }
    Ok(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceph_folder_parses_from_text() {
        for (text, fs, path) in [
            ("fs", "fs", "/"),
            ("fs/", "fs", "/"),
            ("my.fs-1/a//b/", "my.fs-1", "/a/b"),
            ("fs/volumes/group/sub", "fs", "/volumes/group/sub"),
        ] {
            let wanted = Ceph::new(fs.into(), path.into());
            assert_eq!(text.parse(), Ok(wanted.clone()), "{text}");
            assert_eq!(wanted.to_string(), format!("ceph:{fs}{path}"));
        }
        for text in ["", "/a", "f s/a", "fs/../etc", "fs/a/./b", "fs/home/{user}"] {
            assert!(text.parse::<Ceph>().is_err(), "{text}");
        }
        assert_eq!(user("client.gate"), Ok("gate".into()));
        assert!(user("client.").is_err() && user("a b").is_err());
    }
}
