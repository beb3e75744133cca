//! Reads and checks the keytab that the configuration names.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gss_sys::keytab::{self, Entry};

/// Reads the entries of a keytab that only its owner can read. Blocks.
///
/// # Errors
/// One line that says what to change.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let shown = path.display();
    let at = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no keytab {shown}; create one in your domain: `adcli`, `ipa-getkeytab`, `kadmin ktadd` or `ktpass`"
        ),
        io::ErrorKind::InvalidData => format!("{shown} is {e}"),
        _ => format!("cannot read the keytab {shown}: {e}"),
    };
    let status = fs::metadata(path).map_err(at)?;
    if !status.is_file() {
        return Err(format!("{shown} is not a file, so it cannot be a keytab"));
    }
    let mode = status.mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} can be read by others (mode {:04o}), and with its keys anyone can log on as any user; `chmod 600 {shown}`",
            mode & 0o7777
        ));
    }
    let owner = status.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!(
            "{shown} belongs to user {owner}, who can log on as any user with its keys; `chown root {shown}`"
        ));
    }
    let entries = keytab::read(path).map_err(at)?;
    if entries.is_empty() {
        return Err(format!("the keytab {shown} holds no key"));
    }
    Ok(entries)
}

/// Checks that this keytab is usable now. Blocks.
///
/// # Errors
/// One line that says what to change.
pub(crate) fn prove(path: &Path) -> Result<(), String> {
    let entries = read(path)?;
    if !entries.iter().any(|e| is_ours(e.service())) {
        return Err(format!(
            "the keytab {} has only keys of {}; clients ask for `cifs/NAME` or `host/NAME`, in a domain of Windows for `NAME$`",
            path.display(),
            principals(&entries).join(", ")
        ));
    }
    gss_sys::loaded().map_err(|why| {
        format!(
            "Kerberos needs MIT's library ({why}); install libgssapi-krb5-2 (Debian) or krb5-libs"
        )
    })
}

/// Returns true for the services with which SMB and NFS clients can authenticate.
fn is_ours(service: &str) -> bool {
    ["cifs", "host", "nfs"].iter().any(|ours| service.eq_ignore_ascii_case(ours))
        || service.ends_with('$')
}

/// Returns the names of the principals, each once, in the order of the keytab.
pub(crate) fn principals(entries: &[Entry]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        if !names.contains(&entry.principal) {
            names.push(entry.principal.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// One key of a principal of one or two components in the realm `R`.
    fn keytab(parts: &[&str]) -> Vec<u8> {
        let count = u8::try_from(parts.len()).unwrap();
        let mut entry = vec![0, count, 0, 1, b'R'];
        for part in parts {
            entry.extend([0, u8::try_from(part.len()).unwrap()]);
            entry.extend(part.as_bytes());
        }
        entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 18, 0, 1, 9]);
        let length = u32::try_from(entry.len()).unwrap().to_be_bytes();
        [&[5, 2][..], &length, &entry].concat()
    }

    #[test]
    fn a_keytab_that_can_be_used_and_others() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("krb5.keytab");
        assert!(prove(&at).unwrap_err().contains("there is no keytab"));
        assert!(prove(dir.path()).unwrap_err().contains("is not a file"));
        let write = |bytes: &[u8], mode| {
            fs::write(&at, bytes).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
        };
        for mode in [0o640, 0o604, 0o620] {
            write(&keytab(&["cifs", "gw"]), mode);
            let why = prove(&at).unwrap_err();
            assert!(
                why.contains(&format!("mode {mode:04o}")) && why.contains("chmod 600"),
                "{why}"
            );
        }
        write(b"nothing", 0o600);
        assert!(prove(&at).unwrap_err().contains("not a keytab"));
        write(&[5, 2], 0o600);
        assert!(prove(&at).unwrap_err().contains("holds no key"));
        write(&keytab(&["http", "gw"]), 0o600);
        let why = prove(&at).unwrap_err();
        assert!(why.contains("only keys of http/gw@R;"), "{why}");
        for parts in [&["CIFS", "gw"][..], &["host", "gw"], &["GW$"]] {
            write(&keytab(parts), 0o400);
            assert_eq!(read(&at).unwrap().len(), 1);
            // The library may be missing on the host of this test.
            assert_eq!(prove(&at).is_ok(), gss_sys::loaded().is_ok());
        }
    }
}
