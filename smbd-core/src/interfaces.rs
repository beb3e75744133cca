//! The server's addresses for FSCTL_QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 section 2.2.32.5).

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use mutex::{reading, writing};
pub use smb_proto::smb2::fsctl::Interface;

/// The list from the code that opens the listeners; replaced as a whole when interfaces change.
#[derive(Debug, Default)]
pub struct Interfaces(RwLock<Arc<[Interface]>>);

impl Interfaces {
    pub fn set(&self, list: Vec<Interface>) {
        *writing(&self.0) = list.into();
    }

    /// Returns the list for a client that connected to `local`: loopback addresses only if `local` is one.
    pub fn seen_from(&self, local: IpAddr) -> Vec<Interface> {
        let local = local.to_canonical();
        let tells = |i: &&Interface| local.is_loopback() || !i.addr.is_loopback();
        self.get().iter().filter(tells).copied().collect()
    }

    /// Returns the present list.
    pub fn get(&self) -> Arc<[Interface]> {
        reading(&self.0).clone()
    }
}
