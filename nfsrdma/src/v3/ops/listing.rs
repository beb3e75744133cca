//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! Cookies are the backend's and stay valid when names are added or removed; so the verifier is always zero, and the one that a
//! client sends is ignored. `.` and `..` have the cookies 1 and 2, which backends do not use.

use nfs_proto::nfs3::{Entry3, Entryplus3, Nfsstat3, Readdir3args, Readdirplus3args};
use vfs::namespace::Listed;
use vfs::{Attr, NodeRef, VfsResult};

use super::super::attr::{post, post_op};
use super::{OK, Op, OpResult, Target};
use crate::fh::Fh;
use crate::limits::{ENTRIES_BEFORE_PAUSE, LISTING_BATCH, LISTING_MAX};
use crate::status::Failed;
use rdma_transport::turn;
use rdma_transport::xdr::Writer;
use wire::pad;

/// Always zero, because cookies never become invalid. Any verifier of a client is accepted, as by Linux' server: pyNfsClient sends
/// one of its choosing.
const VERIFIER: [u8; 8] = [0; 8];
const COOKIE_DOT: u64 = 1;
const COOKIE_DOTDOT: u64 = 2;
/// Bytes after the entries: the end of the list and the end-of-file flag.
const TAIL: usize = 4 + 4;

pub(super) async fn readdir(op: &Op<'_>, args: &Readdir3args<'_>, out: &mut Writer) -> OpResult {
    let t = op.target(args.dir).await?;
    let room = usize::try_from(args.count).unwrap_or(usize::MAX);
    let filler = Filler { op, dir: &t, room, names: usize::MAX, plus: false };
    filler.reply(args.cookie, out).await;
    Ok(())
}

pub(super) async fn readdirplus(
    op: &Op<'_>,
    args: &Readdirplus3args<'_>,
    out: &mut Writer,
) -> OpResult {
    let t = op.target(args.dir).await?;
    let room = usize::try_from(args.maxcount).unwrap_or(usize::MAX);
    let names = usize::try_from(args.dircount).unwrap_or(usize::MAX);
    let filler = Filler { op, dir: &t, room, names, plus: true };
    filler.reply(args.cookie, out).await;
    Ok(())
}

/// One listing request with its size limits.
struct Filler<'a> {
    op: &'a Op<'a>,
    dir: &'a Target,
    /// Size limit of the whole `resok`, in bytes.
    room: usize,
    /// Size limit of names, numbers and cookies (`dircount`), in bytes.
    names: usize,
    /// Include attributes and handles.
    plus: bool,
}

/// Progress of a reply.
struct Fill {
    /// Size limit of the reply.
    end: usize,
    /// Remaining bytes of `dircount`.
    names: usize,
    /// Number of entries written.
    entries: usize,
}

impl Filler<'_> {
    async fn reply(&self, cookie: u64, out: &mut Writer) {
        let mark = out.len();
        let status: Failed = match self.list(cookie, out).await {
            Ok(true) => return,
            Ok(false) => Nfsstat3::Toosmall.into(),
            Err(e) => e.into(),
        };
        out.truncate(mark);
        self.dir.fail_post(out, status).await;
    }

    /// Writes the whole reply. False if not even one entry fits.
    async fn list(&self, cookie: u64, out: &mut Writer) -> VfsResult<bool> {
        let room = self.room.min(LISTING_MAX);
        let end = (out.len() + room).saturating_sub(TAIL);
        let mut fill = Fill { end, names: self.names, entries: 0 };
        // The first batch is read before anything is written, because it checks the permission.
        let mut at = cookie.max(COOKIE_DOTDOT);
        let behind = |at: u64| if at == COOKIE_DOTDOT { 0 } else { at };
        let mut batch = self.batch_behind(behind(at)).await?;
        out.value(&OK);
        out.value(&post_op(&self.dir.share, self.dir.after().await.as_ref()));
        out.value(&VERIFIER);
        if !self.dots(cookie, &mut fill, out).await {
            return Ok(self.close(&fill, false, out));
        }
        loop {
            let (entries, last) = &batch;
            for some in entries.chunks(ENTRIES_BEFORE_PAUSE) {
                for listed in some {
                    if !self.entry(listed, &mut fill, out).await {
                        return Ok(self.close(&fill, false, out));
                    }
                    at = listed.entry.cookie;
                }
                turn::pause().await;
            }
            if *last || entries.is_empty() {
                self.close(&fill, true, out);
                return Ok(true);
            }
            batch = self.batch_behind(behind(at)).await?;
        }
    }

    async fn batch_behind(&self, cookie: u64) -> VfsResult<(Vec<Listed>, bool)> {
        let Target { share, node, cred, .. } = self.dir;
        if self.op.is_link(self.dir) {
            return Ok((Vec::new(), true));
        }
        share.readdir(node, cred, cookie, self.batch()).await
    }

    /// Number of entries to request: no more than could fit.
    fn batch(&self) -> usize {
        const ENTRY_MIN: usize = 28;
        (self.room.min(self.names) / ENTRY_MIN).clamp(1, LISTING_BATCH)
    }

    fn close(&self, fill: &Fill, eof: bool, out: &mut Writer) -> bool {
        // No further entry.
        out.value(&false);
        out.value(&eof);
        fill.entries > 0
    }

    /// Writes `.` and `..` if the listing begins before them. False if the reply is full.
    async fn dots(&self, cookie: u64, fill: &mut Fill, out: &mut Writer) -> bool {
        if cookie < COOKIE_DOT
            && let Ok(attr) = self.dir.node.getattr().await
        {
            let found = Some((self.dir.node.clone(), attr));
            if !self.put(b".", attr.fileid, COOKIE_DOT, found, fill, out) {
                return false;
            }
        }
        if cookie < COOKIE_DOTDOT {
            let found = self.dir.node.lookup(&self.dir.cred, b"..").await.ok();
            let Some(fileid) = (match &found {
                Some((_, attr)) => Some(attr.fileid),
                // The directory may be listed but not searched.
                None => self.dir.after().await.map(|a| a.fileid),
            }) else {
                return true;
            };
            return self.put(b"..", fileid, COOKIE_DOTDOT, found, fill, out);
        }
        true
    }

    async fn entry(&self, listed: &Listed, fill: &mut Fill, out: &mut Writer) -> bool {
        let entry = &listed.entry;
        // If the name was removed meanwhile, or may not be looked up, the entry has no attributes.
        let found = match &listed.found {
            _ if !self.plus => None,
            Some(found) => Some(found.clone()),
            None => self.dir.node.lookup(&self.dir.cred, &entry.name).await.ok(),
        };
        if let Some((node, _)) = &found {
            self.dir.note_link(&entry.name, node);
        }
        self.put(&entry.name, entry.fileid, entry.cookie, found, fill, out)
    }

    /// Writes one entry, if it fits.
    fn put(
        &self,
        name: &[u8],
        fileid: u64,
        cookie: u64,
        found: Option<(NodeRef, Attr)>,
        fill: &mut Fill,
        out: &mut Writer,
    ) -> bool {
        let bare = 8 + 4 + name.len() + pad(name.len()) + 8;
        // `dircount` is a hint: at least one entry is returned whatever its size, so that the listing progresses.
        if fill.entries > 0 && bare > fill.names {
            return false;
        }
        let mark = out.len();
        out.value(&true);
        if self.plus {
            let known = |node| self.op.core.namespace.by(None).is_known(node);
            let attr = found.as_ref().filter(|(node, _)| known(node)).map(|(_, attr)| attr);
            let fh = found.as_ref().map(|(node, _)| self.op.fh(&self.dir.share, node));
            let name_attributes = post(&self.dir.share, attr);
            let name_handle = fh.as_ref().map(Fh::as_bytes);
            out.value(&Entryplus3 { fileid, name, cookie, name_attributes, name_handle });
        } else {
            out.value(&Entry3 { fileid, name, cookie });
        }
        if out.len() > fill.end {
            out.truncate(mark);
            return false;
        }
        fill.names = fill.names.saturating_sub(bare);
        fill.entries += 1;
        true
    }
}
