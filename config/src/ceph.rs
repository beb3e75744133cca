//! A folder of CephFS as the place of a share.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::paths::USER;
use crate::reader::shown;

/// What an option begins with that names one.
pub(crate) const PREFIX: &str = "ceph:";

/// Longest path, in bytes (`PATH_MAX`).
const PATH_MAX: usize = 4095;

/// A folder of a CephFS file system, and as whom the cluster knows the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceph {
    /// The file system.
    pub fs: String,
    /// The folder in it: absolute, without `.` and `..`, and no slash at its end but that of the top.
    pub path: String,
    /// The user of the cluster, without `client.`; `None`: `admin`.
    pub user: Option<String>,
    /// The cluster's configuration; `None`: /etc/ceph/ceph.conf.
    pub config: Option<PathBuf>,
    /// The user's key; `None`: where the configuration says.
    pub keyring: Option<PathBuf>,
    /// No other client of the cluster changes anything in the folder.
    pub exclusive: bool,
}

impl Ceph {
    /// With everything else as it is when nothing is said.
    pub(crate) fn new(fs: String, path: String) -> Self {
        Self { fs, path, user: None, config: None, keyring: None, exclusive: true }
    }

    /// The folder is that of the other, or lies in it or around it.
    pub(crate) fn overlap(&self, other: &Self) -> Option<&'static str> {
        let inside = |a: &str, b: &str| {
            b == "/"
                || a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let (a, b) = (&*self.path, &*other.path);
        match (self.fs == other.fs && self.config == other.config, inside(a, b), inside(b, a)) {
            (true, true, true) => Some("is the same as that of"),
            (true, true, false) => Some("lies inside that of"),
            (true, false, true) => Some("contains that of"),
            _ => None,
        }
    }
}

/// `FS` or `FS/PATH`.
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

/// A name that the cluster can have: of a file system or a user.
fn word(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.len() <= 255 && text.chars().all(good)
}

/// The name of a file system.
pub(crate) fn file_system(text: &str) -> Result<String, String> {
    match word(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "`{}` is not the name of a file system of Ceph (`ceph fs ls` lists them)",
            shown(text)
        )),
    }
}

/// The name of a user.
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

/// A folder of a file system.
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
    fn a_folder_is_named() {
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

    #[test]
    fn folders_that_overlap_are_seen() {
        let ceph = |text: &str| text.parse::<Ceph>().unwrap_or_else(|why| panic!("{why}"));
        let how = |a: &str, b: &str| ceph(a).overlap(&ceph(b));
        assert_eq!(how("fs/a", "fs/a/"), Some("is the same as that of"));
        assert_eq!(how("fs/a/b", "fs/a"), Some("lies inside that of"));
        assert_eq!(how("fs", "fs/a"), Some("contains that of"));
        assert_eq!(how("fs/ab", "fs/a"), None);
        assert_eq!(how("other/a", "fs/a"), None);
    }
}
