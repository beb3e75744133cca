//! A world that also serves SMB, to one user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client::smb::User;
use config::{Identity, Rates, Settings, Signing};
use tempfile::TempDir;

use super::World;

/// The user, who is root on the file system.
pub fn alice() -> User {
    User { name: "alice".into(), domain: String::new(), password: "correct horse".into() }
}

#[allow(clippy::expect_used)] // Without a password the test fails.
fn add_alice(settings: &mut Settings, dir: &Path) {
    let file = dir.join("password");
    fs::write(&file, "correct horse\n").expect("the password file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("for its owner only");
    settings.users.push(config::User {
        name: "alice".into(),
        password_file: Some(file),
        identity: Identity { uid: Some(0), gid: Some(0), groups: Some(Vec::new()) },
        limits: Rates::default(),
    });
    settings.smb.asked_for = true;
    settings.smb.port = 0;
    settings.smb.direct_port = 0;
    settings.smb.signing = Signing::Offered;
}

/// Starts a world with [`alice`] and changed settings. The folder contains her password.
#[allow(clippy::expect_used)] // Without a password the test fails.
pub async fn with_alice(change: impl FnOnce(&mut Settings)) -> (World, TempDir) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let world = World::with(|settings| {
        add_alice(settings, dir.path());
        change(settings);
    })
    .await;
    (world, dir)
}
