//! One more share in the configuration file, and in force.
//!
//! *Operation.* The new text is written beside the file, read as a configuration, and takes the file's place by a rename: after a
//! crash there is the old one or the new. Then the daemon goes over to it as by a reload. A symbolic link stays one; mode and owner
//! stay as they are.
//!
//! *Errors.* Everything is as it was, the file too: the text cannot take the share, the configuration would be wrong, somebody else
//! wrote the file meanwhile, the folder cannot be written, or the reload is refused.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use config::{NewShare, Place, Settings};

use crate::daemon::Load;
use crate::reload::Refusal;

/// A file that was replaced.
pub(crate) struct Replaced {
    file: PathBuf,
    old: String,
    new: String,
}

/// Writes it. Blocks.
pub(crate) fn write(load: &Load, new: &NewShare) -> Result<Replaced, Refusal> {
    let Some(named) = &load.file else {
        return Err(Refusal::Failed(
            "the gateway runs by options alone, without a file that would keep the share; start it by `--config FILE`".into(),
        ));
    };
    let at = |e: &dyn std::fmt::Display| Refusal::Failed(format!("{}: {e}", named.display()));
    let file = fs::canonicalize(named).map_err(|e| at(&e))?;
    let before = load.of(Some(named)).map_err(Refusal::Faults)?;
    let old = fs::read_to_string(&file).map_err(|e| at(&e))?;
    let text = new.append_to(&old).map_err(|e| at(&e))?;
    let beside = beside(&file, &text).map_err(|e| {
        let why = format!("{e}; a new file cannot be written beside it, so add the share by hand");
        at(&why)
    })?;
    let after = load.of(Some(beside.path())).map_err(|mut faults| {
        for fault in &mut faults.0 {
            if let Place::File { file, .. } = &mut fault.place {
                named.clone_into(file);
            }
        }
        Refusal::Faults(faults)
    })?;
    if !is_one_more(&before, after, &new.name) {
        return Err(at(&"its text cannot take one more share by itself; add it by hand"));
    }
    if fs::read_to_string(&file).map_err(|e| at(&e))? != old {
        return Err(at(&"somebody else has just written it; try again"));
    }
    beside.persist(&file).map_err(|e| at(&e.error))?;
    sync_folder(&file).map_err(|e| at(&e))?;
    Ok(Replaced { file, old, new: text })
}

impl Replaced {
    /// Puts the old file back, unless somebody else has written it. Blocks.
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

/// The share of this name is all that the second configuration has more.
fn is_one_more(before: &Settings, mut after: Settings, name: &str) -> bool {
    let shares = after.shares.len();
    after.shares.retain(|share| share.name != name);
    // The host was asked about them twice, and names of the new share's would not be among the first answers.
    after.on_host = before.on_host.clone();
    after.warnings = before.warnings.clone();
    shares == after.shares.len() + 1 && after == *before
}

/// A new file with this text in the folder of another, with the other's mode and owner, on disk.
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
    new.as_file().sync_all()?;
    Ok(new)
}

fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
}
