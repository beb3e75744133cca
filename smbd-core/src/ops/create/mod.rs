//! CREATE (MS-SMB2 section 3.3.5.9, MS-FSA section 2.1.5.1): opens or creates a file or directory.
//!
//! *Operation.* The steps are: check the request (`check`), walk the path (`walk`), then handle an existing (`existing`) or a new
//! file (`new`): access (`rights`), share access (`sharing`), and finally changes to the file. This order ensures that a failed
//! open leaves an existing file unchanged.
//!
//! *Memory.* One entry in the table of opens.
//!
//! *Errors.* As in the specification. The error for a symbolic link that the client must follow contains the link's target.

mod attributes;
mod check;
mod existing;
mod new;
mod rights;
mod sharing;
mod stream;
mod walk;

use std::sync::Arc;

use smb_proto::dtyp::FileTime;
use vfs::audited::{Actor, opening};
use vfs::names::Spelling;
use vfs::namespace::Share;
use vfs::reparse::Tagged;
use vfs::{Attr, Dos, Kind};

use crate::answer::Answer;
use crate::caching::OpenCaching;
use crate::creates::Ticket;
use crate::dtyp::mask;
use crate::dtyp::time::file_time;
use crate::durable::{self, Begun};
use crate::file_info;
use crate::lease;
use crate::links;
use crate::mac;
use crate::open::{File, Open, Target};
use crate::open_state::OpenState;
use crate::path::Path;
use crate::persist;
use crate::privilege_use;
use crate::privileges::Privileges;
use crate::request_context::RequestContext;
use crate::security::{self, Granted};
use crate::sequence::Sequence;
use crate::status::Status;
use crate::symlinks::{self, LinkFacts};
use crate::tree::{TakesUp, Tree};
use crate::wire::Flags;
use crate::wire::aapl;
use crate::wire::context::{Asked, PosixTold, Told};
use crate::wire::create::{Disposition, Request, Response, action, option};
use crate::wire::reparse::TAG_SYMLINK;
pub(super) use rights::check_folder;
pub(super) use stream::has_left;
use walk::{Ended, Stopped, Walked};

/// A request in the form used by all steps.
struct Wanted<'a> {
    request: &'a Request<'a>,
    asked: Asked<'a>,
    disposition: Disposition,
    path: Path,
    /// The privileges that the request may use.
    beyond: privilege_use::Asked,
    /// Whether the POSIX extensions are in use, which make names case-sensitive.
    posix: bool,
    /// Whether the server follows links in the path.
    follows_links: bool,
    tree: &'a Arc<Tree>,
    share: &'a Arc<Share>,
}

impl Wanted<'_> {
    /// Returns the time of the snapshot that the path refers to, in seconds since 1970 (MS-SMB2 section 3.3.5.9.4), or `None` for
    /// the current files.
    fn past(&self) -> Option<i64> {
        let then = self.asked.timewarp.filter(|ticks| *ticks != 0)?;
        // An out-of-range timestamp matches no snapshot.
        Some(FileTime(then).to_unix().map_or(i64::MIN, |(sec, _)| sec))
    }

    fn spelling(&self) -> Spelling {
        if self.posix { Spelling::Posix } else { Spelling::Windows }
    }

    fn has(&self, options: u32) -> bool {
        self.request.options & options != 0
    }

    /// Returns an error if the request asks for both a directory and a file.
    fn contradiction(&self) -> Option<Status> {
        (self.is_dir() && self.is_file()).then_some(match &self.path {
            p if p.slash => Status::OBJECT_NAME_INVALID,
            p if p.stream.is_some() || p.stream_type.is_some() => Status::NOT_A_DIRECTORY,
            _ => Status::INVALID_PARAMETER,
        })
    }

    /// Returns whether the server follows a link at the end of the path. An open that removes or renames a name refers to the link.
    fn follows_last_link(&self) -> bool {
        let means_link = self.path.stream.is_none() && is_for_name(self);
        self.follows_links && !self.has(option::OPEN_REPARSE_POINT) && !means_link
    }

    /// Returns whether the request accepts only a directory.
    fn is_dir(&self) -> bool {
        self.has(option::DIRECTORY_FILE)
            || self.path.slash
            || self.path.stream_type == Some(crate::path::Type::Index)
    }

    /// Returns whether the request accepts only a file.
    fn is_file(&self) -> bool {
        self.has(option::NON_DIRECTORY_FILE)
            || self.path.stream.is_some()
            || self.path.stream_type == Some(crate::path::Type::Data)
    }
}

/// The result of opening a file.
struct Opened {
    open: Arc<Open>,
    attr: Attr,
    dos: Dos,
    action: u32,
}

/// Answers CREATE. If the file vanishes meanwhile, reports it as missing, since the client has closed no handle.
pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    create_or_open(cx).await.map_err(|why| match why {
        Status::FILE_CLOSED => Status::OBJECT_NAME_NOT_FOUND,
        why => why,
    })
}

async fn create_or_open(cx: &RequestContext) -> Result<Answer, Status> {
    let mut request = cx.parse(Request::parse)?;
    let tree = cx.tree()?;
    // Every path in this share needs a referral: the DFS link is the share itself (MS-DFSC section 3.2.4.1).
    if tree.elsewhere().is_some() {
        return Err(Status::PATH_NOT_COVERED);
    }
    cx.room_for_an_open(request.name.len())?;
    request.name = links::local_name(cx, tree, request.name)?;
    adjust(cx, &mut request);
    let Some(share) = tree.share_now(&cx.server.namespace) else {
        return crate::ops::pipe::create(cx, &request);
    };
    let mut asked = Asked::parse(&request.contexts).map_err(|fault| cx.malformed(fault))?;
    durable::check(&asked)?;
    let takes_up = asked.reconnect.is_some()
        || asked.reconnect_v2.is_some()
        || cx.header.flags.has(Flags::REPLAY);
    let _takes_up = takes_up.then(|| TakesUp::by(tree.clone()));
    // A durable reconnect restores the old open and ignores all other fields of the request.
    if let Some(open) = durable::reconnect(cx, &request, &asked).await? {
        let (attr, dos) = now(cx, &open).await?;
        let opened = Opened { open, attr, dos, action: action::OPENED };
        return answer(cx, (&request, &asked), opened, How::Again).await;
    }
    let disposition = check::request(&request)?;
    let posix = asked.posix.is_some() && cx.conn.negotiated().is_some_and(|n| n.posix);
    let mut path = Path::parse(&request.name, posix)?;
    if asked.timewarp.is_none() && !posix && share.backend.has_snapshots() {
        // Some clients name the snapshot in the path.
        asked.timewarp = path.take_time().map(|sec| FileTime::of_unix(sec, 0).0);
    }
    if path.is_of_quotas() && share.backend.capabilities().quotas {
        return super::quota::create(cx, &request, disposition, &share);
    }
    let follows_links = symlinks::are_followed(cx, tree);
    let beyond = beyond(cx, &request)?;
    let wanted = Wanted {
        request: &request,
        asked,
        disposition,
        path,
        beyond,
        posix,
        follows_links,
        tree,
        share: &share,
    };
    if wanted.asked.svhdx {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    if let Some(status) = wanted.contradiction() {
        // If the type suffix of the name contradicts the options, a missing file is the first error.
        if wanted.path.stream_type.is_none() || wanted.disposition.makes() {
            return Err(status);
        }
    }
    let ticket = match durable::begin(cx, &request, &wanted.asked).await? {
        Begun::New(ticket) => ticket,
        Begun::Before(open) => {
            let (attr, dos) = now(cx, &open).await?;
            let opened = Opened { open, attr, dos, action: action::OPENED };
            return answer(cx, (&request, &wanted.asked), opened, How::Replayed).await;
        }
    };
    match open_recorded(cx, &wanted).await {
        Ok(opened) => answer(cx, (&request, &wanted.asked), opened, How::New(ticket)).await,
        Err(Ended::Failed(status)) => Err(status),
        Err(Ended::Stopped(at)) => {
            let body = walk::stopped(cx, &wanted, &at).await?;
            Ok(Answer::with_status(Status::STOPPED_ON_SYMLINK, body))
        }
    }
}

/// Returns the privileges that the request may use (MS-FSA section 2.1.5.1).
fn beyond(cx: &RequestContext, request: &Request<'_>) -> Result<privilege_use::Asked, Status> {
    const BY_ITSELF: u32 = mask::ACCESS_SYSTEM_SECURITY | mask::WRITE_OWNER;
    let is_backup = request.options & option::OPEN_FOR_BACKUP_INTENT != 0;
    match is_backup {
        true => privilege_use::Asked::by(cx, Privileges::NONE),
        false if mask::map_generic(request.access) & BY_ITSELF != 0 => {
            privilege_use::Asked::by(cx, Privileges::BACKUP.and(Privileges::RESTORE))
        }
        false => Ok(privilege_use::Asked::nothing()),
    }
}

/// Returns whether an access mask allows reading and whether it allows writing.
fn reads_and_writes(access: u32) -> (bool, bool) {
    let of = |bits: u32| access & bits != 0;
    (of(mask::READ_DATA | mask::EXECUTE), of(mask::WRITE_DATA | mask::APPEND_DATA))
}

/// Opens the file, with an audit record if the share requires one.
async fn open_recorded(cx: &RequestContext, w: &Wanted<'_>) -> Result<Opened, Ended> {
    let asked = mask::map_generic(w.request.access) | implied(w.disposition);
    let how = match asked & mask::MAXIMUM_ALLOWED {
        0 => reads_and_writes(asked),
        _ => (true, true),
    };
    let record = opening(w.share, how, || cx.acting()).map_err(Status::from)?;
    let done = open(cx, w).await;
    match &done {
        Ok(Opened { open, .. }) => {
            let (reads, writes) = reads_and_writes(open.granted);
            let how = (reads, writes || w.disposition.cuts() && how.1);
            match (open.node(), open.file().ok().and_then(|file| Some((file, file.stream()?)))) {
                (_, Some((file, name))) => record.opened_stream(&file.base(), &name, how).await,
                (Ok(node), None) => record.opened(&node, how).await,
                _ => {}
            }
        }
        Err(Ended::Failed(Status::ACCESS_DENIED)) => {
            record.failed(w.path.names.join("/").into_bytes(), vfs::VfsError::Access);
        }
        Err(_) => {}
    }
    let (node, status) = match &done {
        Ok(Opened { open, .. }) => (open.file().ok().map(File::base), Status::SUCCESS),
        Err(Ended::Failed(status)) => (None, *status),
        Err(Ended::Stopped(_)) => (None, Status::STOPPED_ON_SYMLINK),
    };
    let path = async || match node {
        Some(node) => node.path().await.unwrap_or_default(),
        None => w.path.names.join("/").into_bytes(),
    };
    w.beyond.record(cx, w.share, path, status).await;
    done
}

/// Adjusts the request before it is processed (MS-SMB2 section 3.3.5.9, "Open Execution").
fn adjust(cx: &RequestContext, request: &mut Request<'_>) {
    if request.options & option::NO_INTERMEDIATE_BUFFERING != 0 {
        request.access &= !mask::APPEND_DATA;
    }
    if durable::may_persist(cx) {
        // Writes on a continuously available share must survive any failure of the server.
        request.options |= option::WRITE_THROUGH;
    }
}

/// Attempts to find a name that other clients keep creating or removing.
const RACES_MAX: usize = 4;

async fn open(cx: &RequestContext, w: &Wanted<'_>) -> Result<Opened, Ended> {
    for _ in 0..RACES_MAX {
        let mut at = walk::walk(cx, w).await?;
        match at.found.take() {
            Some(found) => {
                let kept = symlinks::tagged(&found.node, &found.attr, w.posix).await;
                let kept = kept.map_err(Status::from)?;
                match as_reparse_point(w, found.attr.kind, kept) {
                    Some(Meets::Link) => {
                        return Err(Ended::Stopped(Stopped { link: found.node, unparsed: 0 }));
                    }
                    Some(Meets::Other) => return Err(not_handled(w).into()),
                    None => {}
                }
                if w.path.other_index {
                    return Err(Status::INVALID_PARAMETER.into());
                }
                if let Some(status) = w.contradiction() {
                    return Err(status.into());
                }
                // Closing other opens may have deleted the file.
                if !existing::is_taken_over(cx, w, &at, &found).await?
                    && let Some(opened) = existing::open(cx, w, &at, found).await?
                {
                    return Ok(opened);
                }
            }
            None if !w.disposition.makes() => return Err(Status::OBJECT_NAME_NOT_FOUND.into()),
            None if w.path.other_index => return Err(Status::OBJECT_NAME_NOT_FOUND.into()),
            None => match new::make(cx, w, &at).await {
                Err(Status::OBJECT_NAME_COLLISION) if w.disposition != Disposition::Create => {}
                other => return Ok(other?),
            },
        }
    }
    Err(Status::SHARING_VIOLATION.into())
}

/// The kind of reparse point that an open meets without asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// A symbolic link, whose target the client must open.
    Link,
    /// A reparse point that the server does not interpret.
    Other,
}

/// Returns how a reparse point ends this open; `None` for an open of the file itself. `kept`: the reparse point that a client keeps
/// with the file.
fn as_reparse_point(w: &Wanted<'_>, kind: Kind, kept: Option<Tagged>) -> Option<Meets> {
    // Windows creates the target of a dangling link; O_EXCL does not.
    let is_excluded = w.posix && w.disposition == Disposition::Create;
    if w.has(option::OPEN_REPARSE_POINT) || is_excluded {
        return None;
    }
    let met = match kept {
        Some(kept) => meets(kept),
        None if kind == Kind::Symlink => Meets::Link,
        None if is_special(kind) => Meets::Other,
        None => return None,
    };
    let is_followed = met == Meets::Link && kept.is_none() && w.follows_links;
    let is_itself =
        is_for_name(w) && (met == Meets::Other || w.follows_links) || is_for_attributes(w);
    (!is_followed && !is_itself).then_some(met)
}

fn meets(kept: Tagged) -> Meets {
    if kept.tag == TAG_SYMLINK { Meets::Link } else { Meets::Other }
}

/// Returns whether this is a FIFO, socket or device, which clients see as a reparse point.
fn is_special(kind: Kind) -> bool {
    matches!(kind, Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block)
}

/// Returns whether the open serves only to remove or rename the name, not to read or write. Programs without support for reparse
/// points (smbclient) remove FIFOs with such opens, as with smbd.
fn is_for_name(w: &Wanted<'_>) -> bool {
    const DATA: u32 = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
    let access = mask::map_generic(w.request.access);
    let makes = w.disposition == Disposition::Create || w.disposition.cuts();
    !makes && access & mask::DELETE != 0 && access & (DATA | mask::MAXIMUM_ALLOWED) == 0
}

/// Returns whether a client with the POSIX extensions opens the file only to set its mode, owner or times. Linux (6.12) follows
/// links itself and so means the link or special file that has this name, but does not say so by OPEN_REPARSE_POINT.
fn is_for_attributes(w: &Wanted<'_>) -> bool {
    const SETS: u32 = mask::WRITE_DAC | mask::WRITE_OWNER | mask::WRITE_ATTRIBUTES;
    let access = mask::map_generic(w.request.access);
    let opens = w.posix && w.disposition == Disposition::Open;
    opens && access & SETS != 0 && access & !(SETS | mask::SYNCHRONIZE) == 0
}

/// Returns the error for opening a reparse point as a regular file (MS-FSA section 2.1.5.1): the server does not interpret its tag.
fn not_handled(w: &Wanted<'_>) -> Status {
    match w.disposition {
        Disposition::Create => Status::OBJECT_NAME_COLLISION,
        _ => Status::IO_REPARSE_TAG_NOT_HANDLED,
    }
}

/// Builds the table entry for an open. Its caching key is new, or belongs to the lease that the request names.
fn entry(
    cx: &RequestContext,
    w: &Wanted<'_>,
    file: File,
    granted: Granted,
) -> Result<Open, Status> {
    let (level, context) = (w.request.oplock_level, w.asked.lease.as_ref());
    cx.room_for_an_open_of(&file)?;
    let (party, claim) = lease::claim(cx, level, context, file.node().id())?;
    let cred = w.tree.cred.clone();
    let Granted { access, by_list, by_privilege } = granted;
    let owner = (w.tree.session_id, w.tree.id);
    let mut open = Open::new(owner, Target::File(file), party, cred, access)?;
    open.by_list = by_list.map(|grant| grant.limited(access));
    open.by_privilege = by_privilege & access;
    open.deletes_by_list = open.by_list.as_ref().is_some_and(|g| g.rights() & mask::DELETE != 0);
    open.caching = OpenCaching::of_create(claim, lease::asked(cx, level, context));
    open.durable.note_at(cx.conn.info.peer.ip());
    open.part = Some(cx.part_of_opens(w.request.name.len())?);
    open.sequence = Sequence::new(cx.channel_sequence());
    open.shared = w.request.share;
    open.options = w.request.options;
    open.posix = w.posix;
    open.open_state = OpenState::new(w.request.options);
    open.open_state.by_macos = cx.session()?.is_macos();
    open.is_proven = cx.is_proven();
    if w.share.rules.audit != audit::Files::NONE && audit::is_on() {
        open.opener = Some(Box::new(cx.acting()));
    }
    if w.has(option::DELETE_ON_CLOSE) {
        open.set_delete_on_close();
    }
    Ok(open)
}

/// Origin of an open in the response.
enum How {
    /// Just created.
    New(Ticket),
    /// Reconnected by its client.
    Again,
    /// Found again by a replayed create.
    Replayed,
}

/// Returns the current attributes of a file that was already open.
async fn now(cx: &RequestContext, open: &Open) -> Result<(Attr, Dos), Status> {
    let file = open.file()?;
    let attr = cx.file_ops(open).getattr(&file.node()).await?;
    Ok((attr, file.base().dos(&attr).await?))
}

async fn answer(
    cx: &RequestContext,
    (request, asked): (&Request<'_>, &Asked<'_>),
    opened: Opened,
    how: How,
) -> Result<Answer, Status> {
    let Opened { open, attr, dos, mut action } = opened;
    if attr.kind == Kind::File {
        open.open_state.note_attributes(dos.attributes);
    }
    let mut told = Told::default();
    let level = match how {
        How::New(ticket) => {
            if action != action::OPENED && attr.kind == Kind::File {
                open.open_state.reserve(asked.allocation_size.unwrap_or(0));
            }
            lease::given_back(cx, &open).await;
            let (level, lease) = (request.oplock_level, asked.lease.as_ref());
            let allocated = attr.size.max(attr.used);
            let (level, context) = lease::request(cx, &open, level, lease, allocated);
            told.lease = context;
            durable::grant(cx, &open, request, asked, action, ticket, &mut told).await;
            if let Some(lease) = open.caching.lease() {
                // The lease may have been upgraded, and other opens of the lease may be persistent.
                persist::save_lease(&cx.server, &lease).await?;
            }
            level
        }
        How::Again => {
            let (level, context) = lease::describe(&cx.server, &open);
            told.lease = context;
            level
        }
        How::Replayed => {
            let (level, context, first) = durable::replayed(cx, &open, request, asked, &mut told);
            told.lease = context;
            action = first;
            level
        }
    };
    if let Some(since) = asked.maximal_access {
        let changed = dos.change_time(attr.ctime);
        let is_known = since.is_some_and(|t| t != 0 && t == file_time(changed).0);
        told.maximal_access = Some(if is_known {
            (Status::NONE_MAPPED.0, 0)
        } else {
            maximal(cx.tree()?, &open, &attr).await
        });
    }
    // Omit on reconnect, since the client already knows it (MS-SMB2 section 3.3.5.9.9).
    if asked.on_disk_id && asked.reconnect.is_none() && asked.reconnect_v2.is_none() {
        told.on_disk_id = Some((attr.fileid, attr.fsid));
    }
    if open.posix {
        told.posix = Some(posix(&attr, &dos));
    }
    if let Some(query) = &asked.aapl {
        told.aapl = Some(agree_with_macos(cx, query)?);
    }
    let file = open.file()?;
    let mut basics = file_info::basics(&attr, &dos, &file.place().name);
    if let Some(link) = LinkFacts::of_open(cx, &open, file).await {
        link.add_to_basics(&mut basics);
    }
    basics.allocation_size = basics.allocation_size.max(open.open_state.reserved());
    let response = Response {
        oplock_level: level,
        flags: 0,
        action,
        basics,
        file: open.id,
        contexts: told.contexts(),
    };
    Ok(Answer { opened: Some(open.id), ..Answer::ok(response.emit()) })
}

/// Answers macOS, and remembers for its session what is agreed.
fn agree_with_macos(cx: &RequestContext, query: &aapl::Query) -> Result<aapl::Told, Status> {
    let for_backups = cx.tree()?.settings.time_machine.is_some();
    let (told, bits) = mac::agree(query, for_backups, &cx.server.settings().model);
    cx.session()?.mac.add(bits);
    Ok(told)
}

/// Builds the response context of the POSIX extensions.
fn posix(attr: &Attr, dos: &Dos) -> PosixTold {
    let mut sids = Vec::new();
    security::sid_of_uid(attr.uid).put(&mut sids);
    security::sid_of_gid(attr.gid).put(&mut sids);
    PosixTold {
        nlink: attr.nlink,
        reparse_tag: file_info::posix_reparse_tag(attr.kind, dos),
        mode: file_info::posix_mode(attr),
        sids,
    }
}

/// Answers SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST if the client's version of the file is out of date (MS-SMB2 section 3.3.5.9.5).
async fn maximal(tree: &Tree, open: &Open, attr: &Attr) -> (u32, u32) {
    let Ok(file) = open.file() else { return (Status::INTERNAL_ERROR.0, 0) };
    let place = file.place();
    let parent = (!place.name.is_empty()).then_some(&place.dir);
    match security::maximal(tree, &file.base(), attr, parent).await {
        Ok(access) => (Status::SUCCESS.0, access),
        Err(status) => (status.0, 0),
    }
}

/// Returns `CreateAction` for an existing file.
fn action_on_existing(d: Disposition) -> u32 {
    match d {
        Disposition::Supersede => action::SUPERSEDED,
        Disposition::Overwrite | Disposition::OverwriteIf => action::OVERWRITTEN,
        _ => action::OPENED,
    }
}

/// Returns the rights that overwriting a file requires in addition to the requested ones (MS-FSA section 2.1.5.1.2.1).
fn implied(d: Disposition) -> u32 {
    match d {
        Disposition::Supersede => mask::DELETE | mask::WRITE_DATA,
        Disposition::Overwrite | Disposition::OverwriteIf => mask::WRITE_DATA,
        _ => 0,
    }
}
