//! `headgate user import FILE`: accounts of Samba with their NT hashes, as `pdbedit -L -w` and smbpasswd(5) write them.
//!
//! *Operation.* A line is `NAME:UID:LM:NT:[FLAGS]:LCT-TIME:`. [`parse`] returns the user of each line or the reason why there
//! is none; the users are added to the database of `headgate user`.
//!
//! *Errors.* One line for each account that is not taken over.

use std::io::Read;
use std::path::Path;

use config::{Identity, user_name};
use smb_auth::NtHash;
use smbd_core::users::database::Entry;
use vfs::accounts;
use zeroize::Zeroizing;

use crate::records::ServiceFiles;
use crate::trust::{check_folders, check_secret};
use crate::users::{change_database, resolve, why_no_account};

/// Maximum size of a file in bytes: 100,000 users.
const FILE_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: String,
    /// `None`: Samba had no uid for it.
    uid: Option<u32>,
    hash: NtHash,
}

/// Takes over the accounts of a file; `-` is standard input. Existing users of the database are unchanged, unless `replace`.
pub(crate) fn import(files: &ServiceFiles, path: &Path, replace: bool) -> Result<(), String> {
    let text = read(path)?;
    let mut accounts = Vec::new();
    for (n, line) in text.lines().enumerate() {
        match parse(line) {
            Ok(Some(account)) => accounts.push(account),
            Ok(None) => {}
            Err(why) => complain!("{}:{}: {why}", path.display(), n + 1),
        }
    }
    if accounts.is_empty() {
        return Err(format!(
            "{} holds no account that can be taken over; write them by `pdbedit -L -w > FILE`",
            path.display()
        ));
    }
    let found = accounts.len();
    let mut added = 0;
    for account in accounts {
        let identity = identity(&account)?;
        let name = account.name.clone();
        let (cred, known) = resolve(&name, &identity)?;
        if let Some(why) = why_no_account(&name, (&cred, known)) {
            complain!("{name} is not taken over: {why}");
            continue;
        }
        let entry = entry(account, identity);
        let is_new = change_database(files, |database| {
            let is_new = replace || database.get(&name).is_none();
            if is_new {
                database.put(entry);
            }
            Ok(is_new)
        })?;
        match is_new {
            true => say!("added {name}: uid {}, gid {}", cred.uid, cred.gid),
            false => complain!(
                "{name} is in the database and keeps its password; `--replace` takes the one of the file"
            ),
        }
        added += usize::from(is_new);
    }
    say!("{added} of {found} accounts were taken over");
    Ok(())
}

fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let from: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => {
            // A hash is enough to log on, so the file must be as protected as a password.
            check_secret("list of accounts", path)?;
            check_folders("list of accounts", path)?;
            Box::new(std::fs::File::open(path).map_err(|e| at(&e))?)
        }
    };
    let mut bytes = Zeroizing::new(Vec::new());
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| at(&e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(at(&"the file is too large to be a list of accounts"));
    }
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|e| at(&e))
}

/// Returns the ids of an account: those of this host's user with the same name, else the uid that Samba had.
fn identity(account: &Account) -> Result<Identity, String> {
    let host = accounts::by_name(&account.name).map_err(|e| {
        format!("user {}: this host's name service (passwd, group) fails: {e}", account.name)
    })?;
    let uid = if host.is_some() { None } else { account.uid };
    if host.is_none() && uid.is_none() {
        return Err(format!(
            "the host has no user `{}`, and the file has no number for it: create it (`useradd {}`), or remove its line",
            account.name, account.name
        ));
    }
    Ok(Identity { uid, gid: None, groups: None })
}

fn entry(account: Account, identity: Identity) -> Entry {
    let Identity { uid, gid, groups } = identity;
    // Kerberos keys can only be derived from the password.
    Entry { name: account.name, hash: account.hash, uid, gid, groups, keys: None }
}

/// Returns the account of a line; `None` for a comment. The error says why the account is not taken over.
fn parse(line: &str) -> Result<Option<Account>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let parts: Vec<&str> = line.split(':').collect();
    let [name, uid, _, hash, ref rest @ ..] = parts[..] else {
        return Err("this is no line of `pdbedit -L -w` (NAME:UID:LM:NT:[FLAGS]:LCT-TIME:)".into());
    };
    let refuse = |why: &str| Err(format!("{name} is not taken over: {why}"));
    let name = match user_name(name) {
        Ok(name) => name,
        Err(why) => return Err(format!("an account is not taken over: {why}")),
    };
    let flags = rest.first().copied().unwrap_or_default();
    let has = |flag: char| flags.starts_with('[') && flags.contains(flag);
    if has('W') || has('S') || has('I') || name.ends_with('$') {
        return refuse("it is the account of a machine or of a domain");
    }
    for (flag, why) in
        [('D', "it is disabled"), ('L', "it is locked"), ('N', "it needs no password")]
    {
        if has(flag) {
            return refuse(why);
        }
    }
    let Some(hash) = nt_hash(hash) else { return refuse("it has no NT hash") };
    if hash == NtHash::of("") {
        return refuse("its password is empty");
    }
    let uid = match uid.parse::<u32>() {
        Ok(0) => return refuse("it has the number of root; use `headgate user add --uid NUMBER`"),
        Ok(u32::MAX | 65_534) | Err(_) => None,
        Ok(uid) => Some(uid),
    };
    Ok(Some(Account { name, uid, hash }))
}

fn nt_hash(text: &str) -> Option<NtHash> {
    let mut hash = Zeroizing::new([0; 16]);
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(NtHash(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "8846F7EAEE8FB117AD06BDD830B7586C";

    fn line(name: &str, uid: &str, hash: &str, flags: &str) -> String {
        format!("{name}:{uid}:{}:{hash}:[{flags:11}]:LCT-5F000000:", "X".repeat(32))
    }

    #[test]
    fn accounts_of_samba_keep_their_hash() {
        let found = parse(&line("kim", "1000", HASH, "UX")).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.uid), ("kim", Some(1000)));
        assert_eq!(found.hash, NtHash::of("password"));
        let unknown = parse(&line("kim", "4294967295", HASH, "U")).unwrap().unwrap();
        assert_eq!(unknown.uid, None);
        assert_eq!(parse("# comment"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn accounts_that_could_not_log_on_are_refused() {
        let none = &*"X".repeat(32);
        let empty = "31D6CFE0D16AE931B73C59D7E0C089C0";
        for (line, why) in [
            (line("kim", "1000", HASH, "UD"), "disabled"),
            (line("kim", "1000", HASH, "UL"), "locked"),
            (line("kim", "1000", HASH, "NU"), "no password"),
            (line("pc$", "1000", HASH, "W"), "machine"),
            (line("dom", "1000", HASH, "I"), "machine"),
            (line("kim", "1000", none, "U"), "no NT hash"),
            (line("kim", "1000", "+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1", "U"), "no NT hash"),
            (line("kim", "1000", empty, "U"), "empty"),
            (line("root", "0", HASH, "U"), "root"),
            (line("a/b", "1000", HASH, "U"), "does not allow"),
            ("kim:1000".into(), "no line of"),
        ] {
            let said = parse(&line).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
