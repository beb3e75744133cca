//! What a share makes of those who use it, and of what they make.

use std::fmt;
use std::str::FromStr;

use policy::words;

use crate::access::Who;
use crate::reader::shown;

/// `(uid_t) -1`: chown(2) leaves an owner as it is, and setfsuid(2) the caller, so that a user of this number would keep the
/// rights of the gateway itself.
pub(crate) const NO_ID: u32 = u32::MAX;

/// The number of a user or group. The error says why the text is none.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(NO_ID) => Err(is_no_id(text)),
        Ok(id) => Ok(id),
        Err(_) => Err(format!("`{}` is not the number of a user or group", shown(text))),
    }
}

/// What is said of [`NO_ID`].
pub(crate) fn is_no_id(text: &str) -> String {
    let why = "chown(2) and setfsuid(2) take it for \"leave unchanged\"";
    format!("`{}` is not the number of a user or group: {why}", shown(text))
}

/// As whom everything is done that `access` lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Force {
    /// This user, with its groups.
    pub user: Option<Who>,
    /// With this group as the first.
    pub group: Option<Who>,
}

/// Most that something new gets of its mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// A file.
    pub file: Option<Mode>,
    /// A folder. Set-group-id and the sticky bit are set where they are said.
    pub folder: Option<Mode>,
}

/// Bits of a mode, written in octal digits.
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

/// What listings of folders show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum List {
    /// Every name.
    #[default]
    All,
    /// Names of what the user can read or enter.
    Visible,
}

/// Who follows symbolic links for SMB clients without the POSIX extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// The gateway, inside the share.
    #[default]
    Server,
    /// The clients.
    Client,
}

words!(Symlinks, "is not a mode of symbolic links", "server" => Server, "client" => Client);

words!(List, "is not a mode of listings", "all" => All, "visible" => Visible);
