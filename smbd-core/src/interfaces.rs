//! The addresses that this server listens on, as FSCTL_QUERY_NETWORK_INTERFACE_INFO tells them (MS-SMB2 section 2.2.32.5).

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use mutex::{reading, writing};
pub use smb_proto::smb2::fsctl::Interface;

/// What the one who opens the listeners knows; replaced as a whole when networks come and go.
#[derive(Debug, Default)]
pub struct Interfaces(RwLock<Arc<[Interface]>>);

impl Interfaces {
    /// Replaces the list.
    pub fn set(&self, list: Vec<Interface>) {
        *writing(&self.0) = list.into();
    }

    /// What a client is told that reached the server at `local`: addresses of the loopback only if it came by one.
    pub fn seen_from(&self, local: IpAddr) -> Vec<Interface> {
        let local = local.to_canonical();
        let tells = |i: &&Interface| local.is_loopback() || !i.addr.is_loopback();
        self.get().iter().filter(tells).copied().collect()
    }

    /// The list as it is now.
    pub fn get(&self) -> Arc<[Interface]> {
        reading(&self.0).clone()
    }
}
