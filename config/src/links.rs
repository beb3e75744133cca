//! Folders of a share that are on other servers, as settings.

use crate::refer::Refer;

/// A folder of a share that is on other servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its path in the share, names joined by `/`.
    pub at: String,
    /// The servers, in order of preference.
    pub to: Vec<Refer>,
}

/// The links of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Symbolic links with the text `msdfs:SERVER\SHARE` are links as well.
    pub msdfs: bool,
    /// Links of the configuration.
    pub list: Vec<Link>,
}

impl Links {
    /// Returns true if the share has no links.
    pub fn is_empty(&self) -> bool {
        !self.msdfs && self.list.is_empty()
    }
}
