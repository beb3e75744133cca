//! The user database as a text: one line for each user. Pure; reading and writing the file is the daemon's.
//!
//! A line holds the name, the NT hash in hexadecimal, and uid, gid and groups or `-` where the host's user of the same name
//! decides. An NT hash is no password, but whoever has it can log on here with it, and a short password can be guessed from it in
//! minutes: the file is worth what the passwords are worth, and only its owner may read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use zeroize::Zeroizing;

use crate::auth::NtHash;

/// The first line.
const HEAD: &str = "headgate smb users 1";

/// Users at most.
pub const USERS_MAX: usize = 100_000;

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name as it was written.
    pub name: String,
    /// Of the password.
    pub hash: NtHash,
    /// User id, when it is not the host's.
    pub uid: Option<u32>,
    /// Primary group, when it is not the host's.
    pub gid: Option<u32>,
    /// Further groups, when they are not the host's.
    pub groups: Option<Vec<u32>>,
}

/// All users, by their names without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database(BTreeMap<String, Entry>);

/// How names are compared.
pub fn key(name: &str) -> String {
    name.to_lowercase()
}

impl Database {
    /// Reads the text; the error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, l)| l) != Some(HEAD) {
            return Err(format!("line 1: this is no user database; it would begin with `{HEAD}`"));
        }
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

    /// The text.
    pub fn emit(&self) -> Zeroizing<String> {
        let mut out = Zeroizing::new(format!("{HEAD}\n"));
        let number = |n: Option<u32>| n.map_or("-".to_owned(), |n| n.to_string());
        for e in self.0.values() {
            let groups = e.groups.as_ref().map_or("-".to_owned(), |g| {
                g.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            });
            out.push_str(&e.name);
            out.push(':');
            for byte in e.hash.0.iter() {
                // Writing to a string does not fail.
                let _ = write!(out, "{byte:02x}");
            }
            let _ = writeln!(out, ":{}:{}:{groups}", number(e.uid), number(e.gid));
        }
        out
    }

    /// Adds a user, or replaces the one of this name; true when it was there.
    pub fn put(&mut self, entry: Entry) -> bool {
        self.0.insert(key(&entry.name), entry).is_some()
    }

    /// Removes a user; false when there is none.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(&key(name)).is_some()
    }

    /// The users by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    /// The user of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(&key(name))
    }
}

fn entry(line: &str) -> Option<Entry> {
    let parts: Vec<&str> = line.split(':').collect();
    let [name, hash, uid, gid, groups] = parts[..] else { return None };
    if name.is_empty() || hash.len() != 32 || !hash.is_ascii() {
        return None;
    }
    let mut bytes = Zeroizing::new([0; 16]);
    for (byte, digits) in bytes.iter_mut().zip(hash.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
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
        }
    }

    #[test]
    fn a_database_as_it_stands() {
        let mut all = Database::default();
        assert!(!all.put(alice()));
        assert!(!all.put(Entry { name: "bob".into(), uid: None, groups: Some(vec![]), ..alice() }));
        let text = "headgate smb users 1\n\
                    Alice:a4f49c406510bdcab6824ee7c30fd852:1000:-:7,8\n\
                    bob:a4f49c406510bdcab6824ee7c30fd852:-:-:\n";
        assert_eq!(*all.emit(), text);
        assert!(!text.contains("Password"));
        let mut again = Database::parse(text).unwrap();
        assert_eq!(again, all);
        assert_eq!(again.get("ALICE"), Some(&alice()));
        assert!(again.put(Entry { name: "ALICE".into(), ..alice() }), "replaced");
        assert_eq!(again.entries().count(), 2);
        assert!(again.remove("alice") && !again.remove("alice"));
    }

    #[test]
    fn a_damaged_line_is_named() {
        for (text, line) in [
            ("", "line 1"),
            ("headgate smb users 2\n", "line 1"),
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
            let _ = Database::parse(&text);
        }
    }
}
