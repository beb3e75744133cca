//! The result of a reload, or the reason for its refusal: data that the control socket, the status page and the audit trail pass
//! on.

use std::fmt;

use config::Faults;
use serde::{Deserialize, Serialize};

/// Reasons to keep the running configuration.
#[derive(Debug)]
pub enum Refusal {
    /// The new configuration is wrong.
    Faults(Faults),
    /// It changes keys that cannot change while the gateway runs.
    Fixed(Vec<Fixed>),
    /// It is sound but cannot take effect on this host now; one line.
    Failed(String),
}

/// A key that needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Name of the key in the file.
    pub key: &'static str,
    /// Value in force.
    pub now: String,
    /// Value in the new configuration.
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

/// Effects of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Newly served shares.
    pub shares_added: Vec<String>,
    /// Shares that are no longer served, or have another folder now.
    pub shares_removed: Vec<String>,
    /// Shares with other settings.
    pub shares_changed: Vec<String>,
    /// Opened listeners, in the words of the ready line.
    pub opened: Vec<String>,
    pub closed: Vec<String>,
    /// Users that can log on now and could not before.
    pub users_added: Vec<String>,
    /// Users that can no longer log on.
    pub users_removed: Vec<String>,
    /// For each share: the clients and users that lose access to it.
    #[serde(default)]
    pub access_lost: Vec<String>,
    /// Other keys: their old and new values.
    pub values: Vec<String>,
    /// Number of SMB sessions that ended.
    pub sessions_ended: usize,
    /// SMB tree connects that ended, in sessions that continue.
    pub trees_ended: usize,
    /// NFS opens, locks and delegations that ended.
    pub opens_ended: usize,
    /// Connections that began to shut down.
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
    /// Returns the changes of the configuration, without the effects on clients, one line for each kind.
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
