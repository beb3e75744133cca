//! Configuration of the SMB server, as plain data.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::auth::Mechs;
use crate::limits::{IO_BYTES_MAX, OPENS_PER_SESSION_MAX};
use crate::privileges::Holders;
use crate::time_machine::TimeMachine;
use crate::wire::negotiate::Dialect;

/// When messages are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encryption {
    /// Never: no cipher is negotiated.
    Off,
    /// Optional: used by clients that request it.
    #[default]
    Offered,
    /// Mandatory: clients without encryption are refused.
    Required,
}

/// Selects the side that follows symbolic links of clients without the POSIX extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// The clients follow links.
    #[default]
    Client,
    /// The server follows links inside the share. These are the share's paths on the host: absolute targets are resolved against
    /// them.
    Server(Vec<PathBuf>),
}

/// Settings of a share that affect its SMB clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareSettings {
    /// Requires encryption of all its data.
    pub encrypt: bool,
    /// Tells clients to request compressed data (`Share.CompressData`).
    pub compress: bool,
    /// Admits guests and anonymous users.
    pub guest: bool,
    /// Lets handles survive a restart of the gateway (`Share.IsCA`), if the gateway has a state folder.
    pub continuous: bool,
    /// Comment shown by browsers.
    pub comment: String,
    /// Selects the side that follows its symbolic links.
    pub symlinks: Symlinks,
    /// Offers it to macOS for backups.
    pub time_machine: Option<TimeMachine>,
}

/// Settings for Kerberos tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kerberos {
    /// The file with the server's keys.
    pub keytab: PathBuf,
    /// The realm whose one-component principals are the users of that name, unless krb5.conf maps them to others.
    pub realm: Option<String>,
    /// How principals map to users of the file system.
    pub map: Map,
}

/// How principals map to users of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// To the users of the same name.
    Names,
    /// To the RID of the PAC plus `base`.
    Rid {
        /// The uid for RID 0.
        base: u32,
    },
    /// To the numbers that [`Engine`](crate::domain_engine::Engine) has for the SIDs of the PAC.
    Engine,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Permanent identifier of this server (MS-SMB2 section 3.3.1.5 `ServerGuid`).
    pub server_guid: [u8; 16],
    /// Name of the host that is sent to clients.
    pub host: String,
    /// Requires signed messages from authenticated users.
    pub signing_required: bool,
    /// Encryption for the whole server; a share can require more.
    pub encryption: Encryption,
    /// Signs or encrypts data sent over RDMA for clients that support it (`IsRDMATransformSupported`).
    pub rdma_transforms: bool,
    /// Grants directory leases to clients without the POSIX extensions.
    pub directory_leases: bool,
    /// Allows compressed messages (`IsCompressionSupported`).
    pub compression: bool,
    /// Allows logons with passwords, and of guests if a share admits them.
    pub ntlm: bool,
    /// Allows logons with tickets.
    pub kerberos: Option<Kerberos>,
    /// Lowest and highest dialect.
    pub dialects: (Dialect, Dialect),
    /// Most bytes of one READ.
    pub read_max: u32,
    /// Most bytes of one WRITE.
    pub write_max: u32,
    /// Most bytes of one QUERY, SET, IOCTL or CHANGE_NOTIFY buffer.
    pub transact_max: u32,
    /// Most files that one session may have open.
    pub opens_per_session: usize,
    /// The model of computer that macOS is told, by which it chooses an icon.
    pub model: String,
    /// The holders of privileges.
    pub privileges: Holders,
    /// Settings by share name; a share that is missing here has the defaults.
    pub shares: HashMap<String, ShareSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server_guid: [0; 16],
            host: "HEADGATE".into(),
            signing_required: true,
            encryption: Encryption::default(),
            rdma_transforms: true,
            directory_leases: true,
            compression: true,
            ntlm: true,
            kerberos: None,
            dialects: (Dialect::V202, Dialect::V311),
            read_max: IO_BYTES_MAX,
            write_max: IO_BYTES_MAX,
            transact_max: IO_BYTES_MAX,
            opens_per_session: OPENS_PER_SESSION_MAX,
            model: "RackMac".into(),
            privileges: Holders::default(),
            shares: HashMap::new(),
        }
    }
}

impl Settings {
    /// Returns the settings of a share.
    pub fn share(&self, name: &str) -> ShareSettings {
        self.shares.get(name).cloned().unwrap_or_default()
    }

    /// Returns the mechanisms offered for logons.
    pub(crate) fn mechs(&self) -> Mechs {
        Mechs { kerberos: self.kerberos.is_some(), ntlm: self.ntlm }
    }

    /// Returns whether a share admits guests, who log on with NTLM.
    pub fn has_guests(&self) -> bool {
        self.ntlm && self.shares.values().any(|s| s.guest)
    }
}
