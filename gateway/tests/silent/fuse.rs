//! A FUSE file system (linux/fuse.h) whose server is this test. It has a folder with files of zeros under all names of `f`
//! and a number, and discards writes.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Apparent size of each file in bytes, so large that truncating it takes long.
pub const SIZE: u64 = 1 << 30;

/// Requests that are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    None,
    /// Requests that move data, truncate a file or make it durable.
    Data,
    /// Requests that open a file.
    Open,
    /// All requests on files, but not on their folder.
    Files,
    All,
}

pub struct Fuse {
    at: tempfile::TempDir,
    device: File,
    state: Arc<State>,
}

struct State {
    silence: AtomicU8,
    /// Number of unanswered requests since the silence began.
    heard: AtomicUsize,
    /// The unanswered requests.
    unanswered: Mutex<Vec<Vec<u8>>>,
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const FALLOCATE: u32 = 43;
const COPY_FILE_RANGE: u32 = 47;
const SYNCFS: u32 = 50;
const DATA: [u32; 7] = [SETATTR, READ, WRITE, FSYNC, FALLOCATE, COPY_FILE_RANGE, SYNCFS];

/// The inode of the folder.
const ROOT: u64 = 1;

const NO_SYSTEM_CALL: i32 = -38;
const NO_ENTRY: i32 = -2;

fn word(request: &[u8], at: usize) -> u32 {
    request[at..at + 4].try_into().map(u32::from_le_bytes).unwrap()
}

fn long(request: &[u8], at: usize) -> u64 {
    request[at..at + 8].try_into().map(u64::from_le_bytes).unwrap()
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// `struct fuse_attr`
fn attributes(inode: u64, size: u64) -> Vec<u8> {
    let (mode, links, size) = match inode {
        1 => (0o040_777, 2, 0),
        _ => (0o100_666, 1, size),
    };
    let longs = [inode, size, size.div_ceil(512), 0, 0, 0].map(u64::to_le_bytes).concat();
    [longs, words(&[0, 0, 0, mode, links, 0, 0, 0, 4096, 0])].concat()
}

/// Returns the data for a request, or its error.
fn answer(request: &[u8]) -> Result<Vec<u8>, i32> {
    let inode = long(request, 16);
    match word(request, 4) {
        // Valid for no time at all.
        LOOKUP => {
            let name = request[40..].split(|b| *b == 0).next().unwrap_or_default();
            let number = std::str::from_utf8(name).ok().and_then(|n| n.strip_prefix('f'));
            let number: u64 = number.and_then(|n| n.parse().ok()).ok_or(NO_ENTRY)?;
            let inode = 2 + number;
            Ok([inode.to_le_bytes().to_vec(), vec![0; 32], attributes(inode, SIZE)].concat())
        }
        // GETATTR
        3 => Ok([vec![0; 16], attributes(inode, SIZE)].concat()),
        SETATTR => {
            let size = if word(request, 40) & 8 == 0 { SIZE } else { long(request, 56) };
            Ok([vec![0; 16], attributes(inode, size)].concat())
        }
        // OPEN, OPENDIR: bypass the page cache.
        OPEN | 27 => Ok(words(&[0, 0, 1, 0])),
        READ => Ok(vec![0; word(request, 56) as usize]),
        WRITE => Ok(words(&[word(request, 56), 0])),
        COPY_FILE_RANGE => Ok(words(&[word(request, 80), 0])),
        // RELEASE, FLUSH, RELEASEDIR and an empty READDIR
        18 | 25 | 28 | 29 | FSYNC | FALLOCATE | SYNCFS => Ok(Vec::new()),
        // STATFS: names of 255 bytes
        17 => Ok([vec![0; 40], words(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0])].concat()),
        // Allows writes of more than a page.
        INIT => Ok(words(&[
            7,
            31,
            65_536,
            1 << 5,
            12 << 16 | 12,
            1 << 17,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ])),
        _ => Err(NO_SYSTEM_CALL),
    }
}

fn respond(mut device: &File, request: &[u8]) {
    let (error, data) = match answer(request) {
        Ok(data) => (0i32, data),
        Err(error) => (error, Vec::new()),
    };
    let length = u32::try_from(16 + data.len()).unwrap();
    let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &request[8..16]].concat();
    // The kernel has removed aborted requests, so the answer fails.
    let _ = device.write(&[head, data].concat());
}

impl State {
    fn is_silent(&self, request: &[u8]) -> bool {
        let operation = word(request, 4);
        match self.silence.load(Ordering::Acquire) {
            0 => false,
            1 => DATA.contains(&operation),
            2 => operation == OPEN,
            3 => long(request, 16) != ROOT || operation == LOOKUP && request[40] == b'f',
            _ => true,
        }
    }

    fn serve(&self, mut device: &File) {
        let mut room = vec![0; 1 << 21];
        // Unmounting ends the loop.
        while let Ok(n) = device.read(&mut room) {
            let (request, operation) = (&room[..n], word(&room, 4));
            if [FORGET, INTERRUPT].contains(&operation) {
                continue;
            }
            let mut unanswered = self.unanswered.lock().unwrap();
            if self.is_silent(request) {
                unanswered.push(request.to_vec());
                self.heard.fetch_add(1, Ordering::AcqRel);
                continue;
            }
            drop(unanswered);
            respond(device, request);
        }
    }
}

impl Fuse {
    /// Mounts the file system; `None` if this user may not mount one.
    pub fn mount() -> Option<Self> {
        Self::mount_at(tempfile::tempdir().unwrap())
    }

    /// Mounts it at this folder.
    pub fn mount_at(at: tempfile::TempDir) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let how = "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other";
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse.silent", "-o", how, "silent"]).arg(at.path());
        let mounted = mount.stdin(device.try_clone().unwrap()).stderr(Stdio::null()).status();
        if !mounted.is_ok_and(|s| s.success()) {
            return None;
        }
        let state = Arc::new(State {
            silence: AtomicU8::new(0),
            heard: AtomicUsize::new(0),
            unanswered: Mutex::default(),
        });
        let (its, asked) = (state.clone(), device.try_clone().unwrap());
        std::thread::spawn(move || its.serve(&asked));
        Some(Self { at, device, state })
    }

    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Stops to answer these requests from now on.
    pub fn fall(&self, silence: Silence) {
        let mut unanswered = self.state.unanswered.lock().unwrap();
        self.state.silence.store(silence as u8, Ordering::Release);
        let requests = std::mem::take(&mut *unanswered);
        drop(unanswered);
        requests.iter().for_each(|request| respond(&self.device, request));
        self.state.heard.store(0, Ordering::Release);
    }

    /// Returns the number of unanswered requests since the silence began.
    pub fn heard(&self) -> usize {
        self.state.heard.load(Ordering::Acquire)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.fall(Silence::None);
        let _ = Command::new("umount").args(["-f", "-l"]).arg(self.at.path()).status();
    }
}
