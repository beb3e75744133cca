//! What the configuration says to the SMB server: plain data.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::auth::Mechs;
use crate::limits::{IO_BYTES_MAX, OPENS_PER_SESSION_MAX};
use crate::wire::negotiate::Dialect;

/// Whether messages are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encryption {
    /// Never: no cipher is negotiated.
    Off,
    /// Whoever asks for it gets it.
    #[default]
    Offered,
    /// Nobody is served without it.
    Required,
}

/// Who follows symbolic links for clients that do not use the POSIX extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// The clients.
    #[default]
    Client,
    /// The server, inside the share, which has these paths on the host: absolute targets are read against them.
    Server(Vec<PathBuf>),
}

/// What a share asks of its SMB clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareSettings {
    /// Its data never travels in clear.
    pub encrypt: bool,
    /// Clients are told to ask for compressed data (`Share.CompressData`).
    pub compress: bool,
    /// Guests and anonymous users may come.
    pub guest: bool,
    /// Its handles may survive a restart of the gateway (`Share.IsCA`), where the gateway has a state folder.
    pub continuous: bool,
    /// Shown by browsers.
    pub comment: String,
    /// Who follows its symbolic links.
    pub symlinks: Symlinks,
}

/// How tickets of Kerberos are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kerberos {
    /// The file with the server's keys.
    pub keytab: PathBuf,
    /// The realm whose principals of one component are the users of that name where krb5.conf does not say who they are.
    pub realm: Option<String>,
    /// Who principals are to the file system.
    pub map: Map,
}

/// Who principals are to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// The users of their names.
    Names,
    /// The RIDs of their PACs, with this added to each.
    Rid {
        /// What RID 0 would be.
        base: u32,
    },
}

/// Settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Names this server for ever (MS-SMB2 section 3.3.1.5 `ServerGuid`).
    pub server_guid: [u8; 16],
    /// Name of the host, as clients are told it.
    pub host: String,
    /// Messages of authenticated users must be signed.
    pub signing_required: bool,
    /// Encryption of the whole server; shares can ask for more.
    pub encryption: Encryption,
    /// Data that travels by RDMA is signed or encrypted for clients that can do that (`IsRDMATransformSupported`).
    pub rdma_transforms: bool,
    /// Clients get directory leases, unless they negotiate the POSIX extensions.
    pub directory_leases: bool,
    /// Messages may be compressed (`IsCompressionSupported`).
    pub compression: bool,
    /// Users may log on by passwords, and guests where a share is for them.
    pub ntlm: bool,
    /// Users may log on by tickets.
    pub kerberos: Option<Kerberos>,
    /// Lowest and highest dialect.
    pub dialects: (Dialect, Dialect),
    /// Bytes of one READ.
    pub read_max: u32,
    /// Bytes of one WRITE.
    pub write_max: u32,
    /// Bytes of one QUERY, SET, IOCTL or CHANGE_NOTIFY buffer.
    pub transact_max: u32,
    /// Files that one session may have open.
    pub opens_per_session: usize,
    /// What shares ask for, by their names; a share that is not here asks for nothing.
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
            shares: HashMap::new(),
        }
    }
}

impl Settings {
    /// What this share asks for.
    pub fn share(&self, name: &str) -> ShareSettings {
        self.shares.get(name).cloned().unwrap_or_default()
    }

    /// The mechanisms of a logon.
    pub(crate) fn mechs(&self) -> Mechs {
        Mechs { kerberos: self.kerberos.is_some(), ntlm: self.ntlm }
    }

    /// Some share is for guests, who come by NTLM.
    pub fn has_guests(&self) -> bool {
        self.ntlm && self.shares.values().any(|s| s.guest)
    }
}
