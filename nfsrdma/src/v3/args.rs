//! Arguments of all procedures, as values (RFC 1813 section 3.3). Decoding takes no memory by a number of the peer.

use iobuf::Buf;
use vfs::{CreateHow, SetAttr, Special, Stable, Time};

use super::attr::{decode_sattr, decode_time};
use super::procedure;
use crate::fh::FH_MAX;
use crate::limits::PATH_MAX;
use crate::xdr::{Reader, XdrError, XdrResult, at_most};

/// A name in a directory (`diropargs3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Where<'a> {
    /// The directory.
    pub dir: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// The arguments of one call. Handles are in wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub enum Args<'a> {
    Null,
    Getattr {
        object: &'a [u8],
    },
    Setattr {
        object: &'a [u8],
        new: SetAttr,
        guard: Option<Time>,
    },
    Lookup {
        what: Where<'a>,
    },
    Access {
        object: &'a [u8],
        access: u32,
    },
    Readlink {
        symlink: &'a [u8],
    },
    Read {
        file: &'a [u8],
        offset: u64,
        count: u32,
    },
    Write {
        file: &'a [u8],
        offset: u64,
        count: u32,
        stable: Stable,
        data: Vec<Buf>,
    },
    Create {
        place: Where<'a>,
        how: CreateHow,
        new: SetAttr,
    },
    Mkdir {
        place: Where<'a>,
        new: SetAttr,
    },
    Symlink {
        place: Where<'a>,
        new: SetAttr,
        target: Vec<u8>,
    },
    /// `None`: a type that MKNOD cannot make.
    Mknod {
        place: Where<'a>,
        what: Option<(Special, SetAttr)>,
    },
    Remove {
        object: Where<'a>,
    },
    Rmdir {
        object: Where<'a>,
    },
    Rename {
        from: Where<'a>,
        to: Where<'a>,
    },
    Link {
        file: &'a [u8],
        link: Where<'a>,
    },
    Readdir {
        dir: &'a [u8],
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    },
    Readdirplus {
        dir: &'a [u8],
        cookie: u64,
        verifier: [u8; 8],
        dircount: u32,
        maxcount: u32,
    },
    Fsstat {
        root: &'a [u8],
    },
    Fsinfo {
        root: &'a [u8],
    },
    Pathconf {
        object: &'a [u8],
    },
    Commit {
        file: &'a [u8],
        offset: u64,
        count: u32,
    },
}

fn fh<'a>(r: &mut Reader<'a>) -> XdrResult<&'a [u8]> {
    r.opaque(FH_MAX)
}

fn place<'a>(r: &mut Reader<'a>) -> XdrResult<Where<'a>> {
    // `filename3` has no limit but that of the message; a name that is too long for its volume is NAMETOOLONG.
    Ok(Where { dir: fh(r)?, name: r.opaque(usize::MAX)? })
}

fn stable(r: &mut Reader<'_>) -> XdrResult<Stable> {
    match r.u32()? {
        0 => Ok(Stable::Unstable),
        1 => Ok(Stable::Data),
        2 => Ok(Stable::File),
        _ => Err(XdrError::BadValue),
    }
}

fn createhow(r: &mut Reader<'_>) -> XdrResult<(CreateHow, SetAttr)> {
    match r.u32()? {
        0 => Ok((CreateHow::Unchecked, decode_sattr(r)?)),
        1 => Ok((CreateHow::Guarded, decode_sattr(r)?)),
        2 => Ok((CreateHow::Exclusive(r.fixed()?), SetAttr::default())),
        _ => Err(XdrError::BadValue),
    }
}

fn mknoddata(r: &mut Reader<'_>) -> XdrResult<Option<(Special, SetAttr)>> {
    let kind = r.u32()?;
    match kind {
        3 | 4 => {
            let new = decode_sattr(r)?;
            let (major, minor) = (r.u32()?, r.u32()?);
            let device = if kind == 3 { Special::Block } else { Special::Char };
            Ok(Some((device(major, minor), new)))
        }
        6 => Ok(Some((Special::Socket, decode_sattr(r)?))),
        7 => Ok(Some((Special::Fifo, decode_sattr(r)?))),
        1 | 2 | 5 => Ok(None),
        _ => Err(XdrError::BadValue),
    }
}

fn guard(r: &mut Reader<'_>) -> XdrResult<Option<Time>> {
    if r.bool()? { decode_time(r).map(Some) } else { Ok(None) }
}

/// The link's target may have come by RDMA Read (RFC 8267 section 5.2), so it is read as bulk data. `nfspath3` has no limit: of one
/// that is too long only so much is kept that it is seen to be.
fn path(r: &mut Reader<'_>) -> XdrResult<Vec<u8>> {
    let pieces = at_most(r.bulk(usize::MAX)?, PATH_MAX + 1);
    let mut out = Vec::with_capacity(pieces.iter().map(Buf::len).sum());
    pieces.iter().for_each(|p| out.extend_from_slice(p));
    Ok(out)
}

/// Reads the arguments of a procedure; `None` when there is no such procedure. What follows them is not looked at.
pub fn decode_args<'a>(number: u32, r: &mut Reader<'a>) -> XdrResult<Option<Args<'a>>> {
    use procedure as p;
    let args = match number {
        p::NULL => Args::Null,
        p::GETATTR => Args::Getattr { object: fh(r)? },
        p::SETATTR => Args::Setattr { object: fh(r)?, new: decode_sattr(r)?, guard: guard(r)? },
        p::LOOKUP => Args::Lookup { what: place(r)? },
        p::ACCESS => Args::Access { object: fh(r)?, access: r.u32()? },
        p::READLINK => Args::Readlink { symlink: fh(r)? },
        p::READ => Args::Read { file: fh(r)?, offset: r.u64()?, count: r.u32()? },
        p::WRITE => Args::Write {
            file: fh(r)?,
            offset: r.u64()?,
            count: r.u32()?,
            stable: stable(r)?,
            // Of more than `wtmax` the first bytes are written (RFC 1813 section 3.3.7).
            data: r.bulk(usize::MAX)?,
        },
        p::CREATE => {
            let place = place(r)?;
            let (how, new) = createhow(r)?;
            Args::Create { place, how, new }
        }
        p::MKDIR => Args::Mkdir { place: place(r)?, new: decode_sattr(r)? },
        p::SYMLINK => Args::Symlink { place: place(r)?, new: decode_sattr(r)?, target: path(r)? },
        p::MKNOD => Args::Mknod { place: place(r)?, what: mknoddata(r)? },
        p::REMOVE => Args::Remove { object: place(r)? },
        p::RMDIR => Args::Rmdir { object: place(r)? },
        p::RENAME => Args::Rename { from: place(r)?, to: place(r)? },
        p::LINK => Args::Link { file: fh(r)?, link: place(r)? },
        p::READDIR => {
            Args::Readdir { dir: fh(r)?, cookie: r.u64()?, verifier: r.fixed()?, count: r.u32()? }
        }
        p::READDIRPLUS => Args::Readdirplus {
            dir: fh(r)?,
            cookie: r.u64()?,
            verifier: r.fixed()?,
            dircount: r.u32()?,
            maxcount: r.u32()?,
        },
        p::FSSTAT => Args::Fsstat { root: fh(r)? },
        p::FSINFO => Args::Fsinfo { root: fh(r)? },
        p::PATHCONF => Args::Pathconf { object: fh(r)? },
        p::COMMIT => Args::Commit { file: fh(r)?, offset: r.u64()?, count: r.u32()? },
        _ => return Ok(None),
    };
    Ok(Some(args))
}
