//! SET_INFO (MS-SMB2 section 3.3.5.21) for files, volumes and security descriptors.

use std::collections::HashMap;
use std::sync::Arc;

use rates::Kind as RateKind;
use state::Operation;
use vfs::types::{Cred, SetAttr, SetTime, Time, XattrHow};
use vfs::{Kind, VfsError};

use crate::answer::Answer;
use crate::dtyp::{FileTime, SecurityDescriptor, mask, time};
use crate::file_info;
use crate::fscc::ea::{self, FullEa};
use crate::fscc::file::Basic;
use crate::fscc::set::{Set, disposition};
use crate::fscc::{attribute, volume};
use crate::lease;
use crate::open::{File, Open};
use crate::ops::bytes::{self, Change};
use crate::ops::held_times::change_record;
use crate::ops::pipe_host::machine;
use crate::ops::quota;
use crate::owners;
use crate::pace::Pace;
use crate::path_tracking;
use crate::privilege_use::Asked;
use crate::privileges::Privileges;
use crate::request_context::RequestContext;
use crate::security;
use crate::status::Status;
use crate::wire::query_info::info_type;
use crate::wire::set_info::{Request, Response};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    let _writing = open.caching.writing();
    if open.pipe().is_none() {
        cx.in_rates_of(&open, RateKind::Other, 0, 0).await?;
    }
    let len = u32::try_from(r.buffer.len()).unwrap_or(u32::MAX);
    super::check_output(cx, len)?;
    if len == 0 {
        // MS-SMB2 section 3.3.5.21 refuses an empty buffer.
        return Err(Status::INVALID_PARAMETER);
    }
    cx.check_charge(len)?;
    match r.info_type {
        info_type::FILE if open.pipe().is_some() => super::pipe::set(&open, r.class, &r.buffer)?,
        info_type::FILE => {
            let done = of_file(cx, &open, &r).await;
            bytes::settle(cx, &open).await?;
            done?;
        }
        info_type::FILESYSTEM => of_volume(cx, &open, &r).await?,
        info_type::SECURITY => of_security(cx, &open, &r).await?,
        info_type::QUOTA => quota::set(cx, &open, &r.buffer).await?,
        _ => return Err(Status::INVALID_PARAMETER),
    }
    Ok(Answer::ok(Response.emit()))
}

/// Sets volume information: default quotas only. Only the host sets volume identifiers, as on Windows (MS-SMB2 section 3.3.5.21.2).
async fn of_volume(cx: &RequestContext, open: &Open, r: &Request) -> Result<(), Status> {
    const CONTROL: u8 = 6;
    const CONTROL_LEN: usize = 48;
    const OBJECT_ID: u8 = 8;
    match r.class {
        OBJECT_ID => Err(Status::ACCESS_DENIED),
        CONTROL if open.check(mask::WRITE_DATA).is_err() => Err(Status::ACCESS_DENIED),
        CONTROL if r.buffer.len() < CONTROL_LEN => Err(Status::INFO_LENGTH_MISMATCH),
        CONTROL => quota::set_control(cx, open, &r.buffer).await,
        _ => Err(volume::Class::refusal(r.class).into()),
    }
}

async fn of_security(cx: &RequestContext, open: &Open, r: &Request) -> Result<(), Status> {
    let needs = security::needs(r.additional, true);
    if open.granted & needs != needs {
        return Err(Status::ACCESS_DENIED);
    }
    let mut sd = cx.parse_part(&r.buffer, SecurityDescriptor::parse)?;
    security::know_accounts(&mut sd, &machine(&cx.server.settings().server_guid));
    let asked = Asked::by(cx, Privileges::NONE)?;
    let is_answered = owners::learn_new(cx, (&cx.tree()?.cred, &asked), r.additional, &sd).await?;
    if open.is_closed() {
        return Err(Status::FILE_CLOSED);
    }
    let file = open.file()?;
    let file_ops = cx.file_ops(open);
    let tree = cx.tree()?;
    // A reload may have added a domain after the file was opened.
    let share = tree.share_now(&cx.server.namespace).unwrap_or_else(|| file.share.clone());
    let base = file.base();
    // On the host the file would be the caller's, though the new owner may have a number.
    if !is_answered && security::changes_owner(tree, &base, r.additional, &sd).await? {
        return Err(Status::INVALID_OWNER);
    }
    let parts = (r.additional, &asked);
    let done = if cx.session()?.is_macos() {
        security::set_by_macos(tree, &file_ops, &share, &base, parts, sd).await
    } else if open.posix {
        security::set_by_posix(tree, &file_ops, &share, &base, parts, sd).await
    } else {
        security::set(tree, &file_ops, &share, &base, parts, sd).await
    };
    let status = done.err().unwrap_or(Status::SUCCESS);
    asked.record(cx, &share, async || base.path().await.unwrap_or_default(), status).await;
    done
}

async fn of_file(cx: &RequestContext, open: &Arc<Open>, r: &Request) -> Result<(), Status> {
    let set = Set::parse(r.class, &r.buffer)?;
    let file = open.file()?;
    match set {
        Set::Basic(basic) => set_basic(cx, open, file, basic).await,
        Set::Rename(to) => {
            cx.waits_silently();
            super::rename::rename(cx, open, file, to).await?;
            save_names(cx, file).await
        }
        Set::Link(to) => super::rename::link(cx, open, file, to).await,
        Set::Disposition { flags, ex } => {
            set_disposition(cx, open, file, flags, ex).await?;
            save_names(cx, file).await
        }
        Set::Position(at) => {
            open.check(mask::READ_DATA | mask::WRITE_DATA)?;
            open.open_state.set_position(at);
            Ok(())
        }
        Set::FullEa(list) => set_eas(cx, open, file, &list).await,
        Set::Mode(mode) => set_mode(open, mode),
        Set::Allocation(len) => set_allocation(cx, open, file, len).await,
        Set::EndOfFile(len) => {
            check_has_data(open)?;
            cx.changing(open, Change::EndOfFile(len)).await?.resize().await
        }
        Set::ValidDataLength(len) => set_valid_data_length(open, file, len).await,
        Set::ShortName(name) => Err(refuse_short_name(open, &name)),
    }
}

/// Sets the valid data length (MS-FSA section 2.1.5.15.14). All data of a host file is valid, because unwritten data reads as
/// zeros. So the only length accepted is the file's size, which has no effect; programs that preallocate files (SQL Server) set it.
/// Windows checks the parameters before the rights.
async fn set_valid_data_length(open: &Open, file: &File, len: u64) -> Result<(), Status> {
    check_has_data(open)?;
    let attr = file.node().getattr().await?;
    let dos = file.node().dos(&attr).await?;
    let is_sparse = dos.attributes.unwrap_or(0) & attribute::SPARSE_FILE != 0;
    if is_sparse || len != attr.size {
        return Err(Status::INVALID_PARAMETER);
    }
    bytes::check(open, Change::ValidDataLength)?;
    if file.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    // Requires SeManageVolumePrivilege.
    if open.cred.uid == 0 { Ok(()) } else { Err(Status::PRIVILEGE_NOT_HELD) }
}

/// Refuses to set a short name: volumes here store no short names (MS-FSA section 2.1.5.15.13).
fn refuse_short_name(open: &Open, name: &str) -> Status {
    if !name.is_empty() && file_info::short_name(name.as_bytes()).is_none() {
        return Status::INVALID_PARAMETER;
    }
    match open.check(mask::WRITE_DATA | mask::WRITE_ATTRIBUTES) {
        Err(denied) => denied,
        // Requires SeRestorePrivilege.
        Ok(()) if open.cred.uid != 0 => Status::PRIVILEGE_NOT_HELD,
        Ok(()) => Status::SHORT_NAMES_NOT_ENABLED_ON_VOLUME,
    }
}

/// Saves the persistent handles of a file after a rename or a change of its delete-pending state, both of which affect every open.
/// The saved records contain no other state that SET_INFO changes.
async fn save_names(cx: &RequestContext, file: &File) -> Result<(), Status> {
    crate::persist::save_changed(&cx.server, &cx.server.opens.of_node(file.base().id())).await
}

/// Converts a time to set; `None` leaves it unchanged.
fn time(t: FileTime) -> Result<Option<Time>, Status> {
    match t {
        FileTime::OMIT | FileTime::FREEZE | FileTime::THAW => Ok(None),
        t => time::time(t).map(Some).ok_or(Status::INVALID_PARAMETER),
    }
}

/// Sets times and attributes (MS-FSA section 2.1.5.15.2).
async fn set_basic(cx: &RequestContext, open: &Open, file: &File, b: Basic) -> Result<(), Status> {
    open.check(mask::WRITE_ATTRIBUTES)?;
    let is_dir = file.base().kind() == Kind::Dir;
    // Clients see a link to a folder, and a junction, as a folder.
    let may_be_dir = open.is_dir() || file.node().kind() == Kind::Symlink;
    if b.attributes & attribute::DIRECTORY != 0 && !may_be_dir
        || b.attributes & attribute::TEMPORARY != 0 && is_dir
    {
        return Err(Status::INVALID_PARAMETER);
    }
    let (created, accessed) = (time(b.creation)?, time(b.last_access)?);
    let (written, changed) = (time(b.last_write)?, time(b.change)?);
    let _order = match b.last_write {
        FileTime::OMIT => None,
        _ => Some(open.open_state.timed.lock().await),
    };
    let file_ops = cx.file_ops(open);
    if accessed.is_some() || written.is_some() {
        let set = SetAttr {
            atime: accessed.map(SetTime::At),
            mtime: written.map(SetTime::At),
            ..SetAttr::default()
        };
        file_ops.setattr(&file.share, &file.base(), &open.cred, set, true).await?;
    }
    if written.is_some() {
        // Earlier writes are older than the time set now, so closing their handles must not overwrite it.
        let all = cx.server.opens.of_node(file.base().id());
        all.iter().for_each(|other| other.open_state.forget_written());
    }
    let attr = file.base().getattr().await?;
    let old = file.base().dos(&attr).await?;
    let is = |t, special| t == special;
    let change =
        if is(b.change, FileTime::FREEZE) { Some(old.change_time(attr.ctime)) } else { changed };
    // Freezing the time makes later writes show an older time, so it needs the right to set times.
    let may_hold = is(b.last_write, FileTime::FREEZE)
        && file_ops.may_date(&file.base(), &attr, &open.cred).await?;
    let write = if may_hold { Some(attr.mtime) } else { written };
    open.open_state.hold(write, change);
    open.open_state.thaw(is(b.last_write, FileTime::THAW), is(b.change, FileTime::THAW));
    let mut dos = old;
    if b.attributes != 0 {
        // The root of a share is never hidden or a system directory.
        let is_root = file.place().name.is_empty();
        let fixed = if is_root { attribute::HIDDEN | attribute::SYSTEM } else { 0 };
        let kept = old.attributes.unwrap_or(0) & (attribute::SPARSE_FILE | fixed);
        dos.attributes = Some(b.attributes & attribute::SETTABLE & !fixed | kept);
    }
    dos.created = created.or(dos.created);
    if let Some(shown) = change.or(open.open_state.held().and_then(|h| h.change)) {
        dos.changed = Some(change_record(cx, shown));
    }
    if dos != old {
        file_ops.dos_set(&file.share, &file.base(), dos).await?;
    }
    if accessed.or(written).or(changed).or(created).is_some() || b.attributes != 0 {
        lease::listing_changed(&cx.server, open);
    }
    if !is_dir {
        let all = cx.server.opens.of_node(file.base().id());
        all.iter().for_each(|other| other.open_state.note_attributes(dos.attributes));
    }
    Ok(())
}

/// Sets FileModeInformation (MS-FSA section 2.1.5.15.8). Whether I/O is synchronous was fixed when the file was opened.
fn set_mode(open: &Open, mode: u32) -> Result<(), Status> {
    /// FILE_WRITE_THROUGH, SEQUENTIAL_ONLY, SYNCHRONOUS_IO_ALERT, SYNCHRONOUS_IO_NONALERT.
    const SETTABLE: u32 = 0x2 | 0x4 | 0x10 | 0x20;
    const SYNCHRONOUS: u32 = 0x10 | 0x20;
    let is_synchronous = |mode: u32| mode & SYNCHRONOUS != 0;
    if mode & !SETTABLE != 0
        || mode & SYNCHRONOUS == SYNCHRONOUS
        || is_synchronous(mode) != is_synchronous(open.open_state.mode())
    {
        return Err(Status::INVALID_PARAMETER);
    }
    open.open_state.set_mode(open.open_state.mode() & !SETTABLE | mode);
    Ok(())
}

/// Refuses directories, which have no settable size.
fn check_has_data(open: &Open) -> Result<(), Status> {
    if open.is_dir() { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// Sets the allocation size. The volume allocates on write, so this only checks that enough space is free. A size below the data's
/// truncates the data (MS-FSA section 2.1.5.15.1).
async fn set_allocation(
    cx: &RequestContext,
    open: &Open,
    file: &File,
    len: u64,
) -> Result<(), Status> {
    check_has_data(open)?;
    if len > file.share.backend.capabilities_of(&file.node()).size_max {
        return Err(Status::INVALID_PARAMETER);
    }
    let right = cx.changing(open, Change::Allocation(len)).await?;
    let attr = file.node().getattr().await?;
    let keeps = if len < attr.size {
        right.resize().await?;
        None
    } else {
        Some(right)
    };
    super::rename::ask(cx, open, &file.node(), Operation::Resize).await?;
    let room = file.share.backend.statfs_of(&file.node()).await?.avail_bytes;
    if len.saturating_sub(attr.used) > room {
        return Err(Status::DISK_FULL);
    }
    open.open_state.reserve(file_info::in_units(len));
    if let Some(right) = keeps {
        right.begin().await?;
        // Updates the change time, since the file changed though its data did not. `FileOps` would notify watchers of a write. The
        // attributes are read again, because lease holders may have written during the break.
        let attr = file.node().getattr().await?;
        let set = SetAttr { mtime: Some(SetTime::At(attr.mtime)), ..SetAttr::default() };
        file.node().setattr(&Cred::root(), set, true).await?;
        right.done().await?;
    }
    Ok(())
}

/// Sets or clears the delete-pending state (MS-FSA sections 2.1.5.15.3 and 2.1.5.15.4).
async fn set_disposition(
    cx: &RequestContext,
    open: &Arc<Open>,
    file: &File,
    flags: u32,
    ex: bool,
) -> Result<(), Status> {
    if flags & !disposition::ALL != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    open.check(mask::DELETE)?;
    let opens = &cx.server.opens;
    if flags & disposition::DELETE == 0 {
        opens.set_delete_pending(open, false);
        return Ok(());
    }
    let on_close = ex && flags & disposition::ON_CLOSE != 0;
    if on_close && !open.delete_on_close() && !opens.is_delete_pending(open) {
        // ON_CLOSE only changes how a pending deletion works; it does not start one.
        return Err(Status::NOT_SUPPORTED);
    }
    let place = file.place();
    if place.name.is_empty() && !file.is_stream() {
        return Err(Status::CANNOT_DELETE);
    }
    if file.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    let attr = file.base().getattr().await?;
    let dos = file.base().dos(&attr).await?;
    let read_only = file_info::attributes(&attr, &dos, &place.name) & attribute::READONLY != 0;
    let ignored = flags & disposition::IGNORE_READONLY_ATTRIBUTE != 0
        && open.check(mask::WRITE_ATTRIBUTES).is_ok();
    if attr.sealed || read_only && !ignored {
        return Err(Status::CANNOT_DELETE);
    }
    if !file.is_stream() {
        super::create::check_folder(place.dir.getattr().await.ok().as_ref())?;
        cx.file_ops(open).check_not_linked(&file.share, &place.dir, &place.name)?;
    }
    if !file.is_stream() && attr.kind == Kind::Dir && !is_empty(file, &open.cred).await? {
        return Err(Status::DIRECTORY_NOT_EMPTY);
    }
    if !file.is_stream() {
        // Another program renamed the file. Either the server cannot tell which remaining link the client means, or the user may
        // lack the right to delete from the new directory: a success would then delete no name.
        match path_tracking::look(opens, file).await {
            Err(VfsError::NotFound) if attr.nlink > 0 && attr.kind != Kind::Dir => {
                return Err(Status::OBJECT_NAME_NOT_FOUND);
            }
            Ok(place) if open.to_delete_from(&place.dir).is_none() => {
                let folder = security::may_take_from(&open.cred, &place.dir).await?;
                let file_ops = cx.file_ops(open).granted(None, folder.as_ref());
                file_ops.check_removal(&place.dir, &open.cred, &file.base()).await?;
            }
            _ => {}
        }
        super::rename::ask(cx, open, &file.base(), Operation::Delete).await?;
    }
    open.set_goes_at_once(flags & disposition::POSIX_SEMANTICS != 0);
    if !on_close {
        opens.set_delete_pending(open, true);
    }
    Ok(())
}

/// Returns whether this directory is empty.
pub(super) async fn is_empty(file: &File, cred: &Cred) -> Result<bool, Status> {
    // The right to delete a directory does not include the right to list it.
    let first = match file.base().readdir(cred, 0, 1).await {
        Err(VfsError::Access) => file.base().readdir(&Cred::root(), 0, 1).await,
        other => other,
    };
    Ok(first?.0.is_empty())
}

/// Largest list of extended attributes, in bytes. Parsing takes about ten times as much memory; an NTFS file has at most 64 KiB.
const EA_LIST_MAX: usize = 1 << 20;

/// Sets extended attributes; an empty value removes one (MS-FSA section 2.1.5.15.6).
async fn set_eas(cx: &RequestContext, open: &Open, file: &File, list: &[u8]) -> Result<(), Status> {
    open.check(mask::WRITE_EA)?;
    if list.len() > EA_LIST_MAX {
        return Err(Status::EA_TOO_LARGE);
    }
    let list = FullEa::parse_list(list).map_err(|_| Status::EA_LIST_INCONSISTENT)?;
    if list.iter().any(|e| !ea::is_name(&e.name) || e.flags & !ea::NEED_EA != 0) {
        return Err(Status::INVALID_EA_NAME);
    }
    let file_ops = cx.file_ops(open);
    put_eas(&file_ops, file, open, &list).await
}

/// Sets extended attributes, also for CREATE. Names are matched without regard to case.
pub(crate) async fn put_eas(
    file_ops: &vfs::namespace::FileOps<'_>,
    file: &File,
    open: &Open,
    list: &[FullEa],
) -> Result<(), Status> {
    let error = |e| match e {
        VfsError::NotSupported => Status::EAS_NOT_SUPPORTED,
        VfsError::XattrTooBig | VfsError::NoSpace => Status::EA_TOO_LARGE,
        e => Status::from(e),
    };
    let (base, cred) = (file.base(), &open.cred);
    let reader = open.actor(&base, mask::WRITE_EA);
    let there = base.xattr_list(reader.cred()).await.map_err(error)?;
    let mut known = HashMap::with_capacity(there.len());
    for name in there {
        known.entry(name.to_ascii_lowercase()).or_insert(name);
    }
    let mut pace = Pace::begin();
    for ea in list {
        pace.keep().await;
        let name = known.get(&ea.name.to_ascii_lowercase()).unwrap_or(&ea.name);
        let done = if ea.value.is_empty() {
            match file_ops.xattr_remove(&file.share, &file.base(), cred, name).await {
                Err(VfsError::NoXattr) => Ok(()),
                other => other.map(|_| ()),
            }
        } else {
            let how = XattrHow::Either;
            file_ops
                .xattr_set(&file.share, &file.base(), cred, name, &ea.value, how)
                .await
                .map(|_| ())
        };
        done.map_err(error)?;
    }
    Ok(())
}
