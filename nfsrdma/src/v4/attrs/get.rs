//! The values of attributes as clients ask for them (RFC 8881 section 5, RFC 7862 section 12, RFC 8275, RFC 8276, RFC 9754).

use std::collections::BTreeSet;
use std::sync::Arc;

use vfs::acl::{Acl, Owner, mask};
use vfs::{Attr, Capabilities, FsStat, Kind, Time};

use super::{Bitmap, acl};
use crate::fh::Fh;
use crate::v4::compound::{Compound, Located, Object};
use crate::v4::limits::IO_MAX;
use crate::v4::names::{Id, People};
use crate::v4::pseudo;
use crate::v4::status::Status;
use crate::v4::wire::attr;
use rdma_transport::xdr::Writer;

/// What every file system of every minor version has.
const BASE: Bitmap = Bitmap::of(&[
    attr::SUPPORTED_ATTRS,
    attr::TYPE,
    attr::FH_EXPIRE_TYPE,
    attr::CHANGE,
    attr::SIZE,
    attr::LINK_SUPPORT,
    attr::SYMLINK_SUPPORT,
    attr::NAMED_ATTR,
    attr::FSID,
    attr::UNIQUE_HANDLES,
    attr::LEASE_TIME,
    attr::RDATTR_ERROR,
    attr::ACLSUPPORT,
    attr::CANSETTIME,
    attr::CASE_INSENSITIVE,
    attr::CASE_PRESERVING,
    attr::CHOWN_RESTRICTED,
    attr::FILEHANDLE,
    attr::FILEID,
    attr::FILES_AVAIL,
    attr::FILES_FREE,
    attr::FILES_TOTAL,
    attr::HOMOGENEOUS,
    attr::MAXFILESIZE,
    attr::MAXLINK,
    attr::MAXNAME,
    attr::MAXREAD,
    attr::MAXWRITE,
    attr::MODE,
    attr::NO_TRUNC,
    attr::NUMLINKS,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::RAWDEV,
    attr::SPACE_AVAIL,
    attr::SPACE_FREE,
    attr::SPACE_TOTAL,
    attr::SPACE_USED,
    attr::TIME_ACCESS,
    attr::TIME_ACCESS_SET,
    attr::TIME_CREATE,
    attr::TIME_DELTA,
    attr::TIME_METADATA,
    attr::TIME_MODIFY,
    attr::TIME_MODIFY_SET,
    attr::MOUNTED_ON_FILEID,
]);

/// What minor version 1 adds.
const MINOR_1: Bitmap =
    Bitmap::of(&[attr::MODE_SET_MASKED, attr::SUPPATTR_EXCLCREAT, attr::FS_CHARSET_CAP]);

/// What minor version 2 adds.
const MINOR_2: Bitmap = Bitmap::of(&[
    attr::CHANGE_ATTR_TYPE,
    attr::MODE_UMASK,
    attr::XATTR_SUPPORT,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
    attr::OPEN_ARGUMENTS,
]);

/// They can be set and never read; a client that asks for them gets INVAL.
const WRITE_ONLY: Bitmap = Bitmap::of(&[
    attr::TIME_ACCESS_SET,
    attr::TIME_MODIFY_SET,
    attr::MODE_SET_MASKED,
    attr::MODE_UMASK,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
]);

/// They need a look at the access control list, with those that hang on whether there are any.
const LISTS: Bitmap = Bitmap::of(&[attr::ACL, attr::DACL]);

/// They need a look at the volume.
const OF_VOLUME: Bitmap = Bitmap::of(&[
    attr::FILES_AVAIL,
    attr::FILES_FREE,
    attr::FILES_TOTAL,
    attr::SPACE_AVAIL,
    attr::SPACE_FREE,
    attr::SPACE_TOTAL,
]);

/// They need a look at the node.
const OF_NODE: Bitmap = Bitmap::of(&[
    attr::ACL,
    attr::DACL,
    attr::TYPE,
    attr::CHANGE,
    attr::SIZE,
    attr::FSID,
    attr::FILEID,
    attr::MODE,
    attr::NUMLINKS,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::RAWDEV,
    attr::SPACE_USED,
    attr::TIME_ACCESS,
    attr::TIME_CREATE,
    attr::TIME_METADATA,
    attr::TIME_MODIFY,
    attr::MOUNTED_ON_FILEID,
]);

/// The holder of a write delegation knows them better than the server (RFC 8881 section 10.4.3).
const OF_DATA: Bitmap = Bitmap::of(&[
    attr::CHANGE,
    attr::SIZE,
    attr::SPACE_USED,
    attr::TIME_METADATA,
    attr::TIME_MODIFY,
]);

/// What may come with EXCLUSIVE4_1 (RFC 8881 section 5.8.1.14): all that can be set but times, which a volume may use to
/// keep the verifier.
pub const SUPPORTED_BY_EXCLUSIVE: Bitmap =
    Bitmap::of(&[attr::SIZE, attr::MODE, attr::OWNER, attr::OWNER_GROUP, attr::MODE_UMASK]);

/// The attributes that a volume with these capabilities has in this minor version.
pub fn supported(minor: u32, caps: &Capabilities) -> Bitmap {
    let mut all = BASE;
    if minor >= 1 {
        all = all.or(&MINOR_1);
    }
    // Lists are kept as extended attributes are.
    if caps.xattr {
        all.add(attr::ACL);
        if minor >= 1 {
            all.add(attr::DACL);
        }
    }
    if minor >= 2 {
        all = all.or(&MINOR_2);
        if caps.reflink {
            all.add(attr::CLONE_BLKSIZE);
        }
    }
    all
}

/// What the values of an object's attributes are made of.
pub struct Facts {
    fh: Fh,
    attr: Attr,
    /// Where it was asked for.
    acl: Option<Arc<Acl>>,
    people: People,
    /// `fsid4`.
    fsid: (u64, u64),
    mounted_on: u64,
    caps: Capabilities,
    volume: FsStat,
    lease_secs: u32,
    minor: u32,
}

impl Facts {
    /// How many names the object has.
    pub fn nlink(&self) -> u32 {
        self.attr.nlink
    }

    /// Of an object, as far as the attributes in `want` need.
    pub async fn of(cx: &Compound<'_>, object: &Object, want: &Bitmap) -> Result<Self, Status> {
        match object {
            Object::Node(l) if want.and(&OF_NODE).is_empty() => {
                Self::with_attr(cx, object, want, pseudo::attr_of_share(cx, &l.share)).await
            }
            Object::Node(l) => {
                let attr = match want.and(&OF_DATA).is_empty() {
                    true => l.node.getattr().await?,
                    false => cx.door().getattr(&l.node).await?,
                };
                Self::with_attr(cx, object, want, attr).await
            }
            Object::Root => Self::with_attr(cx, object, want, pseudo::attr_of_root(cx)).await,
        }
    }

    /// Of an object whose attributes are known already.
    pub async fn with_attr(
        cx: &Compound<'_>,
        object: &Object,
        want: &Bitmap,
        attr: Attr,
    ) -> Result<Self, Status> {
        let fh = if want.has(attr::FILEHANDLE) { cx.fh_of(object) } else { Fh::EMPTY };
        let (lease_secs, minor) = (cx.nfs.lease_secs(), cx.minor);
        let Object::Node(l) = object else {
            return Ok(Self {
                fh,
                people: people(cx, want, &attr, None).await,
                attr,
                acl: None,
                fsid: pseudo::FSID,
                mounted_on: attr.fileid,
                caps: pseudo::CAPABILITIES,
                volume: FsStat::default(),
                lease_secs,
                minor,
            });
        };
        let backend = &l.share.backend;
        let mounted_on = if want.has(attr::MOUNTED_ON_FILEID) && backend.root().id() == l.node.id()
        {
            pseudo::fileid_of(&l.share)
        } else {
            attr.fileid
        };
        let volume = if want.and(&OF_VOLUME).is_empty() {
            FsStat::default()
        } else {
            backend.statfs().await?
        };
        let acl = list(l, want, &attr).await?;
        Ok(Self {
            fh,
            people: people(cx, want, &attr, acl.as_deref()).await,
            attr,
            acl,
            fsid: pseudo::fsid_of(&l.share, attr.fsid),
            mounted_on,
            caps: backend.capabilities(),
            volume,
            lease_secs,
            minor,
        })
    }

    /// Of a name in a listing that tells its number and type, and nothing else.
    pub fn of_entry(minor: u32, fileid: u64, kind: Kind) -> Self {
        let attr = Attr { kind, fileid, ..pseudo::NOTHING };
        Self {
            fh: Fh::EMPTY,
            attr,
            acl: None,
            people: People::default(),
            fsid: pseudo::FSID,
            mounted_on: fileid,
            caps: pseudo::CAPABILITIES,
            volume: FsStat::default(),
            lease_secs: 0,
            minor,
        }
    }

    /// Writes `fattr4` with those of `want` that there are.
    pub fn encode(&self, want: &Bitmap, out: &mut Writer) {
        let mut have = want.and(&supported(self.minor, &self.caps)).without(&WRITE_ONLY);
        if self.acl.is_none() {
            have = have.without(&LISTS);
        }
        if self.attr.btime.is_none() {
            have = have.without(&Bitmap::of(&[attr::TIME_CREATE]));
        }
        out.value(&have);
        let length_at = out.len();
        out.u32(0);
        for number in have.iter() {
            self.value(number, out);
        }
        let length = out.len() - length_at - 4;
        out.patch_u32(length_at, u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn value(&self, number: u32, out: &mut Writer) {
        let a = &self.attr;
        match number {
            attr::SUPPORTED_ATTRS => out.value(&supported(self.minor, &self.caps)),
            attr::TYPE => out.u32(type_of(a.kind)),
            // FH4_PERSISTENT. A volume whose handles end with this process answers STALE after a restart.
            attr::FH_EXPIRE_TYPE => out.u32(0),
            attr::CHANGE => out.u64(a.change),
            attr::SIZE => out.u64(a.size),
            attr::LINK_SUPPORT | attr::SYMLINK_SUPPORT | attr::UNIQUE_HANDLES => out.bool(true),
            attr::NAMED_ATTR | attr::CASE_INSENSITIVE => out.bool(false),
            attr::FSID => {
                out.u64(self.fsid.0);
                out.u64(self.fsid.1);
            }
            attr::LEASE_TIME => out.u32(self.lease_secs),
            attr::RDATTR_ERROR => out.u32(Status::Ok.to_u32()),
            attr::ACL => {
                acl::encode(self.acl.as_deref().unwrap_or(&Acl::default()), &self.people, out);
            }
            attr::DACL => {
                acl::encode_dacl(self.acl.as_deref().unwrap_or(&Acl::default()), &self.people, out);
            }
            attr::ACLSUPPORT => out.u32(if self.caps.xattr { acl::SUPPORT } else { 0 }),
            attr::CANSETTIME
            | attr::CASE_PRESERVING
            | attr::CHOWN_RESTRICTED
            | attr::HOMOGENEOUS
            | attr::NO_TRUNC => out.bool(true),
            attr::FILEHANDLE => out.opaque(self.fh.as_bytes()),
            attr::FILEID => out.u64(a.fileid),
            attr::FILES_AVAIL => out.u64(self.volume.avail_files),
            attr::FILES_FREE => out.u64(self.volume.free_files),
            attr::FILES_TOTAL => out.u64(self.volume.total_files),
            attr::MAXFILESIZE => out.u64(self.caps.size_max),
            attr::MAXLINK => out.u32(self.caps.link_max),
            attr::MAXNAME => out.u32(self.caps.name_max),
            attr::MAXREAD | attr::MAXWRITE => out.u64(IO_MAX as u64),
            attr::MODE => out.u32(a.mode),
            attr::NUMLINKS => out.u32(a.nlink),
            attr::OWNER => self.people.put(Id::User(a.uid), out),
            attr::OWNER_GROUP => self.people.put(Id::Group(a.gid), out),
            attr::RAWDEV => {
                out.u32(a.rdev.0);
                out.u32(a.rdev.1);
            }
            attr::SPACE_AVAIL => out.u64(self.volume.avail_bytes),
            attr::SPACE_FREE => out.u64(self.volume.free_bytes),
            attr::SPACE_TOTAL => out.u64(self.volume.total_bytes),
            attr::SPACE_USED => out.u64(a.used),
            attr::TIME_ACCESS => time(a.atime, out),
            attr::TIME_CREATE => time(a.btime.unwrap_or_default(), out),
            attr::TIME_DELTA => time(Time { sec: 0, nsec: 1 }, out),
            attr::TIME_METADATA => time(a.ctime, out),
            attr::TIME_MODIFY => time(a.mtime, out),
            attr::MOUNTED_ON_FILEID => out.u64(self.mounted_on),
            attr::SUPPATTR_EXCLCREAT => {
                out.value(&SUPPORTED_BY_EXCLUSIVE.and(&supported(self.minor, &self.caps)));
            }
            // FSCHARSET_CAP4_CONTAINS_NON_UTF8: names are bytes.
            attr::FS_CHARSET_CAP => out.u32(1),
            attr::CLONE_BLKSIZE => out.u32(self.caps.clone_block),
            // NFS4_CHANGE_TYPE_IS_UNDEFINED: volumes differ in how they count.
            attr::CHANGE_ATTR_TYPE => out.u32(4),
            attr::XATTR_SUPPORT => out.bool(self.caps.xattr),
            attr::OPEN_ARGUMENTS => open_arguments(out),
            // Invariant: `encode` asks only for what `supported` names and can be read.
            _ => debug_assert!(false, "attribute {number} has no value"),
        }
    }
}

/// The list of a node, where it is asked for. One that was set is shown to those whom it lets see it; links have none.
async fn list(at: &Located, want: &Bitmap, attr: &Attr) -> Result<Option<Arc<Acl>>, Status> {
    if want.and(&LISTS).is_empty() || attr.kind == Kind::Symlink {
        return Ok(None);
    }
    if let Some(acl) = at.node.acl(attr).await?
        && acl.allowed(&at.cred, Owner::of(attr)) & mask::READ_CONTROL == 0
    {
        return Err(Status::Access);
    }
    Ok(Some(at.node.acl_shown(attr).await?))
}

/// Whom the attributes name that are asked for.
async fn people(cx: &Compound<'_>, want: &Bitmap, attr: &Attr, acl: Option<&Acl>) -> People {
    let ids = || {
        let mut ids: BTreeSet<Id> = acl.into_iter().flat_map(Id::all_of).collect();
        ids.extend(want.has(attr::OWNER).then_some(Id::User(attr.uid)));
        ids.extend(want.has(attr::OWNER_GROUP).then_some(Id::Group(attr.gid)));
        ids
    };
    cx.people(ids).await
}

/// `open_arguments4` (RFC 9754 section 3): what OPEN takes, as sets of the numbers that its arguments have.
fn open_arguments(out: &mut Writer) {
    // READ, WRITE, BOTH; deny NONE, READ, WRITE, BOTH.
    let (access, deny) = (Bitmap::of(&[1, 2, 3]), Bitmap::of(&[0, 1, 2, 3]));
    // ANY_DELEG, NO_DELEG, CANCEL, DELEG_TIMESTAMPS, OPEN_XOR_DELEGATION: nobody is told when a delegation can be had.
    let want = Bitmap::of(&[3, 4, 5, 20, 21]);
    // NULL, PREVIOUS, DELEGATE_CUR, FH, DELEG_CUR_FH: nothing is kept for DELEGATE_PREV.
    let claim = Bitmap::of(&[0, 1, 2, 4, 5]);
    // UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1.
    let create = Bitmap::of(&[0, 1, 2, 3]);
    [access, deny, want, claim, create].iter().for_each(|set| out.value(set));
}

/// Attributes that a client may not ask for (RFC 8881 sections 5.5 and 18.7.3).
pub(in crate::v4) fn is_write_only(want: &Bitmap) -> bool {
    !want.and(&WRITE_ONLY).is_empty()
}

/// `nfs_ftype4`.
pub(super) fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Dir => 2,
        Kind::Block => 3,
        Kind::Char => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    }
}

/// `nfstime4`.
fn time(t: Time, out: &mut Writer) {
    out.i64(t.sec);
    out.u32(t.nsec);
}
