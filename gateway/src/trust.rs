//! Checks whether other users of the host can read or change secret files, and files that control the gateway.
//!
//! *Operation.* [`check_secret`] checks each secret before it is read: keys, keytabs, tokens, the database of users.
//! [`check_folders`] checks it when a configuration names it. [`changeable`] checks each file that controls the gateway:
//! configurations, files of a cluster, its programs.
//!
//! *Errors.* A secret that another user can read, change or replace is rejected. A changeable control file is still used,
//! with a warning that includes the command to correct it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::{Fault, Faults, Location, Settings};

use crate::secret_files::in_time;

/// Write bits of group and others.
const WRITERS: u32 = 0o022;
/// All bits of group and others.
const OTHERS: u32 = 0o077;
/// A user who may write in such a folder can replace only the own files in it.
const STICKY: u32 = 0o1000;

/// Mode and owner of a file or folder.
#[derive(Clone, Copy, Debug)]
struct About {
    mode: u32,
    owner: u32,
}

impl From<&Metadata> for About {
    fn from(about: &Metadata) -> Self {
        Self { mode: about.mode() & 0o7777, owner: about.uid() }
    }
}

/// A fault, and the command that corrects it.
#[derive(Debug, PartialEq, Eq)]
struct Flaw {
    what: String,
    remedy: String,
}

/// Refuses a secret that another user can read or change. `what` names its kind. Blocks.
///
/// # Errors
/// One line with the command to type.
pub(crate) fn check_secret(what: &str, path: &Path) -> Result<(), String> {
    let at = path.display();
    let about = About::from(&fs::metadata(path).map_err(|e| format!("{at}: {e}"))?);
    refuse(what, path, of_file(path, about, own(), true))
}

/// Refuses a secret that another user can replace, because that user may write in a folder of its path. A path that cannot be
/// examined has no fault here: its reader reports the error. Blocks.
///
/// # Errors
/// One line with the command to type.
pub(crate) fn check_folders(what: &str, path: &Path) -> Result<(), String> {
    refuse(what, path, of_folders(path).unwrap_or_default())
}

fn refuse(what: &str, path: &Path, flaw: Option<Flaw>) -> Result<(), String> {
    let at = path.display();
    flaw.map_or(Ok(()), |flaw| Err(format!("the {what} {at} {}: `{}`", flaw.what, flaw.remedy)))
}

/// Returns the warning for a control file that another user can change or replace. A file that cannot be examined has none:
/// its reader reports the error. Blocks.
pub(crate) fn changeable(what: &str, path: &Path) -> Option<String> {
    let about = About::from(&fs::metadata(path).ok()?);
    let flaw = of_file(path, about, own(), false).or_else(|| of_folders(path).ok().flatten());
    refuse(what, path, flaw).err()
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn of_folders(path: &Path) -> io::Result<Option<Flaw>> {
    // Checks the folders of the path and of the target of a symbolic link.
    let named = std::path::absolute(path)?;
    for path in [named.clone(), fs::canonicalize(&named)?] {
        for folder in path.ancestors().skip(1) {
            let about = About::from(&fs::metadata(folder)?);
            if let Some(flaw) = of_folder(folder, about) {
                return Ok(Some(flaw));
            }
        }
    }
    Ok(None)
}

fn of_file(path: &Path, about: About, own: u32, is_secret: bool) -> Option<Flaw> {
    let (at, mode) = (path.display(), about.mode);
    let flaw = |what: String, remedy: String| Some(Flaw { what, remedy });
    if is_secret && mode & OTHERS != 0 {
        let verb = if mode & 0o044 != 0 { "read" } else { "changed" };
        return flaw(
            format!("can be {verb} by others (mode {mode:04o})"),
            format!("chmod 600 {at}"),
        );
    }
    if mode & WRITERS != 0 {
        return flaw(
            format!("can be changed by others (mode {mode:04o})"),
            format!("chmod go-w {at}"),
        );
    }
    (about.owner != 0 && about.owner != own).then(|| Flaw {
        what: format!("belongs to user {}", about.owner),
        remedy: format!("chown {own} {at}"),
    })
}

fn of_folder(folder: &Path, about: About) -> Option<Flaw> {
    let (at, mode) = (folder.display(), about.mode);
    (mode & WRITERS != 0 && mode & STICKY == 0).then(|| Flaw {
        what: format!(
            "can be replaced by others, because they may write in {at} (mode {mode:04o})"
        ),
        remedy: format!("chmod go-w {at}"),
    })
}

/// Refuses the secrets of a configuration that another user can replace. The mode of each is checked where it is read.
/// Password files only cause warnings: a container makes its secrets readable to every process in it.
///
/// # Errors
/// A fault for each.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), Faults> {
    let tls = settings.tls.iter();
    let directory = settings.users_from.iter().filter_map(|from| from.bind.as_ref());
    let secrets = tls
        .clone()
        .map(|tls| ("key", &tls.key))
        .chain(tls.filter_map(|tls| Some(("token", tls.admin_token.as_ref()?))))
        .chain(settings.kerberos.iter().map(|kerberos| ("keytab", &kerberos.keytab)))
        .chain(directory.map(|(_, file)| ("password file", file)));
    let mut faults = Vec::new();
    for (what, path) in secrets {
        if let Err(what) = in_time(path, move |path| check_folders(what, path)) {
            faults.push(Fault { place: Location::Nowhere, what, help: None });
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

/// Warns on standard error of control files that another user can change, each with its kind.
pub(crate) fn warn<'a>(files: impl IntoIterator<Item = (&'static str, &'a Path)>) {
    for (what, path) in files {
        let looked = in_time(path, move |path| Ok(changeable(what, path)));
        if let Ok(Some(warning)) = looked {
            complain!("warning: {warning}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn modes_of_a_file_are_judged() {
        let path = Path::new("/f");
        for (mode, owner, secret, obeyed) in [
            (0o600, 0, "", ""),
            (0o400, 0, "", ""),
            (0o600, 7, "", ""),
            (0o600, 8, "belongs to user 8", "belongs to user 8"),
            (0o640, 0, "read by others (mode 0640)", ""),
            (0o644, 0, "read by others (mode 0644)", ""),
            (0o620, 0, "changed by others (mode 0620)", "changed by others (mode 0620)"),
            (0o602, 0, "changed by others (mode 0602)", "changed by others (mode 0602)"),
            (0o755, 0, "read by others (mode 0755)", ""),
        ] {
            let about = About { mode, owner };
            for (is_secret, wanted) in [(true, secret), (false, obeyed)] {
                let flaw = of_file(path, about, 7, is_secret);
                let said = flaw.map_or(String::new(), |flaw| flaw.what);
                assert!(
                    said.ends_with(wanted) && said.is_empty() == wanted.is_empty(),
                    "{mode:o} {owner} {is_secret}: {said}"
                );
            }
        }
    }

    #[test]
    fn folders_that_others_may_write_are_refused() {
        let top = tempfile::tempdir().unwrap();
        set(top.path(), 0o700);
        let (outer, inner) = (top.path().join("outer"), top.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        let (file, link) = (inner.join("key"), top.path().join("link"));
        fs::write(&file, "x").unwrap();
        set(&file, 0o600);
        symlink(&file, &link).unwrap();
        for (folder, mode, is_refused) in [
            (&inner, 0o755, false),
            (&inner, 0o775, true),
            (&inner, 0o757, true),
            (&inner, 0o1777, false),
            (&outer, 0o777, true),
            (&outer, 0o755, false),
        ] {
            set(&outer, 0o755);
            set(&inner, 0o755);
            set(folder, mode);
            for path in [&file, &link] {
                let secret = check_folders("key", path);
                assert_eq!(secret.is_err(), is_refused, "{folder:?} {mode:o}: {secret:?}");
                let remedy = format!("`chmod go-w {}`", folder.display());
                assert!(secret.err().is_none_or(|why| why.contains(&remedy)));
                assert_eq!(changeable("file", path).is_some(), is_refused);
            }
        }
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(1), None).unwrap();
            assert!(check_secret("key", &file).unwrap_err().contains("belongs to user 1"));
        }
    }

    #[test]
    fn a_missing_secret_is_an_error() {
        assert!(check_secret("key", Path::new("/no/such/file")).is_err());
        assert!(check_folders("key", Path::new("/no/such/file")).is_ok());
        assert_eq!(changeable("file", Path::new("/no/such/file")), None);
    }
}
