//! What must survive a restart: the names of the clients that hold something, and the name of this server.
//!
//! *Operation.* One small file per client in `nfs4-clients` of the state directory. A file is written beside its place, made
//! durable, and renamed into it, so a crash leaves the old or the new set and never a torn record. A client is entered before it
//! may take anything new and struck out before others may take what it held (RFC 8881 section 8.4.2.1).
//!
//! *Memory.* The set of names; a client brings at most [`super::limits::CLIENTS_MAX`] of them.
//!
//! *Errors.* A record that cannot be read is left alone and reported: its client cannot reclaim, which is the safe side. A record
//! that cannot be written is the caller's error.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::wire::OPAQUE_LIMIT;

const MAGIC: &[u8; 8] = b"HGNFS4C1";
const FOLDER: &str = "nfs4-clients";
const SCOPE: &str = "nfs4-scope";

#[derive(Debug, Default)]
struct Files {
    of: HashMap<Box<[u8]>, PathBuf>,
    next: u64,
}

/// The durable set of clients; without a directory it is only in memory and nothing survives.
#[derive(Debug)]
pub(super) struct Recovery {
    folder: Option<PathBuf>,
    files: Mutex<Files>,
    /// Names this server through restarts (`server_scope`, `so_major_id`).
    pub(super) scope: Vec<u8>,
}

impl Recovery {
    /// Opens the set, and gives the names that it held.
    ///
    /// `run` is different in each run of the server: without a directory it names the server.
    pub(super) fn open(state_dir: Option<&Path>, run: u64) -> io::Result<(Self, Vec<Box<[u8]>>)> {
        let Some(dir) = state_dir else {
            let scope = format!("headgate-{run:016x}").into_bytes();
            return Ok((Self { folder: None, files: Mutex::default(), scope }, Vec::new()));
        };
        let folder = dir.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let mut files = Files::default();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|n| u64::from_str_radix(n, 16).ok());
            let Some(number) = number else {
                // A write that a crash interrupted.
                let _ = fs::remove_file(entry.path());
                continue;
            };
            files.next = files.next.max(number + 1);
            match fs::read(entry.path()).ok().as_deref().and_then(decode) {
                Some(name) => drop(files.of.insert(name, entry.path())),
                None => tracing::warn!(path = %entry.path().display(), "unreadable client record"),
            }
        }
        let names = files.of.keys().cloned().collect();
        let scope = load_scope(dir)?;
        Ok((Self { folder: Some(folder), files: Mutex::new(files), scope }, names))
    }

    /// Enters a client, durably. Blocks on the disk.
    pub(super) fn enter(&self, name: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.of.contains_key(name) {
            return Ok(());
        }
        let path = folder.join(format!("{:016x}", files.next));
        write_durably(&path, &encode(name))?;
        files.next += 1;
        files.of.insert(name.into(), path);
        Ok(())
    }

    /// The client is in the set, so entering it needs no disk.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.folder.is_none()
            || self.files.lock().unwrap_or_else(PoisonError::into_inner).of.contains_key(name)
    }

    /// Strikes a client out, durably. Blocks on the disk.
    pub(super) fn strike(&self, name: &[u8]) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = files.of.remove(name) {
            fs::remove_file(path)?;
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

fn encode(name: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(name);
    out.extend_from_slice(&checksum(&out).to_be_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Box<[u8]>> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    let name = body.strip_prefix(MAGIC)?;
    // One byte more than the client's own name: the minor version family stands before it.
    (checksum(body) == u64::from_be_bytes(*sum) && name.len() <= OPAQUE_LIMIT + 1)
        .then(|| name.into())
}

fn fresh_scope() -> io::Result<Vec<u8>> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(format!("headgate-{:032x}", u128::from_be_bytes(random)).into_bytes())
}

fn load_scope(dir: &Path) -> io::Result<Vec<u8>> {
    let path = dir.join(SCOPE);
    match fs::read(&path) {
        Ok(scope) if (1..=64).contains(&scope.len()) => Ok(scope),
        _ => {
            let scope = fresh_scope()?;
            write_durably(&path, &scope)?;
            Ok(scope)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(test: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("headgate-recovery-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn names_and_scope_survive_and_torn_records_do_not_count() {
        let d = dir("survive");
        let (r, names) = Recovery::open(Some(&d), 1).unwrap();
        assert!(names.is_empty());
        for name in [&b"one"[..], b"two", b"one"] {
            r.enter(name).unwrap();
        }
        assert!(r.has(b"one") && !r.has(b"three"));
        r.strike(b"two").unwrap();
        r.strike(b"never").unwrap();
        r.enter(b"three").unwrap();
        let scope = r.scope.clone();

        let torn = d.join(FOLDER).join("00000000000000aa");
        fs::write(&torn, &encode(b"torn")[..9]).unwrap();
        fs::write(d.join(FOLDER).join("00000000000000ab.new"), b"half").unwrap();
        let (r, mut names) = Recovery::open(Some(&d), 1).unwrap();
        names.sort();
        assert_eq!(names, [Box::from(&b"one"[..]), Box::from(&b"three"[..])]);
        assert_eq!(r.scope, scope);
        assert!(torn.exists() && !d.join(FOLDER).join("00000000000000ab.new").exists());
        r.enter(b"four").unwrap();
        assert_eq!(
            Recovery::open(Some(&d), 1).unwrap().1.len(),
            3,
            "a new record takes no old place"
        );
        fs::remove_dir_all(d).unwrap();
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let good = encode(b"client");
        assert_eq!(decode(&good).as_deref(), Some(&b"client"[..]));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
        assert_eq!(decode(b""), None);
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_nothing_fails() {
        let (r, names) = Recovery::open(None, 1).unwrap();
        assert!(names.is_empty() && r.has(b"x"));
        r.enter(b"x").unwrap();
        r.strike(b"x").unwrap();
        assert!(r.scope.starts_with(b"headgate-"));
    }
}
