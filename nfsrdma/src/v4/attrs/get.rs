//! Values of attributes for GETATTR and READDIR (RFC 8881 section 5, RFC 7862 section 12, RFC 8275, RFC 8276, RFC 9754).

use std::sync::Arc;

use nfs_proto::nfs4::attrs::{ChangeAttrType, Fattr4, NfsFtype4, OpenArguments4, Value};
use nfs_proto::nfs4::ops::{Component4, NfsFh4};
use nfs_proto::nfs4::{Fsid4, Nfsstat4, Nfstime4, Specdata4};
use nfs_proto::xdr::Xdr;
use vfs::acl::{Acl, Owner, mask};
use vfs::allowance::{Allowance, allowance};
use vfs::dos::Dos;
use vfs::{Attr, Capabilities, FsStat, Kind, Time};

use super::absent::Away;
use super::{Bitmap, absent, acl};
use crate::fh::Fh;
use crate::v4::above::{self, Above};
use crate::v4::compound::Compound;
use crate::v4::limits::IO_MAX;
use crate::v4::names::{Digits, Id, IdMap, Mentioned};
use crate::v4::object::{Located, Object};
use crate::v4::pseudo;
use crate::v4::status::Status;
use crate::v4::wire::attr;

/// Attributes of every file system in every minor version.
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

/// Attributes added by minor version 1.
const MINOR_1: Bitmap =
    Bitmap::of(&[attr::MODE_SET_MASKED, attr::SUPPATTR_EXCLCREAT, attr::FS_CHARSET_CAP]);

/// Attributes added by minor version 2.
const MINOR_2: Bitmap = Bitmap::of(&[
    attr::CHANGE_ATTR_TYPE,
    attr::MODE_UMASK,
    attr::XATTR_SUPPORT,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
    attr::OPEN_ARGUMENTS,
]);

/// Write-only attributes: a client that requests one gets INVAL.
const WRITE_ONLY: Bitmap = Bitmap::of(&[
    attr::TIME_ACCESS_SET,
    attr::TIME_MODIFY_SET,
    attr::MODE_SET_MASKED,
    attr::MODE_UMASK,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
]);

/// Attributes that need the access control list; supported only if the volume stores lists.
const LISTS: Bitmap = Bitmap::of(&[attr::ACL, attr::DACL]);

/// Attributes that need the volume's status.
const OF_VOLUME: Bitmap = Bitmap::of(&[
    attr::FILES_AVAIL,
    attr::FILES_FREE,
    attr::FILES_TOTAL,
    attr::SPACE_AVAIL,
    attr::SPACE_FREE,
    attr::SPACE_TOTAL,
]);

/// Attributes that need the caller's quotas; supported only if the volume counts them.
const OF_QUOTAS: Bitmap =
    Bitmap::of(&[attr::QUOTA_AVAIL_HARD, attr::QUOTA_AVAIL_SOFT, attr::QUOTA_USED]);

/// Attributes that need the node's attributes.
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

/// Attributes that the holder of a write delegation may know better than the server (RFC 8881 section 10.4.3).
const OF_DATA: Bitmap = Bitmap::of(&[
    attr::CHANGE,
    attr::SIZE,
    attr::SPACE_USED,
    attr::TIME_METADATA,
    attr::TIME_MODIFY,
]);

/// Attributes allowed with EXCLUSIVE4_1 (RFC 8881 section 5.8.1.14): all settable ones but the times, in which a volume may store
/// the verifier.
pub const SUPPORTED_BY_EXCLUSIVE: Bitmap = Bitmap::of(&[
    attr::SIZE,
    attr::MODE,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::TIME_CREATE,
    attr::MODE_UMASK,
]);

/// The attributes of a volume with these capabilities in this minor version.
pub fn supported(minor: u32, caps: &Capabilities) -> Bitmap {
    let mut all = BASE;
    if minor >= 1 {
        all = all.or(&MINOR_1);
    }
    // Lists are stored as extended attributes.
    if caps.xattr {
        all.add(attr::ACL);
        if minor >= 1 {
            all.add(attr::DACL);
        }
    }
    if caps.quotas {
        all = all.or(&OF_QUOTAS);
    }
    if minor >= 2 {
        all = all.or(&MINOR_2);
        if caps.reflink {
            all.add(attr::CLONE_BLKSIZE);
        }
    }
    all
}

/// The attributes of this object in this minor version.
pub(in crate::v4) fn supported_on(minor: u32, object: &Object) -> Bitmap {
    match object {
        // RFC 7530 section 8.2: required where a client may get NFS4ERR_MOVED.
        Object::Above(_) => {
            supported(minor, &above::CAPABILITIES).or(&Bitmap::of(&[attr::FS_LOCATIONS]))
        }
        Object::Node(l) if Away::of(l).is_some() => absent::available(minor),
        Object::Node(l) => {
            let all = supported(minor, &l.share.backend.capabilities_of(&l.node));
            // Symbolic links have no list.
            if l.node.kind() == Kind::Symlink { all.without(&LISTS) } else { all }
        }
    }
}

/// The source of `fs_locations`.
enum FsLocations {
    /// The object has no `fs_locations`.
    Here,
    /// A pseudo folder.
    Above(Above),
    /// A share or folder on other servers.
    Absent(Away),
}

/// The source of an object's attribute values.
pub struct ObjectAttrs {
    fh: Fh,
    attr: Attr,
    /// The access control list, read only if the client requested it.
    acl: Option<Arc<Acl>>,
    /// Includes the stored creation time, if requested.
    dos: Dos,
    id_map: IdMap,
    fsid: (u64, u64),
    mounted_on: u64,
    caps: Capabilities,
    volume: FsStat,
    allowance: Allowance,
    lease_secs: u32,
    supported: Bitmap,
    place: FsLocations,
    rdattr_error: Nfsstat4,
}

impl ObjectAttrs {
    pub fn nlink(&self) -> u32 {
        self.attr.nlink
    }

    /// Reads the attributes of an object that `want` needs.
    pub async fn of(cx: &Compound<'_>, object: &Object, want: &Bitmap) -> Result<Self, Status> {
        let attr = match object {
            Object::Node(l) if l.link.is_some() => l.node.getattr().await?,
            Object::Node(l) if l.share.is_elsewhere() || want.and(&OF_NODE).is_empty() => {
                pseudo::attr_of_share(cx, &l.share)
            }
            Object::Node(l) if want.and(&OF_DATA).is_empty() => l.node.getattr().await?,
            Object::Node(l) => cx.file_ops().getattr(&l.node).await?,
            Object::Above(above) => above.attr(cx),
        };
        Self::with_attr(cx, object, want, attr).await
    }

    /// Builds the values of an object whose attributes were read already.
    pub async fn with_attr(
        cx: &Compound<'_>,
        object: &Object,
        want: &Bitmap,
        attr: Attr,
    ) -> Result<Self, Status> {
        let fh = if want.has(attr::FILEHANDLE) { cx.fh_of(object) } else { Fh::EMPTY };
        let (lease_secs, supported) = (cx.nfs.lease_secs(), supported_on(cx.minor, object));
        let l = match object {
            Object::Node(l) if Away::of(l).is_none() => l,
            _ => {
                let (fsid, place) = match object {
                    Object::Above(above) => (above::FSID, FsLocations::Above(above.clone())),
                    Object::Node(l) => {
                        let away = Away::of(l).unwrap_or_default();
                        away.note(l, want);
                        (away.fsid(l, &attr), FsLocations::Absent(away))
                    }
                };
                return Ok(Self {
                    fh,
                    id_map: id_map(cx, want, &attr, None).await,
                    attr,
                    acl: None,
                    dos: Dos::default(),
                    fsid,
                    mounted_on: attr.fileid,
                    caps: above::CAPABILITIES,
                    volume: FsStat::default(),
                    allowance: Allowance::default(),
                    lease_secs,
                    supported,
                    place,
                    rdattr_error: Nfsstat4::Ok,
                });
            }
        };
        let backend = &l.share.backend;
        let mounted_on = if want.has(attr::MOUNTED_ON_FILEID) && backend.root().id() == l.node.id()
        {
            above::fileid_of(&l.share)
        } else {
            l.node.mounted_on().unwrap_or(attr.fileid)
        };
        let volume = if want.and(&OF_VOLUME).is_empty() {
            FsStat::default()
        } else {
            backend.statfs_of(&l.node).await?
        };
        let allowance = match want.and(&OF_QUOTAS).and(&supported).is_empty() {
            true => Allowance::default(),
            false => allowance(&**backend, &l.node, &l.cred, Time::now().sec).await?,
        };
        let acl = list(l, want, &attr).await?;
        let dos = match want.has(attr::TIME_CREATE) {
            true => l.node.dos(&attr).await?,
            false => Dos::default(),
        };
        Ok(Self {
            fh,
            id_map: id_map(cx, want, &attr, acl.as_deref()).await,
            attr,
            acl,
            dos,
            fsid: above::fsid_of(&l.share, attr.fsid),
            mounted_on,
            caps: backend.capabilities_of(&l.node),
            volume,
            allowance,
            lease_secs,
            supported,
            place: FsLocations::Here,
            rdattr_error: Nfsstat4::Ok,
        })
    }

    /// Sets the error of this entry in a listing, for `rdattr_error`.
    pub(in crate::v4) fn with_error(self, status: Status) -> Self {
        Self { rdattr_error: status.into(), ..self }
    }

    /// Builds the values of a listing entry from its file number and type only.
    pub fn of_entry(minor: u32, fileid: u64, kind: Kind) -> Self {
        let attr = Attr { kind, fileid, ..above::NOTHING };
        Self {
            fh: Fh::EMPTY,
            attr,
            acl: None,
            dos: Dos::default(),
            id_map: IdMap::default(),
            fsid: above::FSID,
            mounted_on: fileid,
            caps: above::CAPABILITIES,
            volume: FsStat::default(),
            allowance: Allowance::default(),
            lease_secs: 0,
            supported: supported(minor, &above::CAPABILITIES),
            place: FsLocations::Here,
            rdattr_error: Nfsstat4::Ok,
        }
    }

    /// Writes `fattr4` with the attributes of `want` that the object has.
    pub fn encode(&self, want: &Bitmap, out: &mut Vec<u8>) {
        let mut have = want.and(&self.supported).without(&WRITE_ONLY);
        if self.acl.is_none() {
            have = have.without(&LISTS);
        }
        Fattr4 { attrmask: have, attr_vals: &[] }.emit(out);
        // The length of the values is the last word.
        let start = out.len();
        for number in have.iter() {
            self.put(number, out);
        }
        let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = out.get_mut(start - 4..start) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn put(&self, number: u32, out: &mut Vec<u8>) {
        let (a, digits) = (&self.attr, &mut Digits::default());
        let list = || self.acl.as_deref();
        let value = match number {
            attr::ACL => {
                let none = Acl::default();
                return acl::encode(list().unwrap_or(&none), a.kind, &self.id_map, out);
            }
            attr::DACL => {
                let none = Acl::default();
                return acl::encode_dacl(list().unwrap_or(&none), a.kind, &self.id_map, out);
            }
            attr::FS_LOCATIONS | attr::FS_LOCATIONS_INFO | attr::FS_STATUS => {
                return match &self.place {
                    FsLocations::Absent(away) => absent::emit(number, away, out),
                    FsLocations::Above(above) => absent::no_locations(above.path(), out),
                    // Invariant: `supported_on` includes them only for the other two variants.
                    FsLocations::Here => debug_assert!(false, "attribute {number} has no value"),
                };
            }
            attr::SUPPORTED_ATTRS => Value::SupportedAttrs(self.supported),
            attr::TYPE => Value::Type(type_of(a.kind)),
            // FH4_PERSISTENT. A volume whose handles end with this process answers STALE after a restart.
            attr::FH_EXPIRE_TYPE => Value::FhExpireType(0),
            attr::CHANGE => Value::Change(a.change),
            attr::SIZE => Value::Size(a.size),
            attr::LINK_SUPPORT => Value::LinkSupport(true),
            attr::SYMLINK_SUPPORT => Value::SymlinkSupport(true),
            attr::NAMED_ATTR => Value::NamedAttr(false),
            attr::FSID => Value::Fsid(Fsid4 { major: self.fsid.0, minor: self.fsid.1 }),
            attr::UNIQUE_HANDLES => Value::UniqueHandles(true),
            attr::LEASE_TIME => Value::LeaseTime(self.lease_secs),
            attr::RDATTR_ERROR => Value::RdattrError(self.rdattr_error),
            attr::ACLSUPPORT => Value::Aclsupport(if self.caps.xattr { acl::SUPPORT } else { 0 }),
            attr::CANSETTIME => Value::Cansettime(true),
            attr::CASE_INSENSITIVE => Value::CaseInsensitive(false),
            attr::CASE_PRESERVING => Value::CasePreserving(true),
            attr::CHOWN_RESTRICTED => Value::ChownRestricted(true),
            attr::FILEHANDLE => Value::Filehandle(NfsFh4 { object: self.fh.as_bytes() }),
            attr::FILEID => Value::Fileid(a.fileid),
            attr::FILES_AVAIL => Value::FilesAvail(self.volume.avail_files),
            attr::FILES_FREE => Value::FilesFree(self.volume.free_files),
            attr::FILES_TOTAL => Value::FilesTotal(self.volume.total_files),
            attr::HOMOGENEOUS => Value::Homogeneous(true),
            attr::MAXFILESIZE => Value::Maxfilesize(self.caps.size_max),
            attr::MAXLINK => Value::Maxlink(self.caps.link_max),
            attr::MAXNAME => Value::Maxname(self.caps.name_max),
            attr::MAXREAD => Value::Maxread(IO_MAX as u64),
            attr::MAXWRITE => Value::Maxwrite(IO_MAX as u64),
            attr::MODE => Value::Mode(a.mode),
            attr::NO_TRUNC => Value::NoTrunc(true),
            attr::NUMLINKS => Value::Numlinks(a.nlink),
            attr::OWNER => Value::Owner(self.name(Id::User(a.uid), digits)),
            attr::OWNER_GROUP => Value::OwnerGroup(self.name(Id::Group(a.gid), digits)),
            attr::RAWDEV => Value::Rawdev(Specdata4 { specdata1: a.rdev.0, specdata2: a.rdev.1 }),
            attr::SPACE_AVAIL => Value::SpaceAvail(self.volume.avail_bytes),
            attr::SPACE_FREE => Value::SpaceFree(self.volume.free_bytes),
            attr::SPACE_TOTAL => Value::SpaceTotal(self.volume.total_bytes),
            attr::SPACE_USED => Value::SpaceUsed(a.used),
            attr::TIME_ACCESS => Value::TimeAccess(time(a.atime)),
            attr::TIME_CREATE => Value::TimeCreate(time(self.dos.creation_time(a))),
            attr::TIME_DELTA => Value::TimeDelta(Nfstime4 { seconds: 0, nseconds: 1 }),
            attr::TIME_METADATA => Value::TimeMetadata(time(a.ctime)),
            attr::TIME_MODIFY => Value::TimeModify(time(a.mtime)),
            attr::MOUNTED_ON_FILEID => Value::MountedOnFileid(self.mounted_on),
            _ => match self.later_value(number) {
                Some(value) => value,
                // Invariant: `encode` passes only readable attributes of `supported`.
                None => return debug_assert!(false, "attribute {number} has no value"),
            },
        };
        value.emit(out);
        // Variants that own memory are written above. Dropping this one would only test for them, which costs as much as writing
        // it.
        std::mem::forget(value);
    }

    /// Values of quotas, and of attributes of minor versions 1 and 2.
    fn later_value(&self, number: u32) -> Option<Value<'_>> {
        Some(match number {
            attr::QUOTA_AVAIL_HARD => Value::QuotaAvailHard(self.allowance.left),
            attr::QUOTA_AVAIL_SOFT => Value::QuotaAvailSoft(self.allowance.left_to_soft),
            attr::QUOTA_USED => Value::QuotaUsed(self.allowance.used),
            attr::SUPPATTR_EXCLCREAT => {
                Value::SuppattrExclcreat(SUPPORTED_BY_EXCLUSIVE.and(&self.supported))
            }
            // FSCHARSET_CAP4_CONTAINS_NON_UTF8: names are bytes.
            attr::FS_CHARSET_CAP => Value::FsCharsetCap(1),
            attr::CLONE_BLKSIZE => Value::CloneBlksize(self.caps.clone_block),
            // Volumes count changes differently.
            attr::CHANGE_ATTR_TYPE => Value::ChangeAttrType(ChangeAttrType::Undefined),
            attr::XATTR_SUPPORT => Value::XattrSupport(self.caps.xattr),
            attr::OPEN_ARGUMENTS => Value::OpenArguments(OPEN_ARGUMENTS),
            _ => return None,
        })
    }

    fn name<'f>(&'f self, id: Id, digits: &'f mut Digits) -> Component4<'f> {
        Component4 { name: self.id_map.text(id, digits) }
    }
}

/// Reads the list of a node, if requested. A stored list is returned only to callers whom it grants READ_CONTROL; symbolic links
/// have none.
async fn list(at: &Located, want: &Bitmap, attr: &Attr) -> Result<Option<Arc<Acl>>, Status> {
    if want.and(&LISTS).is_empty() || attr.kind == Kind::Symlink {
        return Ok(None);
    }
    if let Some(acl) = at.node.acl(attr).await?
        && acl.allowed(&at.cred, Owner::of(attr))
            & at.node.bounds(&at.cred).await?
            & mask::READ_CONTROL
            == 0
    {
        return Err(Status::Access);
    }
    Ok(Some(at.node.acl_shown(attr).await?))
}

/// Looks up the names of users and groups that the requested attributes mention.
async fn id_map(cx: &Compound<'_>, want: &Bitmap, attr: &Attr, acl: Option<&Acl>) -> IdMap {
    let mentioned = || {
        let mut all = Mentioned::default();
        acl.into_iter().for_each(|acl| all.add_list(acl));
        all.ids.extend(want.has(attr::OWNER).then_some(Id::User(attr.uid)));
        all.ids.extend(want.has(attr::OWNER_GROUP).then_some(Id::Group(attr.gid)));
        all
    };
    cx.id_map(mentioned).await
}

/// The supported arguments of OPEN, as sets of their numbers (RFC 9754 section 3).
const OPEN_ARGUMENTS: OpenArguments4 = OpenArguments4 {
    // READ, WRITE, BOTH; deny NONE, READ, WRITE, BOTH.
    oa_share_access: Bitmap::of(&[1, 2, 3]),
    oa_share_deny: Bitmap::of(&[0, 1, 2, 3]),
    // ANY_DELEG, NO_DELEG, CANCEL, DELEG_TIMESTAMPS, OPEN_XOR_DELEGATION. The server does not signal when a delegation becomes
    // available.
    oa_share_access_want: Bitmap::of(&[3, 4, 5, 20, 21]),
    // NULL, PREVIOUS, DELEGATE_CUR, FH, DELEG_CUR_FH. DELEGATE_PREV is not supported.
    oa_open_claim: Bitmap::of(&[0, 1, 2, 4, 5]),
    // UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1.
    oa_create_mode: Bitmap::of(&[0, 1, 2, 3]),
};

/// True if the request contains write-only attributes (RFC 8881 sections 5.5 and 18.7.3).
pub(in crate::v4) fn is_write_only(want: &Bitmap) -> bool {
    !want.and(&WRITE_ONLY).is_empty()
}

fn type_of(kind: Kind) -> NfsFtype4 {
    match kind {
        Kind::File => NfsFtype4::Reg,
        Kind::Dir => NfsFtype4::Dir,
        Kind::Block => NfsFtype4::Blk,
        Kind::Char => NfsFtype4::Chr,
        Kind::Symlink => NfsFtype4::Lnk,
        Kind::Socket => NfsFtype4::Sock,
        Kind::Fifo => NfsFtype4::Fifo,
    }
}

fn time(t: Time) -> Nfstime4 {
    Nfstime4 { seconds: t.sec, nseconds: t.nsec }
}
