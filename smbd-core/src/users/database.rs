//! The text format of the user database: one line for each user. Pure; the daemon reads and writes the file.
//!
//! A line holds the name, the NT hash in hexadecimal, uid, gid and groups or `-` to use the values of the host's user of the same
//! name, and the salt and the Kerberos keys made from the same password ([`Keys`]), or `-` without keys: for users whose lines came
//! from version 1 of this format, which is read as well and has neither. Only setting a new password makes keys.
//!
//! An NT hash is not a password, but it suffices to log on here, and a short password can be guessed from it in minutes: protect
//! the file like the passwords; only its owner may read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use zeroize::Zeroizing;

use crate::auth::NtHash;

/// The first line.
const HEAD: &str = "headgate smb users 2";
/// The first line of the version without keys.
const HEAD_1: &str = "headgate smb users 1";
/// Most bytes of a salt.
const SALT_MAX: usize = 256;
/// Most keys of one user.
const KEYS_MAX: usize = 8;

/// Most users.
pub const USERS_MAX: usize = 100_000;

/// Kerberos keys made from a password, as a KDC needs them for its user (RFC 3961 section 3, string-to-key).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The salt of the password, which a KDC sends to clients (ETYPE-INFO2, RFC 4120 section 5.2.7.5).
    pub salt: String,
    /// Each key with the number of its encryption type, made with that type's default number of rounds.
    pub keys: Vec<(u16, Zeroizing<Vec<u8>>)>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: Vec<u16> = self.keys.iter().map(|(enctype, _)| *enctype).collect();
        write!(f, "Keys(of {types:?})")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name in its original spelling.
    pub name: String,
    /// Hash of the password.
    pub hash: NtHash,
    /// User id, if it differs from the host's.
    pub uid: Option<u32>,
    /// Primary group, if it differs from the host's.
    pub gid: Option<u32>,
    /// Further groups, if they differ from the host's.
    pub groups: Option<Vec<u32>>,
    /// Keys of the same password; `None` if it was set before keys were stored.
    pub keys: Option<Keys>,
}

/// All users, by name, ignoring case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database(BTreeMap<String, Entry>);

/// Returns the form of a name that is compared.
pub fn key(name: &str) -> String {
    name.to_lowercase()
}

impl Database {
    /// Parses the text; the error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        let entry: fn(&str) -> Option<Entry> = match lines.next().map(|(_, l)| l) {
            Some(HEAD) => entry,
            Some(HEAD_1) => entry_1,
            Some(newer) if newer.starts_with("headgate smb users ") => {
                return Err(format!(
                    "line 1: `{newer}` was written by a newer headgate; this one knows `{HEAD}`"
                ));
            }
            _ => {
                return Err(format!(
                    "line 1: this is no user database; it would begin with `{HEAD}`"
                ));
            }
        };
        let mut users = BTreeMap::new();
        for (n, line) in lines.filter(|(_, l)| !l.is_empty()) {
            let entry = entry(line).ok_or_else(|| format!("line {}: not a user", n + 1))?;
            if users.len() == USERS_MAX {
                return Err(format!("line {}: more than {USERS_MAX} users", n + 1));
            }
            if users.insert(key(&entry.name), entry).is_some() {
                return Err(format!("line {}: this user is here twice", n + 1));
            }
        }
        Ok(Self(users))
    }

    /// Writes the text.
    pub fn emit(&self) -> Zeroizing<String> {
        let mut out = Zeroizing::new(format!("{HEAD}\n"));
        let number = |n: Option<u32>| n.map_or("-".to_owned(), |n| n.to_string());
        for e in self.0.values() {
            let groups = e.groups.as_ref().map_or("-".to_owned(), |g| {
                g.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            });
            out.push_str(&e.name);
            out.push(':');
            put_hex(&mut out, &e.hash.0[..]);
            // Writing to a string does not fail.
            let _ = write!(out, ":{}:{}:{groups}:", number(e.uid), number(e.gid));
            match &e.keys {
                None => out.push_str("-:-"),
                Some(Keys { salt, keys }) => {
                    let _ = write!(out, "{salt}:");
                    for (n, (enctype, key)) in keys.iter().enumerate() {
                        let comma = if n > 0 { "," } else { "" };
                        let _ = write!(out, "{comma}{enctype}=");
                        put_hex(&mut out, key);
                    }
                }
            }
            out.push('\n');
        }
        out
    }

    /// Adds a user, or replaces the one of this name. Returns true if it existed.
    pub fn put(&mut self, entry: Entry) -> bool {
        self.0.insert(key(&entry.name), entry).is_some()
    }

    /// Removes a user. Returns false if it did not exist.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(&key(name)).is_some()
    }

    /// Returns the users by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(&key(name))
    }
}

fn put_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
}

fn hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

/// Parses a line of version 1: without keys.
fn entry_1(line: &str) -> Option<Entry> {
    entry(&Zeroizing::new(format!("{line}:-:-")))
}

fn keys(salt: &str, keys: &str) -> Option<Option<Keys>> {
    match (salt, keys) {
        ("-", "-") => return Some(None),
        ("" | "-", _) | (_, "" | "-") => return None,
        _ => {}
    }
    let one = |text: &str| {
        let (enctype, key) = text.split_once('=')?;
        let key = hex(key).filter(|key| matches!(key.len(), 16 | 32))?;
        Some((enctype.parse().ok()?, key))
    };
    let keys: Vec<_> = keys.split(',').map(one).collect::<Option<_>>()?;
    let fits = salt.len() <= SALT_MAX && keys.len() <= KEYS_MAX;
    fits.then(|| Some(Keys { salt: salt.to_owned(), keys }))
}

fn entry(line: &str) -> Option<Entry> {
    let parts: Vec<&str> = line.split(':').collect();
    let [name, hash, uid, gid, groups, salt, of_kerberos] = parts[..] else { return None };
    if name.is_empty() {
        return None;
    }
    let bytes = Zeroizing::new(<[u8; 16]>::try_from(&hex(hash)?[..]).ok()?);
    let number = |text: &str| match text {
        "-" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let groups = match groups {
        "-" => None,
        "" => Some(Vec::new()),
        list => Some(list.split(',').map(|g| g.parse().ok()).collect::<Option<_>>()?),
    };
    Some(Entry {
        name: name.to_owned(),
        hash: NtHash(bytes),
        uid: number(uid)?,
        gid: number(gid)?,
        groups,
        keys: keys(salt, of_kerberos)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alice() -> Entry {
        Entry {
            name: "Alice".into(),
            hash: NtHash::of("Password"),
            uid: Some(1000),
            gid: None,
            groups: Some(vec![7, 8]),
            keys: Some(Keys {
                salt: "pepper".into(),
                keys: vec![(17, vec![0xab; 16].into()), (18, vec![0xcd; 32].into())],
            }),
        }
    }

    fn bob() -> Entry {
        let (uid, groups, keys) = (None, Some(vec![]), None);
        Entry { name: "bob".into(), uid, groups, keys, ..alice() }
    }

    #[test]
    fn a_database_as_it_stands() {
        let mut all = Database::default();
        assert!(!all.put(alice()));
        assert!(!all.put(bob()));
        let (short, long) = ("ab".repeat(16), "cd".repeat(32));
        let text = &format!(
            "headgate smb users 2\n\
             Alice:a4f49c406510bdcab6824ee7c30fd852:1000:-:7,8:pepper:17={short},18={long}\n\
             bob:a4f49c406510bdcab6824ee7c30fd852:-:-::-:-\n"
        );
        assert_eq!(*all.emit(), *text);
        assert!(!text.contains("Password") && !format!("{:?}", alice()).contains("abab"));
        let mut again = Database::parse(text).unwrap();
        assert_eq!(again, all);
        assert_eq!(again.get("ALICE"), Some(&alice()));
        assert!(again.put(Entry { name: "ALICE".into(), ..alice() }), "replaced");
        assert_eq!(again.entries().count(), 2);
        assert!(again.remove("alice") && !again.remove("alice"));
    }

    #[test]
    fn version_1_is_read_and_written_as_version_2() {
        let line = "Alice:a4f49c406510bdcab6824ee7c30fd852:1000:-:7,8";
        let all = Database::parse(&format!("headgate smb users 1\n{line}\n")).unwrap();
        assert_eq!(all.get("alice"), Some(&Entry { keys: None, ..alice() }));
        assert_eq!(*all.emit(), format!("headgate smb users 2\n{line}:-:-\n"));
        assert!(Database::parse(&format!("headgate smb users 1\n{line}:-:-\n")).is_err());
        let newer = Database::parse("headgate smb users 3\n").unwrap_err();
        assert!(newer.contains("a newer headgate"), "{newer}");
    }

    #[test]
    fn keys_that_are_none_are_named() {
        let line = "headgate smb users 2\na:a4f49c406510bdcab6824ee7c30fd852:-:-:-";
        let (key, other) = ("ab".repeat(16), "ab".repeat(15));
        for wrong in [
            "salt:-",
            "-:17=00",
            ":-",
            "salt:",
            &format!("salt:17={other}"),
            &format!("salt:{key}"),
            &format!("salt:x={key}"),
            &format!("salt:17=+{}", &key[1..]),
            &format!("salt:17={key},"),
        ] {
            let why = Database::parse(&format!("{line}:{wrong}\n")).unwrap_err();
            assert!(why.starts_with("line 2"), "{wrong}: {why}");
        }
        assert!(Database::parse(&format!("{line}:salt:17={key}\n")).is_ok());
    }

    #[test]
    fn a_damaged_line_is_named() {
        for (text, line) in [
            ("", "line 1"),
            ("headgate smb groups 2\n", "line 1"),
            ("headgate smb users 1\n\nalice\n", "line 3"),
            ("headgate smb users 1\na:a4f49c406510bdcab6824ee7c30fd85:-:-:-\n", "line 2"),
            ("headgate smb users 1\na:a4f49c406510bdcab6824ee7c30fd85é:-:-:-\n", "line 2"),
            ("headgate smb users 1\na:a4f49c406510bdcab6824ee7c30fd852:-:-:x\n", "line 2"),
            (
                "headgate smb users 1\na:a4f49c406510bdcab6824ee7c30fd852:-:-:-\n\
                 A:a4f49c406510bdcab6824ee7c30fd852:-:-:-\n",
                "line 3",
            ),
        ] {
            let why = Database::parse(text).unwrap_err();
            assert!(why.starts_with(line), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,80}") {
            let _ = Database::parse(&format!("{HEAD}\n{text}"));
            let _ = Database::parse(&format!("{HEAD_1}\n{text}"));
            let _ = Database::parse(&text);
        }
    }
}
