//! The path by which NFS clients mount a share, if it is not `/NAME`.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a path (MNTPATHLEN, RFC 1813 section 5.1.1), and of a name in it, in bytes.
const PATH_MAX: usize = 1024;
const NAME_MAX: usize = 255;
/// Maximum number of names in a path.
const DEPTH_MAX: usize = 32;

/// An absolute path, stored without the first slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export(String);

impl Export {
    /// Returns the path without the first slash.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl FromStr for Export {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(format!(
                "`{text}` is not an absolute path; write it like `/srv/nfs/public`"
            ));
        };
        if text.len() > PATH_MAX {
            return Err(format!(
                "the path has {} bytes; at most {PATH_MAX} are allowed",
                text.len()
            ));
        }
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err("`/` holds all shares; name a path below it, like `/srv/nfs/public`".into());
        }
        let names = path.split('/');
        if names.clone().count() > DEPTH_MAX {
            return Err(format!("`{text}` has more than {DEPTH_MAX} names"));
        }
        for name in names {
            if matches!(name, "" | "." | "..") {
                return Err(format!("`{text}` has an empty name, `.` or `..` in it; leave it out"));
            }
            if name.len() > NAME_MAX || name.chars().any(char::is_control) {
                return Err(format!("{name:?} cannot be a name in a path of NFS"));
            }
        }
        Ok(Self(path.into()))
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_paths_must_be_plain() {
        let of = |text: &str| text.parse::<Export>().map(|export| export.to_string());
        assert_eq!(of("/srv/nfs/public"), Ok("/srv/nfs/public".into()));
        assert_eq!(of("/srv/"), Ok("/srv".into()));
        let long = format!("/{}", "n".repeat(NAME_MAX + 1));
        let deep = "/d".repeat(DEPTH_MAX + 1);
        let whole = "/dd".repeat(PATH_MAX);
        for bad in [
            "", "srv", "/", "//", "//srv", "/a//b", "/a/./b", "/a/..", "/a\n", &long, &deep, &whole,
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
