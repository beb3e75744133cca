//! Attributes of a share, or of a folder of a share, that is on other servers, so that its file system is absent here (RFC 8881
//! sections 11.3 and 11.4, RFC 7530 section 8.3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nfs_proto::nfs4::Nfstime4;
use nfs_proto::nfs4::attrs::{
    Fs4Status, Fs4StatusType, FsLocation4, FsLocations4, FsLocationsInfo4, FsLocationsItem4,
    FsLocationsServer4, Pathname4, Value, fsli4bx,
};
use nfs_proto::nfs4::ops::Component4;
use vfs::Attr;
use vfs::refer::Referral;

use super::Bitmap;
use crate::v4::above;
use crate::v4::object::Located;
use crate::v4::wire::attr;

/// Seconds for which a client may cache the location.
const VALID_S: i32 = 300;

/// The location attributes. A client that requests one of them is prepared for an absent file system.
const WHERE: Bitmap = Bitmap::of(&[attr::FS_LOCATIONS]);
const WHERE_MINOR_1: Bitmap =
    Bitmap::of(&[attr::FS_LOCATIONS, attr::FS_LOCATIONS_INFO, attr::FS_STATUS]);

/// The other attributes of an absent file system. RFC 8881 section 11.4.1 advises against more.
const OTHERS: Bitmap = Bitmap::of(&[attr::FSID, attr::MOUNTED_ON_FILEID, attr::RDATTR_ERROR]);

fn location(minor: u32) -> Bitmap {
    if minor == 0 { WHERE } else { WHERE_MINOR_1 }
}

/// True if a client of this minor version requests the location.
pub(in crate::v4) fn asks_where(minor: u32, want: &Bitmap) -> bool {
    !want.and(&location(minor)).is_empty()
}

/// All attributes of an absent file system.
pub(in crate::v4) fn available(minor: u32) -> Bitmap {
    OTHERS.or(&location(minor))
}

/// The components of a path without its leading slash.
fn pathname(path: &str) -> Pathname4<'_> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let components = names.map(|name| Component4 { name: name.as_bytes() }).collect();
    Pathname4 { components }
}

/// Writes `fs_locations` of a pseudo folder on this server: its own path.
pub(super) fn no_locations(path: &str, out: &mut Vec<u8>) {
    let value = FsLocations4 { fs_root: pathname(path), locations: Vec::new() };
    Value::FsLocations(value).emit(out);
}

/// A file system that is on other servers.
#[derive(Clone, Debug)]
pub(super) struct Away {
    /// Its path on this server, without the first slash.
    path: String,
    targets: Arc<[Referral]>,
}

impl Default for Away {
    fn default() -> Self {
        Self { path: String::new(), targets: Arc::new([]) }
    }
}

impl Away {
    /// `None` if the file is here.
    pub(super) fn of(at: &Located) -> Option<Self> {
        let share = &at.share;
        match &at.link {
            Some(link) => Some(Self {
                path: format!("{}/{}", share.nfs_path(), link.path),
                targets: link.targets.clone(),
            }),
            None if share.is_elsewhere() => Some(Self {
                path: share.nfs_path().to_owned(),
                targets: share.rules.refers_to.clone(),
            }),
            None => None,
        }
    }

    /// Its `fsid4`, which differs from those of all other file systems: clients see by it where they leave the share.
    pub(super) fn fsid(&self, at: &Located, attr: &Attr) -> (u64, u64) {
        /// Beyond the numbers of shares.
        const LINK: u64 = 1 << 40;
        match at.link {
            Some(_) => {
                let (major, _) = above::fsid_of(&at.share, 0);
                (LINK | major, attr.fileid ^ attr.fsid.rotate_left(32))
            }
            None => above::fsid_of(&at.share, 0),
        }
    }

    /// Counts an answer with the location.
    pub(super) fn note(&self, at: &Located, want: &Bitmap) {
        let asked = want.has(attr::FS_LOCATIONS) || want.has(attr::FS_LOCATIONS_INFO);
        if asked && at.link.is_some() {
            at.share.rules.links.referred.nfs.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes a location attribute, by attribute number.
pub(super) fn emit(number: u32, away: &Away, out: &mut Vec<u8>) {
    let targets = &away.targets;
    let servers: Vec<String> = targets.iter().map(|target| target.server.to_string()).collect();
    let named = || targets.iter().zip(&servers).map(|(t, server)| (t, component(server)));
    let fs_root = pathname(&away.path);
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
        // The file system was never here. Its source and age are unknown.
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

/// Builds `fs_locations_info`: each server once for each transport, in order of preference.
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
        // The servers offer the file system itself, not a copy.
        let entry = FsLocationsServer4 { fls_currency: 0, fls_info: info, fls_server: *fls_server };
        let fli_rootpath = pathname(&target.nfs_path);
        fli_items.push(FsLocationsItem4 { fli_entries: vec![entry], fli_rootpath });
    }
    let value = FsLocationsInfo4 { fli_flags: 0, fli_valid_for: VALID_S, fli_fs_root, fli_items };
    Value::FsLocationsInfo(value).emit(out);
}
