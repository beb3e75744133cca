//! Finds the state of a stateid in a request (RFC 8881 section 8.2.4, RFC 7530 section 9.1.4.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::Client;
use super::compound::Compound;
use super::open_owner_seqid::Owner;
use super::opens::{Entry, FileInShare, Held};
use super::stateid::{self, check_seqid};
use super::status::Status;
use super::wire::Stateid;

/// A stateid with its client.
pub(super) struct ResolvedStateid {
    pub(super) client: Arc<Client>,
    pub(super) number: u32,
    pub(super) seqid: u32,
}

/// Finds the client of a stateid of an open, a lock or a delegation.
pub(super) fn resolve(cx: &Compound<'_>, sent: Stateid) -> Result<ResolvedStateid, Status> {
    let named = resolve_any(cx, sent)?;
    let client = &named.client;
    let revoked = client.admin_revoked.load(Ordering::Acquire) > 0
        && matches!(client.held().get(named.number), Some(Entry::Revoked(_)));
    if revoked { Err(Status::AdminRevoked) } else { Ok(named) }
}

/// Like [`resolve`], including state revoked by an administrator.
pub(super) fn resolve_any(cx: &Compound<'_>, sent: Stateid) -> Result<ResolvedStateid, Status> {
    let stateid = cx.stateid(sent)?;
    if stateid::is_special(stateid) {
        return Err(Status::BadStateId);
    }
    let (id, number) = stateid::parts(stateid);
    let client = match &cx.client {
        Some(client) if client.id == id => client.clone(),
        Some(_) => return Err(Status::BadStateId),
        None => cx.nfs.clients.find_v40(id).map_err(|status| match status {
            // The id is from this run but the client is gone: its lease has lapsed.
            Status::StaleClientId if cx.nfs.core.boot.instance == stateid::instance_of(id) => {
                Status::Expired
            }
            Status::StaleClientId => Status::StaleStateId,
            other => other,
        })?,
    };
    Ok(ResolvedStateid { client, number, seqid: stateid.seqid })
}

impl ResolvedStateid {
    /// The owner of the locks that the stateid names.
    pub(super) fn lock_owner(&self) -> Result<Owner, Status> {
        match self.client.held().get(self.number) {
            Some(Entry::Lock(l)) => Ok(Owner::Lock(l.owner.clone())),
            _ => Err(Status::BadStateId),
        }
    }

    /// The entry, if the stateid belongs to this file of this share and is not old.
    pub(super) fn entry<'h>(
        &self,
        held: &'h mut Held,
        file: FileInShare,
        minor: u32,
    ) -> Result<&'h mut Entry, Status> {
        let entry = held.get_mut(self.number).ok_or(Status::BadStateId)?;
        if entry.file() != Some(file) {
            return Err(Status::BadStateId);
        }
        check_seqid(self.seqid, entry.seqid(), minor)?;
        Ok(entry)
    }
}
