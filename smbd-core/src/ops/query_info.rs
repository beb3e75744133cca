//! QUERY_INFO (MS-SMB2 section 3.3.5.20) for files, volumes, security descriptors and quotas.

use std::sync::Arc;

use vfs::allowance::space_of;
use vfs::names::Spelling;
use vfs::namespace::FileOps;
use vfs::streams::Streams;
use vfs::{FsStat, Time, VfsError};

use crate::answer::Answer;
use crate::dtyp::time::file_time;
use crate::dtyp::{FileTime, mask};
use crate::file_info;
use crate::fscc::ea::{self, FullEa};
use crate::fscc::file::{self, Class, fit};
use crate::fscc::stream::Stream;
use crate::fscc::{Chain, volume};
use crate::mac;
use crate::open::{File, Open};
use crate::ops::quota;
use crate::ops::room::room;
use crate::owners;
use crate::pace::Pace;
use crate::path_tracking;
use crate::request_context::RequestContext;
use crate::security::{self, unix_entries};
use crate::status::Status;
use crate::symlinks::LinkFacts;
use crate::wire::error;
use crate::wire::negotiate::Dialect;
use crate::wire::query_info::{Request, Response, flag, info_type};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    match answer(cx).await {
        // Includes an error context without data (MS-SMB2 sections 3.3.5.20.1 and 3.3.5.20.2).
        Err(status @ Status::INFO_LENGTH_MISMATCH) if cx.conn.dialect() == Dialect::V311 => {
            Ok(with_data(cx, status, &[]))
        }
        other => other,
    }
}

async fn answer(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    super::check_output(cx, r.output_len)?;
    cx.check_charge(r.output_len.max(u32::try_from(r.input.len()).unwrap_or(u32::MAX)))?;
    let _room = room(cx, r.output_len).await?;
    if open.pipe().is_some() {
        if r.info_type != info_type::FILE {
            return Err(Status::NOT_SUPPORTED);
        }
        let buffer = super::pipe::query(&open, r.class, limit(&r))?;
        return Ok(Answer::ok(Response { buffer }.emit()));
    }
    let (status, buffer) = match r.info_type {
        info_type::FILE => of_file(cx, &open, &r).await?,
        info_type::FILESYSTEM => of_volume(cx, &open, &r).await?,
        info_type::SECURITY => match of_security(cx, &open, &r).await? {
            Ok(buffer) => (Status::SUCCESS, buffer),
            Err(needed) => return Ok(too_small(cx, needed)),
        },
        info_type::QUOTA => (Status::SUCCESS, quota::query(cx, &open, &r.input, limit(&r)).await?),
        _ => return Err(Status::INVALID_PARAMETER),
    };
    Ok(Answer::with_status(status, Response { buffer }.emit()))
}

fn limit(r: &Request) -> usize {
    usize::try_from(r.output_len).unwrap_or(usize::MAX)
}

/// Returns STATUS_BUFFER_TOO_SMALL with the required length (MS-SMB2 section 3.3.5.20.3).
fn too_small(cx: &RequestContext, needed: usize) -> Answer {
    let needed = u32::try_from(needed).unwrap_or(u32::MAX).to_le_bytes();
    with_data(cx, Status::BUFFER_TOO_SMALL, &needed)
}

/// Builds an error with data in the dialect's format.
fn with_data(cx: &RequestContext, status: Status, data: &[u8]) -> Answer {
    Answer::with_status(status, error::body(data, cx.conn.dialect() == Dialect::V311))
}

async fn of_file(
    cx: &RequestContext,
    open: &Arc<Open>,
    r: &Request,
) -> Result<(Status, Vec<u8>), Status> {
    let class = Class::from_number(r.class).ok_or_else(|| file::refusal(r.class))?;
    if class == Class::Posix {
        super::check_posix(cx)?;
    }
    let file = open.file()?;
    if class == Class::NormalizedName && cx.conn.dialect() < Dialect::V311 {
        return Err(Status::NOT_SUPPORTED);
    }
    if class.needs() != 0 {
        open.check(class.needs())?;
    }
    if limit(r) < class.fixed_len() {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    match class {
        Class::Stream => return of_streams(cx, &cx.file_ops(open), file, limit(r)).await,
        Class::FullEa => return of_full_ea(cx, open, file, r).await,
        _ => {}
    }
    let pending = cx.server.opens.is_delete_pending(open);
    let facts = file_info::of_file(&cx.file_ops(open), file, open.open_state.by_macos).await?;
    let mut facts = file_info::of_open(open, facts, pending);
    if let Some(link) = LinkFacts::of_open(cx, open, file).await {
        link.add_to(&mut facts);
    }
    if class.has_name() {
        // MS-SMB2 section 3.3.5.20.1 wants an empty name in FileAllInformation. Linux clients reject responses of less than 101
        // bytes, one more than the fixed part, so the name stays.
        facts.name = path(cx, file, open.spelling()).await;
    }
    if class == Class::AlternateName {
        facts.short_name = file_info::short_name(&file.place().name);
    }
    if matches!(class, Class::All | Class::Ea) {
        let attr = file.base().getattr().await?;
        facts.ea_size = file_info::extended_len(&file.base(), &attr).await?;
    }
    let (status, bytes) = fit(file::query(class, &facts)?, class.fixed_len(), limit(r))?;
    Ok((status.into(), bytes))
}

/// Returns the path of an open as clients see it: from the share's root with a leading separator, followed by the stream name.
async fn path(cx: &RequestContext, file: &File, spelling: Spelling) -> String {
    let home = cx.tree().ok().and_then(|tree| tree.home.clone());
    let path = path_tracking::path(&cx.server.opens, (file, spelling), home.as_ref()).await;
    match file.stream() {
        None if spelling == Spelling::Posix => format!("/{path}"),
        Some(stream) => format!("\\{path}:{stream}"),
        None => format!("\\{path}"),
    }
}

/// Lists the streams of a file, its own data first (MS-FSA section 2.1.5.12.27). Looks streams up only while the buffer has room,
/// and ends before the first that does not fit.
async fn of_streams(
    cx: &RequestContext,
    file_ops: &FileOps<'_>,
    file: &File,
    limit: usize,
) -> Result<(Status, Vec<u8>), Status> {
    let attr = file_ops.getattr(&file.base()).await?;
    let dos = file.base().dos(&attr).await?;
    let (mut chain, mut pace) = (Chain::new(limit), Pace::begin());
    let is_macos = cx.session()?.is_macos();
    let entry = |name: &str, attr: &vfs::Attr| Stream {
        name: format!(":{name}:$DATA"),
        size: attr.size,
        allocation: file_info::allocation(attr, &dos),
    };
    let mut fits = attr.kind != vfs::Kind::File || chain.push(&entry("", &attr).emit());
    match Streams::of(&file.share, &file.base()).await {
        Ok(mut named) => {
            while fits && let Some(stream) = named.next().await? {
                pace.keep().await;
                if mac::exists(&stream.name, stream.attr.size, is_macos) {
                    fits = chain.push(&entry(&stream.name, &stream.attr).emit());
                }
            }
        }
        Err(VfsError::NotSupported) => {}
        Err(e) => return Err(e.into()),
    }
    let status = if fits { Status::SUCCESS } else { Status::BUFFER_OVERFLOW };
    Ok((status, chain.into_bytes()))
}

/// Returns the extended attributes that the request names, or all, or one at a time (MS-FSA section 2.1.5.12.12). Reads values one
/// by one, and stops when the buffer is full.
async fn of_full_ea(
    cx: &RequestContext,
    open: &Open,
    file: &File,
    r: &Request,
) -> Result<(Status, Vec<u8>), Status> {
    let base = file.base();
    let mut eas = file_info::Extended::list(&base, open).await?;
    let names = if r.input.is_empty() {
        eas.names_from(index(r))?
    } else {
        let names = cx.parse_part(&r.input, ea::parse_names)?;
        if names.iter().any(|n| !ea::is_name(n)) {
            return Err(Status::INVALID_EA_NAME);
        }
        names
    };
    let single = r.flags & flag::RETURN_SINGLE_ENTRY != 0;
    let (mut chain, mut pace) = (Chain::aligned(limit(r), 4), Pace::begin());
    for name in names {
        pace.keep().await;
        let value = match eas.value(&name).await? {
            Some(value) => value,
            // Removed after it was listed.
            None if r.input.is_empty() => continue,
            None => &[],
        };
        let fits = FullEa::FRAME + name.len() + value.len() <= chain.room();
        if !fits || !chain.push(&ea::entry(0, &name, value)) {
            if chain.is_empty() {
                return Err(Status::BUFFER_TOO_SMALL);
            }
            return Ok((Status::BUFFER_OVERFLOW, chain.into_bytes()));
        }
        if single {
            break;
        }
    }
    Ok((Status::SUCCESS, chain.into_bytes()))
}

/// Returns the number of attributes to skip. `EaIndex` counts from 1.
fn index(r: &Request) -> usize {
    match r.flags & flag::INDEX_SPECIFIED {
        0 => 0,
        _ => usize::try_from(r.additional.saturating_sub(1)).unwrap_or(usize::MAX),
    }
}

async fn of_volume(
    cx: &RequestContext,
    open: &Open,
    r: &Request,
) -> Result<(Status, Vec<u8>), Status> {
    let class =
        volume::Class::from_number(r.class).ok_or_else(|| volume::Class::refusal(r.class))?;
    if class == volume::Class::Posix {
        super::check_posix(cx)?;
    }
    quota::volume(open)?;
    if limit(r) < class.fixed_len() {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    let facts = volume_facts(cx, open, class).await?;
    let (status, bytes) = fit(volume::query(class, &facts)?, class.fixed_len(), limit(r))?;
    Ok((status.into(), bytes))
}

/// Collects the properties of the volume that contains a file, as far as the class has them.
async fn volume_facts(
    cx: &RequestContext,
    open: &Open,
    class: volume::Class,
) -> Result<volume::VolumeInfo, Status> {
    use volume::Class;
    use volume::attribute as a;
    /// Bytes per allocation unit. The host reports no unit; this is the page size and the block size of most of its file systems.
    const UNIT: u32 = 4096;
    /// Characters per name. The host counts bytes; clients get the same limit as from Windows (MS-FSCC section 2.5.1).
    const NAME_MAX: u32 = 255;
    let (share, node) = quota::volume(open)?;
    let tree = cx.tree()?;
    let mut stat = match class {
        Class::Size | Class::FullSize | Class::Posix => {
            space_of(&*share.backend, &node, &open.cred, Time::now().sec).await?
        }
        _ => FsStat::default(),
    };
    if let Some(machine) = &tree.settings.time_machine {
        let top = tree.top(share);
        let used = machine.used(&top, &cx.conn.read_into);
        stat = machine.limited(stat, cx.by_storage(used).await?);
    }
    let control = match class {
        Class::Control => quota::control(share, &node).await?,
        _ => volume::Control::default(),
    };
    let can = share.backend.capabilities_of(&node);
    let root = share.backend.root().getattr().await?;
    let units = |bytes: u64| bytes / u64::from(UNIT);
    let when = |is: bool, bit: u32| if is { bit } else { 0 };
    let mut id = [0; 16];
    id[..4].copy_from_slice(&share.id.to_le_bytes());
    id[4..12].copy_from_slice(&node.getattr().await?.fsid.to_le_bytes());
    Ok(volume::VolumeInfo {
        created: root.btime.map_or(FileTime(cx.server.started()), file_time),
        serial: share.id,
        label: tree.name.clone(),
        unit: UNIT,
        units: (units(stat.total_bytes), units(stat.free_bytes), units(stat.avail_bytes)),
        nodes: (stat.total_files, stat.free_files),
        attributes: a::CASE_SENSITIVE_SEARCH
            | a::CASE_PRESERVED_NAMES
            | a::UNICODE_ON_DISK
            | a::PERSISTENT_ACLS
            | a::SUPPORTS_SPARSE_FILES
            | a::SUPPORTS_REPARSE_POINTS
            | a::SUPPORTS_OBJECT_IDS
            | a::NAMED_STREAMS
            | a::SUPPORTS_HARD_LINKS
            | when(can.xattr, a::SUPPORTS_EXTENDED_ATTRIBUTES)
            | when(can.reflink, a::SUPPORTS_BLOCK_REFCOUNTING)
            | when(can.quotas, a::VOLUME_QUOTAS)
            | when(can.read_only || share.read_only, a::READ_ONLY_VOLUME),
        name_max: NAME_MAX,
        id,
        fsid: root.fsid,
        trims: can.deallocate && !can.read_only && !share.read_only,
        control,
    })
}

/// Returns the requested parts of the security descriptor, or the required buffer size if they do not fit.
async fn of_security(
    cx: &RequestContext,
    open: &Open,
    r: &Request,
) -> Result<Result<Vec<u8>, usize>, Status> {
    let needs = security::needs(r.additional, false);
    if open.granted & needs != needs {
        return Err(Status::ACCESS_DENIED);
    }
    debug_assert_eq!(needs & !(mask::READ_CONTROL | mask::ACCESS_SYSTEM_SECURITY), 0);
    let file = open.file()?;
    let attr = file.base().getattr().await?;
    owners::learn(cx, &file.base(), &attr).await?;
    let domain = open.cred.token.domain();
    let mut sd = security::descriptor(&file.base(), &attr, domain).await?;
    if cx.session()?.is_macos() {
        unix_entries::add(&mut sd, &attr);
    }
    let sd = security::only(sd, r.additional);
    let bytes = sd.emit();
    Ok(if bytes.len() <= limit(r) { Ok(bytes) } else { Err(bytes.len()) })
}
