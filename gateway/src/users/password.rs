//! Passwords that users change themselves.
//!
//! *Operation.* A changed password is first in the database, under the lock of `headgate user`, and then in memory, so that a
//! restart never brings an old one back. Passwords in files are the administrator's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mutex::{locked, writing};
use smb_auth::NtHash;
use smbd_core::users::Unchanged;
use smbd_core::users::database::{Entry, Keys, key};

use super::{DATABASE, UserDb, change_database, in_time};
use crate::{user, weak};

impl UserDb {
    /// Replaces the password of an account, unless its hash is no longer `old`. Blocks for some seconds at most.
    pub(super) fn replace_password(
        &self,
        name: &str,
        old: &NtHash,
        new: &str,
    ) -> Result<(), Unchanged> {
        if let Some(why) = self.kept_elsewhere(name) {
            return Err(Unchanged::Elsewhere(why));
        }
        let least = self.password_least();
        if weak::is_short(new, least) {
            return Err(Unchanged::Short);
        }
        // As for a password in a file or from a prompt.
        if new.chars().count() > tools::password::CHARS_MAX || new.contains(['\n', '\r']) {
            return Err(Unchanged::Weak("is not one line".to_owned()));
        }
        if let Some(why) = weak::why(name, new, least) {
            return Err(Unchanged::Weak(why));
        }
        let hash = NtHash::of(new);
        if hash == *old {
            return Err(Unchanged::Weak("is the present one".to_owned()));
        }
        let keys = user::keys(new).map_err(Unchanged::Failed)?;
        let _turn = locked(&self.unread);
        self.store_password(name, old, (hash.clone(), keys))?;
        // The next logon needs it. Other changes of the file come with the next look at it.
        let mut table = writing(&self.table);
        self.changes.fetch_add(1, Ordering::SeqCst);
        if let Some((account, ..)) = Arc::make_mut(&mut table).get_mut(&key(name)) {
            account.nt_hash = hash.0;
        }
        Ok(())
    }

    /// Returns where a password is kept that is not in the database.
    fn kept_elsewhere(&self, name: &str) -> Option<String> {
        if self.is_of_directory(name) {
            return Some(
                "the LDAP directory of `users_from` has the password of this user".to_owned(),
            );
        }
        let configured = locked(&self.configured);
        let user = configured.iter().find(|user| key(&user.name) == key(name))?;
        let file = user.password_file.as_ref()?;
        Some(format!("the configuration gives this user a password file, {}", file.display()))
    }

    /// Stores another password in the database.
    fn store_password(
        &self,
        name: &str,
        old: &NtHash,
        new: (NtHash, Keys),
    ) -> Result<(), Unchanged> {
        let Some(files) = self.files.clone() else {
            return Err(Unchanged::Elsewhere("this gateway has no state folder".to_owned()));
        };
        let (name, old) = (name.to_owned(), old.clone());
        let path = files.path(DATABASE);
        // True once either side has decided. A client that gets no answer in time learns that its password stays.
        let decided = Arc::new(AtomicBool::new(false));
        let its = decided.clone();
        let is_stored = in_time(&path, move |_| {
            change_database(&files, |database| {
                let Some(entry) = database.get(&name).filter(|e| e.hash == old).cloned() else {
                    return Ok(false);
                };
                if its.swap(true, Ordering::SeqCst) {
                    return Err("the client has its answer".to_owned());
                }
                let (hash, keys) = new;
                database.put(Entry { hash, keys: Some(keys), ..entry });
                Ok(true)
            })
        });
        match is_stored {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unchanged::Replaced),
            Err(why) => {
                decided.store(true, Ordering::SeqCst);
                Err(Unchanged::Failed(why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use config::{Identity, PasswordLength, Settings, User};
    use smbd_core::users::Users;

    use super::*;
    use crate::records::ServiceFiles;
    use crate::users::read_database;

    const OLD: &str = "correct horse battery";
    const NEW: &str = "staple of a horse";

    fn entry(name: &str) -> Entry {
        let (hash, uid) = (NtHash::of(OLD), Some(7));
        let (name, groups) = (name.to_owned(), Some(vec![8]));
        Entry { name, hash, uid, gid: Some(9), groups, keys: None }
    }

    fn kept(names: &[&str]) -> (tempfile::TempDir, ServiceFiles, UserDb) {
        let dir = tempfile::tempdir().unwrap();
        let files = ServiceFiles::Local(dir.path().to_owned());
        for name in names {
            change_database(&files, |d| Ok(d.put(entry(name)))).unwrap();
        }
        let book = UserDb::open(&Settings::default(), Some(&files)).unwrap();
        (dir, files, book)
    }

    fn change(book: &UserDb, name: &str, old: &str, new: &str) -> Result<(), Unchanged> {
        book.change_password(name, &NtHash::of(old), new)
    }

    fn opens(book: &UserDb, name: &str, password: &str) -> bool {
        book.find(name).unwrap().nt_hash == NtHash::of(password).0
    }

    #[test]
    fn changed_password_holds_at_once_and_after_a_restart() {
        let (_dir, files, book) = kept(&["Alice", "bob"]);
        assert_eq!(change(&book, "alice", OLD, NEW), Ok(()));
        assert!(opens(&book, "ALICE", NEW) && opens(&book, "bob", OLD));
        let again = UserDb::open(&Settings::default(), Some(&files)).unwrap();
        assert!(opens(&again, "alice", NEW) && opens(&again, "bob", OLD));
        let database = read_database(&files).unwrap();
        let stored = database.get("alice").unwrap();
        let unchanged =
            Entry { hash: NtHash::of(NEW), keys: stored.keys.clone(), ..entry("Alice") };
        assert_eq!(
            (stored, stored.keys.is_some()),
            (&unchanged, true),
            "with keys of the new password"
        );
        // The tasks that depend on the file run, as after `headgate user add`.
        assert_eq!(book.refresh(), Some(vec![]));
        assert_eq!(book.refresh(), None);
        assert!(opens(&book, "alice", NEW));
    }

    /// Another command holds the lock for longer than the client waits.
    #[test]
    fn change_that_came_too_late_is_not_made() {
        let (dir, files, book) = kept(&["alice"]);
        let held = crate::users::lock(dir.path()).unwrap();
        assert!(matches!(change(&book, "alice", OLD, NEW), Err(Unchanged::Failed(_))));
        drop(held);
        // The next command gets the lock after the one that waits.
        change_database(&files, |d| Ok(d.put(entry("bob")))).unwrap();
        change_database(&files, |d| Ok(d.put(entry("carol")))).unwrap();
        let database = read_database(&files).unwrap();
        assert_eq!(database.get("alice"), Some(&entry("alice")));
        assert!(opens(&book, "alice", OLD));
    }

    #[test]
    fn passwords_that_break_a_rule_are_refused() {
        let (_dir, _, book) = kept(&["alice"]);
        assert_eq!(change(&book, "alice", OLD, "too short"), Err(Unchanged::Short));
        for weak in [
            "password1234",
            "aliceisalice1",
            "two lines\nof one",
            "two lines\rof one",
            OLD,
            &"ab cde fg".repeat(60),
        ] {
            let refused = change(&book, "alice", OLD, weak);
            assert!(matches!(refused, Err(Unchanged::Weak(_))), "{weak}: {refused:?}");
        }
        book.set_password_least(PasswordLength(20));
        assert_eq!(
            (change(&book, "alice", OLD, NEW), book.password_length()),
            (Err(Unchanged::Short), 20)
        );
        assert!(opens(&book, "alice", OLD));
        book.set_password_least(PasswordLength(8));
        assert_eq!(change(&book, "alice", OLD, "u8!Kd0_w"), Ok(()));
    }

    #[test]
    fn password_that_an_administrator_replaced_stays() {
        let (_dir, files, book) = kept(&["alice"]);
        let by_administrator = Entry { hash: NtHash::of("of the administrator"), ..entry("alice") };
        change_database(&files, |d| Ok(d.put(by_administrator))).unwrap();
        assert_eq!(change(&book, "alice", OLD, NEW), Err(Unchanged::Replaced));
        change_database(&files, |d| Ok(d.remove("alice"))).unwrap();
        assert_eq!(change(&book, "alice", OLD, NEW), Err(Unchanged::Replaced), "the user is gone");
        assert!(read_database(&files).unwrap().get("alice").is_none());
    }

    #[test]
    fn passwords_of_users_at_once_are_all_kept() {
        let names: Vec<String> = (0..8).map(|n| format!("user{n}")).collect();
        let (_dir, files, book) = kept(&names.iter().map(String::as_str).collect::<Vec<_>>());
        std::thread::scope(|scope| {
            for name in &names {
                let book = &book;
                let changed = move || change(book, name, OLD, &format!("{NEW} {name}"));
                scope.spawn(move || assert_eq!(changed(), Ok(())));
            }
        });
        let again = UserDb::open(&Settings::default(), Some(&files)).unwrap();
        for name in &names {
            let new = format!("{NEW} {name}");
            assert!(opens(&book, name, &new) && opens(&again, name, &new), "{name}");
        }
    }

    #[test]
    fn password_of_a_file_or_without_a_folder_is_the_administrators() {
        let (dir, files, _) = kept(&["alice"]);
        let file = dir.path().join("password");
        fs::write(&file, OLD).unwrap();
        let identity = Identity { uid: Some(7), ..Identity::default() };
        let user = User {
            name: "ALICE".into(),
            password_file: Some(file.clone()),
            identity,
            limits: config::Rates::default(),
        };
        let mut settings = Settings { users: vec![user], ..Settings::default() };
        let book = UserDb::open(&settings, Some(&files)).unwrap();
        let Err(Unchanged::Elsewhere(why)) = change(&book, "alice", OLD, NEW) else {
            panic!("changed")
        };
        assert!(why.contains(&file.display().to_string()), "{why}");
        let alone = UserDb::open(&settings, None).unwrap();
        assert!(matches!(change(&alone, "alice", OLD, NEW), Err(Unchanged::Elsewhere(_))));
        // The configuration names the user, and the database has the password.
        settings.users[0].password_file = None;
        let book = UserDb::open(&settings, Some(&files)).unwrap();
        assert_eq!(change(&book, "alice", OLD, NEW), Ok(()));
        assert!(opens(&book, "alice", NEW));
    }

    #[test]
    fn reload_that_read_the_old_users_does_not_keep_them() {
        let (_dir, files, book) = kept(&["alice"]);
        let read_before = book.next(&[]).unwrap();
        assert_eq!(change(&book, "alice", OLD, NEW), Ok(()));
        change_database(&files, |d| Ok(d.put(entry("bob")))).unwrap();
        assert!(book.refresh().is_some());
        book.set(read_before);
        assert!(opens(&book, "alice", NEW), "the old password opens nothing meanwhile");
        assert!(book.refresh().is_some(), "the file differs from what was read");
        assert!(opens(&book, "alice", NEW) && book.find("bob").is_some());
    }
}
