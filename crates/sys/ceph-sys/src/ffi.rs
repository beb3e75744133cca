//! Structures, constants and functions of `cephfs/libcephfs.h`, under their C names.
#![allow(non_camel_case_types, missing_docs)] // The names come from the header.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{dev_t, gid_t, iovec, mode_t, size_t, timespec, uid_t};

/// An opaque type of the library, used only behind pointers.
pub type ceph_mount_info = c_void;
pub type UserPerm = c_void;
pub type Inode = c_void;
pub type Fh = c_void;
pub type ceph_dir_result = c_void;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct inodeno_t {
    pub val: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct snapid_t {
    pub val: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct vinodeno_t {
    pub ino: inodeno_t,
    pub snapid: snapid_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ceph_statx {
    pub stx_mask: u32,
    pub stx_blksize: u32,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_mode: u16,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_dev: dev_t,
    pub stx_rdev: dev_t,
    pub stx_atime: timespec,
    pub stx_ctime: timespec,
    pub stx_mtime: timespec,
    pub stx_btime: timespec,
    pub stx_version: u64,
}

impl ceph_statx {
    /// Returns a structure without any attributes.
    pub fn empty() -> Self {
        let never = timespec { tv_sec: 0, tv_nsec: 0 };
        Self {
            stx_mask: 0,
            stx_blksize: 0,
            stx_nlink: 0,
            stx_uid: 0,
            stx_gid: 0,
            stx_mode: 0,
            stx_ino: 0,
            stx_size: 0,
            stx_blocks: 0,
            stx_dev: 0,
            stx_rdev: 0,
            stx_atime: never,
            stx_ctime: never,
            stx_mtime: never,
            stx_btime: never,
            stx_version: 0,
        }
    }
}

/// All attributes in use, including birth time and version.
pub const CEPH_STATX_ALL_STATS: c_uint = 0x1fff;
pub const CEPH_STATX_BTIME: c_uint = 0x0800;
pub const CEPH_STATX_VERSION: c_uint = 0x1000;

pub const CEPH_SETATTR_MODE: c_int = 1 << 0;
pub const CEPH_SETATTR_UID: c_int = 1 << 1;
pub const CEPH_SETATTR_GID: c_int = 1 << 2;
pub const CEPH_SETATTR_MTIME: c_int = 1 << 3;
pub const CEPH_SETATTR_ATIME: c_int = 1 << 4;
pub const CEPH_SETATTR_SIZE: c_int = 1 << 5;
pub const CEPH_SETATTR_MTIME_NOW: c_int = 1 << 7;
pub const CEPH_SETATTR_ATIME_NOW: c_int = 1 << 8;

pub const CEPH_RECLAIM_RESET: c_uint = 1;

/// The snapshot number of the live file system.
pub const CEPH_NOSNAP: u64 = 0xffff_ffff_ffff_fffe;

/// Declares the functions and looks each up by name. An `Api` exists only if all functions were found.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $of:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        #[allow(clippy::struct_field_names)] // Names come from the header.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($of),*) $(-> $answer)?,)*
        }

        impl Api {
            /// Looks up all functions, or reports the error of `find`.
            pub(crate) fn find(
                find: impl Fn(&CStr) -> Result<*mut c_void, String>,
            ) -> Result<Self, String> {
                Ok(Self { $($name: {
                    const NAME: &CStr = match CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero within"),
                    };
                    let at = find(NAME)?;
                    // SAFETY: the library's function of this name has this signature according to its header, and `at` is not null.
                    unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($of),*) $(-> $answer)?,
                        >(at)
                    }
                },)* })
            }
        }
    };
}

type Mnt = *mut ceph_mount_info;
type In = *mut Inode;
type Stx = *mut ceph_statx;
type Perms = *const UserPerm;
type Str = *const c_char;

functions! {
    fn ceph_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> Str;
    fn ceph_userperm_new(uid: uid_t, gid: gid_t, count: c_int, list: *mut gid_t) -> *mut UserPerm;
    fn ceph_userperm_destroy(perm: *mut UserPerm);
    fn ceph_create(mount: *mut Mnt, id: Str) -> c_int;
    fn ceph_init(mount: Mnt) -> c_int;
    fn ceph_conf_read_file(mount: Mnt, paths: Str) -> c_int;
    fn ceph_conf_set(mount: Mnt, option: Str, value: Str) -> c_int;
    fn ceph_conf_get(mount: Mnt, option: Str, value: *mut c_char, size: size_t) -> c_int;
    fn ceph_select_filesystem(mount: Mnt, name: Str) -> c_int;
    fn ceph_set_uuid(mount: Mnt, uuid: Str);
    fn ceph_start_reclaim(mount: Mnt, uuid: Str, flags: c_uint) -> c_int;
    fn ceph_finish_reclaim(mount: Mnt);
    fn ceph_mount(mount: Mnt, root: Str) -> c_int;
    fn ceph_sync_fs(mount: Mnt) -> c_int;
    fn ceph_umask(mount: Mnt, mask: mode_t) -> mode_t;
    fn ceph_unmount(mount: Mnt) -> c_int;
    fn ceph_release(mount: Mnt) -> c_int;
    fn ceph_get_fs_cid(mount: Mnt) -> i64;
    fn ceph_get_instance_id(mount: Mnt) -> u64;
    fn ceph_ll_lookup_root(mount: Mnt, root: *mut In) -> c_int;
    fn ceph_ll_lookup_vino(mount: Mnt, vino: vinodeno_t, found: *mut In) -> c_int;
    fn ceph_ll_lookup(
        mount: Mnt, parent: In, name: Str, found: *mut In, stx: Stx, want: c_uint, flags: c_uint,
        perms: Perms,
    ) -> c_int;
    fn ceph_ll_put(mount: Mnt, inode: In) -> c_int;
    fn ceph_ll_getattr(
        mount: Mnt, inode: In, stx: Stx, want: c_uint, flags: c_uint, perms: Perms,
    ) -> c_int;
    fn ceph_ll_setattr(mount: Mnt, inode: In, stx: Stx, mask: c_int, perms: Perms) -> c_int;
    fn ceph_ll_statfs(mount: Mnt, inode: In, stat: *mut libc::statvfs) -> c_int;
    fn ceph_ll_sync_inode(mount: Mnt, inode: In, data_only: c_int) -> c_int;
    fn ceph_ll_readlink(
        mount: Mnt, inode: In, target: *mut c_char, size: size_t, perms: Perms,
    ) -> c_int;
    fn ceph_ll_create(
        mount: Mnt, parent: In, name: Str, mode: mode_t, oflags: c_int, made: *mut In,
        fh: *mut *mut Fh, stx: Stx, want: c_uint, flags: c_uint, perms: Perms,
    ) -> c_int;
    fn ceph_ll_mkdir(
        mount: Mnt, parent: In, name: Str, mode: mode_t, made: *mut In, stx: Stx, want: c_uint,
        flags: c_uint, perms: Perms,
    ) -> c_int;
    fn ceph_ll_mknod(
        mount: Mnt, parent: In, name: Str, mode: mode_t, rdev: dev_t, made: *mut In, stx: Stx,
        want: c_uint, flags: c_uint, perms: Perms,
    ) -> c_int;
    fn ceph_ll_symlink(
        mount: Mnt, parent: In, name: Str, target: Str, made: *mut In, stx: Stx, want: c_uint,
        flags: c_uint, perms: Perms,
    ) -> c_int;
    fn ceph_ll_link(mount: Mnt, inode: In, parent: In, name: Str, perms: Perms) -> c_int;
    fn ceph_ll_unlink(mount: Mnt, parent: In, name: Str, perms: Perms) -> c_int;
    fn ceph_ll_rmdir(mount: Mnt, parent: In, name: Str, perms: Perms) -> c_int;
    fn ceph_ll_rename(
        mount: Mnt, parent: In, name: Str, new_parent: In, new_name: Str, perms: Perms,
    ) -> c_int;
    fn ceph_ll_getxattr(
        mount: Mnt, inode: In, name: Str, value: *mut c_void, size: size_t, perms: Perms,
    ) -> c_int;
    fn ceph_ll_setxattr(
        mount: Mnt, inode: In, name: Str, value: *const c_void, size: size_t, flags: c_int,
        perms: Perms,
    ) -> c_int;
    fn ceph_ll_listxattr(
        mount: Mnt, inode: In, list: *mut c_char, size: size_t, used: *mut size_t, perms: Perms,
    ) -> c_int;
    fn ceph_ll_removexattr(mount: Mnt, inode: In, name: Str, perms: Perms) -> c_int;
    fn ceph_ll_open(mount: Mnt, inode: In, flags: c_int, fh: *mut *mut Fh, perms: Perms) -> c_int;
    fn ceph_ll_close(mount: Mnt, fh: *mut Fh) -> c_int;
    fn ceph_ll_fsync(mount: Mnt, fh: *mut Fh, data_only: c_int) -> c_int;
    fn ceph_ll_fallocate(mount: Mnt, fh: *mut Fh, mode: c_int, at: i64, count: i64) -> c_int;
    fn ceph_ll_readv(mount: Mnt, fh: *mut Fh, iov: *const iovec, count: c_int, at: i64) -> i64;
    fn ceph_ll_writev(mount: Mnt, fh: *mut Fh, iov: *const iovec, count: c_int, at: i64) -> i64;
    fn ceph_ll_opendir(
        mount: Mnt, inode: In, dir: *mut *mut ceph_dir_result, perms: Perms,
    ) -> c_int;
    fn ceph_ll_releasedir(mount: Mnt, dir: *mut ceph_dir_result) -> c_int;
    fn ceph_readdir_r(mount: Mnt, dir: *mut ceph_dir_result, entry: *mut libc::dirent64) -> c_int;
    fn ceph_seekdir(mount: Mnt, dir: *mut ceph_dir_result, offset: i64);
}
