//! The slow obvious model: POSIX.1-2017 section 4.5, inode(7), RFC 8881 section 6.2.1.3, MS-FSA sections 2.1.5.15.6 and
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
    /// What the list gives.
    fn listed(&self, acting: Acting) -> Option<u32> {
        let list = self.list?;
        let meant = |who: &Who| match who {
            Who::Owner => acting.caller == Caller::Owner,
            Who::Everyone => true,
            Who::Listed => acting.caller == Caller::Listed,
        };
        let has = list.iter().filter(|(who, _)| meant(who)).fold(0, |all, (_, mask)| all | mask);
        // Extended attributes go with the data, and no list here denies them.
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

    /// By its list alone.
    fn grants(&self, acting: Acting, right: u32) -> bool {
        self.listed(acting).is_some_and(|has| has & right != 0)
    }
}

/// As whom a caller acts in a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acting {
    caller: Caller,
    /// A group before all that it is in.
    first: Option<u32>,
}

impl Acting {
    pub(crate) fn of(shape: &Shape, caller: Caller, way: Way) -> Self {
        let listed = match shape.by {
            By::ForcedUser => true,
            // A share squashes clients of NFS: who comes by SMB has logged on.
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

    /// Beside its first.
    pub(crate) fn groups(self) -> Vec<u32> {
        let own = self.first.map(|_| self.caller.gid());
        own.into_iter().chain(self.caller.groups().iter().copied()).collect()
    }

    fn is_in(self, gid: u32) -> bool {
        self.first == Some(gid) || self.caller.is_in(gid)
    }
}

/// The caller may do it.
pub(crate) fn may(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    !is_forbidden(shape, op) && shares(shape, op, caller) && is_permitted(shape, op, caller, way)
}

/// The share lets the caller in, for such an operation.
fn shares(shape: &Shape, op: Op, caller: Caller) -> bool {
    match (shape.by, caller) {
        (By::Named, Caller::Owner | Caller::Listed) => true,
        (By::Named, Caller::Group | Caller::Other) => op == Op::Read,
        // Denied, although in the group that may read; and whom nobody names, root among them.
        (By::Named, Caller::Member | Caller::Root | Caller::Squashed | Caller::Guest) => false,
        (By::Denied, Caller::Listed) => false,
        (By::Denied, _) => !caller.is_in(Caller::Owner.uid()),
        _ => true,
    }
}

/// What nobody may, whoever it is: change anything by a share that is read-only; change, remove, link or re-permit a file that the
/// host's root has made append-only or immutable (FS_IOC_SETFLAGS(2const)). No protocol opens a file for appending as the kernel
/// knows it: data that is added comes with an offset.
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
    // By SMB whoever may list or change a folder by its list passes through it, as users of Windows pass through any.
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
        // NFS has one WRITE, which needs the right to write anywhere.
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
        // SMB finds names in any case, so those that are there are listed.
        Op::SetEa if way == Way::Smb => finds && f.can(acting, mask::WRITE_EA, R | W),
        Op::SetEa => finds && f.can(acting, mask::WRITE_EA, W),
    }
}

/// A client of NFS runs a program by reading it (RFC 8881 section 6.2.1.3.1).
fn runs(f: &Object<'_>, acting: Acting, way: Way) -> bool {
    way != Way::Smb && f.can(acting, mask::EXECUTE, X)
}

/// Where a protocol is not the kernel: what may be run may be read by NFS, and nothing is added to a file that is append-only.
pub(crate) fn is_of_protocol(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    let f = Object { mode: shape.file, list: None, acl: None };
    let appends = op == Op::Append && !shape.sealed.is_empty();
    let lists = op == Op::SetEa && way == Way::Smb;
    op == Op::Read && runs(&f, Acting::of(shape, caller, way), way) || appends || lists
}

/// The mode of what a client makes: what it asks for by NFS, where it says no umask; 0644 and 0755 by SMB, which asks for none.
/// `None`: it makes nothing that has a mode, or a list says it.
pub(crate) fn mode_of_new(shape: &Shape, op: Op, way: Way) -> Option<u32> {
    if shape.dir_list.is_some() {
        return None;
    }
    let (is_folder, masks) = (op == Op::Mkdir, shape.by == By::Masked);
    let [file, folder] = MASKS;
    // Files with an effective set-group-id are the folder's: a folder in it has the bit as well (inode(7)).
    let of_parent = if is_folder { shape.dir & 0o2000 } else { 0 };
    let asked = match op {
        Op::Mkdir => 0o755,
        Op::Create | Op::OpenIf | Op::OverwriteIf | Op::SupersedeNew => 0o644,
        Op::Fifo | Op::Device => 0o600,
        _ => return None,
    };
    Some(match (masks, is_folder, way) {
        (false, ..) => asked | of_parent,
        // All that may be had, but no program.
        (true, false, Way::Smb) => file & 0o666,
        (true, true, Way::Smb) => folder,
        (true, false, _) => asked & file,
        (true, true, _) => asked & folder | folder & 0o3000,
    })
}
