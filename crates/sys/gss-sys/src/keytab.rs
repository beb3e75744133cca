//! Reads the entries of a keytab in MIT's file formats 1 (0x0501) and 2 (0x0502). Pure, except for [`open`] and
//! [`read`].
//!
//! *Errors.* A file that is truncated or not a keytab. Every length is checked against the remaining bytes before use.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum size of a keytab, in bytes; an entry has about a hundred.
const BYTES_MAX: u64 = 4 << 20;

/// An entry of a keytab, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Principal: `cifs/server.lab.test@LAB.TEST`.
    pub principal: String,
    /// Version of the key.
    pub kvno: u32,
    /// Encryption type (RFC 3961 section 8).
    pub enctype: u16,
}

impl Entry {
    /// Returns the first component: `cifs`, `host`, `nfs`.
    pub fn service(&self) -> &str {
        let end = self.principal.find(['/', '@']).unwrap_or(self.principal.len());
        &self.principal[..end]
    }

    /// Returns the principal without its realm: `cifs/server.lab.test`.
    pub fn name(&self) -> &str {
        self.principal.rsplit_once('@').map_or(&self.principal, |(name, _)| name)
    }

    /// Returns the realm, after the last `@`.
    pub fn realm(&self) -> &str {
        self.principal.rsplit_once('@').map_or("", |(_, realm)| realm)
    }

    /// Returns the name of the encryption type in krb5.conf.
    pub fn enctype_name(&self) -> String {
        match self.enctype {
            1 => "des-cbc-crc".into(),
            3 => "des-cbc-md5".into(),
            16 => "des3-cbc-sha1".into(),
            17 => "aes128-cts-hmac-sha1-96".into(),
            18 => "aes256-cts-hmac-sha1-96".into(),
            19 => "aes128-cts-hmac-sha256-128".into(),
            20 => "aes256-cts-hmac-sha384-192".into(),
            23 => "arcfour-hmac".into(),
            25 => "camellia128-cts-cmac".into(),
            26 => "camellia256-cts-cmac".into(),
            other => format!("encryption type {other}"),
        }
    }

    /// Checks for an insecure cipher: DES, triple DES, RC4.
    pub fn is_weak(&self) -> bool {
        matches!(self.enctype, 1..=16 | 23 | 24)
    }
}

/// Opens a regular file. Refuses a pipe or a device without waiting for its other end.
///
/// # Errors
/// Errors of the file, and `InvalidInput` if it is not regular.
pub fn open(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Reads a regular file. Blocks only on the disk.
///
/// # Errors
/// Errors of [`open`] and of reading, and `InvalidData` if it is not a keytab.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|n| n > BYTES_MAX) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than a keytab can be"));
    }
    parse(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Parses the entries of a keytab in order.
///
/// # Errors
/// A description of the error.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, &'static str> {
    Ok(with_keys(bytes)?.into_iter().map(|(entry, _)| entry).collect())
}

/// Calls `each` with the encryption type and the key of every entry of this keytab, whose file is read from its beginning.
///
/// # Errors
/// Errors of reading, and `InvalidData` if it is not a keytab.
pub(crate) fn keys_of<T>(
    mut file: &File,
    each: impl FnOnce(&[(Entry, &[u8])]) -> T,
) -> io::Result<T> {
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    file.rewind()?;
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let entries =
        with_keys(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok(each(&entries))
}

fn with_keys(bytes: &[u8]) -> Result<Vec<(Entry, &[u8])>, &'static str> {
    let (version, mut rest) = bytes.split_at_checked(2).ok_or("not a keytab: it is empty")?;
    if version != [5, 2] {
        return Err("not a keytab of version 0x0502, which all programs write");
    }
    let mut entries = Vec::new();
    while let Some((size, after)) = rest.split_first_chunk::<4>() {
        let size = i32::from_be_bytes(*size);
        let length = usize::try_from(size.unsigned_abs()).map_err(|_| CUT)?;
        // After an entry of length zero, the rest of the file is unused.
        if length == 0 {
            break;
        }
        let (entry, after) = after.split_at_checked(length).ok_or(CUT)?;
        // A removed entry left a hole.
        if size > 0 {
            entries.push(one(entry)?);
        }
        rest = after;
    }
    Ok(entries)
}

const CUT: &str = "a keytab that is cut";

fn one(bytes: &[u8]) -> Result<(Entry, &[u8]), &'static str> {
    let mut at = Cursor(bytes);
    let count = at.u16()?;
    let realm = at.text()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push(at.text()?);
    }
    at.take(8)?; // Type of the name, and time of the entry.
    let short = at.take(1)?.first().copied().unwrap_or_default();
    let enctype = at.u16()?;
    let key = at.u16()?;
    let key = at.take(key.into())?;
    // The 32-bit version is present if the entry has room for it, and valid if not zero.
    let long = at.0.first_chunk::<4>().map(|b| u32::from_be_bytes(*b)).filter(|n| *n != 0);
    let entry = Entry {
        principal: format!("{}@{realm}", parts.join("/")),
        kvno: long.unwrap_or(short.into()),
        enctype,
    };
    Ok((entry, key))
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?.first_chunk::<2>().ok_or(CUT)?;
        Ok(u16::from_be_bytes(*bytes))
    }

    fn text(&mut self) -> Result<String, &'static str> {
        let length = self.u16()?;
        Ok(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A keytab as `ktutil` writes it: `cifs/s@R` with key version 3, then a hole, then version 300 of `SRV$@R`.
    fn sample() -> Vec<u8> {
        let entry = |parts: &[&str], short: u8, enctype: u8, long: u32| {
            let mut e = vec![0, u8::try_from(parts.len()).unwrap(), 0, 1, b'R'];
            for part in parts {
                e.extend([0, u8::try_from(part.len()).unwrap()]);
                e.extend(part.as_bytes());
            }
            e.extend([0, 0, 0, 1, 1, 2, 3, 4, short, 0, enctype, 0, 4, 9, 9, 9, 9]);
            e.extend(long.to_be_bytes());
            [&i32::try_from(e.len()).unwrap().to_be_bytes()[..], &e].concat()
        };
        let hole = [&(-7_i32).to_be_bytes()[..], &[0; 7]].concat();
        [vec![5, 2], entry(&["cifs", "s"], 3, 18, 3), hole, entry(&["SRV$"], 44, 23, 300)].concat()
    }

    #[test]
    fn keytab_holes_are_skipped() {
        let entries = parse(&sample()).unwrap();
        let seen: Vec<_> =
            entries.iter().map(|e| (e.principal.as_str(), e.kvno, e.enctype)).collect();
        assert_eq!(seen, [("cifs/s@R", 3, 18), ("SRV$@R", 300, 23)]);
        assert_eq!((entries[0].service(), entries[0].realm()), ("cifs", "R"));
        assert_eq!(entries[0].enctype_name(), "aes256-cts-hmac-sha1-96");
        assert!(!entries[0].is_weak() && entries[1].is_weak());
        let keys =
            with_keys(&sample()).map(|all| all.iter().map(|(_, key)| key.to_vec()).collect());
        assert_eq!(keys, Ok(vec![vec![9; 4]; 2]));
    }

    #[test]
    fn truncated_keytab_is_refused() {
        let whole = sample();
        assert!(parse(&[]).is_err() && parse(b"\x05\x01").is_err());
        for end in 7..whole.len() {
            match parse(&whole[..end]) {
                Ok(entries) => assert!(entries.len() < 2, "{end}"),
                Err(why) => assert_eq!(why, CUT, "{end}"),
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            bytes.splice(0..0, [5, 2, 0, 0, 0]);
            let _ = parse(&bytes);
        }
    }
}
