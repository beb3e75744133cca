//! The one door: shares joined to backends. Every access by any protocol passes here, so that open files, locks and
//! delegations of one client are honoured by all others.

use std::net::IpAddr;
use std::sync::Arc;

use iobuf::Buf;

use crate::backend::{Backend, Made, NodeRef, ReadInto};
use crate::error::{VfsError, VfsResult};
use crate::types::*;

/// Which users a share maps to the anonymous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Nobody: root is root.
    None,
    /// The superuser and its group.
    Root,
    /// Everybody.
    All,
}

/// The user and group that squashed callers become.
pub const ANONYMOUS: u32 = 65534;

/// A range of addresses in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// An address of the range.
    pub addr: IpAddr,
    /// Leading bits that count.
    pub bits: u8,
}

impl Cidr {
    /// The address is in the range. An IPv4 address that came mapped into IPv6 counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        fn same(a: &[u8], b: &[u8], bits: u8) -> bool {
            let (whole, rest) = (usize::from(bits / 8), bits % 8);
            let mask = !(0xff_u8.checked_shr(u32::from(rest)).unwrap_or(0));
            a.len() == b.len()
                && whole <= a.len()
                && a[..whole] == b[..whole]
                && (rest == 0 || whole < a.len() && a[whole] & mask == b[whole] & mask)
        }
        match (self.addr, ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets(), self.bits),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(&a.octets(), &b.octets(), self.bits),
            _ => false,
        }
    }
}

/// A folder that is served under a name.
pub struct Share {
    /// Its name: clients see `/NAME`.
    pub name: String,
    /// Number in file handles; derived from the name, so that it survives restarts and reordering.
    pub id: u32,
    /// Where its files live.
    pub backend: Arc<dyn Backend>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Who is mapped to the anonymous user.
    pub squash: Squash,
    /// Who may come; `None`: directly attached networks and this host, which the front end judges.
    pub clients: Option<Vec<Cidr>>,
}

impl Share {
    /// The number of a share of this name (FNV-1a, 32 bits). The configuration refuses two names with one number.
    pub fn id_of(name: &str) -> u32 {
        name.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    /// Applies the squash rule to a caller.
    pub fn squash(&self, cred: Cred) -> Cred {
        let nobody = || Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: Arc::new([]) };
        match self.squash {
            Squash::None => cred,
            Squash::All => nobody(),
            Squash::Root if cred.uid == 0 => nobody(),
            Squash::Root if cred.gid == 0 || cred.groups.contains(&0) => {
                let map = |g: u32| if g == 0 { ANONYMOUS } else { g };
                Cred {
                    uid: cred.uid,
                    gid: map(cred.gid),
                    groups: cred.groups.iter().copied().map(map).collect(),
                }
            }
            Squash::Root => cred,
        }
    }
}

/// All shares, and the state that their clients share.
pub struct Namespace {
    shares: Vec<Arc<Share>>,
}

impl Namespace {
    /// Of these shares; names and numbers are different.
    pub fn new(shares: Vec<Share>) -> Self {
        Self { shares: shares.into_iter().map(Arc::new).collect() }
    }

    /// Every share, in the order of the configuration.
    pub fn shares(&self) -> &[Arc<Share>] {
        &self.shares
    }

    /// The share of this number.
    pub fn share(&self, id: u32) -> Option<&Arc<Share>> {
        self.shares.iter().find(|s| s.id == id)
    }

    /// The share of this name.
    pub fn share_named(&self, name: &[u8]) -> Option<&Arc<Share>> {
        self.shares.iter().find(|s| s.name.as_bytes() == name)
    }

    /// Reads. `cred: None` when an open of the caller has been checked already.
    pub async fn read(
        &self,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        count: usize,
        into: &ReadInto,
    ) -> VfsResult<ReadData> {
        node.read(cred, at, count, into).await
    }

    /// Writes.
    pub async fn write(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: Option<&Cred>,
        at: u64,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Written> {
        self.writable(share)?;
        node.write(cred, at, data, stable).await
    }

    /// Changes attributes.
    pub async fn setattr(
        &self,
        share: &Share,
        node: &NodeRef,
        cred: &Cred,
        set: SetAttr,
        open_write: bool,
    ) -> VfsResult<(Attr, Attr)> {
        self.writable(share)?;
        node.setattr(cred, set, open_write).await
    }

    /// Makes or opens a regular file.
    pub async fn create(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
        how: CreateHow,
        set: SetAttr,
    ) -> VfsResult<Made> {
        self.writable(share)?;
        dir.create(cred, name, how, set).await
    }

    /// Removes a name that is not a directory's.
    pub async fn unlink(
        &self,
        share: &Share,
        dir: &NodeRef,
        cred: &Cred,
        name: &[u8],
    ) -> VfsResult<DirChange> {
        self.writable(share)?;
        dir.unlink(cred, name).await
    }

    /// Moves a name.
    pub async fn rename(
        &self,
        share: &Share,
        from_dir: &NodeRef,
        cred: &Cred,
        from: &[u8],
        to_dir: &NodeRef,
        to: &[u8],
    ) -> VfsResult<(DirChange, DirChange)> {
        self.writable(share)?;
        from_dir.rename(cred, from, to_dir.as_ref(), to).await
    }

    /// [`VfsError::ReadOnly`] for a share that may not be changed.
    pub fn writable(&self, share: &Share) -> VfsResult<()> {
        if share.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_leading_bits() {
        let c = |s: &str, bits| Cidr { addr: s.parse().unwrap(), bits };
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(c("10.1.2.3", 8).contains(ip("10.9.9.9")));
        assert!(!c("10.1.2.3", 8).contains(ip("11.0.0.1")));
        assert!(c("192.168.4.0", 22).contains(ip("192.168.7.255")));
        assert!(!c("192.168.4.0", 22).contains(ip("192.168.8.0")));
        assert!(c("0.0.0.0", 0).contains(ip("255.1.1.1")));
        assert!(!c("0.0.0.0", 0).contains(ip("::1")));
        assert!(c("10.0.0.1", 32).contains(ip("::ffff:10.0.0.1")));
        assert!(!c("10.0.0.1", 200).contains(ip("10.0.0.1")));
    }
}
