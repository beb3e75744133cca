//! Lists of accounts and groups, page by page.
//!
//! *Operation.* Each uid has one account, as files have one owner. Groups are the named groups of the host that have accounts as
//! members.
//!
//! *Memory.* A page has at most [`PAGE_MAX`] entries. Sorting the accounts takes four bytes for each.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::super::Host;
use crate::dtyp::Sid;
use crate::users::{gid_of_rid, rid_of_gid, rid_of_uid, uid_of_rid};

/// Entries of one answer.
pub(super) const PAGE_MAX: usize = 512;
/// The most gids of accounts that are looked up; the smallest ones are kept.
const GROUPS_MAX: usize = 4096;
/// Characters of a name; a longer name is left out.
const NAME_MAX: usize = 256;

/// RID of the group of all accounts (DOMAIN_GROUP_RID_USERS).
pub(crate) const ALL_USERS: u32 = 513;
/// Its name on a machine outside a domain.
pub(crate) const ALL_USERS_NAME: &str = "None";
/// RID of S-1-5-32-544.
const ADMINISTRATORS: u32 = 544;
/// Groups of S-1-5-32, by RID.
pub(super) const BUILTIN: [(u32, &str); 3] =
    [(ADMINISTRATORS, "Administrators"), (545, "Users"), (546, "Guests")];

/// Entries of a list, and whether more follow.
pub(super) type Page = (Vec<(u32, String)>, bool);

/// Returns the name unless it is empty or too long.
fn shown(name: String) -> Option<String> {
    (!name.is_empty() && name.chars().count() <= NAME_MAX).then_some(name)
}

/// Returns the RID of an account with this uid.
fn rid_of(uid: u32) -> Option<u32> {
    let rid = rid_of_uid(uid);
    (uid_of_rid(rid) == Some(uid)).then_some(rid)
}

/// Returns the RIDs of all accounts, sorted.
pub(super) fn users(host: &dyn Host) -> Vec<u32> {
    let mut rids = Vec::new();
    host.each_account(&mut |_, cred| rids.extend(rid_of(cred.uid)));
    rids.sort_unstable();
    rids.dedup();
    rids
}

/// Returns the names of these accounts: the first name if several accounts have one uid.
pub(super) fn names(host: &dyn Host, rids: &[u32]) -> BTreeMap<u32, String> {
    let wanted: BTreeSet<u32> = rids.iter().copied().collect();
    let mut names = BTreeMap::<u32, String>::new();
    host.each_account(&mut |name, cred| {
        let Some(rid) = rid_of(cred.uid).filter(|rid| wanted.contains(rid)) else { return };
        let known = names.entry(rid).or_insert_with(|| name.to_owned());
        if name < known.as_str() {
            name.clone_into(known);
        }
    });
    names.into_iter().filter_map(|(rid, name)| Some((rid, shown(name)?))).collect()
}

/// Returns accounts with RIDs above this one.
pub(super) fn users_after(host: &dyn Host, after: u32) -> Page {
    let rids = users(host);
    let rest = &rids[rids.partition_point(|rid| *rid <= after)..];
    let page = &rest[..rest.len().min(PAGE_MAX)];
    (names(host, page).into_iter().collect(), page.len() < rest.len())
}

/// The groups of the host that have accounts as members. The gids are collected once per call.
pub(super) struct Groups<'a> {
    host: &'a dyn Host,
    gids: OnceCell<BTreeSet<u32>>,
}

impl<'a> Groups<'a> {
    pub(super) fn of(host: &'a dyn Host) -> Self {
        Self { host, gids: OnceCell::new() }
    }

    fn gids(&self) -> &BTreeSet<u32> {
        self.gids.get_or_init(|| {
            let mut gids = BTreeSet::new();
            self.host.each_account(&mut |_, cred| {
                for gid in cred.groups.iter().chain([&cred.gid]) {
                    if gid_of_rid(rid_of_gid(*gid)) == Some(*gid) {
                        gids.insert(*gid);
                    }
                    if gids.len() > GROUPS_MAX {
                        gids.pop_last();
                    }
                }
            });
            gids
        })
    }

    /// Returns groups with RIDs above this one.
    pub(super) fn after(&self, after: u32) -> Page {
        let mut page = Vec::new();
        for gid in self.gids() {
            let rid = rid_of_gid(*gid);
            if rid <= after {
                continue;
            }
            let Some(name) = self.host.others().group(*gid).and_then(shown) else { continue };
            if page.len() == PAGE_MAX {
                return (page, true);
            }
            page.push((rid, name));
        }
        (page, false)
    }

    /// Returns the name of the group with this RID.
    pub(super) fn name(&self, rid: u32) -> Option<String> {
        let gid = gid_of_rid(rid).filter(|gid| self.gids().contains(gid))?;
        self.host.others().group(gid).and_then(shown)
    }

    /// Returns the RID of the group with this name.
    pub(super) fn rid(&self, name: &str) -> Option<u32> {
        let gid = self.host.others().gid(name)?;
        self.gids().contains(&gid).then(|| rid_of_gid(gid))
    }
}

/// Returns the accounts in a local group of the machine or of S-1-5-32, at most `most`.
pub(super) fn members(host: &dyn Host, rid: u32, is_builtin: bool, most: usize) -> Vec<u32> {
    let gid = gid_of_rid(rid);
    let mut rids = BTreeSet::new();
    host.each_account(&mut |_, cred| {
        let is_member = match is_builtin {
            // Only root has the rights of an administrator.
            true => rid == ADMINISTRATORS && cred.uid == 0,
            false => gid.is_some_and(|gid| cred.in_group(gid)),
        };
        if is_member && rids.len() < most {
            rids.extend(rid_of(cred.uid));
        }
    });
    rids.into_iter().collect()
}

/// Returns the RIDs of the local groups that have any of these members.
pub(super) fn groups_of(host: &dyn Host, sids: &[Sid], is_builtin: bool) -> Vec<u32> {
    let machine = host.machine();
    let uid = |sid: &Sid| {
        let of_machine = || sid.rid_in(&machine).and_then(uid_of_rid);
        sid.as_unix_user().or_else(of_machine)
    };
    let uids: BTreeSet<u32> = sids.iter().filter_map(uid).collect();
    let mut rids = BTreeSet::new();
    host.each_account(&mut |_, cred| {
        if !uids.contains(&cred.uid) {
            return;
        }
        if is_builtin {
            rids.extend((cred.uid == 0).then_some(ADMINISTRATORS));
            return;
        }
        rids.extend(cred.groups.iter().chain([&cred.gid]).map(|gid| rid_of_gid(*gid)));
        while rids.len() > PAGE_MAX {
            rids.pop_last();
        }
    });
    let has_name = |rid: &u32| gid_of_rid(*rid).and_then(|gid| host.others().group(gid)).is_some();
    rids.into_iter().filter(|rid| is_builtin || has_name(rid)).collect()
}
