//! The kernel's decision: performs the same call on the host, in a thread with the caller's credentials.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::{Acting, Caller, Cell, FOREIGN, MORE, NEW, OLD, Op, TIME};

/// True if the kernel has a call for the operation.
pub(crate) fn has(op: Op) -> bool {
    let of_smb = [
        Op::Supersede,
        Op::Allocation,
        Op::Trim,
        Op::SetSparse,
        Op::Stream,
        Op::OpenIf,
        Op::OverwriteIf,
        Op::SupersedeNew,
        Op::Dispose,
        Op::DisposePosix,
        Op::ReplacePosix,
        Op::LinkReplaceEx,
        Op::SetAttributes,
    ];
    !of_smb.contains(&op)
}

fn call(cell: &Cell, op: Op, caller: Caller) -> std::io::Result<()> {
    let at = |name: &str| cell.path.join(name);
    let (f, n, own) = (at("d/f"), at("d/n"), at("e/own"));
    let owned = |uid, gid| std::os::unix::fs::lchown(&f, uid, gid);
    let node = |kind, dev| {
        let path = CString::new(n.to_str().unwrap()).unwrap();
        rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), dev)
    };
    let write = || std::fs::OpenOptions::new().write(true).open(&f);
    match op {
        Op::Read => assert_eq!(std::fs::read(&f)?, OLD),
        Op::Write => write()?.write_all(NEW)?,
        Op::Append => std::fs::OpenOptions::new().append(true).open(&f)?.write_all(NEW)?,
        Op::Truncate => write()?.set_len(1)?,
        Op::Overwrite => drop(std::fs::OpenOptions::new().write(true).truncate(true).open(&f)?),
        Op::Allocate => rustix::fs::fallocate(write()?, FallocateFlags::empty(), 0, MORE)?,
        Op::ZeroData => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(write()?, hole, 0, 4)?;
        }
        Op::Copy => {
            let from = std::fs::File::open(&own)?;
            rustix::fs::copy_file_range(from, None, write()?, None, NEW.len())?;
        }
        Op::Create => drop(std::fs::File::create_new(&n)?),
        Op::Mkdir => std::fs::create_dir(&n)?,
        Op::Symlink => std::os::unix::fs::symlink("x", &n)?,
        Op::Fifo => node(FileType::Fifo, 0)?,
        Op::Device => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3))?,
        Op::Remove => std::fs::remove_file(&f)?,
        Op::RenameIn => std::fs::rename(&f, at("d/g"))?,
        Op::RenameOut => std::fs::rename(&f, at("e/g"))?,
        Op::Replace | Op::LinkReplace => std::fs::rename(&own, &f)?,
        Op::Link => std::fs::hard_link(&f, at("e/l"))?,
        Op::Chmod | Op::SetList => {
            std::fs::set_permissions(&f, std::fs::Permissions::from_mode(0o640))?;
        }
        Op::SetGroup => owned(None, Some(caller.gid()))?,
        Op::SetForeignGroup => owned(None, Some(FOREIGN))?,
        Op::GiveAway => owned(Some(Caller::Other.uid()), None)?,
        Op::SetTimes => {
            let time = Timespec { tv_sec: TIME, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &f, &times, AtFlags::empty())?;
        }
        Op::SetEa => rustix::fs::setxattr(&f, "user.x", b"y", XattrFlags::empty())?,
        _ => panic!("{op:?} is no call of the kernel"),
    }
    Ok(())
}

/// True if the kernel allows the call with the identity under which the caller acts.
pub(crate) fn may(cell: &Cell, op: Op, caller: Caller, acting: Acting) -> bool {
    let become_caller = || {
        let groups: Vec<_> = acting.groups().into_iter().map(Gid::from_raw).collect();
        set_thread_groups(&groups).unwrap();
        let gid = Gid::from_raw(acting.gid());
        set_thread_res_gid(gid, gid, gid).unwrap();
        let uid = Uid::from_raw(acting.uid());
        set_thread_res_uid(uid, uid, uid).unwrap();
    };
    let asked = || {
        become_caller();
        match call(cell, op, caller) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => false,
            Err(e) => panic!("{op:?}: {e}"),
        }
    };
    std::thread::scope(|threads| threads.spawn(asked).join().unwrap())
}
