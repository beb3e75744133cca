//! The slow, obvious model: POSIX.1-2017 section 4.5, inode(7), RFC 8881 section 6.2.1.3, MS-FSA sections 2.1.5.15.6 and
//! 2.1.5.15.11.

use smbd_core::dtyp::mask;

use crate::shape::{By, Entry, MASKS, Shape, Who};
use crate::{Caller, Op, Way};

const R: u32 = 4;
const W: u32 = 2;
const X: u32 = 1;

/// The folder or the file.
struct Object<'a> {
    mode: u32,
    list: Option<&'a Vec<Entry>>,
    acl: Option<u16>,
}

impl Object<'_> {
    /// The rights granted by the list.
    fn listed(&self, acting: Acting) -> Option<u32> {
        let list = self.list?;
        let meant = |who: &Who| match who {
            Who::Owner => acting.caller == Caller::Owner,
            Who::Everyone => true,
            Who::Listed => acting.caller == Caller::Listed,
        };
        let has = list.iter().filter(|(who, _)| meant(who)).fold(0, |all, (_, mask)| all | mask);
        // Extended attributes follow the data rights, and no list here denies them.
        let of = |data, attributes| if has & data != 0 { attributes } else { 0 };
        Some(has | of(mask::READ_DATA, mask::READ_EA) | of(mask::WRITE_DATA, mask::WRITE_EA))
    }

    fn bits(&self, acting: Acting) -> u32 {
        match (acting.caller, self.acl) {
            (Caller::Owner, _) => self.mode >> 6 & 7,
            (Caller::Listed, Some(acl)) => acl.into(),
            _ if acting.is_in(Caller::Owner.uid()) => self.mode >> 3 & 7,
            _ => self.mode & 7,
        }
    }

    fn can(&self, acting: Acting, rights: u32, bits: u32) -> bool {
        if acting.caller == Caller::Root {
            return true;
        }
        match self.listed(acting) {
            Some(has) => has & rights == rights,
            None => self.bits(acting) & bits == bits,
        }
    }

    /// True if the list grants the right.
    fn grants(&self, acting: Acting, right: u32) -> bool {
        self.listed(acting).is_some_and(|has| has & right != 0)
    }
}

/// The identity under which a caller acts in a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acting {
    caller: Caller,
    /// A forced primary group.
    first: Option<u32>,
}

impl Acting {
    pub(crate) fn of(shape: &Shape, caller: Caller, way: Way) -> Self {
        let listed = match shape.by {
            By::ForcedUser => true,
            // A share squashes only NFS clients: SMB users have logged on.
            By::ClientIsListed => way != Way::Smb,
            _ => false,
        };
        let first = (shape.by == By::ForcedGroup).then(|| Caller::Owner.uid());
        Self { caller: if listed { Caller::Listed } else { caller }, first }
    }

    pub(crate) fn uid(self) -> u32 {
        self.caller.uid()
    }

    pub(crate) fn gid(self) -> u32 {
        self.first.unwrap_or(self.caller.gid())
    }

    /// Returns the caller's supplementary groups.
    pub(crate) fn groups(self) -> Vec<u32> {
        let own = self.first.map(|_| self.caller.gid());
        own.into_iter().chain(self.caller.groups().iter().copied()).collect()
    }

    fn is_in(self, gid: u32) -> bool {
        self.first == Some(gid) || self.caller.is_in(gid)
    }
}

/// True if the caller may perform the operation.
pub(crate) fn may(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    !is_forbidden(shape, op) && shares(shape, op, caller) && is_permitted(shape, op, caller, way)
}

/// True if the share allows the caller such an operation.
fn shares(shape: &Shape, op: Op, caller: Caller) -> bool {
    match (shape.by, caller) {
        (By::Named, Caller::Owner | Caller::Listed) => true,
        (By::Named, Caller::Group | Caller::Other) => op == Op::Read,
        // A denied user, although in the group that may read; and unlisted users, including root.
        (By::Named, Caller::Member | Caller::Root | Caller::Squashed | Caller::Guest) => false,
        (By::Denied, Caller::Listed) => false,
        (By::Denied, _) => !caller.is_in(Caller::Owner.uid()),
        _ => true,
    }
}

/// Operations forbidden to every caller: changes through a read-only share; changing, removing, linking or changing permissions of
/// a file that the host's root has made append-only or immutable (FS_IOC_SETFLAGS(2const)). No protocol opens a file with O_APPEND:
/// appended data carries an offset.
fn is_forbidden(shape: &Shape, op: Op) -> bool {
    let makes = [
        Op::Create,
        Op::OpenIf,
        Op::OverwriteIf,
        Op::SupersedeNew,
        Op::Mkdir,
        Op::Symlink,
        Op::Fifo,
        Op::Device,
    ];
    let only_reads = matches!(shape.by, By::ReadOnly | By::ClientReads);
    op != Op::Read && (only_reads || !shape.sealed.is_empty() && !makes.contains(&op))
}

fn is_permitted(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    let d = Object {
        mode: shape.dir,
        list: shape.dir_list.as_ref(),
        acl: shape.acl.map(|(dir, _)| dir),
    };
    let f = Object {
        mode: shape.file,
        list: shape.file_list.as_ref(),
        acl: shape.acl.map(|(_, file)| file),
    };
    let acting = Acting::of(shape, caller, way);
    let (root, owner) = (acting.caller == Caller::Root, acting.caller == Caller::Owner);
    // Over SMB, a caller whose list grants listing or changing a folder may traverse it, as Windows users may traverse any folder.
    let uses = mask::READ_DATA | mask::WRITE_DATA | mask::APPEND_DATA | mask::EXECUTE;
    let passes = way == Way::Smb && d.grants(acting, uses);
    let finds = passes || d.can(acting, mask::EXECUTE, X);
    let adds = |right| finds && d.can(acting, right, W | X);
    let sticky = shape.dir & 0o1000 != 0 && !root && !owner;
    let takes = finds && d.can(acting, mask::DELETE_CHILD, W | X) && !sticky
        || finds && f.grants(acting, mask::DELETE);
    let writes = finds && f.can(acting, mask::WRITE_DATA, W);
    let sets = |right| root || owner || f.grants(acting, right);
    match op {
        Op::Read => finds && (f.can(acting, mask::READ_DATA, R) || runs(&f, acting, way)),
        Op::Write | Op::Truncate | Op::Overwrite | Op::Allocation | Op::Allocate => writes,
        Op::ZeroData | Op::Trim | Op::Copy | Op::SetSparse | Op::Stream => writes,
        // NFS has a single WRITE, which needs the right to write anywhere.
        Op::Append if way == Way::Smb => finds && f.can(acting, mask::APPEND_DATA, W),
        Op::Append => writes,
        Op::Supersede => writes && takes,
        Op::Create | Op::Symlink | Op::Fifo => adds(mask::WRITE_DATA),
        Op::OpenIf | Op::OverwriteIf | Op::SupersedeNew => adds(mask::WRITE_DATA),
        Op::Mkdir => adds(mask::APPEND_DATA),
        Op::Device => adds(mask::WRITE_DATA) && root,
        Op::Remove | Op::RenameOut | Op::Dispose | Op::DisposePosix => takes,
        Op::RenameIn | Op::Replace | Op::LinkReplace => takes && adds(mask::WRITE_DATA),
        Op::ReplacePosix | Op::LinkReplaceEx => takes && adds(mask::WRITE_DATA),
        Op::Link => {
            let special = shape.file & 0o4000 != 0;
            let uses = f.can(acting, mask::READ_DATA | mask::WRITE_DATA, R | W) && !special;
            finds && (root || owner || uses)
        }
        Op::Chmod | Op::SetList => finds && sets(mask::WRITE_DAC),
        Op::SetGroup => finds && sets(mask::WRITE_OWNER),
        Op::SetForeignGroup | Op::GiveAway => root,
        Op::SetTimes => finds && sets(mask::WRITE_ATTRIBUTES),
        Op::SetAttributes => finds && f.can(acting, mask::WRITE_ATTRIBUTES, W),
        // SMB finds names in any case, so it lists the existing ones.
        Op::SetEa if way == Way::Smb => finds && f.can(acting, mask::WRITE_EA, R | W),
        Op::SetEa => finds && f.can(acting, mask::WRITE_EA, W),
    }
}

/// An NFS client executes a program by reading it (RFC 8881 section 6.2.1.3.1).
fn runs(f: &Object<'_>, acting: Acting, way: Way) -> bool {
    way != Way::Smb && f.can(acting, mask::EXECUTE, X)
}

/// True where protocol and kernel differ: NFS may read what may be executed, and cannot append to an append-only file.
pub(crate) fn is_of_protocol(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    let f = Object { mode: shape.file, list: None, acl: None };
    let appends = op == Op::Append && !shape.sealed.is_empty();
    let lists = op == Op::SetEa && way == Way::Smb;
    op == Op::Read && runs(&f, Acting::of(shape, caller, way), way) || appends || lists
}

/// The mode of a new object: over NFS the requested one (without a umask); over SMB, which requests none, 0644 and 0755. `None` if
/// no object with a mode is created, or a list determines it.
pub(crate) fn mode_of_new(shape: &Shape, op: Op, way: Way) -> Option<u32> {
    if shape.dir_list.is_some() {
        return None;
    }
    let (is_folder, masks) = (op == Op::Mkdir, shape.by == By::Masked);
    let [file, folder] = MASKS;
    // A file in a set-group-id folder gets its group, and a folder in it also gets the bit (inode(7)).
    let of_parent = if is_folder { shape.dir & 0o2000 } else { 0 };
    let asked = match op {
        Op::Mkdir => 0o755,
        Op::Create | Op::OpenIf | Op::OverwriteIf | Op::SupersedeNew => 0o644,
        Op::Fifo | Op::Device => 0o600,
        _ => return None,
    };
    Some(match (masks, is_folder, way) {
        (false, ..) => asked | of_parent,
        // The maximum, without execute permission on files.
        (true, false, Way::Smb) => file & 0o666,
        (true, true, Way::Smb) => folder,
        (true, false, _) => asked & file,
        (true, true, _) => asked & folder | folder & 0o3000,
    })
}
