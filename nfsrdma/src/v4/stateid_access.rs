//! Checks what READ, WRITE, SETATTR of the size and the data operations of 4.2 may do with a stateid.

use state::{Requester, Rights};
use vfs::{Cred, VfsResult};

use super::compound::Compound;
use super::object::Located;
use super::opens::{Entry, Held};
use super::resolve::resolve;
use super::status::Status;
use super::wire::Stateid;

/// The kind of access to file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAccess {
    /// READ, SEEK, READ_PLUS, the source of COPY and CLONE.
    Read,
    /// WRITE, ALLOCATE, DEALLOCATE, SETATTR of the size, the target of COPY and CLONE.
    Write,
}

/// The result: access is granted on these terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateidAccess {
    /// The requester, for [`vfs::namespace::Namespace::by`].
    pub who: Option<Requester>,
    /// OPEN has checked the permission already, so the volume need not.
    pub open_checked: bool,
    /// The caller has the file open, in any mode.
    pub is_opener: bool,
}

impl StateidAccess {
    /// The credential for `read` and `write` of [`vfs::namespace::FileOps`]: `None` if an OPEN has checked it.
    pub fn cred<'a>(&self, at: &'a Located) -> Option<&'a Cred> {
        if self.open_checked { None } else { Some(&at.cred) }
    }
}

impl Compound<'_> {
    /// Changes the bytes of a file, with an audit record if the caller has not opened it.
    pub(super) async fn recorded<T>(
        &self,
        at: &Located,
        right: &StateidAccess,
        change: impl Future<Output = VfsResult<T>>,
    ) -> VfsResult<T> {
        let writers = &self.nfs.core.writers;
        writers.recorded(right.is_opener, (&at.share, &at.node), self.call, change).await
    }
}

/// True for a stateid of no open, lock or delegation (RFC 8881 section 8.2.3).
fn is_nobodys(stateid: Stateid) -> bool {
    matches!(stateid, Stateid::ANONYMOUS | Stateid::READ_BYPASS)
}

/// The file for READ or WRITE. With a special stateid the caller has only a file handle, which is stale if the file was removed.
pub async fn file_of(cx: &mut Compound<'_>, stateid: Stateid) -> Result<Located, Status> {
    if is_nobodys(stateid) {
        let nlink = cx.file()?.node.getattr().await?.nlink;
        cx.found_again(nlink).await?;
    }
    cx.file()
}

/// Checks the stateid of a data operation on `at` (RFC 8881 sections 8.2.5 and 9.1.2).
pub async fn check_io(
    cx: &Compound<'_>,
    at: &Located,
    stateid: Stateid,
    access: IoAccess,
) -> Result<StateidAccess, Status> {
    if is_nobodys(stateid) {
        // RFC 8881 section 8.4.2.1: locks that other clients will reclaim may conflict. Reads that bypass locks have no conflicts.
        if cx.nfs.clients.in_grace()
            && (stateid != Stateid::READ_BYPASS || access == IoAccess::Write)
        {
            return Err(cx.nfs.clients.not_yet());
        }
        // RFC 8881 section 8.2.3: the server may let such a read bypass share modes, but this one does not.
        let who = cx.requester();
        if access == IoAccess::Read {
            // The read has no open that recalled caching rights, and some operations read size and holes before they use `FileOps`.
            cx.nfs.core.namespace.by(who).check_look(&at.node, &at.cred).await?;
        }
        return Ok(StateidAccess { who, open_checked: false, is_opener: false });
    }
    let named = resolve(cx, stateid)?;
    let mut held = named.client.held();
    let (allowed, checked, holder, uid, number) =
        match named.entry(&mut held, at.file(), cx.minor)? {
            Entry::Open(o) => {
                (o.share.access, o.checked, o.party.holder, o.uid, Some(named.number))
            }
            Entry::Lock(l) => {
                let number = l.open;
                let o = held.open(number).ok_or(Status::BadStateId)?;
                (o.share.access, o.checked, o.party.holder, o.uid, Some(number))
            }
            Entry::Delegation(d) if d.revoked => return Err(Status::DelegRevoked),
            Entry::Delegation(d) => {
                let allowed = if d.write { Rights::BOTH } else { Rights::READ };
                (allowed, d.checked, d.party.holder, d.uid, None)
            }
            Entry::Closed(_) | Entry::Revoked(_) => return Err(Status::BadStateId),
        };
    if cx.minor == 0 && number.is_some_and(|n| !is_confirmed(&held, n)) {
        return Err(Status::BadStateId);
    }
    let who = Some(Requester { client: named.client.id, via: at.share.id, holder: Some(holder) });
    // A caller that uses another user's stateid has only its own permissions.
    let is_opener = at.cred.uid == uid;
    let right =
        |right| Ok(StateidAccess { who, open_checked: is_opener && checked.has(right), is_opener });
    match access {
        // RFC 8881 section 18.22.4: clients that write parts of pages must read the rest. Access that OPEN did not check is checked
        // now.
        IoAccess::Read => right(Rights::READ),
        IoAccess::Write if allowed.has(Rights::WRITE) => right(Rights::WRITE),
        IoAccess::Write => Err(Status::OpenMode),
    }
}

/// Minor version 0: true if the owner of the open is confirmed (RFC 7530 section 16.18.5).
pub(super) fn is_confirmed(held: &Held, open: u32) -> bool {
    held.open(open)
        .and_then(|o| held.open_owners.get(&o.owner))
        .is_some_and(|owner| owner.confirmed)
}
