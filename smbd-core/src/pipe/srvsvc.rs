//! The server service (MS-SRVS): lists of shares, facts about the server, and its time.

use smb_proto::dtyp::civil;
use smb_proto::ndr::{Later, Reader, Writer};

use super::rpc::{Fault, Read, Syntax};
use super::{Host, PRICE_MIN};

/// 4b324fc8-1670-01d3-1278-5a47bf6ee188, version 3.0.
pub(crate) const SYNTAX: Syntax = Syntax {
    uuid: [
        0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1,
        0x88,
    ],
    version: 3,
};

/// ERROR_ACCESS_DENIED
const ACCESS_DENIED: u32 = 5;
/// ERROR_INVALID_LEVEL
const INVALID_LEVEL: u32 = 124;
/// NERR_NetNameNotFound
const NAME_NOT_FOUND: u32 = 2310;

/// STYPE_DISKTREE
const DISK: u32 = 0;
/// STYPE_IPC with STYPE_SPECIAL
const IPC: u32 = 0x8000_0003;

/// PLATFORM_ID_NT
pub(super) const PLATFORM: u32 = 500;
/// The version of Windows 10 and later.
pub(super) const VERSION: (u32, u32) = (10, 0);
/// Workstation, server, NT, NT server.
const SERVER_TYPE: u32 = 0x9003;

/// Runs one operation.
pub(crate) fn call(host: &dyn Host, op: u16, stub: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut r = Reader::new(stub);
    match op {
        // NetrShareEnum, NetrShareEnumSticky
        15 | 36 => share_enum(host, &mut r),
        16 => share_get_info(host, &mut r),
        21 => server_get_info(host, &mut r),
        23 => disk_enum(&mut r),
        28 => remote_tod(host, &mut r),
        // Queries and changes of connections, files, sessions, shares, the server, its statistics and transports: administration is
        // not possible over this protocol.
        8..=14 | 18 | 19 | 22 | 24..=27 => Err(Fault::ACCESS_DENIED),
        17 => Ok(share_set_info()),
        _ => Err(Fault::NO_OPERATION),
    }
}

/// Returns the most bytes that an answer takes ([`Interface::price`](super::Interface::price)).
pub(super) fn price(host: &dyn Host, op: u16) -> usize {
    /// Bytes of a share, without its name and comment.
    const SHARE: usize = 512;
    /// Copies of name, comment and path: in UTF-16 twice, and as text that waits to be written.
    const COPIES: usize = 16;
    let (bytes, shares) = match op {
        15 | 16 | 36 => host.shares_size(),
        _ => (0, 0),
    };
    // A descriptor is at most a list with owner and group.
    const DESCRIPTOR: usize = 66 << 10;
    let descriptor = if op == 16 { 3 * DESCRIPTOR } else { 0 };
    PRICE_MIN + SHARE * shares + COPIES * bytes + descriptor
}

struct ShareFacts {
    name: String,
    kind: u32,
    remark: String,
    /// The security descriptor, if only this share is queried: the memory for lists of shares has room for none.
    descriptor: Option<Vec<u8>>,
}

fn disk((name, remark): (String, String)) -> ShareFacts {
    ShareFacts { name, kind: DISK, remark, descriptor: None }
}

fn pipes() -> ShareFacts {
    ShareFacts { name: "IPC$".into(), kind: IPC, remark: "Remote IPC".into(), descriptor: None }
}

fn shares(host: &dyn Host) -> Vec<ShareFacts> {
    host.shares().into_iter().map(disk).chain([pipes()]).collect()
}

/// Returns whether lists exist for this level of SHARE_INFO (section 2.2.4).
fn is_level(level: u32) -> bool {
    matches!(level, 0 | 1 | 2 | 501 | 502 | 503)
}

/// Returns whether a single share can be queried at this level. The additional levels are parts of the others, which clients read
/// before they change them.
fn is_level_of_one(level: u32) -> bool {
    is_level(level) || matches!(level, 1004 | 1005 | 1006 | 1501)
}

/// Writes the length of a descriptor and the pointer to it (section 2.2.4.26).
fn descriptor(w: &mut Writer, later: &mut Vec<Later>, of: Option<Vec<u8>>) {
    let bytes = of.unwrap_or_default();
    w.u32(u32::try_from(bytes.len()).unwrap_or_default());
    if bytes.is_empty() {
        return w.null();
    }
    w.pointer();
    later.push(Later::Sized(bytes));
}

/// Writes one SHARE_INFO without the targets of its pointers.
fn share_info(w: &mut Writer, host: &dyn Host, level: u32, s: &ShareFacts, later: &mut Vec<Later>) {
    let text = |w: &mut Writer, later: &mut Vec<Later>, text: String| {
        w.pointer();
        later.push(Later::Text(text));
    };
    match level {
        1004 => return text(w, later, s.remark.clone()),
        // SHI1005_FLAGS_DFS and SHI1005_FLAGS_DFS_ROOT, or no flags.
        1005 => return w.u32(if host.is_dfs_root(&s.name) { 3 } else { 0 }),
        // shi1006_max_uses: no limit.
        1006 => return w.u32(u32::MAX),
        1501 => return descriptor(w, later, s.descriptor.clone()),
        _ => {}
    }
    text(w, later, s.name.clone());
    if level == 0 {
        return;
    }
    w.u32(s.kind);
    text(w, later, s.remark.clone());
    if level == 501 {
        return w.u32(0);
    }
    if level == 1 {
        return;
    }
    // shi2_permissions, shi2_max_uses (no limit), shi2_current_uses
    w.u32(0);
    w.u32(u32::MAX);
    w.u32(host.sessions());
    // Do not reveal the path on the host; administration tools expect a Windows path.
    let path = if s.kind == IPC { String::new() } else { format!("C:\\{}", s.name) };
    text(w, later, path);
    w.null();
    if level == 503 {
        text(w, later, "*".into());
    }
    if level >= 502 {
        descriptor(w, later, s.descriptor.clone());
    }
}

/// NetrShareEnum (section 3.1.4.8).
fn share_enum(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let level = r.u32()?;
    if r.u32()? != level {
        return Err(Fault::BAD_STUB);
    }
    if r.pointer()? {
        r.u32()?;
        if r.pointer()? && r.u32()? != 0 {
            return Err(Fault::BAD_STUB);
        }
    }
    // PreferedMaximumLength: ignored, because all shares fit into one answer and clients accept that.
    r.u32()?;
    let resume = if r.pointer()? { Some(r.u32()?) } else { None };
    let all = shares(host);
    let known = is_level(level);
    let count = if known { u32::try_from(all.len()).unwrap_or(u32::MAX) } else { 0 };
    let mut w = Writer::default();
    w.u32(level);
    w.u32(level);
    if known {
        w.pointer();
        w.u32(count);
        w.pointer();
        w.u32(count);
        let mut later = Vec::new();
        for s in &all {
            share_info(&mut w, host, level, s, &mut later);
        }
        w.later(later);
    } else {
        w.null();
    }
    w.u32(count);
    if resume.is_some() {
        w.pointer();
        w.u32(0);
    } else {
        w.null();
    }
    w.u32(if known { 0 } else { INVALID_LEVEL });
    Ok(w.finish())
}

/// NetrShareGetInfo (section 3.1.4.10).
fn share_get_info(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let name = r.text()?.to_lowercase();
    let level = r.u32()?;
    let found = if name == "ipc$" { Some(pipes()) } else { host.share(&name).map(disk) };
    let mut w = Writer::default();
    w.u32(level);
    let error = match found {
        _ if !is_level_of_one(level) => INVALID_LEVEL,
        None => NAME_NOT_FOUND,
        Some(mut share) => {
            if matches!(level, 502 | 503 | 1501) {
                share.descriptor = host.share_descriptor(&share.name);
            }
            w.pointer();
            let mut later = Vec::new();
            share_info(&mut w, host, level, &share, &mut later);
            w.later(later);
            0
        }
    };
    if error != 0 {
        w.null();
    }
    w.u32(error);
    Ok(w.finish())
}

/// NetrShareSetInfo (section 3.1.4.11): only the configuration changes shares. Answers with an error rather than a fault, which
/// tools report as a lost connection.
fn share_set_info() -> Vec<u8> {
    let mut w = Writer::default();
    // ParmErr
    w.null();
    w.u32(ACCESS_DENIED);
    w.finish()
}

/// NetrServerGetInfo (section 3.1.4.17).
fn server_get_info(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let level = r.u32()?;
    let mut w = Writer::default();
    w.u32(level);
    if !(100..=102).contains(&level) {
        w.null();
        w.u32(INVALID_LEVEL);
        return Ok(w.finish());
    }
    w.pointer();
    w.u32(PLATFORM);
    w.pointer();
    let mut later = vec![Later::Text(host.computer())];
    if level > 100 {
        w.u32(VERSION.0);
        w.u32(VERSION.1);
        w.u32(SERVER_TYPE);
        w.pointer();
        later.push(Later::Text(String::new()));
    }
    if level > 101 {
        // sv102_users, disc (minutes), hidden, announce, anndelta, licenses
        for n in [host.sessions(), 15, 0, 240, 3000, 0] {
            w.u32(n);
        }
        w.pointer();
        later.push(Later::Text("C:\\".into()));
    }
    w.later(later);
    w.u32(0);
    Ok(w.finish())
}

/// NetrServerDiskEnum (section 3.1.4.19): the one drive that appears in paths of shares.
fn disk_enum(r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let known = r.u32()? == 0;
    let mut w = Writer::default();
    let count = u32::from(known);
    w.u32(count);
    if known {
        w.pointer();
        // A conformant varying array of one DISK_INFO, which is a varying array of three characters.
        for n in [1, 0, 1, 0, 3] {
            w.u32(n);
        }
        for unit in [u16::from(b'C'), u16::from(b':'), 0] {
            w.u16(unit);
        }
    } else {
        w.null();
    }
    w.u32(count);
    // The resume handle is ignored (section 3.1.4.19), because the list is complete.
    w.null();
    w.u32(if known { 0 } else { INVALID_LEVEL });
    Ok(w.finish())
}

/// NetrRemoteTOD (section 3.1.4.21), in UTC.
fn remote_tod(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let (now, up) = host.times();
    let (seconds, days) = (now / 1000, now / 86_400_000);
    let (year, month, day) = civil(days);
    let low = |n: u64| u32::try_from(n & u64::from(u32::MAX)).unwrap_or_default();
    let mut w = Writer::default();
    w.pointer();
    for n in [
        low(seconds),
        low(up),
        low(seconds / 3600 % 24),
        low(seconds / 60 % 60),
        low(seconds % 60),
        low(now / 10 % 100),
        // tod_timezone: minutes west; tod_tinterval: a tick, in units of 0.1 ms
        0,
        310,
        day,
        month,
        year,
        // 1970 began on a Thursday.
        low((days + 4) % 7),
    ] {
        w.u32(n);
    }
    w.u32(0);
    Ok(w.finish())
}
