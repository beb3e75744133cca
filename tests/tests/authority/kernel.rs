//! The kernel's own word: the same call, made on the host by a thread with the caller's credentials.

use std::ffi::CString;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::{Caller, Cell, FOREIGN, NEW, OLD, Op, TIME};

/// Whether the call is allowed.
pub(crate) fn may(cell: &Cell, op: Op, caller: Caller) -> bool {
    let at = |name: &str| cell.path.join(name);
    let (f, n, g, out) = (at("d/f"), at("d/n"), at("d/g"), at("e/g"));
    let (link, own) = (at("e/l"), at("e/own"));
    let call = move || -> std::io::Result<()> {
        let owned = |uid, gid| std::os::unix::fs::lchown(&f, uid, gid);
        let node = |kind, dev| {
            let path = CString::new(n.to_str().unwrap()).unwrap();
            rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), dev)
        };
        match op {
            Op::Read => assert_eq!(std::fs::read(&f)?, OLD),
            Op::Write => {
                use std::io::Write;
                std::fs::OpenOptions::new().write(true).open(&f)?.write_all(NEW)?;
            }
            Op::Truncate => {
                let file = std::fs::OpenOptions::new().write(true).open(&f)?;
                file.set_len(1)?;
            }
            Op::Create => drop(std::fs::File::create_new(&n)?),
            Op::Mkdir => std::fs::create_dir(&n)?,
            Op::Symlink => std::os::unix::fs::symlink("x", &n)?,
            Op::Fifo => node(FileType::Fifo, 0)?,
            Op::Device => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3))?,
            Op::Remove => std::fs::remove_file(&f)?,
            Op::RenameIn => std::fs::rename(&f, &g)?,
            Op::RenameOut => std::fs::rename(&f, &out)?,
            Op::Replace | Op::LinkReplace => std::fs::rename(&own, &f)?,
            Op::Link => std::fs::hard_link(&f, &link)?,
            Op::Chmod | Op::SetList => {
                std::fs::set_permissions(&f, std::fs::Permissions::from_mode(0o640))?;
            }
            Op::SetGroup => owned(None, Some(caller.uid()))?,
            Op::SetForeignGroup => owned(None, Some(FOREIGN))?,
            Op::GiveAway => owned(Some(Caller::Other.uid()), None)?,
            Op::SetTimes => {
                let time = Timespec { tv_sec: TIME, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, &f, &times, AtFlags::empty())?;
            }
        }
        Ok(())
    };
    let become_caller = move || {
        let (uid, gid) = (caller.uid(), caller.uid());
        let groups: Vec<_> =
            caller.groups().iter().map(|g| rustix::process::Gid::from_raw(*g)).collect();
        set_thread_groups(&groups).unwrap();
        let gid = rustix::process::Gid::from_raw(gid);
        set_thread_res_gid(gid, gid, gid).unwrap();
        let uid = rustix::process::Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid).unwrap();
    };
    let thread = std::thread::spawn(move || {
        become_caller();
        match call() {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => false,
            Err(e) => panic!("{op:?}: {e}"),
        }
    });
    thread.join().unwrap()
}
