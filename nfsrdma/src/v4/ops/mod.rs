//! The operations, one file each: `async fn name(cx) -> Result<(), Status>` decodes the arguments from `cx.args` and writes
//! the body of the result to `cx.out`; the loop writes opcode and status.

pub(super) mod access;
pub(super) mod allocate;
pub(super) mod clone;
pub(super) mod commit;
pub(super) mod copy;
pub(super) mod create;
pub(super) mod getattr;
pub(super) mod getfh;
pub(super) mod io_advise;
pub(super) mod link;
pub(super) mod lookup;
pub(super) mod lookupp;
pub(super) mod putfh;
pub(super) mod putrootfh;
pub(super) mod read;
pub(super) mod read_plus;
pub(super) mod readdir;
pub(super) mod readlink;
pub(super) mod remove;
pub(super) mod rename;
pub(super) mod restorefh;
pub(super) mod savefh;
pub(super) mod secinfo;
pub(super) mod seek;
pub(super) mod setattr;
pub(super) mod verify;
pub(super) mod write;
pub(super) mod xattr;
