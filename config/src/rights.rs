//! Settings of a share that change its users' identity and the modes of new files.

use std::fmt;
use std::str::FromStr;

use policy::words;

use crate::access::Who;
use crate::reader::shown;

/// `(uid_t) -1`: chown(2) then leaves the owner unchanged and setfsuid(2) the caller, so a user with this number would keep the
/// rights of the gateway itself.
pub(crate) const NO_ID: u32 = u32::MAX;

/// Parses the number of a user or group. The error explains why the text is not one.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(NO_ID) => Err(is_no_id(text)),
        Ok(id) => Ok(id),
        Err(_) => Err(format!("`{}` is not the number of a user or group", shown(text))),
    }
}

/// Returns the error message for [`NO_ID`].
pub(crate) fn is_no_id(text: &str) -> String {
    let why = "chown(2) and setfsuid(2) take it for \"leave unchanged\"";
    format!("`{}` is not the number of a user or group: {why}", shown(text))
}

/// The identity under which all operations of allowed users run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Force {
    /// This user, with its groups.
    pub user: Option<Who>,
    /// This group as the primary group.
    pub group: Option<Who>,
}

/// Limits of the modes of new files and folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Mask for new files.
    pub file: Option<Mode>,
    /// Mask for new folders. Set-group-id and the sticky bit are set if the mask has them.
    pub folder: Option<Mode>,
}

/// Mode bits, written in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let is_octal =
            (3..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| is_octal && *bits <= 0o7777);
        bits.map(Self).ok_or_else(|| {
            format!(
                "`{}` is not a mode; write octal digits like `0660`, or `2770` for a folder",
                shown(text)
            )
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// The entries that folder listings show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum List {
    #[default]
    All,
    /// Only entries that the user can read or enter.
    Visible,
}

/// Selects whether gateway or client follows symbolic links, for SMB clients without the POSIX extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// The gateway, inside the share.
    #[default]
    Server,
    Client,
}

words!(Symlinks, "is not a mode of symbolic links", "server" => Server, "client" => Client);

words!(List, "is not a mode of listings", "all" => All, "visible" => Visible);
