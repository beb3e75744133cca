//! What a reload did, or why it was refused: data, which the control socket, the status page and the audit trail pass on.

use std::fmt;

use config::Faults;
use serde::{Deserialize, Serialize};

/// Why the running configuration stays.
#[derive(Debug)]
pub enum Refusal {
    /// The new one is wrong.
    Faults(Faults),
    /// It changes what cannot change while the gateway runs: the key, what it is now, what it would be.
    Fixed(Vec<Fixed>),
    /// It is sound and cannot be had here and now; one line.
    Failed(String),
}

/// A key that needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// As in the file.
    pub key: &'static str,
    /// What is in force.
    pub now: String,
    /// What was asked for.
    pub asked: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => faults.fmt(f),
            Self::Fixed(all) => {
                for (i, one) in all.iter().enumerate() {
                    let Fixed { key, now, asked } = one;
                    let line = if i > 0 { "\n" } else { "" };
                    write!(
                        f,
                        "{line}error: `{key}` cannot change while the gateway runs: it is {now}, and {asked} was requested"
                    )?;
                }
                f.write_str(
                    "\n  = restart the gateway, or restore the old value; nothing was changed",
                )
            }
            Self::Failed(why) => write!(f, "error: {why}\n  = nothing was changed"),
        }
    }
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Shares that are served now and were not.
    pub shares_added: Vec<String>,
    /// Shares that are not served any more, or are of another folder.
    pub shares_removed: Vec<String>,
    /// Shares of which something is said differently.
    pub shares_changed: Vec<String>,
    /// Listeners that were opened, as the ready line has them.
    pub opened: Vec<String>,
    /// Listeners that were closed.
    pub closed: Vec<String>,
    /// Users who can log on now and could not.
    pub users_added: Vec<String>,
    /// Users who cannot log on any more.
    pub users_removed: Vec<String>,
    /// For each share: the clients and users that lose access to it.
    #[serde(default)]
    pub access_lost: Vec<String>,
    /// Other keys: what they were and what they are.
    pub values: Vec<String>,
    /// SMB sessions that ended.
    pub sessions_ended: usize,
    /// SMB tree connects that ended, of sessions that go on.
    pub trees_ended: usize,
    /// Opens, locks and delegations of NFS that ended.
    pub opens_ended: usize,
    /// Connections that were asked to end.
    pub connections_ended: usize,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("the configuration is in force; nothing has changed");
        }
        f.write_str("the configuration is in force")?;
        for (what, list) in self.lists().into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "\n  {what}: {}", list.join(", "))?;
        }
        let numbers = [
            ("SMB sessions", self.sessions_ended),
            ("SMB tree connects", self.trees_ended),
            ("NFS opens, locks and delegations", self.opens_ended),
            ("connections", self.connections_ended),
        ];
        for (what, number) in numbers.into_iter().filter(|(_, n)| *n > 0) {
            write!(f, "\n  {what} ended: {number}")?;
        }
        Ok(())
    }
}

impl Changes {
    /// What it changed, without what became of clients, one line for each kind.
    pub(crate) fn of_configuration(&self) -> Vec<String> {
        let lists = self.lists().into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(what, list)| format!("{what}: {}", list.join(", "))).collect()
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 9] {
        [
            ("shares added", &self.shares_added),
            ("shares removed", &self.shares_removed),
            ("shares changed", &self.shares_changed),
            ("access lost", &self.access_lost),
            ("users added", &self.users_added),
            ("users removed", &self.users_removed),
            ("now listening", &self.opened),
            ("no longer listening", &self.closed),
            ("changed", &self.values),
        ]
    }
}
