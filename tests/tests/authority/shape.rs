//! What permits: mode bits, a POSIX ACL, a list.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use client::nfs4::Ace;
use rustix::fs::{IFlags, Mode, OFlags};
use smbd_core::dtyp::mask;

use crate::{Caller, Op};

/// Whom an entry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Owner,
    Everyone,
    Listed,
}

/// An entry that allows.
pub(crate) type Entry = (Who, u32);

/// What a caller who has nearly all has not: to say who has.
pub(crate) const CHANGE: u32 = mask::FILE_ALL & !mask::WRITE_DAC & !mask::WRITE_OWNER;
pub(crate) const OWNERS: Entry = (Who::Owner, mask::FILE_ALL);

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Mode bits of the folder and of the file, both of the owner and its group.
    pub(crate) dir: u32,
    pub(crate) file: u32,
    /// Lists of their own.
    pub(crate) dir_list: Option<Vec<Entry>>,
    pub(crate) file_list: Option<Vec<Entry>>,
    /// A POSIX ACL names the listed one: these bits for the folder and for the file.
    pub(crate) acl: Option<(u16, u16)>,
    /// The file has its list from the folder: it is made there by its owner.
    pub(crate) inherits: bool,
    /// What the host forbids everybody, whoever it is: the file is append-only or immutable (chattr(1)).
    pub(crate) sealed: IFlags,
    /// By which share it is asked for.
    pub(crate) by: By,
}

/// A share of the folder in which all cells are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// It leaves everything to the files.
    #[default]
    Open,
    /// It may not be changed.
    ReadOnly,
    /// It names who may use it: the owner and the listed write, the file's group and the other read, the member is denied.
    Named,
    /// It names who may not: the listed by its name, and the file's group.
    Denied,
    /// It may not be changed from the address that clients come from.
    ClientReads,
    /// The same share, from another address.
    ClientWrites,
    /// Whoever comes by NFS from there is the listed.
    ClientIsListed,
    /// Everything is done as the listed.
    ForcedUser,
    /// Everything is done with the file's group as the first.
    ForcedGroup,
    /// It limits the modes of what is new.
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

    /// The name of the share, and of the one that makes a client's root nobody. One share is used from two addresses.
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

    /// From where clients come.
    pub(crate) fn address(self) -> IpAddr {
        if self == Self::ClientWrites { ELSEWHERE.into() } else { Ipv4Addr::LOCALHOST.into() }
    }
}

/// Another address of this host than the one that clients have by its routes.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// Most that something new gets of its mode by [`By::Masked`]: a file, a folder.
pub(crate) const MASKS: [u32; 2] = [0o660, 0o2770];

/// Marks a file of the host; nothing takes the marks away.
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

    /// The file system of this folder can have such files.
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

    /// The kernel knows all that permits, once it is known as whom the caller acts.
    pub(crate) fn is_kernels(&self) -> bool {
        let shares = [By::Open, By::ClientWrites, By::ForcedUser, By::ForcedGroup, By::Masked];
        self.dir_list.is_none() && self.file_list.is_none() && shares.contains(&self.by)
    }

    /// The file looks from the start as this operation would leave it.
    pub(crate) fn is_so(&self, op: Op, caller: Caller) -> bool {
        match op {
            Op::SetGroup => caller.gid() == Caller::Owner.gid(),
            Op::Chmod => self.file & 0o777 == 0o640,
            _ => false,
        }
    }

    /// Gives the two their POSIX ACL.
    pub(crate) fn posix(&self, cell: &Path) {
        let Some((dir, file)) = self.acl else { return };
        for (at, mode, bits) in [("d", self.dir, dir), ("d/f", self.file, file)] {
            let class = |shift: u32| u16::try_from(mode >> shift & 7).unwrap();
            // Owner, the named user, group, mask, others (acl(5), as <linux/posix_acl_xattr.h> writes it).
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

/// The list on the wire; what its entries pass on says `flags`.
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

/// Folders in which it is told what modes new things have.
pub(crate) const OF_NEW: [&str; 3] = [PLAIN, SET_GROUP_ID, MASKED];
const PLAIN: &str = "modes 0755 and 0644";
const SET_GROUP_ID: &str = "set-group-id folder 2775, set-user-id file 4755";

pub(crate) fn all() -> Vec<Shape> {
    [by_files(), by_share()].concat()
}

/// What the files themselves permit.
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

/// What a share says, whatever the files permit.
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
