//! Users of the LDAP directory, which come after the users of the configuration and the database.

use std::sync::Arc;

use config::Settings;
use mutex::{reading, writing};
use smbd_core::users::Account;
use smbd_core::users::database::key;
use vfs::Cred;

use super::UserDb;
use crate::ldap::{self, Ldap};

impl UserDb {
    /// Changes the directory to that in these settings. Blocks for some seconds at most.
    ///
    /// # Errors
    /// One line: its certificates or filter cannot be used. The directory does not change.
    pub(super) fn open_directory(&self, settings: &Settings) -> Result<(), String> {
        self.follow_directory(ldap::of(settings)?);
        Ok(())
    }

    /// Changes the directory, which has been made of the settings that come into force. Reads no file.
    pub(crate) fn follow_directory(&self, next: Option<Arc<Ldap>>) {
        if let Some(next) = &next {
            next.start(self.files.as_ref());
        }
        let now = next.clone();
        let before = std::mem::replace(&mut *writing(&self.directory), next);
        let is_same = |before: &Arc<Ldap>| now.as_ref().is_some_and(|it| Arc::ptr_eq(it, before));
        if let Some(before) = before.filter(|before| !is_same(before)) {
            before.stop();
        }
    }

    pub(crate) fn directory(&self) -> Option<Arc<Ldap>> {
        reading(&self.directory).clone()
    }

    /// Returns the directory if it may have this name: a name in the configuration or the database is never asked there.
    pub(super) fn directory_of(&self, name: &str) -> Option<Arc<Ldap>> {
        self.directory().filter(|_| !self.current().contains_key(&key(name)))
    }

    /// Returns whether the password of this user is in the directory.
    pub(super) fn is_of_directory(&self, name: &str) -> bool {
        self.directory_of(name).is_some_and(|directory| directory.account(name).is_some())
    }

    pub(super) fn changes_of_directory(&self) -> Option<Vec<String>> {
        self.directory()?.take_changes()
    }

    pub(super) fn each_of_directory(&self, each: &mut dyn FnMut(&str, &Cred)) {
        let Some(directory) = self.directory() else { return };
        let table = self.current();
        directory.each(&mut |account| {
            if !table.contains_key(&key(&account.name)) {
                each(&account.name, &account.cred);
            }
        });
    }

    /// Returns a user of the directory with this uid: always the same one of several.
    pub(super) fn of_directory_by_uid(&self, uid: u32) -> Option<Account> {
        let directory = self.directory()?;
        let table = self.current();
        directory.by_uid(uid, &|name| !table.contains_key(&key(name)))
    }
}
