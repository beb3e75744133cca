//! Sources of permissions: mode bits, a POSIX ACL, a list.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use client::nfs4::Ace;
use rustix::fs::{IFlags, Mode, OFlags};
use smbd_core::dtyp::mask;

use crate::{Caller, Op};

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Owner,
    Everyone,
    Listed,
}

/// An entry that grants rights.
pub(crate) type Entry = (Who, u32);

/// Nearly all rights, without those to change permissions and owner.
pub(crate) const CHANGE: u32 = mask::FILE_ALL & !mask::WRITE_DAC & !mask::WRITE_OWNER;
pub(crate) const OWNERS: Entry = (Who::Owner, mask::FILE_ALL);

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Mode bits of folder and file, both owned by the owner and its group.
    pub(crate) dir: u32,
    pub(crate) file: u32,
    /// Access control lists.
    pub(crate) dir_list: Option<Vec<Entry>>,
    pub(crate) file_list: Option<Vec<Entry>>,
    /// A POSIX ACL for the listed user: bits for the folder and for the file.
    pub(crate) acl: Option<(u16, u16)>,
    /// The file inherits its list from the folder, in which its owner creates it.
    pub(crate) inherits: bool,
    /// Marks of the host that bind all callers: the file is append-only or immutable (chattr(1)).
    pub(crate) sealed: IFlags,
    /// The share through which it is accessed.
    pub(crate) by: By,
}

/// A share of the folder with all cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// Access depends on the files only.
    #[default]
    Open,
    /// Read-only.
    ReadOnly,
    /// Lists users: the owner and the listed user may write, the file's group and the other user may read, the member is denied.
    Named,
    /// Denies users: the listed user by name, and the file's group.
    Denied,
    /// Read-only for the clients' address.
    ClientReads,
    /// The same share as `ClientReads`, used from another address, which may write.
    ClientWrites,
    /// Maps all NFS callers from that address to the listed user.
    ClientIsListed,
    /// All operations run as the listed user.
    ForcedUser,
    /// All operations run with the file's group as primary group.
    ForcedGroup,
    /// Limits the modes of new objects.
    Masked,
}

impl By {
    pub(crate) const ALL: [Self; 10] = [
        Self::Open,
        Self::ReadOnly,
        Self::Named,
        Self::Denied,
        Self::ClientReads,
        Self::ClientWrites,
        Self::ClientIsListed,
        Self::ForcedUser,
        Self::ForcedGroup,
        Self::Masked,
    ];

    /// The name of the share, and of the one that squashes a client's root. One share is used from two addresses.
    pub(crate) fn names(self) -> [&'static str; 2] {
        match self {
            Self::Open => ["data", "squashed"],
            Self::ReadOnly => ["sealed", "squashed-sealed"],
            Self::Named => ["named", "squashed-named"],
            Self::Denied => ["denied", "squashed-denied"],
            Self::ClientReads | Self::ClientWrites => ["clients", "squashed-clients"],
            Self::ClientIsListed => ["anonymous", "squashed-anonymous"],
            Self::ForcedUser => ["forced", "squashed-forced"],
            Self::ForcedGroup => ["forced-group", "squashed-forced-group"],
            Self::Masked => ["masked", "squashed-masked"],
        }
    }

    /// Returns the address from which clients connect.
    pub(crate) fn address(self) -> IpAddr {
        if self == Self::ClientWrites { ELSEWHERE.into() } else { Ipv4Addr::LOCALHOST.into() }
    }
}

/// An address of this host other than the one that its routes select.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// The maximum mode of new objects with [`By::Masked`]: for a file, for a folder.
pub(crate) const MASKS: [u32; 2] = [0o660, 0o2770];

/// Marks a file of the host; operations cannot remove the marks.
pub(crate) fn seal(file: &Path, marks: IFlags) -> io::Result<()> {
    let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let others = rustix::fs::ioctl_getflags(&file)? - (IFlags::APPEND | IFlags::IMMUTABLE);
    Ok(rustix::fs::ioctl_setflags(&file, others | marks)?)
}

impl Shape {
    pub(crate) fn modes(name: &'static str, dir: u32, file: u32) -> Self {
        Self {
            name,
            dir,
            file,
            dir_list: None,
            file_list: None,
            acl: None,
            inherits: false,
            sealed: IFlags::empty(),
            by: By::Open,
        }
    }

    /// True if the file system of this folder supports such files.
    pub(crate) fn is_possible(&self, at: &Path) -> bool {
        if self.sealed.is_empty() {
            return true;
        }
        let probe = at.join("probe");
        std::fs::write(&probe, "").unwrap();
        let done = seal(&probe, self.sealed);
        seal(&probe, IFlags::empty()).unwrap_or_default();
        std::fs::remove_file(&probe).unwrap();
        if let Err(e) = &done {
            println!("skipped: {}, {} operations: {e}", self.name, Op::ALL.len());
        }
        done.is_ok()
    }

    /// True if the kernel knows all deciding rules, given the identity under which the caller acts.
    pub(crate) fn is_kernels(&self) -> bool {
        let shares = [By::Open, By::ClientWrites, By::ForcedUser, By::ForcedGroup, By::Masked];
        self.dir_list.is_none() && self.file_list.is_none() && shares.contains(&self.by)
    }

    /// True if the file already is as this operation would leave it.
    pub(crate) fn is_so(&self, op: Op, caller: Caller) -> bool {
        match op {
            Op::SetGroup => caller.gid() == Caller::Owner.gid(),
            Op::Chmod => self.file & 0o777 == 0o640,
            _ => false,
        }
    }

    /// Sets the POSIX ACLs of folder and file.
    pub(crate) fn posix(&self, cell: &Path) {
        let Some((dir, file)) = self.acl else { return };
        for (at, mode, bits) in [("d", self.dir, dir), ("d/f", self.file, file)] {
            let class = |shift: u32| u16::try_from(mode >> shift & 7).unwrap();
            // Owner, the named user, group, mask, others (acl(5), in the format of <linux/posix_acl_xattr.h>).
            let entries = [
                (1, class(6), u32::MAX),
                (2, bits, Caller::Listed.uid()),
                (4, class(3), u32::MAX),
                (16, bits | class(3), u32::MAX),
                (32, class(0), u32::MAX),
            ];
            let mut value = 2_u32.to_le_bytes().to_vec();
            for (tag, perm, id) in entries {
                let (tag, perm): (u16, u16) = (tag, perm);
                value.extend(tag.to_le_bytes());
                value.extend(perm.to_le_bytes());
                value.extend(id.to_le_bytes());
            }
            let none = rustix::fs::XattrFlags::empty();
            let path = cell.join(at);
            rustix::fs::setxattr(&path, "system.posix_acl_access", &value, none).unwrap();
        }
    }
}

/// The list in wire form, with these inheritance flags.
pub(crate) fn aces(list: &[Entry], flags: u32) -> Vec<Ace> {
    let ace = |(who, mask): &Entry| {
        let who = match who {
            Who::Owner => "OWNER@".to_owned(),
            Who::Everyone => "EVERYONE@".to_owned(),
            Who::Listed => Caller::Listed.uid().to_string(),
        };
        Ace { kind: 0, flags, mask: *mask, who }
    };
    list.iter().map(ace).collect()
}

/// The shape whose share limits modes.
pub(crate) const MASKED: &str =
    "modes 0775 and 0664, by a share with `masks: {file: 0660, folder: 2770}`";

/// Shapes for which the modes of new objects are documented.
pub(crate) const OF_NEW: [&str; 3] = [PLAIN, SET_GROUP_ID, MASKED];
const PLAIN: &str = "modes 0755 and 0644";
const SET_GROUP_ID: &str = "set-group-id folder 2775, set-user-id file 4755";

pub(crate) fn all() -> Vec<Shape> {
    [by_files(), by_share()].concat()
}

/// Shapes whose files decide.
fn by_files() -> Vec<Shape> {
    let listed = |mask| (Who::Listed, mask);
    let add = mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
    let plain = |name| Shape::modes(name, 0o755, 0o644);
    vec![
        Shape::modes(PLAIN, 0o755, 0o644),
        Shape::modes("modes 0770 and 0660", 0o770, 0o660),
        Shape::modes("modes 0777 and 0604", 0o777, 0o604),
        Shape::modes("sticky 1777, file 0666", 0o1777, 0o666),
        Shape::modes(SET_GROUP_ID, 0o2775, 0o4755),
        Shape {
            acl: Some((7, 6)),
            ..Shape::modes("POSIX ACL for the listed: rwx, rw-", 0o750, 0o640)
        },
        Shape {
            dir_list: Some(vec![OWNERS, listed(CHANGE)]),
            ..plain("list of the folder: change for the listed")
        },
        Shape {
            dir_list: Some(vec![OWNERS, listed(add)]),
            ..plain("list of the folder: add for the listed")
        },
        Shape {
            file_list: Some(vec![OWNERS, listed(mask::FILE_ALL)]),
            ..plain("list of the file: all for the listed")
        },
        Shape {
            file_list: Some(vec![OWNERS, listed(mask::FILE_READ | mask::DELETE)]),
            ..plain("list of the file: read and delete for the listed")
        },
        Shape {
            dir: 0o1777,
            dir_list: Some(vec![OWNERS, (Who::Everyone, CHANGE)]),
            ..plain("sticky folder with a list: change for everybody")
        },
        Shape {
            dir: 0o1777,
            dir_list: Some(vec![OWNERS, (Who::Everyone, CHANGE)]),
            file_list: Some(vec![OWNERS, listed(mask::FILE_READ | mask::DELETE)]),
            ..plain("the same, and a list of the file: read and delete for the listed")
        },
        Shape {
            dir_list: Some(vec![OWNERS, listed(CHANGE)]),
            file_list: Some(vec![OWNERS, listed(CHANGE)]),
            inherits: true,
            ..plain("list of the folder that the file has inherited: change for the listed")
        },
        Shape {
            sealed: IFlags::APPEND,
            ..Shape::modes("modes 0777 and 0666, append-only by `chattr +a`", 0o777, 0o666)
        },
        Shape {
            sealed: IFlags::IMMUTABLE,
            ..Shape::modes("modes 0777 and 0666, immutable by `chattr +i`", 0o777, 0o666)
        },
    ]
}

/// Shapes whose share decides, whatever the files permit.
fn by_share() -> Vec<Shape> {
    let open = |by, name| Shape { by, ..Shape::modes(name, 0o777, 0o666) };
    let for_listed = |by, name| Shape { acl: Some((7, 6)), by, ..Shape::modes(name, 0o750, 0o640) };
    vec![
        open(By::ReadOnly, "modes 0777 and 0666, by a share that is read-only"),
        open(
            By::Named,
            "modes 0777 and 0666, by a share with `access: {write: [owner, listed], read: [\"@group\", other], deny: member}`",
        ),
        open(
            By::Denied,
            "modes 0777 and 0666, by a share with `access: {deny: [listed, \"@group\"]}`",
        ),
        open(
            By::ClientReads,
            "modes 0777 and 0666, by a share with `clients: {from: ..., read_only: true}`",
        ),
        Shape {
            by: By::ClientWrites,
            ..Shape::modes(
                "modes 0755 and 0644, by the same share from another address",
                0o755,
                0o644,
            )
        },
        for_listed(
            By::ForcedUser,
            "POSIX ACL for the listed: rwx, rw-, by a share with `force: {user: listed}`",
        ),
        for_listed(
            By::ClientIsListed,
            "the same, by a share with `clients: {from: ..., squash: all, anonuid: listed}`",
        ),
        Shape {
            by: By::ForcedGroup,
            ..Shape::modes(
                "modes 0770 and 0660, by a share with `force: {group: \"@group\"}`",
                0o770,
                0o660,
            )
        },
        Shape { by: By::Masked, ..Shape::modes(MASKED, 0o775, 0o664) },
    ]
}
