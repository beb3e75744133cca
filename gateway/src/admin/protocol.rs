//! Protocols and transports of connections, under their names in metrics and tables.

use rdma_transport::channel::Transport;
use serde::{Deserialize, Serialize};

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// NFS, MOUNT and the port mapper's few procedures.
    Nfs,
    /// SMB 2 and 3.
    Smb,
}

impl Protocol {
    /// Returns the name in metrics and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Smb => "smb",
        }
    }
}

/// Returns the transport's name in metrics and tables.
pub fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Rdma(provider) => provider,
    }
}
