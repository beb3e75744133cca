//! The file of the service with the last answers of the directory, for a start while it does not answer.
//!
//! *Operation.* The first line names the directory; answers of another one are not used. Each further line is a user or a group.
//! Passwords are NT hashes, as in the database of users, and the file is as private.
//!
//! *Errors.* A file that others can read or have made, or that is unreadable, is not used, with a warning. Lines of another form,
//! and with the numbers of root or guests, are skipped.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use smb_auth::NtHash;
use zeroize::Zeroizing;

use super::cache::{Answers, Kept};
use super::entry::{GROUPS_MAX, User, is_of_others, unhex};
use crate::records::ServiceFiles;
use crate::secret_files::in_time;

/// Name of the file.
pub(super) const FILE: &str = "ldap-users";

/// Reads the answers of the directory with this line. Blocks for some seconds at most.
pub(super) fn read(files: &ServiceFiles, directory: &str) -> Answers {
    let (path, its) = (files.path(FILE), files.clone());
    let read = in_time(&path, move |path| {
        let Some(read) = its.read(FILE).map_err(|e| e.to_string())? else { return Ok(None) };
        check_owner(&its, path).map(|()| Some(read))
    });
    let warn = |why: &str| {
        let file = path.display();
        tracing::warn!(%file, why, "earlier answers of the directory of users cannot be used");
    };
    let bytes = match read {
        Ok(None) => return Answers::default(),
        Ok(Some((_, mode))) if mode & 0o077 != 0 => {
            warn("others can read it, and anyone can log on with its contents; remove it");
            return Answers::default();
        }
        Ok(Some((bytes, _))) => Zeroizing::new(bytes),
        Err(why) => {
            warn(&why);
            return Answers::default();
        }
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, directory),
        Err(_) => Answers::default(),
    }
}

/// Refuses a file that another user has made. Files in CephFS are those of the gateway's key. Blocks.
fn check_owner(files: &ServiceFiles, path: &Path) -> Result<(), String> {
    let ServiceFiles::Local(_) = files else { return Ok(()) };
    let owner = std::fs::metadata(path).map_err(|e| e.to_string())?.uid();
    if owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(format!("it belongs to user {owner}, and anyone can log on with its contents; remove it"))
}

/// Replaces the file. Blocks.
pub(super) fn write(files: &ServiceFiles, directory: &str, answers: &Answers) {
    let text = emit(directory, answers);
    if let Err(error) = files.replace(FILE, text.as_bytes()) {
        let file = files.path(FILE);
        tracing::warn!(file = %file.display(), %error, "answers of the directory of users cannot be kept");
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn emit(directory: &str, (users, groups): &Answers) -> Zeroizing<String> {
    let mut out = Zeroizing::new(format!("{directory}\n"));
    let is_line = |name: &str| !name.is_empty() && !name.contains(char::is_control);
    for Kept { value: user, answered, .. } in users.iter().filter(|kept| is_line(&kept.value.name))
    {
        let at = seconds(*answered);
        let _ = write!(out, "user {at} {} {} ", user.uid, user.gid);
        let groups: Vec<String> = user.groups.iter().map(ToString::to_string).collect();
        out.push_str(if groups.is_empty() { "-" } else { "" });
        out.push_str(&groups.join(","));
        out.push(' ');
        for byte in user.hash.0.iter() {
            let _ = write!(out, "{byte:02x}");
        }
        let _ = writeln!(out, " {}", user.name);
    }
    for (name, group) in groups.iter().filter(|(name, _)| is_line(name)) {
        let _ = writeln!(out, "group {} {} {name}", seconds(group.answered), group.value);
    }
    out
}

fn parse(text: &str, directory: &str) -> Answers {
    let mut lines = text.lines();
    if lines.next() != Some(directory) {
        return Answers::default();
    }
    let mut answers = Answers::default();
    for line in lines {
        if let Some(user) = line.strip_prefix("user ").and_then(user) {
            answers.0.push(user);
        } else if let Some(group) = line.strip_prefix("group ").and_then(group) {
            answers.1.push(group);
        }
    }
    answers
}

fn time(text: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(text.parse().ok()?))
}

fn user(line: &str) -> Option<Kept<User>> {
    let mut words = line.splitn(6, ' ');
    let mut word = || words.next();
    let (at, uid, gid) = (time(word()?)?, word()?.parse().ok()?, word()?.parse().ok()?);
    let groups = match word()? {
        "-" => Vec::new(),
        list => list.split(',').map(|gid| gid.parse().ok()).collect::<Option<Vec<u32>>>()?,
    };
    let hash = NtHash(Zeroizing::new(unhex(word()?)?));
    let name = word().filter(|name| !name.is_empty())?.to_owned();
    let has_others = [uid, gid].iter().chain(&groups).any(|number| is_of_others(*number));
    let is_sound = groups.len() <= GROUPS_MAX && !has_others;
    is_sound.then(|| Kept::earlier(User { name, hash, uid, gid, groups }, at))
}

fn group(line: &str) -> Option<(String, Kept<u32>)> {
    let mut words = line.splitn(3, ' ');
    let (at, gid) = (time(words.next()?)?, words.next()?.parse().ok()?);
    if is_of_others(gid) {
        return None;
    }
    Some((words.next()?.to_owned(), Kept::earlier(gid, at)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn answers() -> Answers {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let user = |name: &str, groups: &[u32]| {
            let (name, hash, groups) = (name.to_owned(), NtHash::of("one"), groups.to_vec());
            Kept::earlier(User { name, hash, uid: 5001, gid: 5000, groups }, at)
        };
        let users = vec![user("Dana", &[]), user("two words", &[7, 8])];
        (users, vec![("night crew".to_owned(), Kept::earlier(7, at))])
    }

    #[test]
    fn answers_come_back_and_stay_private() {
        let dir = tempfile::tempdir().unwrap();
        let files = ServiceFiles::Local(dir.path().to_owned());
        assert_eq!(read(&files, "o=lab"), Answers::default());
        write(&files, "o=lab", &answers());
        assert_eq!(read(&files, "o=lab"), answers());
        assert_eq!(read(&files, "o=other"), Answers::default(), "another directory");
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(&files, "o=lab"), Answers::default(), "anyone may have changed it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&files, "o=lab"), answers());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
            assert_eq!(read(&files, "o=lab"), Answers::default(), "another user has made it");
        }
    }

    #[test]
    fn numbers_of_root_and_guests_are_skipped() {
        for number in ["0", "65534", "4294967295"] {
            let hash = "8846f7eaee8fb117ad06bdd830b7586c";
            let lines = [
                format!("user 1 {number} 5000 - {hash} dana"),
                format!("user 1 5001 {number} - {hash} dana"),
                format!("user 1 5001 5000 7,{number} {hash} dana"),
                format!("group 1 {number} crew"),
            ];
            let text = format!("o=lab\n{}\n", lines.join("\n"));
            assert_eq!(parse(&text, "o=lab"), Answers::default(), "{number}");
            assert_eq!(parse(&text.replace(number, "8"), "o=lab").0.len(), 3);
        }
    }

    #[test]
    fn lines_of_other_form_are_skipped() {
        let text = emit("o=lab", &answers());
        let more = "user x\nuser 1 2 3 4,x 00 n\ngroup 1 x n\ngroup 1\nother\nuser 1 2 3 - 00 n\n";
        assert_eq!(parse(&format!("{}{more}", *text), "o=lab"), answers());
        let mut odd = answers();
        odd.0[0].value.name = "two\nlines".into();
        assert_eq!(parse(&emit("o=lab", &odd), "o=lab").0.len(), 1);
        assert_eq!(parse("", "o=lab"), Answers::default());
    }
}
