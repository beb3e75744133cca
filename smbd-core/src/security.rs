//! Access checks and security descriptors of SMB, mapped to the list that is stored with the file.
//!
//! *Operation.* A file has its own list ([`vfs::acl`]) once a client of any protocol set one, or if it was made in a directory with
//! an inheritable one. The list determines the descriptor that clients see and the rights of an open. The open keeps these rights
//! as a [`Grant`] for that file, which is used only in calls on that file that need one of these rights. If the file has no list,
//! the mode bits decide. Every other operation uses the user's own credentials: walking paths, changing folders and replacing
//! targets.
//!
//! *Errors.* An unreadable list counts as missing, because the mode bits were set together with it.

pub(crate) mod unix_entries;

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
use crate::privilege_use::Asked;
use crate::privileges::Privileges;
use crate::status::Status;
use crate::tree::Tree;
use crate::users;
use crate::wire::query_info::security_information as part;

#[derive(Debug)]
pub struct Granted {
    /// The rights: the requested ones with generic rights mapped, or all that the user has for MAXIMUM_ALLOWED.
    pub access: u32,
    /// The rights that the file's own list and privileges of the user give; `None` without both.
    pub by_list: Option<Grant>,
    /// The rights that only privileges of the user give.
    pub by_privilege: u32,
}

/// Returns the SID of a user of the host.
pub(crate) fn sid_of_uid(uid: u32) -> Sid {
    Sid::unix_user(uid)
}

/// Returns the SID of a group of the host.
pub(crate) fn sid_of_gid(gid: u32) -> Sid {
    Sid::unix_group(gid)
}

/// The directory of a file.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'a> {
    pub(crate) dir: &'a NodeRef,
    /// Its attributes, if they were just read.
    pub(crate) attr: Option<Attr>,
}

impl<'a> Parent<'a> {
    pub(crate) fn of(dir: &'a NodeRef) -> Self {
        Self { dir, attr: None }
    }
}

/// Grants the access that CREATE requests for an existing file, or returns the reason for refusing it. `parent`: the directory in
/// which it was found, or `None` for the root of a share, which cannot be deleted.
pub(crate) async fn granted(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parent: Option<Parent<'_>>,
    (desired, asked): (u32, &Asked),
) -> Result<Granted, Status> {
    if desired & !mask::VALID != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let (is_admin, is_root) = (tree.cred.uid == 0, parent.is_none());
    if desired & mask::ACCESS_SYSTEM_SECURITY != 0 && !is_admin && !asked.may_see_sacl() {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let wanted = mask::map_generic(desired) & !mask::MAXIMUM_ALLOWED;
    let wants_all = desired & mask::MAXIMUM_ALLOWED != 0;
    let (mut rights, by_list) = rights(tree, node, attr).await?;
    rights &= node.bounds(&tree.cred).await?;
    if is_admin {
        rights |= mask::ACCESS_SYSTEM_SECURITY;
    }
    if (wants_all || wanted & mask::DELETE != 0) && rights & mask::DELETE == 0 {
        rights |= delete_by_parent(tree, parent, attr).await?;
    }
    let root = if is_root { mask::DELETE } else { 0 };
    let most = (tree.maximal_access | mask::ACCESS_SYSTEM_SECURITY) & !root;
    rights &= most;
    let mut by_privilege = asked.give(wanted & most & !rights, false);
    if wants_all {
        by_privilege |= asked.give(mask::FILE_ALL & most & !rights & !by_privilege, true);
    }
    rights |= by_privilege;
    if wanted & !rights != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let by_list = Grant::of_privilege(node, by_list, by_privilege);
    let access = if wants_all { wanted | rights & mask::FILE_ALL } else { wanted };
    Ok(Granted { access, by_list, by_privilege })
}

/// Returns all rights of the user, for SMB2_CREATE_QUERY_MAXIMAL_ACCESS.
pub(crate) async fn maximal(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parent: Option<&NodeRef>,
) -> Result<u32, Status> {
    let parent = parent.map(Parent::of);
    let desired = (mask::MAXIMUM_ALLOWED, &Asked::nothing());
    granted(tree, node, attr, parent, desired).await.map(|g| g.access)
}

/// Returns the rights by the file's own descriptor or mode. Where mode bits decide, DELETE depends on the directory.
async fn rights(tree: &Tree, node: &NodeRef, attr: &Attr) -> Result<(u32, Option<Grant>), Status> {
    // A user that found the name may read its attributes (MS-FSA section 2.1.5.1.2.1).
    const FOUND: u32 = mask::READ_ATTRIBUTES;
    let (acl, can) = node.acl_access(&tree.cred, Access(ASKED), attr).await?;
    if let Some(acl) = acl {
        let grant = Grant::by_list(node, (&acl, attr), &tree.cred).await?;
        let by_bits = rights_of_bits(tree, &acl, attr, grant.rights());
        return Ok((grant.rights() | by_bits | FOUND, Some(grant)));
    }
    let can = can.0;
    let class = u32::from(can & Access::READ != 0) << 2
        | u32::from(can & (Access::MODIFY | Access::EXTEND) != 0) << 1
        | u32::from(can & (Access::EXECUTE | Access::LOOKUP) != 0);
    let is_owner = tree.cred.uid == attr.uid || tree.cred.uid == 0;
    let rights = check::rights_of_class(class, attr.kind == Kind::Dir, is_owner);
    Ok((rights & !mask::DELETE | FOUND, None))
}

/// Maps the read, write and execute rights that an NFS list gives a user to those that the mode bits would give a Windows client,
/// so that an extra entry by an NFS client removes no right that the mode gave. The open gets these rights without a grant of the
/// list: operations that use them are checked against the user's own credentials.
fn rights_of_bits(tree: &Tree, acl: &Acl, attr: &Attr, rights: u32) -> u32 {
    if !acl.is_of_nfs() {
        return 0;
    }
    let has = |all: u32, bit: u32| if rights & all == all { bit } else { 0 };
    let bits = has(mask::READ_DATA, 4)
        | has(mask::WRITE_DATA | mask::APPEND_DATA, 2)
        | has(mask::EXECUTE, 1);
    let is_owner = tree.cred.uid == attr.uid;
    let meant = check::rights_of_class(bits, attr.kind == Kind::Dir, is_owner) & !mask::DELETE;
    // Mode bits that give the owner less than others withhold the data, but must not fail an open for attributes.
    let of_owner = if is_owner { mask::READ_EA | mask::WRITE_EA } else { 0 };
    let of_reader = if bits & 4 != 0 && attr.kind != Kind::Dir { mask::EXECUTE } else { 0 };
    let denied = acl.denied(&tree.cred, Owner::of(attr));
    meant & !(denied & !of_owner & !of_reader)
}

const ASKED: u32 = Access::READ
    | Access::MODIFY
    | Access::EXTEND
    | Access::EXECUTE
    | Access::LOOKUP
    | Access::DELETE;

/// Returns DELETE if the directory, by its list or mode, lets the user delete entries with these attributes. In a sticky directory
/// only the owners of the directory and of the file may (inode(7)).
async fn delete_by_parent(
    tree: &Tree,
    parent: Option<Parent<'_>>,
    victim: &Attr,
) -> Result<u32, Status> {
    let Some(Parent { dir, attr }) = parent else { return Ok(0) };
    let attr = match attr {
        Some(attr) => attr,
        None => dir.getattr().await?,
    };
    let is_sticky = attr.mode & 0o1000 != 0;
    if is_sticky && ![0, attr.uid, victim.uid].contains(&tree.cred.uid) {
        return Ok(0);
    }
    let may = match dir.acl_access(&tree.cred, Access(Access::DELETE), &attr).await? {
        (Some(acl), _) => acl.allowed(&tree.cred, Owner::of(&attr)) & mask::DELETE_CHILD != 0,
        (None, can) => can.0 != 0,
    };
    Ok(if may { mask::DELETE } else { 0 })
}

/// Checks that the user may make a file or directory here: by the directory's list, or by the kernel's check if it has no list.
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
        // The kernel refuses with the exact reason.
        None => Ok(None),
        Some(grant) if grant.rights() & right != 0 => {
            Ok(Some(grant.limited(right | mask::DELETE_CHILD & tree.maximal_access)))
        }
        Some(_) => Err(Status::ACCESS_DENIED),
    }
}

/// Like [`may_add`], for a CREATE that may use privileges. Returns also whether the directory has a list.
pub(crate) async fn may_create(
    tree: &Tree,
    dir: &NodeRef,
    attr: &Attr,
    (is_dir, asked): (bool, &Asked),
) -> Result<(Option<Grant>, bool), Status> {
    let right = if is_dir { mask::APPEND_DATA } else { mask::WRITE_DATA };
    let own = may_add(tree, dir, attr, is_dir).await;
    if asked.may(Privileges::RESTORE) && tree.maximal_access & right != 0 {
        let is_denied = match &own {
            Ok(Some(_)) => false,
            Ok(None) => dir.access(&tree.cred, Access(Access::MODIFY), attr).await?.0 == 0,
            Err(why) => *why == Status::ACCESS_DENIED,
        };
        if is_denied && asked.uses(Privileges::RESTORE) {
            let is_listed = own.is_err();
            return Ok((Grant::of_privilege(dir, None, right), is_listed));
        }
    }
    let folder = own?;
    let is_listed = folder.is_some();
    Ok((folder, is_listed))
}

/// Returns the right of a directory's own list to remove names. The directory's mode bits may even forbid looking names up.
pub(crate) async fn may_take_from(cred: &Cred, dir: &NodeRef) -> VfsResult<Option<Grant>> {
    let grant = Grant::decide(dir, &dir.getattr().await?, cred).await?;
    Ok(grant.map(|grant| grant.limited(mask::DELETE_CHILD)))
}

/// Returns the rights that the list of a file gives a caller that replaces it: SMB callers traverse folders in which they may not
/// look names up.
pub(crate) async fn may_delete(cred: &Cred, found: &Found) -> VfsResult<Option<Grant>> {
    let grant = Grant::decide(&found.node, &found.attr, cred).await?;
    Ok(grant.map(|grant| grant.limited(mask::DELETE)))
}

/// Returns the right to look names up in a directory whose list does not give it: users that may list or change a directory may
/// traverse it, because Windows lets users traverse any.
pub(crate) async fn may_pass(cred: &Cred, dir: &NodeRef) -> VfsResult<Option<Power>> {
    const ANY: u32 = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
    let attr = dir.getattr().await?;
    Ok(Grant::decide(dir, &attr, cred).await?.and_then(|grant| grant.power(ANY)))
}

/// Returns the right to look names up in a directory that the user itself may not pass, by a privilege: the path of a file is no
/// obstacle to backups.
pub(crate) fn may_pass_beyond(dir: &NodeRef, asked: &Asked) -> Option<Power> {
    let may = asked.uses(Privileges::BACKUP) || asked.uses(Privileges::RESTORE);
    let grant = Grant::of_privilege(dir, None, if may { mask::EXECUTE } else { 0 });
    grant.and_then(|grant| grant.power(mask::EXECUTE))
}

/// Selects the list for a new file; [`ListOf`] applies if it inherits no list.
pub(crate) fn list_of_new(is_listed: bool, given: Option<&SecurityDescriptor>) -> ListOfNew {
    match given {
        Some(given) if given.has(control::DACL_PRESENT) => ListOfNew::Given,
        None if !is_listed => ListOfNew::Inherited,
        _ => ListOfNew::InheritedOrGiven,
    }
}

/// Sets the list of a file or directory that a CREATE makes.
pub(crate) struct ListOf<'a> {
    /// The tree of the CREATE.
    pub(crate) tree: &'a Tree,
    /// The share that contains the new file.
    pub(crate) share: &'a Share,
    /// True if the directory has a list.
    pub(crate) is_listed: bool,
    /// The mode bits that the client requested.
    pub(crate) mode: u32,
    pub(crate) given: Option<&'a SecurityDescriptor>,
    /// The privileges of the CREATE.
    pub(crate) asked: &'a Asked,
    /// The status to return if setting the list was refused.
    pub(crate) refused: OnceLock<Status>,
}

impl GiveList for ListOf<'_> {
    fn give<'a>(&'a self, made: &'a Made, most: Option<u32>) -> BoxFuture<'a, VfsResult<()>> {
        Box::pin(async move {
            let (made, modes) = ((&made.node, &made.attr), (self.mode, most));
            let at = (self.tree, self.share);
            let given = (self.given, self.asked);
            let done = inherit(at, self.is_listed, made, modes, given).await;
            done.map_err(|why| {
                // `VfsError` cannot carry this status; the caller reads it from `refused`.
                let _ = self.refused.set(why);
                VfsError::Access
            })
        })
    }
}

/// Sets the list of a new node that inherited no list: the descriptor that the client sent with CREATE or, if the directory has a
/// list (`is_listed`, from [`may_add`]) without inheritable entries, the default of Windows (MS-FSA section 2.1.5.1.1): full
/// control for owner and system. `mode`: the bits that the client requested. The node may have fewer of them so far
/// ([`list_of_new`]). `most`: the rights that the share's masks leave of a list.
async fn inherit(
    (tree, share): (&Tree, &Share),
    is_listed: bool,
    made: (&NodeRef, &Attr),
    (mode, most): (u32, Option<u32>),
    (given, asked): (Option<&SecurityDescriptor>, &Asked),
) -> Result<(), Status> {
    let (node, attr) = made;
    let mut given = given.cloned();
    if let Some(given) = &mut given {
        check::understood(given, share.rules.host.domain().is_some())?;
        check::without_policy(given)?;
        may_own(&tree.cred, given, asked)?;
        may_group(&tree.cred, given, attr, asked)?;
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

/// Replaces SIDs that SAMR lists by SIDs of files, so that a permission for an account picked from such a list applies to that
/// account.
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

/// Returns the uid and gid that owner and group of a descriptor map to.
pub(crate) fn numbers(cred: &Cred, sd: &SecurityDescriptor) -> (Option<u32>, Option<u32>) {
    let uid = sd.owner.as_ref().and_then(|owner| uid_of(cred, owner));
    (uid, sd.group.as_ref().and_then(|group| gid_of(cred, group)))
}

/// Returns the uid of a SID. An owner that is a group of the caller has no uid.
fn uid_of(cred: &Cred, sid: &Sid) -> Option<u32> {
    let token = &cred.token;
    match sid.as_unix_user() {
        Some(uid) => Some(uid),
        None if token.user() == Some(sid) => Some(cred.uid),
        None if token.has(sid) => None,
        None => token.domain()?.uid(sid),
    }
}

fn gid_of(cred: &Cred, sid: &Sid) -> Option<u32> {
    sid.as_unix_group().or_else(|| cred.token.domain()?.gid(sid))
}

/// Checks that a user makes only itself or one of its groups the owner, unless it may restore (MS-FSA section 2.1.5.17). Everyone
/// and similar SIDs are groups that contain all users.
fn may_own(cred: &Cred, sd: &SecurityDescriptor, asked: &Asked) -> Result<(), Status> {
    let Some(owner) = &sd.owner else { return Ok(()) };
    let itself = uid_of(cred, owner) == Some(cred.uid);
    let has_group = || gid_of(cred, owner).is_some_and(|gid| cred.in_group(gid));
    let its_group = cred.token.has(owner) || has_group();
    let of_all = [Sid::everyone(), Sid::network(), Sid::authenticated_users()].contains(owner);
    let is_own = itself || its_group || of_all || cred.uid == 0;
    if is_own || asked.uses(Privileges::RESTORE) { Ok(()) } else { Err(Status::INVALID_OWNER) }
}

/// Checks that the group of a descriptor is the file's present group or one of the user's, as for chown(2).
fn may_group(
    cred: &Cred,
    sd: &SecurityDescriptor,
    attr: &Attr,
    asked: &Asked,
) -> Result<(), Status> {
    let Some(group) = &sd.group else { return Ok(()) };
    let of = |gid| gid == attr.gid || cred.uid == 0 || cred.in_group(gid);
    let may = gid_of(cred, group).is_none_or(of) || cred.token.has(group);
    if may || asked.uses(Privileges::RESTORE) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// Returns the descriptor of a file: from its own list, the host's list or its mode. It grants no more than the file does, because
/// clients send back the descriptor that they read.
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
    // Show an owner with all rights by mode with full control, as Windows does.
    let (owner, group) = (sid_of_user(attr.uid, domain), sid_of_group(attr.gid, domain));
    Ok(check::of_mode(attr.mode, is_dir, &owner, &group))
}

/// Returns the right that the open needs for a part of a descriptor (MS-FSA section 2.1.5.14, MS-SMB2 section 3.3.5.21.3).
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

/// Keeps only the requested parts of a descriptor.
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

/// Returns the mode bits of a list whose only entry is a mode: with the POSIX extensions, Linux clients send `chmod` in this form.
/// Treated as a list it would remove all rights.
fn as_mode(parts: u32, new: &SecurityDescriptor) -> Option<u32> {
    match &new.dacl.as_ref()?.aces[..] {
        [dtyp::Ace::Simple { sid, .. }] if parts == part::DACL => {
            Some(sid.as_unix_mode()? & 0o7777)
        }
        _ => None,
    }
}

/// Returns whether the list of a new file is only a mode. With the POSIX extensions Linux (`idsfromsid`) sends the owner and group
/// of the calling program, with its number for "no mode" and all rights for all users. The mode is in the context of the
/// extensions.
pub(crate) fn tells_mode(new: &SecurityDescriptor) -> bool {
    let is_mode = |ace: &dtyp::Ace| match ace {
        dtyp::Ace::Simple { sid, .. } => sid.as_unix_mode().is_some(),
        _ => false,
    };
    new.dacl.as_ref().is_some_and(|list| list.aces.iter().any(is_mode))
}

/// The parts of a descriptor that are stored. A request with only other parts changes no state, but needs the rights for those
/// parts ([`needs`]).
const KEPT: u32 = part::OWNER | part::GROUP | part::DACL | part::SACL;

/// Changes parts of a file's descriptor for a client of macOS, which sends back the list that it read with another mode. A list
/// that is otherwise unchanged is not set: a file whose mode decides continues without one.
pub(crate) async fn set_by_macos(
    tree: &Tree,
    file_ops: &FileOps<'_>,
    share: &Share,
    node: &NodeRef,
    (mut parts, asked): (u32, &Asked),
    mut new: SecurityDescriptor,
) -> Result<(), Status> {
    if parts & part::DACL == 0 {
        return set(tree, file_ops, share, node, (parts, asked), new).await;
    }
    let taken = unix_entries::take(&mut new);
    let attr = node.getattr().await?;
    if taken.was_all {
        // Set as a list without entries, it would deny everything to everyone.
        parts &= !part::DACL;
    } else if taken.mode.is_some() {
        parts = without_same_list(tree, node, &attr, parts, &new).await?;
    }
    if parts != 0 {
        set(tree, file_ops, share, node, (parts, asked), new).await?;
    }
    // A client that changes the list alone sends back the mode that it read.
    if let Some(mode) = taken.mode.filter(|mode| attr.mode & 0o777 != *mode) {
        let mode = Some(attr.mode & 0o7000 | mode);
        let set = SetAttr { mode, ..SetAttr::default() };
        file_ops.setattr(share, node, &tree.cred, set, false).await?;
    }
    Ok(())
}

/// Changes parts of a file's descriptor for a client with the POSIX extensions. Linux sends a new owner with the list that it read,
/// which names the earlier owner. Set as a list it would leave the file to that user, and to the new owner only the rights of
/// everyone, where the mode decided before.
pub(crate) async fn set_by_posix(
    tree: &Tree,
    file_ops: &FileOps<'_>,
    share: &Share,
    node: &NodeRef,
    (mut parts, asked): (u32, &Asked),
    new: SecurityDescriptor,
) -> Result<(), Status> {
    if parts & part::DACL != 0 && parts & (part::OWNER | part::GROUP) != 0 {
        let attr = node.getattr().await?;
        parts = without_same_list(tree, node, &attr, parts, &new).await?;
    }
    set(tree, file_ops, share, node, (parts, asked), new).await
}

/// Returns the parts to set: without the list if it has the entries that the file shows now.
async fn without_same_list(
    tree: &Tree,
    node: &NodeRef,
    attr: &Attr,
    parts: u32,
    new: &SecurityDescriptor,
) -> Result<u32, Status> {
    let now = descriptor(node, attr, tree.cred.token.domain()).await?;
    let entries = |sd: &SecurityDescriptor| sd.dacl.as_ref().map(|dacl| dacl.aces.clone());
    Ok(if entries(&now) == entries(new) { parts & !part::DACL } else { parts })
}

/// Changes parts of a file's descriptor. The caller has checked the rights of the open.
pub(crate) async fn set(
    tree: &Tree,
    file_ops: &FileOps<'_>,
    share: &Share,
    node: &NodeRef,
    (parts, asked): (u32, &Asked),
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
        // Only the owner may set bits such as set-user-ID, even if other users may write the list.
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
            may_own(&tree.cred, &new, asked)?;
            changed.owner = Some(owner);
        }
    }
    if parts & part::GROUP != 0 {
        may_group(&tree.cred, &new, &attr, asked)?;
        let group = new.group.clone().ok_or(Status::INVALID_SECURITY_DESCR)?;
        changed.group = Some(group).filter(|group| sd.group.as_ref() != Some(group));
    }
    let mut replaced = 0;
    if parts & part::DACL != 0 {
        check::understood(&new, share.rules.host.domain().is_some())?;
        replaced |=
            control::DACL_AUTO_INHERITED | control::DACL_PROTECTED | control::DACL_DEFAULTED;
        // Setting an absent list means setting a NULL list.
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
    if let Some(domain) = tree.cred.token.domain() {
        match &before {
            Some(before) => acl::keep_numbers(&mut list, before, domain),
            None => acl::keep_numbers(&mut list, &*node.acl_shown(&attr).await?, domain),
        }
    }
    let takes = changed.owner.is_some();
    (list.owner, list.group) = foreign(before.as_deref(), changed, owners);
    // The earlier owner must not keep the file. A group, or a user without a number, cannot have it on the host.
    let owners = (owners.0.or_else(|| takes.then_some(tree.cred.uid)), owners.1);
    // Without a list the mode continues to decide, as after chown(2): the right to set the owner gives no control over anything
    // else.
    if parts & (part::DACL | part::SACL) == 0
        && matches!((&list.owner, &list.group), (None, None))
        && !has_list
    {
        // `own` does not call the kernel if both ids stay the same, so refuse immutable and append-only files here.
        if attr.sealed {
            return Err(Status::ACCESS_DENIED);
        }
        return own(file_ops, node, &attr, owners).await.map(drop);
    }
    keep((tree, file_ops), node, &attr, (list, None), owners).await
}

/// Returns the owner and group that are stored with the list because they have no number here: the earlier ones, unless they are
/// being changed.
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

/// Returns whether the file would get another owner than clients see.
pub(crate) async fn changes_owner(
    tree: &Tree,
    node: &NodeRef,
    parts: u32,
    new: &SecurityDescriptor,
) -> Result<bool, Status> {
    if parts & part::OWNER == 0 {
        return Ok(false);
    }
    let attr = node.getattr().await?;
    Ok(descriptor(node, &attr, tree.cred.token.domain()).await?.owner != new.owner)
}

/// Changes a file's owner and group where they differ.
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
    // The open may write the owner, and [`may_own`] and [`may_group`] have checked the new one, so this one call runs as root.
    let set = SetAttr { uid, gid, ..SetAttr::default() };
    let root = Cred::root();
    let (_, now) = match file_ops {
        Some((file_ops, share)) => file_ops.setattr(share, node, &root, set, false).await?,
        None => node.setattr(&root, set, false).await?,
    };
    Ok(now)
}

/// Stores a list limited to `most`, an owner and a group. Sends no notification for a new file (without `FileOps`), because its
/// creation is reported.
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
        // Whether a file is executable was decided on a Unix host: do not take it from FILE_EXECUTE, which comes with the right to
        // read.
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
