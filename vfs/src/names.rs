//! Handles names with the rules of Windows, on a file system that distinguishes case.
//!
//! *Operation.* A client's name is text. [`to_disk`] returns its bytes, and [`to_client`] a text by which a client can ask for any
//! name on disk: characters that Windows reserves, and a last dot or space, are moved to the private range U+F001 to U+F029 like
//! Linux and macOS clients do ("SFM"; the older "SFU" mapping of Linux is understood too), and bytes that are not UTF-8 to U+F180
//! to U+F1FF. Text is stored unchanged: no normalisation, no 8.3 names. [`Names::find`] first looks a name up as given, which needs
//! no listing of the directory; if that fails it asks an index of the directory's names by their upper case. The index is valid
//! while the directory's change attribute stays, is updated by changes through `FileOps`, and otherwise is built again by one scan,
//! for which all callers of that directory wait. Changes by other processes of the host are seen as soon as the change attribute
//! shows them.
//!
//! *Memory.* [`Names::set_memory`] bytes for all indexes, finished or not, and three quarters of them for the indexes requested by
//! one address. The least recently used index of the address with the largest share makes room. For a directory with more names
//! than fit, or than [`DIR_NAMES_MAX`], only that many names are found in another case; [`Counters::partial`] counts this. A scan
//! that finds no room while other scans run looks for its one name and stores no index. One scan at a time for an address,
//! [`SCANS_MAX`] for all.
//!
//! *Errors.* [`VfsError::BadName`] for text that cannot be a name; [`VfsError::Resources`] after [`SCAN_WAIT_MAX`] without a turn.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ahash::{HashMap, RandomState};
use mutex::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::backend::{FoundOrFolder, NodeRef};
use crate::error::{VfsError, VfsResult};
use crate::memory_return;
use crate::name_index::NameIndex;
use crate::types::*;

/// Memory of all indexes before [`Names::set_memory`] is called.
const MEMORY: usize = 16 << 20;
/// Largest number of names in the index of one directory.
pub const DIR_NAMES_MAX: usize = 1 << 18;
/// Largest number of directories that are scanned at once.
pub const SCANS_MAX: usize = 8;
/// How long a look-up waits for a scan to begin.
pub const SCAN_WAIT_MAX: Duration = Duration::from_secs(30);
/// Names fetched at once when an index is built.
const STEP: usize = 1024;

/// Characters that Windows reserves, and their numbers in the private range (in `cifs_unicode.h` and on macOS).
const RESERVED: [(char, char); 8] = [
    ('"', '\u{f020}'),
    ('*', '\u{f021}'),
    (':', '\u{f022}'),
    ('<', '\u{f023}'),
    ('>', '\u{f024}'),
    ('?', '\u{f025}'),
    ('\\', '\u{f026}'),
    ('|', '\u{f027}'),
];
const SPACE: char = '\u{f028}';
const PERIOD: char = '\u{f029}';

/// The same characters in Linux's older mapping (`mapchars`): the character itself, moved by U+F000.
const OLD_RESERVED: [(char, char); 7] = [
    ('*', '\u{f02a}'),
    (':', '\u{f03a}'),
    ('<', '\u{f03c}'),
    ('>', '\u{f03e}'),
    ('?', '\u{f03f}'),
    ('\\', '\u{f05c}'),
    ('|', '\u{f07c}'),
];

/// By byte: whether it is the same in text that a client sees and on disk. This is false of control characters, reserved ones, and
/// [`MOVED`].
const IS_PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut control = 0;
    while control < b' ' as usize {
        plain[control] = false;
        control += 1;
    }
    let mut at = 0;
    while at < RESERVED.len() {
        plain[RESERVED[at].0 as usize] = false;
        at += 1;
    }
    plain[b'/' as usize] = false;
    plain[MOVED as usize] = false;
    plain
};

/// First byte of U+F000 to U+FFFF in UTF-8, which has the private range.
const MOVED: u8 = 0xef;

/// Returns the name as text if clients see it as it is.
fn plain(name: &[u8]) -> Option<&str> {
    let is_plain = !matches!(name.last(), Some(b' ' | b'.'))
        && name.iter().all(|byte| IS_PLAIN[usize::from(*byte)]);
    std::str::from_utf8(name).ok().filter(|_| is_plain)
}

/// Returns true for a character that is not allowed in a client's name (MS-FSCC section 2.1.5.2).
pub fn is_reserved(c: char) -> bool {
    c < ' ' || c == '/' || RESERVED.iter().any(|(r, _)| *r == c)
}

/// Returns the bytes of a client's name: one component, without wildcards or a stream.
pub fn to_disk(text: &str) -> VfsResult<Vec<u8>> {
    match plain(text.as_bytes()) {
        Some(name) if !name.is_empty() => Ok(name.as_bytes().to_vec()),
        _ => moved_back(text),
    }
}

fn moved_back(text: &str) -> VfsResult<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        if is_reserved(c) {
            return Err(VfsError::BadName);
        }
        push_meant(&mut out, c);
    }
    match &out[..] {
        b"" | b"." | b".." => Err(VfsError::BadName),
        name if name.contains(&0) || name.contains(&b'/') => Err(VfsError::BadName),
        _ => Ok(out),
    }
}

/// Appends the byte or character for one character of a client's text.
fn push_meant(out: &mut Vec<u8>, c: char) {
    match byte_of(c) {
        Some(byte) => out.push(byte),
        None => {
            let meant = meant_by(c).unwrap_or(c);
            out.extend_from_slice(meant.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Returns the character that clients move to this character of the private range.
fn meant_by(c: char) -> Option<char> {
    match c {
        '\u{f001}'..='\u{f01f}' => char::from_u32(u32::from(c) - 0xf000),
        SPACE => Some(' '),
        PERIOD => Some('.'),
        '\u{f020}'..='\u{f07c}' => {
            let mut known = RESERVED.iter().chain(&OLD_RESERVED);
            known.find(|(_, private)| *private == c).map(|(reserved, _)| *reserved)
        }
        _ => None,
    }
}

/// Returns the text by which clients see this name.
pub fn to_client(name: &[u8]) -> String {
    plain(name).map_or_else(|| moved(name), str::to_owned)
}

fn moved(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let private = RESERVED.iter().find(|(r, _)| *r == c).map(|(_, private)| *private);
            let control = || char::from_u32(0xf000 + u32::from(c)).filter(|_| c < ' ');
            out.push(private.or_else(control).unwrap_or(c));
        }
        for b in chunk.invalid() {
            out.extend(char::from_u32(0xf100 + u32::from(*b)));
        }
    }
    let last = match out.chars().next_back() {
        Some(' ') => SPACE,
        Some('.') => PERIOD,
        _ => return out,
    };
    out.pop();
    out.push(last);
    out
}

/// Returns the text before a last dot or space that [`to_client`] has moved, and that character.
pub fn last_of(shown: &str) -> Option<(&str, char)> {
    let dot = || Some((shown.strip_suffix(PERIOD)?, '.'));
    shown.strip_suffix(SPACE).map(|rest| (rest, ' ')).or_else(dot)
}

/// How a client writes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Windows reserves characters, so [`to_client`] moves them to the private range and [`to_disk`] back.
    Windows,
    /// The POSIX extensions of SMB reserve only the separator `/` and NUL: clients see the name itself. Linux also moves the
    /// characters reserved by Windows to the private range on these mounts when it sends a name, so [`to_disk`](Self::to_disk)
    /// moves them back. A byte that is not UTF-8, which the protocol's text cannot contain, is moved to U+F180 and up, and so are
    /// the bytes of every character that would not be converted back to itself.
    Posix,
}

impl Spelling {
    /// Returns the bytes of a client's name.
    pub fn to_disk(self, text: &str) -> VfsResult<Vec<u8>> {
        if self == Self::Windows {
            return to_disk(text);
        }
        let mut out = Vec::with_capacity(text.len());
        text.chars().for_each(|c| push_meant(&mut out, c));
        match &out[..] {
            b"" | b"." | b".." => Err(VfsError::BadName),
            name if name.contains(&0) || name.contains(&b'/') => Err(VfsError::BadName),
            _ => Ok(out),
        }
    }

    /// Returns the text by which clients see this name.
    pub fn to_client(self, name: &[u8]) -> String {
        if self == Self::Windows {
            return to_client(name);
        }
        let moved =
            |b: u8| char::from_u32(0xf100 + u32::from(b)).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut out = String::with_capacity(name.len());
        for chunk in name.utf8_chunks() {
            for c in chunk.valid().chars() {
                match byte_of(c).is_some() || meant_by(c).is_some() {
                    true => out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(moved)),
                    false => out.push(c),
                }
            }
            out.extend(chunk.invalid().iter().copied().map(moved));
        }
        out
    }

    /// Finds a name exactly as the client sent it.
    pub async fn exact(self, dir: &NodeRef, cred: &Cred, text: &str) -> VfsResult<Found> {
        let name = self.to_disk(text)?;
        let (node, attr) = dir.lookup(cred, &name).await?;
        Ok(Found { node, attr, name })
    }
}

/// Returns the byte that a character of U+F180 to U+F1FF represents, if it is not UTF-8.
fn byte_of(c: char) -> Option<u8> {
    match c {
        '\u{f180}'..='\u{f1ff}' => u8::try_from(u32::from(c) - 0xf100).ok(),
        _ => None,
    }
}

/// Returns the upper case as the file systems of Windows compare names: one character for one, within the basic plane, and never
/// from another script into ASCII (as `ı` and `ſ` would).
pub fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    // On Windows the micro sign and the iota below are separate letters.
    if u32::from(c) > 0xffff || matches!(c, 'µ' | '\u{345}' | '\u{1fbe}') {
        return c;
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(u), None) if !u.is_ascii() && u32::from(u) <= 0xffff => u,
        _ => c,
    }
}

/// Returns true if a client takes both names as equal.
pub fn same(a: &str, b: &str) -> bool {
    a.chars().map(upcase).eq(b.chars().map(upcase))
}

/// A node found under a name.
pub struct Found {
    pub node: NodeRef,
    pub attr: Attr,
    /// The name on disk, as bytes.
    pub name: Vec<u8>,
}

/// The result of a look-up.
pub enum Look {
    /// The name exists.
    Found(Found),
    /// The name does not exist; contains the directory's attributes at that time.
    Missing(Attr),
}

/// How often a name was missing in the given case, and the cost of that.
#[derive(Debug, Default)]
pub struct Counters {
    /// Look-ups of names in another case.
    pub misses: AtomicU64,
    /// Directories that were listed for that.
    pub scans: AtomicU64,
    /// Scans that ended before their directory did: it has too many names.
    pub partial: AtomicU64,
}

/// The indexed names of one directory.
struct Known {
    /// The directory's change attribute for which they are valid; `None`: it changed while they were read.
    change: Option<u64>,
    /// When their scan began, on the clock of scans and look-ups.
    began: u64,
    index: NameIndex,
    /// True if the index has all names, so that a missing name does not exist.
    whole: bool,
    /// When they were last used, in uses.
    used: u64,
    /// The address that asked for them; `None`: the gateway.
    by: Option<IpAddr>,
    /// Bytes that are counted for them.
    bytes: usize,
}

#[derive(Default)]
struct Indexes {
    by_dir: HashMap<NodeId, Known>,
    /// Bytes of all indexes, including unfinished scans.
    bytes: usize,
    by_address: HashMap<Option<IpAddr>, usize>,
    uses: u64,
    /// Indexes dropped for another index of the same address, and for an index of another address.
    displaced: [u64; 2],
}

/// Semaphores for scans: one for each address, and one for each directory.
#[derive(Default)]
struct Turns {
    of_address: HashMap<Option<IpAddr>, Arc<Semaphore>>,
    of_dir: HashMap<NodeId, Arc<Semaphore>>,
}

/// The indexes of directories in which a name was missing in the given case.
pub struct Names {
    indexes: Mutex<Indexes>,
    /// Number of indexes, readable without the lock, so that an empty set needs no lock.
    count: AtomicUsize,
    memory: AtomicUsize,
    turns: Mutex<Turns>,
    scans: Arc<Semaphore>,
    /// Counts scans and look-ups, to tell which began first.
    clock: AtomicU64,
    hasher: RandomState,
    /// Counts the cost of look-ups.
    pub counters: Counters,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            indexes: Mutex::default(),
            count: AtomicUsize::new(0),
            memory: AtomicUsize::new(MEMORY),
            turns: Mutex::default(),
            scans: Arc::new(Semaphore::new(SCANS_MAX)),
            clock: AtomicU64::new(0),
            hasher: RandomState::default(),
            counters: Counters::default(),
        }
    }
}

/// Bytes of an unfinished scan or of an index; given back if it is dropped before it is stored.
struct Paid<'a> {
    names: &'a Names,
    by: Option<IpAddr>,
    bytes: usize,
}

impl Paid<'_> {
    /// Sets its size to this many bytes, if there is room. Other indexes may be dropped for that.
    fn set(&mut self, bytes: usize) -> Result<(), Shortage> {
        let memory = self.names.memory.load(Ordering::Relaxed);
        let mut all = self.names.lock();
        let more = bytes.saturating_sub(self.bytes);
        let room = all.make_room(self.by, more, memory);
        if room.is_ok() {
            all.uncount(self.by, self.bytes);
            all.count(self.by, bytes);
            self.bytes = bytes;
        }
        self.names.count.store(all.by_dir.len(), Ordering::Relaxed);
        room
    }
}

/// Why there is no room for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortage {
    /// The index is larger than the share of one address.
    Own,
    /// Scans of other addresses use the memory now.
    Others,
}

impl Drop for Paid<'_> {
    fn drop(&mut self) {
        self.names.lock().uncount(self.by, self.bytes);
        memory_return::note_freed(self.bytes);
    }
}

impl Names {
    /// Finds a client's name in any case.
    pub async fn find(&self, dir: &NodeRef, cred: &Cred, text: &str) -> VfsResult<Found> {
        self.find_for(None, dir, cred, text).await
    }

    /// Like [`Names::find`], for a client of this address, to which the memory is charged.
    pub async fn find_for(
        &self,
        by: Option<IpAddr>,
        dir: &NodeRef,
        cred: &Cred,
        text: &str,
    ) -> VfsResult<Found> {
        match self.look_for(by, dir, cred, text).await? {
            Look::Found(found) => Ok(found),
            Look::Missing(_) => Err(VfsError::NotFound),
        }
    }

    /// Like [`Names::find_for`], for a caller that may create a missing name.
    pub async fn look_for(
        &self,
        by: Option<IpAddr>,
        dir: &NodeRef,
        cred: &Cred,
        text: &str,
    ) -> VfsResult<Look> {
        let name = Spelling::Windows.to_disk(text)?;
        let before = match dir.lookup_or_folder(cred, &name).await? {
            FoundOrFolder::Found(node, attr) => return Ok(Look::Found(Found { node, attr, name })),
            FoundOrFolder::Missing(before) => before,
        };
        let Some(name) = self.actual(by, dir, &before, text).await? else {
            return Ok(Look::Missing(before));
        };
        let (node, attr) = dir.lookup(cred, &name).await?;
        Ok(Look::Found(Found { node, attr, name }))
    }

    /// Sets the memory for all indexes.
    pub fn set_memory(&self, bytes: usize) {
        self.memory.store(bytes, Ordering::Relaxed);
        let mut all = self.lock();
        let _ = all.make_room(None, 0, bytes);
        self.count.store(all.by_dir.len(), Ordering::Relaxed);
    }

    /// Returns the number of indexes dropped because their address used up its share, and because all memory was used.
    pub fn displaced(&self) -> [u64; 2] {
        self.lock().displaced
    }

    /// Returns whether the names of some directory are indexed.
    pub(crate) fn has_indexes(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns the memory that indexes take now.
    pub fn memory_used(&self) -> usize {
        self.lock().bytes
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the name on disk that matches a text in another case, in a directory that was just in the state `before`; the first
    /// in byte order if several differ only in case.
    async fn actual(
        &self,
        by: Option<IpAddr>,
        dir: &NodeRef,
        before: &Attr,
        text: &str,
    ) -> VfsResult<Option<Vec<u8>>> {
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let (id, came) = (dir.id(), self.tick());
        if let Some(known) = self.known(id, before.change, came, text) {
            return Ok(known);
        }
        let own = self.turn(|turns| turns.of_address.entry(by).or_insert_with(single).clone());
        let its = self.turn(|turns| turns.of_dir.entry(id).or_insert_with(single).clone());
        let _own = take(&own).await?;
        if let Some(known) = self.known(id, before.change, came, text) {
            return Ok(known);
        }
        // Callers that wait for another scan of this directory must not occupy a place that scans of other directories need.
        let _its = take(&its).await?;
        // Another scan of the directory may have begun and ended meanwhile.
        if let Some(known) = self.known(id, before.change, came, text) {
            return Ok(known);
        }
        let _all = take(&self.scans).await?;
        self.scan(by, dir, text).await
    }

    /// Builds the index of a directory, and looks a name up in it.
    async fn scan(
        &self,
        by: Option<IpAddr>,
        dir: &NodeRef,
        text: &str,
    ) -> VfsResult<Option<Vec<u8>>> {
        self.counters.scans.fetch_add(1, Ordering::Relaxed);
        let (began, change) = (self.tick(), dir.getattr().await?.change);
        // The old index would count twice.
        self.forget(dir.id());
        let mut paid = Paid { names: self, by, bytes: 0 };
        let (mut index, mut found) = (Some(NameIndex::default()), None);
        let (mut cookie, mut end) = (0, false);
        while !end {
            // Not as the caller, who may look names up where he may not list them.
            let (some, last) = match dir.readdir(&Cred::root(), cookie, STEP).await {
                Err(VfsError::Access) => return Ok(None),
                other => other?,
            };
            if let Some(known) = &mut index {
                let more = NameIndex::bytes_of(some.iter().map(|e| &e.name[..]));
                let bytes = known.bytes().saturating_add(more);
                match paid.set(bytes.saturating_add(bytes / 16)) {
                    Ok(()) if known.len() < DIR_NAMES_MAX => self.add(known, &some),
                    Ok(()) | Err(Shortage::Own) => break,
                    Err(Shortage::Others) => {
                        found = known.find(self.number(text), is_named(text));
                        index = None;
                        let _ = paid.set(0);
                    }
                }
            }
            if index.is_none() {
                let named = some.iter().map(|e| &e.name).filter(|name| is_named(text)(name));
                found = found.into_iter().chain(named.map(|name| name.to_vec())).min();
            }
            end = last;
            cookie = some.last().map_or(cookie, |e| e.cookie);
            tokio::task::yield_now().await;
        }
        let Some(index) = index else { return Ok(found) };
        if !end {
            self.counters.partial.fetch_add(1, Ordering::Relaxed);
            let names = index.len();
            tracing::warn!(names, "directory too large to find every name regardless of case");
        }
        let found = index.find(self.number(text), is_named(text));
        let is_same = dir.getattr().await?.change == change;
        let change = is_same.then_some(change);
        let _ = paid.set(index.bytes());
        let known = Known { change, began, index, whole: end, used: 0, by, bytes: 0 };
        self.keep(dir.id(), known, paid);
        Ok(found)
    }

    fn add(&self, index: &mut NameIndex, entries: &[DirEntry]) {
        for entry in entries {
            index.insert(self.number(&to_client(&entry.name)), &entry.name);
        }
    }

    /// Returns the semaphore of this kind. Unused ones are removed.
    fn turn(&self, of: impl FnOnce(&mut Turns) -> Arc<Semaphore>) -> Arc<Semaphore> {
        let mut turns = locked(&self.turns);
        let is_used = |turn: &Arc<Semaphore>| Arc::strong_count(turn) > 1;
        if turns.of_dir.len() + turns.of_address.len() >= 64 {
            turns.of_dir.retain(|_, turn| is_used(turn));
            turns.of_address.retain(|_, turn| is_used(turn));
        }
        of(&mut turns)
    }

    fn number(&self, text: &str) -> u32 {
        let mut h = self.hasher.build_hasher();
        text.chars().for_each(|c| h.write_u32(u32::from(upcase(c))));
        // The upper half of the hash.
        u32::try_from(h.finish() >> 32).unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Indexes> {
        // The data is consistent at every step.
        locked(&self.indexes)
    }

    /// Returns the index's answer to a look-up that began at `came`, if the index is valid: for the current directory, or read
    /// after that time.
    fn known(&self, dir: NodeId, change: u64, came: u64, text: &str) -> Option<Option<Vec<u8>>> {
        let number = self.number(text);
        let mut all = self.lock();
        all.uses += 1;
        let uses = all.uses;
        let known = all.by_dir.get_mut(&dir)?;
        if known.whole && known.change != Some(change) && known.began < came {
            return None;
        }
        known.used = uses;
        Some(known.index.find(number, is_named(text)))
    }

    fn forget(&self, dir: NodeId) {
        let mut all = self.lock();
        all.drop_index(dir);
        self.count.store(all.by_dir.len(), Ordering::Relaxed);
    }

    fn keep(&self, dir: NodeId, mut known: Known, mut paid: Paid<'_>) {
        let mut all = self.lock();
        all.drop_index(dir);
        all.uses += 1;
        (known.used, known.bytes) = (all.uses, std::mem::take(&mut paid.bytes));
        all.by_dir.insert(dir, known);
        self.count.store(all.by_dir.len(), Ordering::Relaxed);
    }

    /// Updates the index after `FileOps` added a name to a directory.
    pub fn made(&self, dir: NodeId, name: &[u8], change: &DirChange) {
        self.follow(dir, change, |index, number| index.insert(number, name), name);
    }

    /// Updates the index after `FileOps` removed a name from a directory.
    pub fn gone(&self, dir: NodeId, name: &[u8], change: &DirChange) {
        self.follow(dir, change, |index, number| index.remove(number, name), name);
    }

    /// Updates an index from before a change to after it. An index of an older state has missed another change and is dropped.
    fn follow(
        &self,
        dir: NodeId,
        change: &DirChange,
        apply: impl FnOnce(&mut NameIndex, u32),
        name: &[u8],
    ) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let number = self.number(&to_client(name));
        let memory = self.memory.load(Ordering::Relaxed);
        let mut all = self.lock();
        let Some(known) = all.by_dir.get_mut(&dir) else { return };
        let has_missed = known.change.is_none_or(|last| change.before.change > last);
        if !(known.whole && has_missed) {
            apply(&mut known.index, number);
        }
        let (by, bytes, had) = (known.by, known.index.bytes(), known.bytes);
        if known.whole && has_missed || known.index.is_worn() {
            all.drop_index(dir);
        } else {
            known.change = known.change.map(|last| last.max(change.after.change));
            known.bytes = bytes;
            all.uncount(by, had);
            all.count(by, bytes);
            let _ = all.make_room(by, 0, memory);
        }
        self.count.store(all.by_dir.len(), Ordering::Relaxed);
    }
}

fn single() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

/// Waits for a turn. The clock is needed only if other callers hold it.
async fn take(turn: &Arc<Semaphore>) -> VfsResult<OwnedSemaphorePermit> {
    if let Ok(permit) = turn.clone().try_acquire_owned() {
        return Ok(permit);
    }
    let waited = tokio::time::timeout(SCAN_WAIT_MAX, turn.clone().acquire_owned()).await;
    waited.ok().and_then(Result::ok).ok_or(VfsError::Resources)
}

/// Returns a function that tells whether a name matches this text.
fn is_named(text: &str) -> impl Fn(&[u8]) -> bool {
    move |name| same(&to_client(name), text)
}

impl Indexes {
    fn count(&mut self, by: Option<IpAddr>, bytes: usize) {
        self.bytes += bytes;
        if bytes > 0 {
            *self.by_address.entry(by).or_default() += bytes;
        }
    }

    fn uncount(&mut self, by: Option<IpAddr>, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_address) = self.by_address.get_mut(&by) {
            *of_address = of_address.saturating_sub(bytes);
            if *of_address == 0 {
                self.by_address.remove(&by);
            }
        }
    }

    fn drop_index(&mut self, dir: NodeId) {
        if let Some(old) = self.by_dir.remove(&dir) {
            self.uncount(old.by, old.bytes);
            memory_return::note_freed(old.bytes);
        }
    }

    /// Drops indexes until this many more bytes fit: from this address if it would exceed its share, else from the address with the
    /// most.
    fn make_room(
        &mut self,
        by: Option<IpAddr>,
        more: usize,
        memory: usize,
    ) -> Result<(), Shortage> {
        loop {
            let own = self.by_address.get(&by).copied().unwrap_or(0).saturating_add(more);
            let (of, why) = if own > memory / 4 * 3 {
                (Some(by), Shortage::Own)
            } else if self.bytes.saturating_add(more) > memory {
                let owners = self.by_dir.values().map(|known| known.by);
                let most = owners.max_by_key(|by| self.by_address.get(by).copied());
                (most, Shortage::Others)
            } else {
                return Ok(());
            };
            let its = self.by_dir.iter().filter(|(_, known)| Some(known.by) == of);
            let oldest = its.min_by_key(|(_, known)| known.used).map(|(dir, _)| *dir);
            let Some(oldest) = oldest else { return Err(why) };
            self.drop_index(oldest);
            self.displaced[usize::from(why == Shortage::Others)] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_disk_name_reachable_by_client(name in prop::collection::vec(1_u8.., 1..40)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let text = to_client(&name);
            prop_assert!(!text.chars().any(is_reserved));
            prop_assert!(!text.ends_with([' ', '.']));
            // Private characters on the disk itself are the one ambiguity; the index resolves it.
            if !String::from_utf8_lossy(&name).chars().any(|c| ('\u{f000}'..='\u{f1ff}').contains(&c)) {
                prop_assert_eq!(to_disk(&text), Ok(name));
            }
        }

        #[test]
        fn plain_names_are_as_they_are(name in "[a-c\u{f001}\u{f026}\u{ff21}é€𝄞 .:/\n\u{7f}]{0,6}|\\PC{0,12}") {
            if let Some(text) = plain(name.as_bytes()) {
                prop_assert_eq!(text, &name);
                prop_assert_eq!(moved(text.as_bytes()), text);
                prop_assert_eq!(moved_back(text), to_disk(text));
            }
        }

        #[test]
        fn client_text_is_name_or_refused(text in "\\PC{0,20}|[\u{f000}-\u{f1ff}a./]{0,8}") {
            if let Ok(name) = to_disk(&text) {
                prop_assert!(crate::backend::check_name(&name, u32::MAX).is_ok());
            }
        }
    }

    proptest! {
        #[test]
        fn posix_spelling_names_every_file_once(
            name in "([a\u{f022}\u{f180}\u{f1ff}:?\\\\ .]|\\PC){1,12}",
            bytes in prop::collection::vec(1_u8.., 1..40),
        ) {
            for name in [name.into_bytes(), bytes] {
                prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
                let text = Spelling::Posix.to_client(&name);
                prop_assert_eq!(Spelling::Posix.to_disk(&text), Ok(name));
            }
        }
    }

    #[test]
    fn posix_spelling_keeps_reserved_characters() {
        for name in ["a:b", "q?", "tr.", "sp ", "back\\slash", "\u{f02b}", "\u{1}", "<\"|>*"] {
            assert_eq!(Spelling::Posix.to_client(name.as_bytes()), name);
            assert_eq!(Spelling::Posix.to_disk(name).as_deref(), Ok(name.as_bytes()));
        }
        // As Linux 6.12 sends names on such a mount.
        let sent = "a\u{f022}b\u{f025}\u{f026}\u{f01f}c\u{f029}";
        assert_eq!(Spelling::Posix.to_disk(sent).as_deref(), Ok(&b"a:b?\\\x1fc."[..]));
        assert_eq!(Spelling::Posix.to_client("\u{f022}".as_bytes()), "\u{f1ef}\u{f180}\u{f1a2}");
        assert_eq!(Spelling::Posix.to_client(b"a\xffb"), "a\u{f1ff}b");
        for bad in ["", ".", "..", "a/b", "a\0"] {
            assert_eq!(Spelling::Posix.to_disk(bad), Err(VfsError::BadName), "{bad:?}");
        }
    }

    #[test]
    fn reserved_characters_move() {
        let name = b"a\"*:<>?\\|\x01b ";
        let text =
            "a\u{f020}\u{f021}\u{f022}\u{f023}\u{f024}\u{f025}\u{f026}\u{f027}\u{f001}b\u{f028}";
        assert_eq!(to_client(name), text);
        assert_eq!(to_disk(text).as_deref(), Ok(&name[..]));
        assert_eq!(to_disk("\u{f02a}\u{f03a}\u{f07c}").as_deref(), Ok(&b"*:|"[..]));
        assert_eq!(to_client(b"x.."), "x.\u{f029}");
        assert_eq!(to_client(b"\xff\xc3"), "\u{f1ff}\u{f1c3}");
        for bad in [
            "",
            ".",
            "..",
            "a*",
            "a:b",
            "a/b",
            "a\\b",
            "\0",
            "\u{f029}",
            "\u{1}",
            "\u{f1af}x\u{f000}/",
        ] {
            assert_eq!(to_disk(bad), Err(VfsError::BadName), "{bad:?}");
        }
    }

    #[test]
    fn case_folds_as_windows_does() {
        assert!(same("Straße", "STRAßE") && !same("Straße", "STRASSE"));
        assert!(same("ÄÖÜ", "äöü") && same("Ａ", "ａ") && same("дом", "ДОМ"));
        assert!(!same("ı", "I") && !same("ſ", "S") && !same("K", "\u{212a}"));
        assert!(!same("\u{10428}", "\u{10400}"), "beyond the basic plane nothing folds");
    }

    async fn make(dir: &NodeRef, name: &str) -> crate::backend::Made {
        let me = Cred::root();
        let (by, how) = (crate::Acting::caller(&me), CreateHow::Guarded);
        dir.create(by, name.as_bytes(), how, SetAttr::default()).await.unwrap()
    }

    fn folder_of(names: usize) -> (Arc<Names>, NodeRef) {
        let root = crate::Backend::root(&*crate::mem::MemBackend::new(64 << 20).unwrap());
        let made = async {
            for i in 0..names {
                make(&root, &format!("File {i}")).await;
            }
        };
        block_on(made);
        (Arc::new(Names::default()), root)
    }

    fn block_on<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(f)
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn scans(names: &Names) -> u64 {
        names.counters.scans.load(Ordering::Relaxed)
    }

    #[test]
    fn concurrent_lookups_share_one_scan() {
        let (names, root) = folder_of(5000);
        block_on(async {
            let look = |i: u8| {
                let (names, root) = (names.clone(), root.clone());
                tokio::spawn(async move {
                    let text = format!("none {i}");
                    names.find_for(address(i % 3), &root, &Cred::root(), &text).await.err()
                })
            };
            let all: Vec<_> = (0..200).map(look).collect();
            for one in all {
                assert_eq!(one.await.unwrap(), Some(VfsError::NotFound));
            }
            assert_eq!(scans(&names), 1);
            let found = names.find(&root, &Cred::root(), "FILE 4999").await.unwrap();
            assert_eq!((found.name, scans(&names)), (b"File 4999".to_vec(), 1));
        });
    }

    /// The folder changes all the time: a scan counts for all look-ups that came before it began.
    #[test]
    fn lookups_in_changing_folder_share_scans() {
        let (names, root) = folder_of(3000);
        block_on(async {
            let look = |i: u8| {
                let (names, root) = (names.clone(), root.clone());
                tokio::spawn(async move {
                    make(&root, &format!("new {i}")).await;
                    let text = format!("NEW {i}");
                    names.find_for(address(i), &root, &Cred::root(), &text).await.map(|f| f.name)
                })
            };
            let all: Vec<_> = (0..100).map(look).collect();
            for (i, one) in all.into_iter().enumerate() {
                assert_eq!(one.await.unwrap(), Ok(format!("new {i}").into_bytes()));
            }
            assert!(scans(&names) < 10, "{}", scans(&names));
        });
    }

    #[test]
    fn indexes_fit_into_their_memory() {
        let (names, root) = folder_of(0);
        block_on(async {
            let (me, set) = (Cred::root(), SetAttr::default());
            let mut dirs = Vec::new();
            for d in 0..8 {
                let name = format!("d{d}");
                let dir = root
                    .mkdir(crate::Acting::caller(&me), name.as_bytes(), set)
                    .await
                    .unwrap()
                    .node;
                for i in 0..200 {
                    make(&dir, &format!("File {i}")).await;
                }
                dirs.push(dir);
            }
            let find = async |host: u8, dir: &NodeRef, text: &str| {
                names.find_for(address(host), dir, &me, text).await.map(|found| found.name)
            };
            find(1, &dirs[0], "FILE 7").await.unwrap();
            let one = names.memory_used();
            let memory = one * 4;
            names.set_memory(memory);
            find(2, &dirs[7], "FILE 7").await.unwrap();
            for dir in &dirs[..7] {
                assert_eq!(find(1, dir, "FILE 7").await, Ok(b"File 7".to_vec()));
                assert!(names.memory_used() <= memory);
            }
            // The index of the other address still exists.
            let before = scans(&names);
            find(2, &dirs[7], "FILE 8").await.unwrap();
            assert_eq!(scans(&names), before);
            assert!(names.displaced()[0] > 0);
            // More names are added than the memory can hold.
            for i in 0..3000 {
                let name = format!("More {i}");
                let made = make(&dirs[7], &name).await;
                names.made(dirs[7].id(), name.as_bytes(), &made.dir);
                assert!(names.memory_used() <= memory);
            }
            // A directory larger than the memory is indexed in part; every name is still found in its exact case.
            names.set_memory(one / 2);
            assert!(names.memory_used() <= one / 2);
            assert_eq!(find(1, &dirs[0], "FILE 199").await.err(), Some(VfsError::NotFound));
            assert_eq!(names.counters.partial.load(Ordering::Relaxed), 1);
            assert_eq!(find(1, &dirs[0], "File 199").await, Ok(b"File 199".to_vec()));
        });
    }

    #[test]
    fn scan_without_room_finds_its_name() {
        let (names, root) = folder_of(2000);
        block_on(async {
            // Scans of other addresses use all of it.
            let memory = names.memory.load(Ordering::Relaxed);
            let mut other = [1, 2].map(|host| Paid { names: &names, by: address(host), bytes: 0 });
            other.iter_mut().for_each(|paid| assert_eq!(paid.set(memory / 2), Ok(())));
            let find = async |text| {
                names.find_for(address(9), &root, &Cred::root(), text).await.map(|f| f.name)
            };
            assert_eq!(find("FILE 1999").await, Ok(b"File 1999".to_vec()));
            assert_eq!(find("none").await.err(), Some(VfsError::NotFound));
            assert_eq!(names.counters.partial.load(Ordering::Relaxed), 0);
            drop(other);
            assert_eq!(names.memory_used(), 0);
        });
    }
}
