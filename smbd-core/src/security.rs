//! Who may do what with a file, as SMB asks it: a descriptor on the wire, the list that is kept with the file beneath.
//!
//! *Operation.* A file has a list of its own ([`vfs::acl`]) once a client of any protocol set one, or once it was made in a
//! directory that passes one on. By it the descriptor is shown and the rights of an open are given; the open keeps them as a
//! [`Grant`] of that file, which helps in each call that needs one of these rights to it and in no other. Without a list mode bits
//! decide. Every operation is the user's own: paths are walked, folders changed and targets replaced with its credentials.
//!
//! *Errors.* A list that cannot be read counts as none: mode bits were set with it.

use std::sync::OnceLock;

use vfs::acl::{Ace, Acl, Owner, Who, kind, sid_of_group, sid_of_user};
use vfs::authority::{Grant, Power};
use vfs::backend::{Made, NodeRef};
use vfs::names::Found;
use vfs::namespace::{FileOps, GiveList, ListOfNew, Share};
use vfs::types::{Access, Attr, Cred, Kind, SetAttr};
use vfs::{BoxFuture, Domain, VfsError, VfsResult};

use crate::dtyp::descriptor::control;
use crate::dtyp::{self, SecurityDescriptor, Sid, acl, check, mask};
use crate::status::Status;
use crate::tree::Tree;
use crate::users;
use crate::wire::query_info::security_information as part;

/// An access that was granted.
#[derive(Debug)]
pub struct Granted {
    /// The rights: what was asked for with generic rights mapped; all there are for MAXIMUM_ALLOWED.
    pub access: u32,
    /// Those that the file's own list gives; `None` where it has none.
    pub by_list: Option<Grant>,
}

/// The SID of a user of the host.
pub(crate) fn sid_of_uid(uid: u32) -> Sid {
    Sid::unix_user(uid)
}

/// The SID of a group of the host.
pub(crate) fn sid_of_gid(gid: u32) -> Sid {
    Sid::unix_group(gid)
}

/// Grants what CREATE asks for on a file that exists, or says why not. `parent`: the directory in which it was found; `None` for
/// the root of a share, which nobody deletes.
pub(crate) async fn granted(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parent: Option<&NodeRef>,
    desired: u32,
) -> Result<Granted, Status> {
    if desired & !mask::VALID != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let is_admin = tree.cred.uid == 0;
    if desired & mask::ACCESS_SYSTEM_SECURITY != 0 && !is_admin {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let wanted = mask::map_generic(desired) & !mask::MAXIMUM_ALLOWED;
    let wants_all = desired & mask::MAXIMUM_ALLOWED != 0;
    let (mut rights, by_list) = rights(tree, node, attr).await?;
    if is_admin {
        rights |= mask::ACCESS_SYSTEM_SECURITY;
    }
    if (wants_all || wanted & mask::DELETE != 0) && rights & mask::DELETE == 0 {
        rights |= delete_by_parent(tree, parent, attr).await?;
    }
    if parent.is_none() {
        rights &= !mask::DELETE;
    }
    rights &= tree.maximal_access | mask::ACCESS_SYSTEM_SECURITY;
    if wanted & !rights != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let access = if wants_all { wanted | rights & mask::FILE_ALL } else { wanted };
    Ok(Granted { access, by_list })
}

/// All rights that the user has: what an SMB2_CREATE_QUERY_MAXIMAL_ACCESS asks.
pub(crate) async fn maximal(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parent: Option<&NodeRef>,
) -> Result<u32, Status> {
    granted(tree, node, attr, parent, mask::MAXIMUM_ALLOWED).await.map(|g| g.access)
}

/// Rights by the file's own descriptor or mode. DELETE, where mode bits decide, is the directory's to give.
async fn rights(tree: &Tree, node: &NodeRef, attr: &Attr) -> Result<(u32, Option<Grant>), Status> {
    // Whoever found the name may look at its attributes (MS-FSA section 2.1.5.1.2.1).
    const FOUND: u32 = mask::READ_ATTRIBUTES;
    if let Some(grant) = Grant::decide(node, attr, &tree.cred).await? {
        let by_bits = rights_of_bits(tree, node, attr, grant.rights()).await?;
        return Ok((grant.rights() | by_bits | FOUND, Some(grant)));
    }
    let can = node.access(&tree.cred, Access(ASKED), attr).await?.0;
    let class = u32::from(can & Access::READ != 0) << 2
        | u32::from(can & (Access::MODIFY | Access::EXTEND) != 0) << 1
        | u32::from(can & (Access::EXECUTE | Access::LOOKUP) != 0);
    let is_owner = tree.cred.uid == attr.uid || tree.cred.uid == 0;
    let rights = check::rights_of_class(class, attr.kind == Kind::Dir, is_owner);
    Ok((rights & !mask::DELETE | FOUND, None))
}

/// What the bits that a list of NFS gives a user mean to a client of Windows: the same as mode bits, so that an entry more that a
/// client of NFS adds takes from nobody what the mode gave. An open has these rights without a grant of the list: what is done by
/// them is judged as the user's own.
async fn rights_of_bits(tree: &Tree, node: &NodeRef, attr: &Attr, rights: u32) -> VfsResult<u32> {
    let Some(acl) = node.acl(attr).await?.filter(|acl| acl.is_of_nfs()) else { return Ok(0) };
    let has = |all: u32, bit: u32| if rights & all == all { bit } else { 0 };
    let bits = has(mask::READ_DATA, 4)
        | has(mask::WRITE_DATA | mask::APPEND_DATA, 2)
        | has(mask::EXECUTE, 1);
    let is_owner = tree.cred.uid == attr.uid;
    let meant = check::rights_of_class(bits, attr.kind == Kind::Dir, is_owner) & !mask::DELETE;
    // Mode bits that give an owner less than others deny it the data, and no open for the attributes.
    let of_owner = if is_owner { mask::READ_EA | mask::WRITE_EA } else { 0 };
    let of_reader = if bits & 4 != 0 && attr.kind != Kind::Dir { mask::EXECUTE } else { 0 };
    let denied = acl.denied(&tree.cred, Owner::of(attr));
    Ok(meant & !(denied & !of_owner & !of_reader))
}

const ASKED: u32 = Access::READ
    | Access::MODIFY
    | Access::EXTEND
    | Access::EXECUTE
    | Access::LOOKUP
    | Access::DELETE;

/// DELETE of a file with these attributes, where the directory lets the user delete what is in it: by its list or its mode. In a
/// sticky directory that is for the owners of the directory and of the file (inode(7)).
async fn delete_by_parent(
    tree: &Tree,
    parent: Option<&NodeRef>,
    victim: &Attr,
) -> Result<u32, Status> {
    let Some(dir) = parent else { return Ok(0) };
    let attr = dir.getattr().await?;
    let is_sticky = attr.mode & 0o1000 != 0;
    if is_sticky && ![0, attr.uid, victim.uid].contains(&tree.cred.uid) {
        return Ok(0);
    }
    let may = match dir.acl(&attr).await? {
        Some(acl) => acl.allowed(&tree.cred, Owner::of(&attr)) & mask::DELETE_CHILD != 0,
        None => dir.access(&tree.cred, Access(ASKED), &attr).await?.0 & Access::DELETE != 0,
    };
    Ok(if may { mask::DELETE } else { 0 })
}

/// The user may make a file or directory here: the directory's list says so, or it has none and the kernel will.
pub(crate) async fn may_add(
    tree: &Tree,
    dir: &NodeRef,
    attr: &Attr,
    is_dir: bool,
) -> Result<Option<Grant>, Status> {
    let right = if is_dir { mask::APPEND_DATA } else { mask::WRITE_DATA };
    if tree.maximal_access & right == 0 {
        return Err(Status::ACCESS_DENIED);
    }
    match Grant::decide(dir, attr, &tree.cred).await? {
        // The kernel says it, with the reason.
        None => Ok(None),
        Some(grant) if grant.rights() & right != 0 => {
            Ok(Some(grant.limited(right | mask::DELETE_CHILD & tree.maximal_access)))
        }
        Some(_) => Err(Status::ACCESS_DENIED),
    }
}

/// What a directory's own list grants to whoever takes a name out of it, which its mode bits need not let look names up.
pub(crate) async fn may_take_from(cred: &Cred, dir: &NodeRef) -> VfsResult<Option<Grant>> {
    let grant = Grant::decide(dir, &dir.getattr().await?, cred).await?;
    Ok(grant.map(|grant| grant.limited(mask::DELETE_CHILD)))
}

/// Returns what the list of a file grants to a caller that replaces it: SMB callers pass through folders whose names they may not
/// look up.
pub(crate) async fn may_delete(cred: &Cred, found: &Found) -> VfsResult<Option<Grant>> {
    let grant = Grant::decide(&found.node, &found.attr, cred).await?;
    Ok(grant.map(|grant| grant.limited(mask::DELETE)))
}

/// The right to look names up in a directory whose list the file system refused the user it by: whoever may list or change a
/// directory passes through it, as users of Windows pass through any.
pub(crate) async fn may_pass(cred: &Cred, dir: &NodeRef) -> VfsResult<Option<Power>> {
    const ANY: u32 = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
    let attr = dir.getattr().await?;
    Ok(Grant::decide(dir, &attr, cred).await?.and_then(|grant| grant.power(ANY)))
}

/// Which list something new gets, by [`ListOf`] where it inherits none.
pub(crate) fn list_of_new(is_listed: bool, given: Option<&SecurityDescriptor>) -> ListOfNew {
    match given {
        Some(given) if given.has(control::DACL_PRESENT) => ListOfNew::Given,
        None if !is_listed => ListOfNew::Inherited,
        _ => ListOfNew::InheritedOrGiven,
    }
}

/// Gives a file or directory that a CREATE makes its list.
pub(crate) struct ListOf<'a> {
    /// Whose CREATE it is.
    pub(crate) tree: &'a Tree,
    /// The share in which it makes something.
    pub(crate) share: &'a Share,
    /// The directory has a list.
    pub(crate) is_listed: bool,
    /// The bits that the client asked for.
    pub(crate) mode: u32,
    /// The descriptor that the client sent.
    pub(crate) given: Option<&'a SecurityDescriptor>,
    /// Why it was not given.
    pub(crate) refused: OnceLock<Status>,
}

impl GiveList for ListOf<'_> {
    fn give<'a>(&'a self, made: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let (made, modes) = ((&made.node, &made.attr), (self.mode, most));
            let at = (self.tree, self.share);
            let done = inherit(at, self.is_listed, made, modes, self.given).await;
            done.map_err(|why| {
                // The volume's words do not say it; whoever asked looks here.
                let _ = self.refused.set(why);
                VfsError::Access
            })
        })
    }
}

/// Gives a node that was just made what it has not inherited: what the client sent with CREATE, and where the directory has a list
/// (`is_listed`, [`may_add`] said so) and passes nothing on, what Windows gives then (MS-FSA section 2.1.5.1.1): all to owner and
/// system. `mode`: the bits that the client asked for. The node may have less of them so far ([`list_of_new`]). `most`: what the
/// share's masks leave of a list.
async fn inherit(
    (tree, share): (&Tree, &Share),
    is_listed: bool,
    made: (&NodeRef, &Attr),
    (mode, most): (u32, Option<u32>),
    given: Option<&SecurityDescriptor>,
) -> Result<(), Status> {
    let (node, attr) = made;
    let mut given = given.cloned();
    if let Some(given) = &mut given {
        check::understood(given, share.rules.host.domain().is_some())?;
        check::without_policy(given)?;
        may_own(&tree.cred, given)?;
        may_group(&tree.cred, given, attr)?;
        check::kept(given);
    }
    let mut list = match node.acl(attr).await? {
        Some(_) if given.is_none() => return Ok(()),
        Some(inherited) => Acl::clone(&inherited),
        None if given.is_none() && !is_listed => return Ok(()),
        None => {
            let owner = given.as_ref().and_then(|g| g.owner.clone());
            let owner = owner.unwrap_or_else(|| sid_of_uid(attr.uid));
            let all = |sid| Ace::allow(Who::of_sid(sid), mask::FILE_ALL, 0);
            Acl::new(vec![all(owner), all(Sid::system())])
        }
    };
    let (mut uid, mut gid) = (None, None);
    if let Some(given) = given {
        let new = acl::of_descriptor(&given);
        if given.has(control::DACL_PRESENT) {
            let kept = control::DACL_PROTECTED | control::DACL_AUTO_INHERITED;
            list.control = control::DACL_PRESENT | given.control & kept;
            (list.entries, list.revision) = (new.entries, new.revision);
        }
        if given.has(control::SACL_PRESENT) {
            list.control |= control::SACL_PRESENT | given.control & control::SACL_PROTECTED;
            list.audit = new.audit;
        }
        (uid, gid) = numbers(&tree.cred, &given);
        list.owner = new.owner.filter(|_| uid.is_none());
        list.group = new.group.filter(|_| gid.is_none());
    }
    let asked = Attr { mode: attr.mode | mode & 0o111, ..*attr };
    keep((tree, None), node, &asked, (list, most), (uid, gid)).await
}

/// Replaces identifiers from lists of SAMR by those of files: a permission for an account that a user picks from such a list has to
/// mean the account.
pub(crate) fn know_accounts(sd: &mut SecurityDescriptor, machine: &Sid) {
    let know = |sid: &mut Sid| {
        let Some(rid) = sid.rid_in(machine) else { return };
        let known = users::uid_of_rid(rid).map(sid_of_uid);
        if let Some(known) = known.or_else(|| users::gid_of_rid(rid).map(sid_of_gid)) {
            *sid = known;
        }
    };
    sd.owner.iter_mut().chain(&mut sd.group).for_each(know);
    for ace in sd.dacl.iter_mut().flat_map(|list| &mut list.aces) {
        if let dtyp::Ace::Simple { sid, .. } = ace {
            know(sid);
        }
    }
}

/// Owner and group of a descriptor that have numbers here.
fn numbers(cred: &Cred, sd: &SecurityDescriptor) -> (Option<u32>, Option<u32>) {
    let uid = sd.owner.as_ref().and_then(|owner| uid_of(cred, owner));
    (uid, sd.group.as_ref().and_then(|group| gid_of(cred, group)))
}

/// The number of a user. A group of the caller may be an owner and has no such number.
fn uid_of(cred: &Cred, sid: &Sid) -> Option<u32> {
    let token = &cred.token;
    match sid.as_unix_user() {
        Some(uid) => Some(uid),
        None if token.user() == Some(sid) => Some(cred.uid),
        None if token.has(sid) => None,
        None => token.domain()?.uid(sid),
    }
}

/// The number of a group.
fn gid_of(cred: &Cred, sid: &Sid) -> Option<u32> {
    sid.as_unix_group().or_else(|| cred.token.domain()?.number(sid))
}

/// A user makes itself or one of its groups the owner, nobody else (MS-FSA section 2.1.5.17). Everyone and its like are groups
/// that all are in.
fn may_own(cred: &Cred, sd: &SecurityDescriptor) -> Result<(), Status> {
    let Some(owner) = &sd.owner else { return Ok(()) };
    let itself = uid_of(cred, owner) == Some(cred.uid);
    let has_group = || gid_of(cred, owner).is_some_and(|gid| cred.in_group(gid));
    let its_group = cred.token.has(owner) || has_group();
    let of_all = [Sid::everyone(), Sid::network(), Sid::authenticated_users()].contains(owner);
    if itself || its_group || of_all || cred.uid == 0 { Ok(()) } else { Err(Status::INVALID_OWNER) }
}

/// The group that a descriptor names is the one that the file has, or one of the user's: as chown(2) has it.
fn may_group(cred: &Cred, sd: &SecurityDescriptor, attr: &Attr) -> Result<(), Status> {
    let Some(group) = &sd.group else { return Ok(()) };
    let of = |gid| gid == attr.gid || cred.uid == 0 || cred.in_group(gid);
    let may = gid_of(cred, group).is_none_or(of) || cred.token.has(group);
    if may { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// The descriptor of a file: that of its own list, of the host's, or what its mode says. It gives nobody more than the file does:
/// clients send back what they were shown.
pub(crate) async fn descriptor(
    node: &NodeRef,
    attr: &Attr,
    domain: Option<&Domain>,
) -> Result<SecurityDescriptor, Status> {
    if let Some(acl) = node.acl(attr).await? {
        return acl::to_descriptor(&check::as_windows(&acl, attr), attr, domain);
    }
    let shown = node.acl_shown(attr).await?;
    let denies = |ace: &Ace| matches!(ace, Ace::Simple { kind: kind::DENIED, .. });
    let is_dir = attr.kind == Kind::Dir;
    if *shown != Acl::of_mode(attr.mode, is_dir) || shown.entries().iter().any(denies) {
        return acl::to_descriptor(&check::as_windows(&shown, attr), attr, domain);
    }
    // As Windows knows it: what an owner has by its mode is full control.
    let (owner, group) = (sid_of_user(attr.uid, domain), sid_of_group(attr.gid, domain));
    Ok(check::of_mode(attr.mode, is_dir, &owner, &group))
}

/// Right that a part of a descriptor needs of the open (MS-FSA section 2.1.5.14, MS-SMB2 section 3.3.5.21.3).
pub(crate) fn needs(parts: u32, to_set: bool) -> u32 {
    let mut out = 0;
    if parts & (part::OWNER | part::GROUP | part::LABEL) != 0 {
        out |= if to_set { mask::WRITE_OWNER } else { mask::READ_CONTROL };
    }
    if parts & (part::DACL | part::ATTRIBUTE) != 0 {
        out |= if to_set { mask::WRITE_DAC } else { mask::READ_CONTROL };
    }
    if parts & part::SCOPE != 0 {
        out |= if to_set { mask::ACCESS_SYSTEM_SECURITY } else { mask::READ_CONTROL };
    }
    if parts & part::SACL != 0 {
        out |= mask::ACCESS_SYSTEM_SECURITY;
    }
    if parts & part::BACKUP != 0 && to_set {
        out |= mask::WRITE_DAC | mask::WRITE_OWNER | mask::ACCESS_SYSTEM_SECURITY;
    }
    out
}

/// The parts of a descriptor that were asked for.
pub(crate) fn only(mut sd: SecurityDescriptor, parts: u32) -> SecurityDescriptor {
    let dacl = control::DACL_PRESENT
        | control::DACL_DEFAULTED
        | control::DACL_AUTO_INHERITED
        | control::DACL_PROTECTED;
    let sacl = control::SACL_PRESENT
        | control::SACL_DEFAULTED
        | control::SACL_AUTO_INHERITED
        | control::SACL_PROTECTED;
    if parts & part::OWNER == 0 {
        sd.owner = None;
    }
    if parts & part::GROUP == 0 {
        sd.group = None;
    }
    if parts & part::DACL == 0 {
        sd.control &= !dacl;
        sd.dacl = None;
    }
    if parts & part::SACL == 0 {
        sd.control &= !sacl;
        sd.sacl = None;
    }
    sd
}

/// The mode bits that a list stands for which has one entry, a mode. With the POSIX extensions a Linux client says `chmod` so; as
/// a list it would leave nobody any right.
fn as_mode(parts: u32, new: &SecurityDescriptor) -> Option<u32> {
    match &new.dacl.as_ref()?.aces[..] {
        [dtyp::Ace::Simple { sid, .. }] if parts == part::DACL => {
            Some(sid.as_unix_mode()? & 0o7777)
        }
        _ => None,
    }
}

/// Parts of a descriptor that are kept. Nothing changes where a client names no other; those have their rights, too ([`needs`]).
const KEPT: u32 = part::OWNER | part::GROUP | part::DACL | part::SACL;

/// Changes parts of a file's descriptor. The rights of the open were checked.
pub(crate) async fn set(
    tree: &Tree,
    file_ops: &FileOps<'_>,
    share: &Share,
    node: &NodeRef,
    parts: u32,
    mut new: SecurityDescriptor,
) -> Result<(), Status> {
    if parts & (part::SACL | part::SCOPE | part::BACKUP) != 0 {
        check::without_policy(&new)?;
    }
    if parts & KEPT == 0 {
        return Ok(());
    }
    let attr = node.getattr().await?;
    if let Some(mode) = as_mode(parts, &new) {
        // Bits such as set-user-ID are the owner's to give, whoever else may write lists.
        let is_owner = [0, attr.uid].contains(&tree.cred.uid);
        let mode = if is_owner { mode } else { mode & 0o777 };
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        file_ops.setattr(share, node, &tree.cred, set, false).await?;
        return Ok(());
    }
    let mut sd = descriptor(node, &attr, tree.cred.token.domain()).await?;
    check::kept(&mut new);
    let mut changed = SecurityDescriptor::default();
    if parts & part::OWNER != 0 {
        let owner = new.owner.clone().ok_or(Status::INVALID_OWNER)?;
        if sd.owner.as_ref() != Some(&owner) {
            may_own(&tree.cred, &new)?;
            changed.owner = Some(owner);
        }
    }
    if parts & part::GROUP != 0 {
        may_group(&tree.cred, &new, &attr)?;
        let group = new.group.clone().ok_or(Status::INVALID_SECURITY_DESCR)?;
        changed.group = Some(group).filter(|group| sd.group.as_ref() != Some(group));
    }
    let mut replaced = 0;
    if parts & part::DACL != 0 {
        check::understood(&new, share.rules.host.domain().is_some())?;
        replaced |=
            control::DACL_AUTO_INHERITED | control::DACL_PROTECTED | control::DACL_DEFAULTED;
        // Setting a list that is not there is setting a NULL list.
        sd.control |= control::DACL_PRESENT;
        sd.dacl = new.dacl;
    }
    if parts & part::SACL != 0 {
        replaced |= control::SACL_AUTO_INHERITED | control::SACL_PROTECTED | control::SACL_PRESENT;
        sd.sacl = new.sacl;
    }
    sd.control = sd.control & !replaced | new.control & replaced;
    let (owners, file_ops) = (numbers(&tree.cred, &changed), Some((file_ops, share)));
    let before = node.acl(&attr).await?;
    let has_list = before.is_some();
    let mut list = acl::of_descriptor(&sd);
    (list.owner, list.group) = foreign(before.as_deref(), changed, owners);
    // Without a list the mode goes on deciding, as after chown(2): whoever may set the owner alone decides nothing else.
    if parts & (part::DACL | part::SACL) == 0
        && matches!((&list.owner, &list.group), (None, None))
        && !has_list
    {
        // The kernel is not asked where nothing changes.
        if attr.sealed {
            return Err(Status::ACCESS_DENIED);
        }
        return own(file_ops, node, &attr, owners).await.map(drop);
    }
    keep((tree, file_ops), node, &attr, (list, None), owners).await
}

/// Owner and group that are kept with a list because they have no number here: as they were, where they are not changed.
fn foreign(
    before: Option<&Acl>,
    changed: SecurityDescriptor,
    (uid, gid): (Option<u32>, Option<u32>),
) -> (Option<Sid>, Option<Sid>) {
    let of = |new: Option<Sid>, number: Option<u32>, old: Option<&Sid>| match new {
        Some(new) => Some(new).filter(|_| number.is_none()),
        None => old.cloned(),
    };
    let owner = of(changed.owner, uid, before.and_then(|acl| acl.owner.as_ref()));
    (owner, of(changed.group, gid, before.and_then(|acl| acl.group.as_ref())))
}

/// Gives a file to an owner and a group, where it is not theirs.
async fn own(
    file_ops: Option<(&FileOps<'_>, &Share)>,
    node: &NodeRef,
    attr: &Attr,
    (uid, gid): (Option<u32>, Option<u32>),
) -> Result<Attr, Status> {
    let (uid, gid) = (uid.filter(|u| *u != attr.uid), gid.filter(|g| *g != attr.gid));
    if uid.is_none() && gid.is_none() {
        return Ok(*attr);
    }
    // The open may write the owner, and [`may_own`] and [`may_group`] have said who: this node alone, by itself, is given to it.
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    let root = Cred::root();
    let (_, now) = match file_ops {
        Some((file_ops, share)) => file_ops.setattr(share, node, &root, set, false).await?,
        None => node.setattr(&root, set, false).await?,
    };
    Ok(now)
}

/// Keeps a list, of which `most` is left, an owner and a group. Of a new file (no `FileOps`) nobody is told: that it came says it
/// all.
async fn keep(
    (tree, file_ops): (&Tree, Option<(&FileOps<'_>, &Share)>),
    node: &NodeRef,
    attr: &Attr,
    (list, most): (Acl, Option<u32>),
    owners: (Option<u32>, Option<u32>),
) -> Result<(), Status> {
    let now = own(file_ops, node, attr, owners).await?;
    let owner = Owner::of(&now);
    let list = list.with_owner_known(owner, tree.cred.token.domain());
    let (list, mut mode) = match most {
        Some(most) => list.limited(most, owner, now.kind == Kind::Dir),
        None => {
            let mode = list.mode(owner);
            (list, mode)
        }
    };
    if now.kind != Kind::Dir {
        // That a file may be run is said by whoever made it so on a Unix host, not by FILE_EXECUTE that comes with reading.
        mode &= 0o666 | attr.mode & 0o111;
    }
    match file_ops {
        Some((file_ops, share)) => file_ops.acl_set(share, node, &list, mode).await?,
        None => node.acl_set(&list, mode).await?,
    }
    Ok(())
}

#[cfg(test)]
mod identities;
#[cfg(test)]
mod tests;
