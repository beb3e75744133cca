//! Attributes of a share that is on other servers: its file system is absent here (RFC 8881 sections 11.3 and 11.4, RFC 7530
//! section 8.3).

use nfs_proto::nfs4::Nfstime4;
use nfs_proto::nfs4::attrs::{
    Fs4Status, Fs4StatusType, FsLocation4, FsLocations4, FsLocationsInfo4, FsLocationsItem4,
    FsLocationsServer4, Pathname4, Value, fsli4bx,
};
use nfs_proto::nfs4::ops::Component4;
use vfs::namespace::Share;
use vfs::refer::Referral;

use super::Bitmap;
use crate::v4::wire::attr;

/// Seconds for which a client may keep what it was told.
const VALID_S: i32 = 300;

/// They say where the file system is. A client that asks for one of them knows that it may be absent.
const WHERE: Bitmap = Bitmap::of(&[attr::FS_LOCATIONS]);
const WHERE_MINOR_1: Bitmap =
    Bitmap::of(&[attr::FS_LOCATIONS, attr::FS_LOCATIONS_INFO, attr::FS_STATUS]);

/// What else there is of it. RFC 8881 section 11.4.1: to provide more is to be avoided.
const OTHERS: Bitmap = Bitmap::of(&[attr::FSID, attr::MOUNTED_ON_FILEID, attr::RDATTR_ERROR]);

fn location(minor: u32) -> Bitmap {
    if minor == 0 { WHERE } else { WHERE_MINOR_1 }
}

/// A client of this minor version asks where the file system is.
pub(in crate::v4) fn asks_where(minor: u32, want: &Bitmap) -> bool {
    !want.and(&location(minor)).is_empty()
}

/// All that there is of it.
pub(in crate::v4) fn available(minor: u32) -> Bitmap {
    OTHERS.or(&location(minor))
}

/// The names of a path without its first slash.
fn pathname(path: &str) -> Pathname4<'_> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let components = names.map(|name| Component4 { name: name.as_bytes() }).collect();
    Pathname4 { components }
}

/// `fs_locations` of a folder that lies on no other server: its own path.
pub(super) fn no_locations(path: &str, out: &mut Vec<u8>) {
    let value = FsLocations4 { fs_root: pathname(path), locations: Vec::new() };
    Value::FsLocations(value).emit(out);
}

/// Writes what says where a share is, by the number of the attribute.
pub(super) fn emit(number: u32, share: &Share, out: &mut Vec<u8>) {
    let targets = &share.rules.refers_to;
    let servers: Vec<String> = targets.iter().map(|target| target.server.to_string()).collect();
    let named = || targets.iter().zip(&servers).map(|(t, server)| (t, component(server)));
    let fs_root = pathname(share.nfs_path());
    let value = match number {
        attr::FS_LOCATIONS => {
            let locations = named()
                .map(|(t, server)| FsLocation4 {
                    server: vec![server],
                    rootpath: pathname(&t.nfs_path),
                })
                .collect();
            Value::FsLocations(FsLocations4 { fs_root, locations })
        }
        attr::FS_LOCATIONS_INFO => return info(fs_root, named(), out),
        // Nothing of it was ever here. Of where it came from and how old it is, nothing is known.
        attr::FS_STATUS => Value::FsStatus(Fs4Status {
            fss_absent: true,
            fss_type: Fs4StatusType::Referral,
            fss_source: component(""),
            fss_current: component(""),
            fss_age: -1,
            fss_version: Nfstime4 { seconds: 0, nseconds: 0 },
        }),
        _ => return debug_assert!(false, "attribute {number} is not of an absent file system"),
    };
    value.emit(out);
}

fn component(name: &str) -> Component4<'_> {
    Component4 { name: name.as_bytes() }
}

/// `fs_locations_info`: each server once for each transport, the first ones being the better ones.
fn info<'t>(
    fli_fs_root: Pathname4<'_>,
    named: impl Iterator<Item = (&'t Referral, Component4<'t>)>,
    out: &mut Vec<u8>,
) {
    let mut rank = 0_u8;
    let mut infos = Vec::new();
    for (target, server) in named {
        for rdma in [true, false].into_iter().filter(|rdma| target.rdma || !rdma) {
            let mut info = [0; fsli4bx::LEN];
            info[fsli4bx::GFLAGS] = fsli4bx::GF_WRITABLE;
            info[fsli4bx::TFLAGS] = if rdma { fsli4bx::TF_RDMA } else { 0 };
            info[fsli4bx::READRANK] = rank;
            info[fsli4bx::WRITERANK] = rank;
            rank = rank.saturating_add(1);
            infos.push((target, server, info));
        }
    }
    let mut fli_items = Vec::new();
    for (target, fls_server, info) in &infos {
        // It is the file system itself, not a copy.
        let entry = FsLocationsServer4 { fls_currency: 0, fls_info: info, fls_server: *fls_server };
        let fli_rootpath = pathname(&target.nfs_path);
        fli_items.push(FsLocationsItem4 { fli_entries: vec![entry], fli_rootpath });
    }
    let value = FsLocationsInfo4 { fli_flags: 0, fli_valid_for: VALID_S, fli_fs_root, fli_items };
    Value::FsLocationsInfo(value).emit(out);
}
