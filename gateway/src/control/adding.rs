//! Adds a share to the configuration file and puts it in force.
//!
//! *Operation.* The new text is written next to the file, checked as a configuration, and renamed over the file: after a crash
//! either the old or the new file exists. Then the daemon loads it like a reload. A symbolic link stays a link; mode, owner and
//! SELinux label do not change.
//!
//! *Errors.* An error leaves everything unchanged, including the file. Causes: the share does not fit into the text, the
//! configuration would be wrong, another process wrote the file meanwhile, the file has an access list, the folder cannot be
//! written, or the reload is refused.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use config::{Location, NewShare, Settings};
use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;

use crate::changes::Refusal;
use crate::load::Load;

/// A replaced file.
pub(crate) struct Replaced {
    file: PathBuf,
    old: String,
    new: String,
}

/// Writes the share into the file. Blocks.
pub(crate) fn write(load: &Load, new: &NewShare) -> Result<Replaced, Refusal> {
    let Some(named) = &load.file else {
        return Err(Refusal::Failed(
            "the gateway runs without a configuration file, in which the share would be kept; start it with `--config FILE`".into(),
        ));
    };
    let at = |e: &dyn std::fmt::Display| Refusal::Failed(format!("{}: {e}", named.display()));
    let file = fs::canonicalize(named).map_err(|e| at(&e))?;
    let before = load.of(Some(named)).map_err(Refusal::Faults)?;
    let old = fs::read_to_string(&file).map_err(|e| at(&e))?;
    let text = new.append_to(&old).map_err(|e| at(&e))?;
    if has_list(&file).map_err(|e| at(&e))? {
        return Err(at(&format!(
            "it has an access list ({ACCESS_LIST}), which a rewritten file would lose; add the share by hand, or remove the \
             list first (`setfacl -b FILE`)"
        )));
    }
    let beside = beside(&file, &text).map_err(|e| {
        let why = format!(
            "{e}; the gateway cannot write a new file in its folder, so add the share by hand"
        );
        at(&why)
    })?;
    let after = load.of(Some(beside.path())).map_err(|mut faults| {
        for fault in &mut faults.0 {
            if let Location::File { file, .. } = &mut fault.place {
                named.clone_into(file);
            }
        }
        Refusal::Faults(faults)
    })?;
    if !is_one_more(&before, after, &new.name) {
        return Err(at(&"a share cannot be added to its text automatically; add it by hand"));
    }
    if fs::read_to_string(&file).map_err(|e| at(&e))? != old {
        return Err(at(&"another program has just changed it; try again"));
    }
    beside.persist(&file).map_err(|e| at(&e.error))?;
    sync_folder(&file).map_err(|e| at(&e))?;
    Ok(Replaced { file, old, new: text })
}

impl Replaced {
    /// Restores the old file, unless another process has written it since. Blocks.
    pub(crate) fn put_back(self) {
        let Self { file, old, new } = self;
        let put = || {
            if fs::read_to_string(&file)? != new {
                return Ok(());
            }
            beside(&file, &old)?.persist(&file).map_err(|e| e.error)?;
            sync_folder(&file)
        };
        if let Err(error) = put() {
            tracing::error!(file = %file.display(), %error, "a share that is not in force stays in the file");
        }
    }
}

/// Returns whether the second configuration differs only by the new share with this name.
fn is_one_more(before: &Settings, mut after: Settings, name: &str) -> bool {
    let shares = after.shares.len();
    after.shares.retain(|share| share.name != name);
    // Both configurations queried the host, and names of the new share are missing in the first answers.
    after.on_host = before.on_host.clone();
    after.warnings = before.warnings.clone();
    shares == after.shares.len() + 1 && after == *before
}

/// Extended attribute of a POSIX access list. In a file with a list, the group bits of the mode are the list's mask; a copy with
/// only the mode would grant them to the group.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Extended attribute of the SELinux label. A new file gets the label of its folder, which the gateway may be unable to read.
const LABEL: &str = "security.selinux";
/// Largest label, in bytes; the kernel's own labels are smaller than a page.
const LABEL_MAX: usize = 4096;

/// Returns whether the file has an access list beyond its mode.
fn has_list(file: &Path) -> io::Result<bool> {
    Ok(attribute(file, ACCESS_LIST)?.is_some())
}

/// Returns an extended attribute, or `None` if the file or its file system has no such attribute.
fn attribute(file: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LABEL_MAX];
    match rustix::fs::getxattr(file, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        // The list exists, and is longer than any label.
        Err(Errno::RANGE) if name == ACCESS_LIST => Ok(Some(Vec::new())),
        Err(e) => Err(e.into()),
    }
}

/// Creates a file with this text in the folder of another, with the other's mode, owner and label, and syncs it.
fn beside(file: &Path, text: &str) -> io::Result<tempfile::NamedTempFile> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let now = fs::metadata(file)?;
    let mut new = tempfile::Builder::new().prefix(".headgate").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    let made = new.as_file().metadata()?;
    if (made.uid(), made.gid()) != (now.uid(), now.gid()) {
        chown(new.path(), Some(now.uid()), Some(now.gid()))?;
    }
    fs::set_permissions(new.path(), Permissions::from_mode(now.mode() & 0o7777))?;
    let label = attribute(file, LABEL)?;
    if label.is_some() && label != attribute(new.path(), LABEL)? {
        let label = label.unwrap_or_default();
        fsetxattr(new.as_file(), LABEL, &label, XattrFlags::empty())?;
    }
    new.as_file().sync_all()?;
    Ok(new)
}

fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use rustix::fs::setxattr;

    use super::*;

    /// Returns user::rw-, user:1:r--, group::---, mask::r--, other::--- (linux/posix_acl_xattr.h).
    fn list() -> Vec<u8> {
        let entries = [
            (1_u16, 6_u16, u32::MAX),
            (2, 4, 1),
            (4, 0, u32::MAX),
            (16, 4, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(perm.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    fn new_share() -> NewShare {
        NewShare {
            name: "more".into(),
            path: "/srv/more".into(),
            read_only: false,
            clients: Vec::new(),
        }
    }

    #[test]
    fn a_file_with_an_access_list_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headgate.yaml");
        fs::write(&file, "shares:\n  - {name: data, memory: true}\n").unwrap();
        assert!(!has_list(&file).unwrap());
        setxattr(&file, ACCESS_LIST, &list(), XattrFlags::empty()).unwrap();
        let load = Load::new(Some(file.clone()), |_| Ok(Settings::default()));
        let Err(Refusal::Failed(why)) = write(&load, &new_share()) else {
            panic!("it was replaced")
        };
        assert!(why.contains(ACCESS_LIST) && why.contains("setfacl -b"), "{why}");
        assert_eq!(attribute(&file, ACCESS_LIST).unwrap(), Some(list()), "it is as it was");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_new_file_has_the_label_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headgate.yaml");
        fs::write(&file, "a").unwrap();
        let label = b"system_u:object_r:etc_t:s0\0";
        match setxattr(&file, LABEL, label, XattrFlags::empty()) {
            // On a kernel without SELinux, setting this attribute needs CAP_SYS_ADMIN.
            Err(Errno::PERM | Errno::NOTSUP) => return println!("skipped: it takes root"),
            done => done.unwrap(),
        }
        let new = beside(&file, "b").unwrap();
        assert_eq!(attribute(new.path(), LABEL).unwrap(), Some(label.to_vec()));
    }
}
