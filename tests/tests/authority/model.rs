//! The slow obvious model: POSIX.1-2017 section 4.5, inode(7), RFC 8881 section 6.2.1.3, MS-FSA sections 2.1.5.15.6 and
//! 2.1.5.15.11.

use smbd_core::dtyp::mask;

use crate::shape::{Entry, Shape, Who};
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
    fn listed(&self, caller: Caller) -> Option<u32> {
        let list = self.list?;
        let meant = |who: &Who| match who {
            Who::Owner => caller == Caller::Owner,
            Who::Everyone => true,
            Who::Listed => caller == Caller::Listed,
        };
        Some(list.iter().filter(|(who, _)| meant(who)).fold(0, |all, (_, mask)| all | mask))
    }

    fn bits(&self, caller: Caller) -> u32 {
        match (caller, self.acl) {
            (Caller::Owner, _) => self.mode >> 6 & 7,
            (Caller::Listed, Some(acl)) => acl.into(),
            (caller, _) if caller.is_in(Caller::Owner.uid()) => self.mode >> 3 & 7,
            _ => self.mode & 7,
        }
    }

    fn can(&self, caller: Caller, rights: u32, bits: u32) -> bool {
        if caller == Caller::Root {
            return true;
        }
        match self.listed(caller) {
            Some(has) => has & rights == rights,
            None => self.bits(caller) & bits == bits,
        }
    }

    /// By its list alone.
    fn grants(&self, caller: Caller, right: u32) -> bool {
        self.listed(caller).is_some_and(|has| has & right != 0)
    }
}

/// The caller may do it.
pub(crate) fn may(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
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
    let (root, owner) = (caller == Caller::Root, caller == Caller::Owner);
    let finds = d.can(caller, mask::EXECUTE, X);
    let adds = |right| d.can(caller, right | mask::EXECUTE, W | X);
    let sticky = shape.dir & 0o1000 != 0 && !root && !owner;
    let takes = d.can(caller, mask::DELETE_CHILD | mask::EXECUTE, W | X) && !sticky
        || finds && f.grants(caller, mask::DELETE);
    let sets = |right| root || owner || f.grants(caller, right);
    match op {
        Op::Read => finds && (f.can(caller, mask::READ_DATA, R) || runs(&f, caller, way)),
        Op::Write | Op::Truncate => finds && f.can(caller, mask::WRITE_DATA, W),
        Op::Create | Op::Symlink | Op::Fifo => adds(mask::WRITE_DATA),
        Op::Mkdir => adds(mask::APPEND_DATA),
        Op::Device => adds(mask::WRITE_DATA) && root,
        Op::Remove | Op::RenameOut => takes,
        Op::RenameIn | Op::Replace | Op::LinkReplace => takes && adds(mask::WRITE_DATA),
        Op::Link => {
            let special = shape.file & 0o4000 != 0;
            let uses = f.can(caller, mask::READ_DATA | mask::WRITE_DATA, R | W) && !special;
            finds && (root || owner || uses)
        }
        Op::Chmod | Op::SetList => finds && sets(mask::WRITE_DAC),
        Op::SetGroup => finds && sets(mask::WRITE_OWNER),
        Op::SetForeignGroup | Op::GiveAway => root,
        Op::SetTimes => finds && sets(mask::WRITE_ATTRIBUTES),
    }
}

/// A client of NFS runs a program by reading it (RFC 8881 section 6.2.1.3.1).
fn runs(f: &Object<'_>, caller: Caller, way: Way) -> bool {
    way != Way::Smb && f.can(caller, mask::EXECUTE, X)
}

/// What NFS gives beyond the kernel: its owner goes on with the data of a file, and what may be run may be read.
pub(crate) fn is_of_nfs(shape: &Shape, op: Op, caller: Caller, way: Way) -> bool {
    let f = Object { mode: shape.file, list: None, acl: None };
    op == Op::Read && runs(&f, caller, way)
}
