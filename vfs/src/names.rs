//! Names as Windows means them, on a file system that distinguishes case.
//!
//! *Operation.* A client's name is text. [`to_disk`] gives the bytes it stands for and [`to_client`] the text by which a client
//! can ask for any name there is: characters that Windows reserves, and a last dot or space, are moved to the private range
//! U+F001 to U+F029 as Linux and macOS clients do ("SFM"; what the older "SFU" mapping of Linux sends is understood too), and
//! bytes that are not UTF-8 to U+F180 to U+F1FF. Text is kept as it was given: no normalisation, no 8.3 names.
//! [`Names::find`] looks a name up as it was given, which needs no listing of the directory; only when there is none it asks an
//! index of the directory's names by their upper case. The index is good while the directory's change attribute stays, follows
//! the changes that come through `FileOps`, and is made anew by one scan otherwise. Changes by other processes of the host
//! are seen as soon as the change attribute shows them.
//!
//! *Memory.* [`NAMES_MAX`] names in all indexes; the index that was not used for longest goes. Of a directory with more than
//! [`DIR_NAMES_MAX`] names only so many are known by other case, counted in [`Counters::partial`].
//!
//! *Errors.* [`VfsError::BadName`] for text that can be no name.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use mutex::locked;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::types::*;

/// Names that all indexes hold together.
pub const NAMES_MAX: usize = 1 << 20;
/// Names that the index of one directory holds.
pub const DIR_NAMES_MAX: usize = 1 << 18;
/// Names fetched at once when an index is made.
const STEP: usize = 2048;

/// What Windows reserves, and where the private range has it (as `cifs_unicode.h` and macOS number it).
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

/// The same, as Linux numbered it first (`mapchars`): the character itself, moved by U+F000.
const OLD_RESERVED: [(char, char); 7] = [
    ('*', '\u{f02a}'),
    (':', '\u{f03a}'),
    ('<', '\u{f03c}'),
    ('>', '\u{f03e}'),
    ('?', '\u{f03f}'),
    ('\\', '\u{f05c}'),
    ('|', '\u{f07c}'),
];

/// A character that may not stand in a name that a client sends (MS-FSCC section 2.1.5.2).
pub fn is_reserved(c: char) -> bool {
    c < ' ' || c == '/' || RESERVED.iter().any(|(r, _)| *r == c)
}

/// The bytes of the name that a client calls so: one component, without wildcards or a stream.
pub fn to_disk(text: &str) -> VfsResult<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        if is_reserved(c) {
            return Err(VfsError::BadName);
        }
        let code = u32::from(c);
        let stands_for = match c {
            '\u{f001}'..='\u{f01f}' => char::from_u32(code - 0xf000),
            SPACE => Some(' '),
            PERIOD => Some('.'),
            '\u{f020}'..='\u{f07c}' => {
                let known = RESERVED.iter().chain(&OLD_RESERVED);
                known.clone().find(|(_, private)| *private == c).map(|(r, _)| *r)
            }
            '\u{f180}'..='\u{f1ff}' => {
                out.extend(byte_of(c));
                continue;
            }
            _ => None,
        };
        let mut room = [0; 4];
        out.extend_from_slice(stands_for.unwrap_or(c).encode_utf8(&mut room).as_bytes());
    }
    match &out[..] {
        b"" | b"." | b".." => Err(VfsError::BadName),
        name if name.contains(&0) || name.contains(&b'/') => Err(VfsError::BadName),
        _ => Ok(out),
    }
}

/// What a client is told that this name is called.
pub fn to_client(name: &[u8]) -> String {
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

/// How clients of a kind write names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Windows reserves characters, so that [`to_client`] moves them to the private range and [`to_disk`] back.
    Windows,
    /// The POSIX extensions of SMB reserve none but the separator `/` and NUL: text is the name. Only a byte that is not UTF-8, which
    /// no text of the protocol holds, is moved to U+F180 and up, and so are the bytes of these characters themselves.
    Posix,
}

impl Spelling {
    /// The bytes of the name that a client calls so.
    pub fn to_disk(self, text: &str) -> VfsResult<Vec<u8>> {
        if self == Self::Windows {
            return to_disk(text);
        }
        let mut out = Vec::with_capacity(text.len());
        for c in text.chars() {
            let byte = byte_of(c);
            match byte {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        match &out[..] {
            b"" | b"." | b".." => Err(VfsError::BadName),
            name if name.contains(&0) || name.contains(&b'/') => Err(VfsError::BadName),
            _ => Ok(out),
        }
    }

    /// The text by which a client learns of this name.
    pub fn to_client(self, name: &[u8]) -> String {
        if self == Self::Windows {
            return to_client(name);
        }
        let moved =
            |b: u8| char::from_u32(0xf100 + u32::from(b)).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut out = String::with_capacity(name.len());
        for chunk in name.utf8_chunks() {
            for c in chunk.valid().chars() {
                match byte_of(c) {
                    Some(_) => out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(moved)),
                    None => out.push(c),
                }
            }
            out.extend(chunk.invalid().iter().copied().map(moved));
        }
        out
    }

    /// Finds a name as it stands, as a client sent it.
    pub async fn exact(self, dir: &NodeRef, cred: &Cred, text: &str) -> VfsResult<Found> {
        let name = self.to_disk(text)?;
        let (node, attr) = dir.lookup(cred, &name).await?;
        Ok(Found { node, attr, name })
    }
}

/// The byte that a character of U+F180 to U+F1FF means where it is not UTF-8.
fn byte_of(c: char) -> Option<u8> {
    match c {
        '\u{f180}'..='\u{f1ff}' => u8::try_from(u32::from(c) - 0xf100).ok(),
        _ => None,
    }
}

/// Upper case as the file systems of Windows compare names: one character for one, within the basic plane, and never from
/// another script into ASCII (as `ı` and `ſ` would go).
pub fn upcase(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    // The micro sign and the iota below are letters of their own there.
    if u32::from(c) > 0xffff || matches!(c, 'µ' | '\u{345}' | '\u{1fbe}') {
        return c;
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(u), None) if !u.is_ascii() && u32::from(u) <= 0xffff => u,
        _ => c,
    }
}

/// Two names are one to a client.
pub fn same(a: &str, b: &str) -> bool {
    a.chars().map(upcase).eq(b.chars().map(upcase))
}

/// What was found under a name.
pub struct Found {
    /// The node.
    pub node: NodeRef,
    /// Its attributes.
    pub attr: Attr,
    /// The name it really has, as bytes.
    pub name: Vec<u8>,
}

/// What a look for a name came to.
pub enum Look {
    /// It is there.
    Found(Found),
    /// It is not: the directory as it was then.
    Missing(Attr),
}

/// How often a name was not there as it was given, and what that cost.
#[derive(Debug, Default)]
pub struct Counters {
    /// Names that were looked for in another case.
    pub misses: AtomicU64,
    /// Directories that were listed for that.
    pub scans: AtomicU64,
    /// Scans that ended at [`DIR_NAMES_MAX`].
    pub partial: AtomicU64,
}

/// The names of one directory, by a number made of their upper case.
struct Index {
    /// The directory's change attribute for which it holds.
    change: u64,
    names: BTreeSet<(u64, Box<[u8]>)>,
    /// All of them: one that is not here is not there.
    whole: bool,
    /// When it was used last, in uses.
    used: u64,
}

#[derive(Default)]
struct Indexes {
    by_dir: HashMap<NodeId, Index>,
    names: usize,
    uses: u64,
}

/// The indexes of the directories in which names were missed.
#[derive(Default)]
pub struct Names {
    indexes: Mutex<Indexes>,
    /// How many there are, to know without the lock that there is none.
    count: AtomicUsize,
    hasher: RandomState,
    /// What it cost.
    pub counters: Counters,
}

impl Names {
    /// Finds a name in any case, as a client sent it.
    pub async fn find(&self, dir: &NodeRef, cred: &Cred, text: &str) -> VfsResult<Found> {
        match self.look(dir, cred, text).await? {
            Look::Found(found) => Ok(found),
            Look::Missing(_) => Err(VfsError::NotFound),
        }
    }

    /// As [`Names::find`], for who may make what is missing.
    pub async fn look(&self, dir: &NodeRef, cred: &Cred, text: &str) -> VfsResult<Look> {
        match Spelling::Windows.exact(dir, cred, text).await {
            Ok(found) => return Ok(Look::Found(found)),
            Err(VfsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        let before = dir.getattr().await?;
        let Some(name) = self.actual(dir, &before, text).await? else {
            return Ok(Look::Missing(before));
        };
        let (node, attr) = dir.lookup(cred, &name).await?;
        Ok(Look::Found(Found { node, attr, name }))
    }

    /// The name that a client means by a text which is not there as it was given, in a directory that was `before` just now. The
    /// first in byte order where several differ by case alone.
    async fn actual(&self, dir: &NodeRef, before: &Attr, text: &str) -> VfsResult<Option<Vec<u8>>> {
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        if let Some(known) = self.known(dir.id(), before.change, text) {
            return Ok(known);
        }
        self.counters.scans.fetch_add(1, Ordering::Relaxed);
        let mut names = BTreeSet::new();
        let (mut cookie, mut end) = (0, false);
        while !end && names.len() < DIR_NAMES_MAX {
            // Not as the caller: he may look names up where he may not list them.
            let (some, last) = match dir.readdir(&Cred::root(), cookie, STEP).await {
                Err(VfsError::Access) => return Ok(None),
                other => other?,
            };
            end = last;
            cookie = some.last().map_or(cookie, |e| e.cookie);
            names.extend(some.into_iter().map(|e| (self.number(&to_client(&e.name)), e.name)));
            tokio::task::yield_now().await;
        }
        if !end {
            self.counters.partial.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                names = DIR_NAMES_MAX,
                "directory too large to find every name regardless of case"
            );
        }
        let index = Index { change: before.change, names, whole: end, used: 0 };
        let found = index.look(self.number(text), text);
        if dir.getattr().await?.change == before.change || !end {
            self.keep(dir.id(), index);
        }
        Ok(found)
    }

    fn number(&self, text: &str) -> u64 {
        let mut h = self.hasher.build_hasher();
        text.chars().for_each(|c| h.write_u32(u32::from(upcase(c))));
        h.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Indexes> {
        // Whole at every step.
        locked(&self.indexes)
    }

    /// What the index says, if there is one that holds.
    fn known(&self, dir: NodeId, change: u64, text: &str) -> Option<Option<Vec<u8>>> {
        let number = self.number(text);
        let mut all = self.lock();
        all.uses += 1;
        let uses = all.uses;
        let index = all.by_dir.get_mut(&dir)?;
        if index.whole && index.change != change {
            return None;
        }
        index.used = uses;
        Some(index.look(number, text))
    }

    fn keep(&self, dir: NodeId, mut index: Index) {
        let mut all = self.lock();
        all.uses += 1;
        index.used = all.uses;
        all.drop_index(dir);
        all.names += index.names.len();
        all.by_dir.insert(dir, index);
        while all.names > NAMES_MAX {
            let oldest = all.by_dir.iter().min_by_key(|(_, i)| i.used).map(|(d, _)| *d);
            let Some(oldest) = oldest else { break };
            all.drop_index(oldest);
        }
        self.count.store(all.by_dir.len(), Ordering::Relaxed);
    }

    /// A name came into a directory through `FileOps`.
    pub fn made(&self, dir: NodeId, name: &[u8], change: &DirChange) {
        self.follow(dir, change, |names, number| names.insert((number, name.into())), name);
    }

    /// A name went from a directory through `FileOps`.
    pub fn gone(&self, dir: NodeId, name: &[u8], change: &DirChange) {
        self.follow(dir, change, |names, number| !names.remove(&(number, name.into())), name);
    }

    /// Brings an index from before a change to after it. One that does not reach to the change has missed another.
    fn follow(
        &self,
        dir: NodeId,
        change: &DirChange,
        apply: impl FnOnce(&mut BTreeSet<(u64, Box<[u8]>)>, u64) -> bool,
        name: &[u8],
    ) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let number = self.number(&to_client(name));
        let mut all = self.lock();
        let Some(index) = all.by_dir.get_mut(&dir) else { return };
        if index.whole && change.before.change > index.change {
            all.drop_index(dir);
            self.count.store(all.by_dir.len(), Ordering::Relaxed);
            return;
        }
        let n = index.names.len();
        apply(&mut index.names, number);
        index.change = index.change.max(change.after.change);
        all.names = (all.names + all.by_dir[&dir].names.len()).saturating_sub(n);
    }
}

impl Indexes {
    fn drop_index(&mut self, dir: NodeId) {
        if let Some(old) = self.by_dir.remove(&dir) {
            self.names -= old.names.len();
        }
    }
}

impl Index {
    fn look(&self, number: u64, text: &str) -> Option<Vec<u8>> {
        let alike = self.names.range((number, Box::default())..).take_while(|n| n.0 == number);
        alike.map(|n| &n.1).find(|name| same(&to_client(name), text)).map(|n| n.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_on_disk_can_be_asked_for(name in prop::collection::vec(1_u8.., 1..40)) {
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
        fn whatever_a_client_sends_is_a_name_or_refused(text in "\\PC{0,20}|[\u{f000}-\u{f1ff}a./]{0,8}") {
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
        for name in ["a:b", "q?", "tr.", "sp ", "back\\slash", "\u{f022}", "\u{1}", "<\"|>*"] {
            assert_eq!(Spelling::Posix.to_client(name.as_bytes()), name);
            assert_eq!(Spelling::Posix.to_disk(name).as_deref(), Ok(name.as_bytes()));
        }
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
}
