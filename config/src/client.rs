//! Who may come to a share from where, and how.

use std::fmt;
use std::str::FromStr;

use crate::settings::{Cidr, Squash};

/// One entry of `clients`. Of those that have an address, the one of the longest prefix counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// From where.
    pub from: Cidr,
    /// It changes nothing, by whatever protocol.
    pub read_only: bool,
    /// NFS: which users become the anonymous one; `None`: as the share says.
    pub squash: Option<Squash>,
    /// NFS: the user that squashed callers become; `None`: 65534.
    pub anonuid: Option<u32>,
    /// NFS: its group.
    pub anongid: Option<u32>,
}

impl From<Cidr> for Client {
    fn from(from: Cidr) -> Self {
        Self { from, read_only: false, squash: None, anonuid: None, anongid: None }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.from)?;
        let id = |key: &str, id: Option<u32>| id.map(|id| format!("{key}={id}"));
        let said = [
            self.read_only.then(|| "ro".to_owned()),
            self.squash.map(|squash| format!("squash={squash}")),
            id("anonuid", self.anonuid),
            id("anongid", self.anongid),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        if said.is_empty() { Ok(()) } else { write!(f, "({})", said.join(",")) }
    }
}

/// A range alone.
impl FromStr for Client {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Cidr>().map(Self::from)
    }
}
