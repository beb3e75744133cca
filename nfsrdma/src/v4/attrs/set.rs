//! Attributes that a client sets with SETATTR, CREATE and OPEN.

use nfs_proto::nfs4::Nfstime4;
use nfs_proto::nfs4::attrs::{Fattr4, Settime4, Value};
use vfs::acl::{Acl, Owner, control};
use vfs::backend::Made;
use vfs::namespace::{FileOps, GiveList, ListOfNew, Share};
use vfs::{
    Attr, BoxFuture, Cred, DelegatedTimes, Kind, NodeRef, SetAttr, SetTime, Time, VfsError,
    VfsResult,
};

use super::acl::owner;
use super::{Bitmap, acl};
use crate::v4::names::Names;
use crate::v4::object::Located;
use crate::v4::status::Status;
use crate::v4::wire::attr;

/// Attributes that a client may set.
const SETTABLE: Bitmap = Bitmap::of(&[
    attr::SIZE,
    attr::ACL,
    attr::DACL,
    attr::MODE,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::TIME_ACCESS_SET,
    attr::TIME_CREATE,
    attr::TIME_MODIFY_SET,
    attr::MODE_SET_MASKED,
    attr::MODE_UMASK,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
]);

/// Times that the holder of a delegation sets.
const DELEGATED: Bitmap = Bitmap::of(&[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY]);

/// Control bits that belong to the list.
const OF_LIST: u16 = control::DACL_PRESENT
    | control::DACL_DEFAULTED
    | control::DACL_AUTO_INHERITED
    | control::DACL_PROTECTED;

/// The purpose of setting attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// SETATTR of an existing file.
    Change,
    /// CREATE or OPEN of a new file.
    Make,
}

/// Attributes to set, with the set of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToSet {
    /// The part that the volume sets.
    pub set: SetAttr,
    /// An access control list, set after all other attributes (RFC 8881 section 6.4.1.3).
    pub acl: Option<Acl>,
    /// The creation time, which the volume stores separately.
    pub created: Option<Time>,
    /// Times kept by the holder of a delegation (RFC 9754 section 5).
    pub delegated: DelegatedTimes,
    /// Mode bits to change (`mode_set_masked`): value and mask.
    pub mode_masked: Option<(u32, u32)>,
    /// The attributes that the client sent.
    pub named: Bitmap,
}

impl ToSet {
    /// The attributes that affect permissions.
    pub const PERMISSION: Bitmap =
        Bitmap::of(&[attr::ACL, attr::DACL, attr::MODE, attr::MODE_SET_MASKED, attr::MODE_UMASK]);

    pub const CREATED: Bitmap = Bitmap::of(&[attr::TIME_CREATE]);

    /// The attributes that carry an access control list.
    pub const LIST: Bitmap = Bitmap::of(&[attr::ACL, attr::DACL]);

    /// Decodes a `fattr4`; `supported` are the volume's attributes in this minor version. ATTRNOTSUPP for unsupported attributes,
    /// INVAL for read-only ones, BADOWNER for unknown owners. Names that need a look-up are added to `names`: the caller then looks
    /// them up and decodes again.
    pub(in crate::v4) fn decode(
        asked: &Fattr4<'_>,
        supported: &Bitmap,
        purpose: Purpose,
        names: &mut Names<'_>,
    ) -> Result<Self, Status> {
        let named = asked.attrmask;
        if !named.is_within(supported) {
            return Err(Status::AttrNotSupp);
        }
        if !named.is_within(&SETTABLE) {
            return Err(Status::Inval);
        }
        if named.has(attr::ACL) && named.has(attr::DACL) {
            return Err(Status::Inval);
        }
        check_modes(&named, purpose)?;
        if purpose == Purpose::Make && !named.and(&DELEGATED).is_empty() {
            // A file that is being created has no delegation.
            return Err(Status::Inval);
        }
        let mut all = Self { named, ..Self::default() };
        let mut rest = asked.attr_vals;
        for number in named.iter() {
            let parsed = wire::decode(rest, |i| Value::parse(number, i));
            let (behind, value) = parsed.map_err(|_| Status::BadXdr)?;
            // Invariant: all settable attributes have values.
            all.take(value.ok_or(Status::AttrNotSupp)?, names)?;
            rest = behind;
        }
        if rest.is_empty() { Ok(all) } else { Err(Status::BadXdr) }
    }

    fn take(&mut self, value: Value<'_>, names: &mut Names<'_>) -> Result<(), Status> {
        let set = &mut self.set;
        match value {
            Value::Size(size) => set.size = Some(size),
            Value::Acl(list) => self.acl = Some(acl::of(&list.aces, names)?),
            Value::Dacl(list) => self.acl = Some(acl::of_dacl(&list, names)?),
            Value::Mode(bits) => set.mode = Some(mode(bits)?),
            Value::Owner(name) => set.uid = Some(names.user(owner(name.name)?)?),
            Value::OwnerGroup(name) => set.gid = Some(names.group(owner(name.name)?)?),
            Value::TimeAccessSet(time) => set.atime = Some(set_time(time)?),
            Value::TimeModifySet(time) => set.mtime = Some(set_time(time)?),
            Value::TimeCreate(time) => self.created = Some(valid(time)?),
            Value::TimeDelegAccess(time) => self.delegated.atime = Some(valid(time)?),
            Value::TimeDelegModify(time) => self.delegated.mtime = Some(valid(time)?),
            Value::ModeSetMasked(m) => {
                self.mode_masked = Some((mode(m.mm_value_to_set)?, mode(m.mm_mask_bits)?));
            }
            Value::ModeUmask(m) => {
                // RFC 8275 section 5: whether the umask applies depends on the directory.
                set.mode = Some(mode(m.mu_mode)?);
                set.umask = m.mu_umask & 0o777;
            }
            // Invariant: `decode` refuses everything else.
            _ => return Err(Status::AttrNotSupp),
        }
        Ok(())
    }

    /// Checks that the list is valid for this type of file in this share. Refuses a list that the gateway could store but not
    /// enforce: one that denies access to an alias whose members are unknown.
    pub(in crate::v4) fn check_list(&self, share: &Share, kind: Kind) -> Result<(), Status> {
        let Some(list) = &self.acl else { return Ok(()) };
        if share.rules.host.domain().is_some() && list.unknown_denied().is_some() {
            return Err(Status::BadOwner);
        }
        acl::check_flags(list, kind)
    }

    /// Sets the creation time, if sent. Returns the attributes set: a volume that cannot store it ignores it (as Linux' server
    /// does), and the rest is still set.
    pub async fn apply_created(&self, file_ops: &FileOps<'_>, at: &Located) -> VfsResult<Bitmap> {
        let Some(created) = self.created else { return Ok(Bitmap::EMPTY) };
        match file_ops.created_set(&at.share, &at.node, &at.cred, created).await {
            Ok(()) => Ok(Self::CREATED),
            Err(VfsError::NotSupported) => Ok(Bitmap::EMPTY),
            Err(e) => Err(e),
        }
    }

    /// Sets the creation time of a file that the caller has just created, which stays if that fails.
    pub async fn date_new(&self, file_ops: &FileOps<'_>, share: &Share, node: &NodeRef) -> Bitmap {
        match self.created {
            Some(created) => {
                match file_ops.created_set(share, node, &Cred::root(), created).await {
                    Ok(()) => Self::CREATED,
                    Err(_) => Bitmap::EMPTY,
                }
            }
            None => Bitmap::EMPTY,
        }
    }

    /// Sets the list, if sent, with the caller's rights. The parts of the list that only Windows clients use are kept.
    pub async fn apply_acl(&self, file_ops: &FileOps<'_>, at: &Located) -> VfsResult<()> {
        let attr = at.node.getattr().await?;
        let Some(new) = self.new_list(&at.node, &attr).await? else { return Ok(()) };
        file_ops.acl_change(&at.share, &at.node, &at.cred, &new).await
    }

    /// The new list, with the Windows parts of the current one.
    async fn new_list(&self, node: &NodeRef, attr: &Attr) -> VfsResult<Option<Acl>> {
        let Some(acl) = &self.acl else { return Ok(None) };
        let before = node.acl(attr).await?;
        let mut new = before.map(|acl| Acl::clone(&acl)).unwrap_or_default();
        new.control = new.control & !OF_LIST | acl.control;
        (new.entries, new.revision) = (acl.entries.clone(), acl.revision);
        Ok(Some(new))
    }

    /// The kind of list for a new file: the client's, or an inherited one.
    pub fn list_of_new(&self) -> ListOfNew {
        if self.acl.is_some() { ListOfNew::Given } else { ListOfNew::Inherited }
    }

    /// The attributes that were set on a new file, given its present ones: owner and group may have been ignored. The creation time
    /// is reported by [`ToSet::date_new`].
    pub fn done_of(&self, now: &Attr) -> Bitmap {
        let ignored = |asked: Option<u32>, is| asked.is_some_and(|asked| asked != is);
        let mut left_out = Bitmap::EMPTY;
        if ignored(self.set.uid, now.uid) {
            left_out.add(attr::OWNER);
        }
        if ignored(self.set.gid, now.gid) {
            left_out.add(attr::OWNER_GROUP);
        }
        self.named.without(&left_out).without(&Self::CREATED)
    }

    /// True if the volume sets more than one attribute, so that a failure may be partial.
    pub fn several(&self) -> bool {
        let apart = DELEGATED.or(&Self::CREATED).or(&Self::LIST);
        self.named.without(&apart).iter().nth(1).is_some()
    }

    /// The attributes that were set although the volume failed on `asked`, found by comparing the attributes before and after (read
    /// only if several were to be set): those that changed to the requested value. Delegated times are set before all others.
    pub fn done_before(&self, asked: &SetAttr, seen: Option<&(Attr, Attr)>) -> Bitmap {
        let mut done = self.named.and(&DELEGATED);
        let Some((before, after)) = seen else { return done };
        let set = |asked: Option<u32>, was: u32, is: u32| asked == Some(is) && was != is;
        if asked.size == Some(after.size) && before.size != after.size {
            done.add(attr::SIZE);
        }
        if set(asked.mode, before.mode, after.mode) {
            done.add(if self.mode_masked.is_some() { attr::MODE_SET_MASKED } else { attr::MODE });
        }
        if set(asked.uid, before.uid, after.uid) {
            done.add(attr::OWNER);
        }
        if set(asked.gid, before.gid, after.gid) {
            done.add(attr::OWNER_GROUP);
        }
        // A time set to "now" is omitted: another change may have moved it, and volumes set times last.
        done
    }

    /// True if the nine mode bits that map to the list must stay unchanged (RFC 8881 section 6.4.1.1).
    pub fn keeps_list(&self) -> bool {
        self.mode_masked.is_some_and(|(_, mask)| mask & 0o777 == 0)
    }

    /// The attributes with `mode_set_masked` applied to the present mode.
    pub fn with_mode(&self, present: u32) -> SetAttr {
        let mut set = self.set;
        if let Some((value, mask)) = self.mode_masked {
            set.mode = Some(present & !mask | value & mask);
        }
        set
    }
}

/// Checks that the mode is set in only one of the three ways, and the umask only for new files (RFC 8881 section 5.8.2.15.1, RFC
/// 8275 section 5).
fn check_modes(named: &Bitmap, purpose: Purpose) -> Result<(), Status> {
    let ways = [attr::MODE, attr::MODE_SET_MASKED, attr::MODE_UMASK];
    if ways.iter().filter(|&&way| named.has(way)).count() > 1
        || purpose == Purpose::Change && named.has(attr::MODE_UMASK)
    {
        return Err(Status::Inval);
    }
    Ok(())
}

fn mode(bits: u32) -> Result<u32, Status> {
    if bits & !0o7777 == 0 { Ok(bits) } else { Err(Status::Inval) }
}

fn set_time(time: Settime4) -> Result<SetTime, Status> {
    match time {
        Settime4::ServerTime => Ok(SetTime::Now),
        Settime4::ClientTime(time) => Ok(SetTime::At(valid(time)?)),
    }
}

fn valid(time: Nfstime4) -> Result<Time, Status> {
    time_of(time).ok_or(Status::Inval)
}

/// Converts a time; `None` if the nanoseconds exceed a second.
pub(in crate::v4) fn time_of(time: Nfstime4) -> Option<Time> {
    let time = Time { sec: time.seconds, nsec: time.nseconds };
    (time.nsec < 1_000_000_000).then_some(time)
}

impl GiveList for ToSet {
    fn give<'a>(&'a self, made: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let Some(new) = self.new_list(&made.node, &made.attr).await? else { return Ok(()) };
            let owner = Owner::of(&made.attr);
            let (new, mode) = match most {
                Some(most) => new.limited(most, owner, made.attr.kind == Kind::Dir),
                None => {
                    let mode = new.mode(owner);
                    (new, mode)
                }
            };
            made.node.acl_set(&new, mode).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::above::CAPABILITIES;
    use crate::v4::attrs::supported;
    use proptest::prelude::*;
    use rdma_transport::xdr::Writer;

    fn decode(
        named: &[u32],
        purpose: Purpose,
        values: impl Fn(&mut Writer),
    ) -> Result<ToSet, Status> {
        let mut inner = Writer::new();
        values(&mut inner);
        let asked = Fattr4 { attrmask: Bitmap::of(named), attr_vals: inner.bytes() };
        ToSet::decode(&asked, &supported(2, &CAPABILITIES), purpose, &mut Names::default())
    }

    #[test]
    fn each_value_is_read_in_order() {
        let got = decode(&[4, 33, 36, 37, 48, 54], Purpose::Change, |w| {
            w.u64(99);
            w.u32(0o4755);
            w.opaque(b"1000");
            w.opaque(b"100@example.org");
            w.u32(0);
            w.u32(1);
            w.i64(-5);
            w.u32(7);
        });
        let expected = SetAttr {
            size: Some(99),
            mode: Some(0o4755),
            umask: 0,
            uid: Some(1000),
            gid: Some(100),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(Time { sec: -5, nsec: 7 })),
        };
        assert_eq!(got.unwrap().set, expected);
    }

    #[test]
    fn umask_applies_to_new_files() {
        let values = |w: &mut Writer| {
            w.u32(0o666);
            w.u32(0o027);
        };
        let got = decode(&[attr::MODE_UMASK], Purpose::Make, values).unwrap();
        assert_eq!((got.set.mode, got.set.umask), (Some(0o666), 0o027));
        assert_eq!(decode(&[attr::MODE_UMASK], Purpose::Change, values), Err(Status::Inval));
    }

    #[test]
    fn masked_mode_keeps_other_bits() {
        let got = decode(&[attr::MODE_SET_MASKED], Purpose::Change, |w| {
            w.u32(0o050);
            w.u32(0o070);
        });
        assert_eq!(got.unwrap().with_mode(0o604).mode, Some(0o654));
    }

    #[test]
    fn unsettable_attribute_is_named() {
        let one = |n: u32| decode(&[n], Purpose::Change, |w| w.u32(0));
        assert_eq!(one(attr::TYPE), Err(Status::Inval));
        assert_eq!(one(attr::ACL), Err(Status::AttrNotSupp));
        assert_eq!(one(attr::MODE).map(|s| s.set.mode), Ok(Some(0)));
        let mode = |m: u32| decode(&[attr::MODE], Purpose::Change, |w| w.u32(m));
        assert_eq!(mode(0o10000), Err(Status::Inval));
        let root = decode(&[attr::OWNER], Purpose::Change, |w| w.opaque(b"root"));
        assert_eq!(root, Err(Status::BadOwner));
    }

    #[test]
    fn wrong_value_length_is_refused() {
        assert_eq!(decode(&[attr::SIZE], Purpose::Change, |w| w.u32(0)), Err(Status::BadXdr));
        let more = |w: &mut Writer| {
            w.u64(0);
            w.u32(0);
        };
        assert_eq!(decode(&[attr::SIZE], Purpose::Change, more), Err(Status::BadXdr));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall_over(bytes: Vec<u8>, minor in 0u32..3) {
            let (all, names) = (supported(minor, &CAPABILITIES), &mut Names::default());
            if let Ok((_, asked)) = nfs_proto::xdr::decode::<Fattr4<'_>>(&bytes) {
                let _ = ToSet::decode(&asked, &all, Purpose::Make, names);
            }
        }
    }
}
