//! Users of the configuration and of the database.

use std::os::unix::fs::PermissionsExt;

use smbd_core::users::database::Entry;

use super::*;

fn entry(name: &str, password: &str) -> Entry {
    Entry {
        keys: None,
        name: name.into(),
        hash: NtHash::of(password),
        uid: Some(7),
        gid: None,
        groups: None,
    }
}

fn local(dir: &tempfile::TempDir) -> ServiceFiles {
    ServiceFiles::Local(dir.path().to_owned())
}

#[test]
fn users_that_share_a_made_uid_are_refused() {
    let uids = |users: &[(&'static str, u32, bool)]| refuse_shared_uids(users.iter().copied());
    let first = UNKNOWN_UIDS.start;
    let why = uids(&[("bob", first, false), ("eve", first + 1, false), ("ann", first, false)])
        .unwrap_err();
    for wanted in ["`ann`", "`bob`", "2013265920", "headgate user add bob --uid NUMBER"] {
        assert!(why.contains(wanted), "{wanted}: {why}");
    }
    // A given uid is intentional, and users outside of the range share the uid of one process.
    uids(&[("ann", first, false), ("bob", first, true)]).unwrap();
    uids(&[("ann", 1000, false), ("bob", 1000, false)]).unwrap();
}

#[test]
fn a_start_refuses_users_of_one_made_uid() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let state = local(&dir);
    let (one, other) = names_of_one_uid();
    let unknown = |name: &str| Entry { uid: None, ..entry(name, "one") };
    change_database(&state, |d| Ok(d.put(unknown(&one)))).unwrap();
    assert!(UserDb::open(&Settings::default(), Some(&state)).is_ok());
    change_database(&state, |d| Ok(d.put(unknown(&other)))).unwrap();
    let why = UserDb::open(&Settings::default(), Some(&state)).err().unwrap();
    assert!(why.contains(&format!("`{one}`")) && why.contains(&format!("`{other}`")), "{why}");
}

/// Returns two names without an account and with the same uid: by the birthday rule about 13,000 names are enough.
fn names_of_one_uid() -> (String, String) {
    let mut seen = HashMap::new();
    for n in 0.. {
        let name = format!("unknown-{n}");
        if let Some(other) = seen.insert(uid_of_name(&name), name.clone()) {
            return (other, name);
        }
    }
    unreachable!("the range is finite")
}

#[test]
fn the_database_is_private_and_read_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let path = state.join(DATABASE);
    let state = ServiceFiles::Local(state);
    change_database(&state, |d| Ok(d.put(entry("Alice", "one")))).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&path).unwrap().contains("one"));
    let book = UserDb::open(&Settings::default(), Some(&state)).unwrap();
    let alice = book.find("aLICE").unwrap();
    assert_eq!((alice.name.as_str(), alice.cred.uid, alice.rid), ("Alice", 7, 1014));
    assert_eq!(alice.nt_hash, NtHash::of("one").0);
    assert!(book.find("bob").is_none() && !book.is_empty());

    change_database(&state, |d| Ok((d.put(entry("bob", "two")), d.remove("alice")))).unwrap();
    book.refresh();
    assert!(book.find("bob").is_some() && book.find("alice").is_none());

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let why = read_database(&state).unwrap_err();
    assert!(why.contains("mode 0640") && why.contains("chmod 600"), "{why}");
    assert!(UserDb::open(&Settings::default(), Some(&state)).is_err());
}

/// A removed user must not be able to log on indefinitely because one reading of the file failed.
#[test]
fn a_database_that_could_not_be_read_is_read_at_the_next_look() {
    let dir = tempfile::tempdir().unwrap();
    let (state, path) = (local(&dir), dir.path().join(DATABASE));
    change_database(&state, |d| Ok(d.put(entry("alice", "one")))).unwrap();
    let book = UserDb::open(&Settings::default(), Some(&state)).unwrap();
    change_database(&state, |d| Ok((d.put(entry("bob", "two")), d.remove("alice")))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let at = Instant::now();
    assert!(book.refresh_at(at).is_none() && book.find("alice").is_some());
    // This changes neither the time nor the length of the file.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(book.refresh_at(at).is_none(), "not at each look");
    assert!(book.refresh_at(at + RETRY).is_some());
    assert!(book.find("alice").is_none() && book.find("bob").is_some());
    assert!(book.refresh().is_none(), "nothing has changed since");
}

#[test]
fn a_database_too_large_to_be_one_is_refused_and_not_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (state, path) = (local(&dir), dir.path().join(DATABASE));
    change_database(&state, |d| Ok(d.put(entry("alice", "one")))).unwrap();
    File::options().write(true).open(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let why = change_database(&state, |d| Ok(d.put(entry("bob", "two")))).unwrap_err();
    assert!(why.contains("more than 64 MiB"), "{why}");
    assert_eq!(fs::metadata(&path).unwrap().len(), (64 << 20) + 1);
}

#[test]
fn the_configuration_stands_before_the_database() {
    let dir = tempfile::tempdir().unwrap();
    change_database(&local(&dir), |d| Ok(d.put(entry("alice", "one")))).unwrap();
    let file = dir.path().join("password");
    fs::write(&file, "two\nsecond line\n").unwrap();
    let mut settings = Settings::default();
    let identity = Identity { uid: Some(9), ..Identity::default() };
    settings.users = vec![User {
        name: "ALICE".into(),
        password_file: Some(file.clone()),
        identity,
        limits: config::Rates::default(),
    }];
    let book = UserDb::open(&settings, Some(&local(&dir))).unwrap();
    let alice = book.find("alice").unwrap();
    assert_eq!((alice.nt_hash, alice.cred.uid), (NtHash::of("two").0, 9));
    settings.users[0].password_file = None;
    let book = UserDb::open(&settings, Some(&local(&dir))).unwrap();
    assert_eq!(book.find("alice").unwrap().nt_hash, NtHash::of("one").0);
    settings.users[0].name = "carol".into();
    let why = UserDb::open(&settings, Some(&local(&dir))).err().unwrap();
    assert!(why.contains("headgate user add carol"), "{why}");
    fs::write(&file, "\nsecret\n").unwrap();
    assert!(tools::password::read_password(&file).unwrap_err().contains("empty"));
}

#[test]
fn accounts_have_their_names_before_others() {
    let dir = tempfile::tempdir().unwrap();
    change_database(&local(&dir), |d| Ok(d.put(entry("Root", "one")))).unwrap();
    let open = |names| {
        let settings = Settings { names, ..Settings::default() };
        UserDb::open(&settings, Some(&local(&dir))).unwrap()
    };
    let host = open(Names::Host);
    assert_eq!((host.uid("root"), host.user(7)), (Some(7), Some("Root".into())));
    assert_eq!((host.user(0), host.gid("root")), (Some("root".into()), Some(0)));
    let own = open(Names::Own);
    assert_eq!((own.uid("root"), own.user(0), own.gid("root")), (Some(7), None, None));
}

#[test]
fn a_ticket_makes_an_account_or_a_user_of_the_host_and_tells_case_apart() {
    let dir = tempfile::tempdir().unwrap();
    change_database(&local(&dir), |d| Ok(d.put(entry("alice", "one")))).unwrap();
    let open = |names| {
        let settings = Settings { names, ..Settings::default() };
        UserDb::open(&settings, Some(&local(&dir))).unwrap()
    };
    let book = open(Names::Host);
    let alice = book.by_ticket("alice").unwrap().unwrap();
    assert_eq!((alice.cred.uid, alice.named), (7, true));
    assert_eq!(book.by_ticket("ALICE").unwrap(), None, "another principal");
    assert_eq!(book.cred("nobody"), None, "has not come yet");
    let nobody = book.by_ticket("nobody").unwrap().unwrap();
    assert_eq!((nobody.named, book.cred("nobody")), (false, Some(nobody.cred)));
    assert!(book.find("nobody").is_none(), "it has no password");
    let root = book.by_ticket("root").unwrap().unwrap();
    assert_eq!((root.cred.uid, root.named), (0, false));
    assert_eq!(open(Names::Own).by_ticket("nobody").unwrap(), None);
    change_database(&local(&dir), |d| Ok(d.put(entry("root", "one")))).unwrap();
    assert!(open(Names::Host).by_ticket("root").unwrap().unwrap().named);
}

#[test]
fn groups_of_the_host_count_from_the_next_logon() {
    let dir = tempfile::tempdir().unwrap();
    let of_host = |name| Entry { uid: None, ..entry(name, "one") };
    change_database(&local(&dir), |d| Ok((d.put(of_host("root")), d.put(of_host("daemon")))))
        .unwrap();
    let book = UserDb::open(&Settings::default(), Some(&local(&dir))).unwrap();
    let cred = |name| book.find(name).unwrap().cred;
    let now = [cred("root"), cred("daemon")];
    let plant = |name: &str, uid, groups: &[u32]| {
        let mut table = writing(&book.table);
        let (account, ..) = Arc::make_mut(&mut table).get_mut(name).unwrap();
        account.cred = Cred { uid, groups: groups.into(), ..account.cred.clone() };
    };
    plant("root", now[0].uid, &[54_321]);
    plant("daemon", now[1].uid, &[54_321]);
    book.look_again("ROOT");
    assert_eq!(cred("root"), now[0]);
    assert_ne!(cred("daemon"), now[1], "did not log on");
    assert!(book.refresh().is_some(), "older sessions are compared with it");
    assert_eq!(cred("daemon"), now[1]);
    book.look_again("root");
    assert!(book.refresh().is_none(), "it is the same");
    // Another number might be that of another user.
    plant("root", 54_321, &[]);
    book.look_again("root");
    assert_eq!(cred("root").uid, 54_321);
    assert!(book.refresh().is_some());
    assert_eq!(cred("root"), now[0]);
    book.look_again("nobody-of-this-name");
    // Logons to an account whose groups are given skip the look-up.
    let given = Entry { groups: Some(vec![8]), ..entry("given", "one") };
    change_database(&local(&dir), |d| Ok(d.put(given))).unwrap();
    assert!(book.refresh().is_some());
    let asks = |name| book.has_groups_of_host(name);
    assert_eq!((asks("ROOT"), asks("given"), asks("nobody-of-this-name")), (true, false, false));
}

#[test]
fn who_a_user_is() {
    let given = |uid, gid, groups| Identity { uid, gid, groups };
    let (root, known) = resolve("Root", &Identity::default()).unwrap();
    assert_eq!((root.uid, root.gid, known), (0, 0, true));
    let (one, known) = resolve("no-such-user", &given(Some(5), None, Some(vec![8]))).unwrap();
    assert_eq!((one.uid, one.gid, &*one.groups, known), (5, 5, &[8][..], true));
    let (other, _) = resolve("root", &given(Some(5), Some(6), None)).unwrap();
    assert_eq!((other.uid, other.gid, &*other.groups), (5, 6, &[][..]));
    let (nobody, known) = resolve("no-such-user", &Identity::default()).unwrap();
    assert!(!known && nobody.uid != 0);
}

#[test]
fn unknown_users_have_a_uid_each() {
    // The number of a name must never change, since files keep their owner.
    assert_eq!(uid_of_name("alice"), 2_052_249_153);
    assert_eq!(uid_of_name("ALICE"), 2_052_249_153);
    let names = ["alice", "bob", "carol", "", "\u{e9}ric"];
    let uids: BTreeSet<u32> = names.iter().map(|name| uid_of_name(name)).collect();
    assert_eq!(uids.len(), names.len());
    for uid in uids {
        let cred = Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE };
        assert!(is_of_name(&cred) && !is_nobody(&cred));
        assert_eq!(smbd_core::users::uid_of_rid(rid_of_uid(uid)), Some(uid));
        assert!(why_no_account("alice", (&cred, false)).is_some());
        assert!(why_no_account("alice", (&cred, true)).is_none());
    }
}

/// Logons by password have S-1-5-64-10 in their tokens (MS-DTYP section 2.4.2.4), and the domain of the gateway.
#[test]
fn accounts_and_guests_have_the_token_of_their_logon() {
    let dir = tempfile::tempdir().unwrap();
    change_database(&local(&dir), |d| Ok(d.put(entry("ann", "one")))).unwrap();
    let settings = Settings { state: dir.path().to_owned(), ..Settings::default() };
    let book = UserDb::open(&settings, Some(&local(&dir))).unwrap();
    let domain = Domain::by_service();
    for of in [None, Some(&domain)] {
        *writing(&book.token) = Token::of_account(of);
        let users: &dyn Users = &book;
        let creds = [
            users.find("ann").unwrap().cred,
            users.find_own("ann").unwrap().cred,
            users.find_for_logon("ann").unwrap().cred,
            users.cred("ann").unwrap(),
            users.guest(),
        ];
        for cred in creds {
            assert!(cred.token.is_by_ntlm() && !cred.token.is_by_ticket());
            assert_eq!(cred.token, Token::of_account(of));
        }
        let by_ticket = users.by_ticket("ann").unwrap().unwrap();
        assert_eq!(by_ticket.cred.token, Token::NONE, "a ticket brings its own");
    }
}
