//! Faults of servers: each ends in time, with its reason, and earlier answers decide. The server is a double that sends bytes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use smb_auth::NtHash;

use super::guard::Guard;
use super::guard::tests::{bound, done, entry_of, message, reference};
use super::named::Answer;
use super::*;

const HASH: &[u8] = b"8846F7EAEE8FB117AD06BDD830B7586C";
/// No fault may take longer, even with two servers.
const IN_TIME: Duration = Duration::from_secs(4);

/// Behaviour of the double on each connection.
#[derive(Clone)]
enum Double {
    /// The n-th connection has the n-th of these behaviours, and each later one the last.
    InTurn(Vec<Double>),
    /// The n-th request gets the n-th of these answers; the connection stays open.
    Answers(Vec<Vec<u8>>),
    /// Sends the answers byte by byte, slower than any question may take.
    Slow(Vec<Vec<u8>>),
    /// Sends this after the first request, and then this again and again.
    Flood(Vec<u8>, Vec<u8>),
    /// Ends the connection after so many answers.
    Ends(Vec<Vec<u8>>),
}

/// Reads a request, unless the connection ends.
fn request(stream: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        if let Ok(Some(length)) = Guard::default().message_length(&bytes)
            && bytes.len() >= length
        {
            return Some(());
        }
        let mut one = [0];
        stream.read_exact(&mut one).ok()?;
        bytes.push(one[0]);
    }
}

fn talk(mut stream: TcpStream, double: Double) -> Option<()> {
    match double {
        // Connections select from it.
        Double::InTurn(_) => return None,
        Double::Answers(answers) => {
            for answer in answers {
                request(&mut stream)?;
                stream.write_all(&answer).ok()?;
            }
            // Held until the client leaves.
            while request(&mut stream).is_some() {}
        }
        Double::Slow(answers) => {
            for answer in answers {
                request(&mut stream)?;
                for byte in answer {
                    stream.write_all(&[byte]).ok()?;
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
        Double::Flood(first, again) => {
            request(&mut stream)?;
            stream.write_all(&first).ok()?;
            loop {
                stream.write_all(&again).ok()?;
            }
        }
        Double::Ends(answers) => {
            for answer in answers {
                request(&mut stream)?;
                stream.write_all(&answer).ok()?;
            }
            request(&mut stream)?;
        }
    }
    Some(())
}

fn serve(double: Double) -> LdapServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let double = match &double {
                Double::InTurn(all) => all[n.min(all.len() - 1)].clone(),
                double => double.clone(),
            };
            thread::spawn(move || talk(stream.unwrap(), double));
        }
    });
    LdapServer { tls: false, host: "127.0.0.1".into(), port }
}

fn directory(servers: Vec<LdapServer>) -> Arc<Ldap> {
    let from = UsersFrom {
        ldap: servers,
        base: "o=lab".into(),
        bind: None,
        ca: None,
        filter: "(objectClass=posixAccount)".into(),
        keep: Duration::from_secs(3600),
    };
    Arc::new(Ldap::new(&from).unwrap())
}

/// Answers about dana, who is in the group 7.
fn dana(uid: &[u8]) -> Vec<Vec<u8>> {
    person("dana", uid)
}

fn person(name: &str, uid: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![bound(0)];
    all.extend(further(name, uid, 2));
    all
}

/// The same on a connection whose next search is this one.
fn further(name: &str, uid: &[u8], id: u8) -> [Vec<u8>; 2] {
    let attributes: [(&str, &[u8]); 4] = [
        ("uid", name.as_bytes()),
        ("uidNumber", uid),
        ("gidNumber", b"5000"),
        ("sambaNTPassword", HASH),
    ];
    let user = [entry_of(id, "uid=dana,o=lab", &attributes), done(id, 0)].concat();
    [user, crew(id + 1)]
}

fn crew(id: u8) -> Vec<u8> {
    let group: [(&str, &[u8]); 2] = [("cn", b"crew"), ("gidNumber", b"7")];
    [entry_of(id, "cn=crew,o=lab", &group), done(id, 0)].concat()
}

/// Returns the directory of such a server, and the reason why it does not answer about dana.
fn fault(double: Double) -> String {
    why_of(vec![serve(double)])
}

fn why_of(servers: Vec<LdapServer>) -> String {
    let directory = directory(servers);
    let began = Instant::now();
    assert_eq!(directory.look_up("dana"), LookedUp::Away);
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert!(directory.account("dana").is_none());
    let why = directory.seen().away.unwrap();
    // No other logon waits until the watch has an answer.
    let began = Instant::now();
    assert_eq!(directory.look_up("other"), LookedUp::Away);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(directory.seen().unanswered, 2);
    why
}

#[test]
fn user_and_groups_are_found() {
    let directory = directory(vec![serve(Double::Answers(dana(b"5001")))]);
    assert!(directory.must_look_up("dana", Look::Unknown));
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    let account = directory.account("DANA").unwrap();
    assert_eq!((&*account.name, account.cred.uid, account.cred.gid), ("dana", 5001, 5000));
    assert_eq!((&account.cred.groups[..], &account.nt_hash), (&[7][..], &NtHash::of("password").0));
    assert!(!directory.must_look_up("dana", Look::Unknown));
    let seen = directory.seen();
    assert_eq!((seen.away, seen.users, seen.found), (None, 1, 1));
    let (cred, groups) = directory.person("dana").unwrap().unwrap();
    assert_eq!((cred.uid, groups), (5001, vec!["crew (7)".to_owned()]));
}

#[test]
fn superuser_of_directory_is_refused_and_loses_an_earlier_answer() {
    let directory = directory(vec![serve(Double::Answers(dana(b"0")))]);
    let kept = User {
        name: "dana".into(),
        hash: NtHash::of("one"),
        uid: 5001,
        gid: 5000,
        groups: Vec::new(),
    };
    locked(&directory.cache).keep("dana", kept, Now::real());
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    assert!(directory.account("dana").is_none());
    assert_eq!(directory.take_changes().unwrap(), ["users removed: dana, of the directory"]);
    assert_eq!(directory.take_changes(), None);
    assert!(directory.person("dana").unwrap_err().contains("uidNumber 0"));
}

#[test]
fn faults_of_server_end_in_time() {
    let deep = [vec![0x30, 0x84, 0, 0, 0xff, 0], vec![0x30; 0xff00]].concat();
    let cases = [
        (Double::Answers(vec![]), "does not answer in time"),
        (Double::Answers(dana(b"5001")[..2].to_vec()), "does not answer in time"),
        (Double::Slow(dana(b"5001")), "does not answer in time"),
        (Double::Ends(vec![]), "has closed the connection"),
        (Double::Ends(vec![bound(0)]), "has closed the connection"),
        (Double::Answers(vec![b"HTTP/1.1 400 Bad Request\r\n".to_vec()]), "is not LDAP"),
        (Double::Answers(vec![message(1, &[0x61, 0])]), "is not LDAP"),
        (Double::Answers(vec![deep]), "is not LDAP"),
        (Double::Answers(vec![vec![0x30, 0x84, 0x7f, 0xff, 0xff, 0xff]]), "is larger than 256 KiB"),
        (Double::Answers(vec![bound(49)]), "refuses `bind_dn` or its password: invalidCredentials"),
        (Double::Answers(vec![bound(0), done(2, 32)]), "does not show `base`: noSuchObject"),
        (Double::Answers(vec![bound(0), done(2, 50)]), "refuses to search: insufficientAccess"),
        (Double::Answers(vec![bound(0), done(2, 4)]), "refuses to search: sizeLimitExceeded"),
        (
            Double::Answers(vec![bound(0), [reference(2), done(2, 0)].concat()]),
            "refers to another server",
        ),
        (Double::Answers(vec![bound(0), message(0, &[0x78, 0])]), "it ends the connection"),
    ];
    let cases = cases.map(|(double, wanted)| (thread::spawn(move || fault(double)), wanted));
    for (case, wanted) in cases {
        let why = case.join().unwrap();
        assert!(why.contains(wanted), "{wanted}: {why}");
    }
}

#[test]
fn unreachable_server_and_wrong_port_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let gone = LdapServer { tls: false, host: "127.0.0.1".into(), port };
    assert!(why_of(vec![gone]).contains("it cannot be connected"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(b"this is another protocol\r\n").unwrap();
        }
    });
    let plain = LdapServer { tls: true, host: "127.0.0.1".into(), port };
    let ca = tempfile::NamedTempFile::new().unwrap();
    let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(ca.path(), own.cert.pem()).unwrap();
    let from = UsersFrom {
        ldap: vec![plain],
        ca: Some(ca.path().to_owned()),
        ..directory(vec![]).from.clone()
    };
    let tls = Arc::new(Ldap::new(&from).unwrap());
    assert_eq!(tls.look_up("dana"), LookedUp::Away);
    let why = tls.seen().away.unwrap();
    assert!(why.contains("TLS fails"), "{why}");
    std::fs::write(ca.path(), "no certificate").unwrap();
    assert!(Ldap::new(&from).unwrap_err().contains("has no certificate"));
    let wrong = UsersFrom { filter: "(uid)".into(), ca: None, ..from };
    assert!(Ldap::new(&wrong).unwrap_err().contains("is no filter"));
}

#[test]
fn next_server_answers_for_a_silent_one() {
    let silent = serve(Double::Answers(vec![]));
    let sound = serve(Double::Answers(dana(b"5001")));
    let directory = directory(vec![silent, sound]);
    let began = Instant::now();
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    assert!(began.elapsed() < IN_TIME && directory.account("dana").is_some());
    // The next question begins with it.
    let began = Instant::now();
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn silent_resolver_delays_no_answer_of_another_server() {
    let named = LdapServer { tls: false, host: "ldap.example.org".into(), port: 389 };
    let sound = serve(Double::Answers(dana(b"5001")));
    let resolver: ask::Resolver = |_, _| {
        thread::sleep(Duration::from_secs(30));
        Ok(Vec::new())
    };
    let access = Access { tls: None, bind: Default::default(), resolver };
    let began = Instant::now();
    let asked =
        ask::ask((&[named, sound], 0), &access, ANSWER_MAX, async |session: &mut Session| {
            session.search("o=lab", Scope::Subtree, "(uid=dana)", &["uid"], 1).await
        });
    assert!(asked.is_ok_and(|(rows, index)| (rows.len(), index) == (1, 1)));
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
}

#[test]
fn last_answer_serves_while_no_server_answers() {
    let directory = directory(vec![serve(Double::Ends(vec![]))]);
    let kept = User {
        name: "dana".into(),
        hash: NtHash::of("one"),
        uid: 5001,
        gid: 5000,
        groups: vec![7],
    };
    let at = std::time::SystemTime::now();
    let groups = vec![("crew".to_owned(), cache::Kept::earlier(7, at))];
    locked(&directory.cache).add_earlier((vec![cache::Kept::earlier(kept, at)], groups));
    assert!(directory.must_look_up("dana", Look::Unknown));
    assert_eq!(directory.look_up("dana"), LookedUp::Away);
    assert_eq!(directory.account("dana").unwrap().cred.uid, 5001);
    assert_eq!(directory.user_for_settings("dana").unwrap().unwrap().uid, 5001);
    assert_eq!(directory.group_for_settings("crew"), Ok(Some(7)));
    let why = directory.group_for_settings("other").unwrap_err();
    assert!(why.to_string().contains("does not answer"), "{why}");
    assert!(matches!(directory.user_for_settings("other"), Err(Unresolved::Silent(_))));
    assert_eq!(directory.user_for_settings("S-1-5-21\\x"), Ok(None), "no name of a user");
    let of_check = directory.person("dana").unwrap().unwrap();
    assert!(of_check.1[0].contains("last answer"));
}

#[test]
fn known_users_are_asked_about_again() {
    let earlier = |name: &str, hash: &str| {
        let user = User {
            name: name.into(),
            hash: NtHash::of(hash),
            uid: 5001,
            gid: 5000,
            groups: vec![7],
        };
        cache::Kept::earlier(user, std::time::SystemTime::now())
    };
    let found = directory(vec![serve(Double::Answers(dana(b"5001")))]);
    assert!(!found.ask_again(), "there is none");
    locked(&found.cache).add_earlier((vec![earlier("dana", "old")], Vec::new()));
    assert!(found.ask_again());
    assert_eq!(found.account("dana").unwrap().nt_hash, NtHash::of("password").0);
    assert_eq!((found.take_changes(), found.ask_again()), (None, false));
    let gone = directory(vec![serve(Double::Answers(vec![bound(0), done(2, 0)]))]);
    locked(&gone.cache).add_earlier((vec![earlier("dana", "old")], Vec::new()));
    assert!(gone.ask_again() && gone.account("dana").is_none());
    assert_eq!(gone.take_changes().unwrap().len(), 1);
    let silent = directory(vec![serve(Double::Ends(vec![]))]);
    locked(&silent.cache).add_earlier((vec![earlier("dana", "old")], Vec::new()));
    assert!(silent.ask_again() && silent.account("dana").is_some());
}

fn earlier(name: &str) -> cache::Kept<User> {
    let (name, hash, groups) = (name.to_owned(), NtHash::of("one"), vec![7]);
    let user = User { name, hash, uid: 5001, gid: 5000, groups };
    cache::Kept::earlier(user, std::time::SystemTime::now())
}

/// A server that shows this user, and then ends the search for its groups with this code.
fn limit(name: &str, code: u8) -> Double {
    let mut answers = person(name, b"5001");
    answers[2] = done(3, code);
    Double::Ends(answers)
}

/// Servers that show this user, and then reach a limit at its groups or send too much.
fn limits(name: &str) -> Vec<(Double, &'static str)> {
    let limit = |code| limit(name, code);
    let mut refers = person(name, b"5001");
    refers[2] = [reference(3), refers[2].clone()].concat();
    let entry = entry_of(2, "uid=dana,o=lab", &[("uid", &[b'x'; 4000])]);
    vec![
        (limit(4), "sizeLimitExceeded"),
        (limit(10), "referral"),
        (Double::Ends(refers), "refers to another server"),
        (Double::Flood(bound(0), entry), "is larger than 256 KiB"),
    ]
}

#[test]
fn limit_of_one_user_refuses_that_user_alone() {
    for (double, wanted) in limits("dana") {
        let directory = directory(vec![serve(double)]);
        locked(&directory.cache).add_earlier((vec![earlier("dana")], Vec::new()));
        assert_eq!(directory.look_up("dana"), LookedUp::Answered, "{wanted}");
        // Neither an old password nor old groups serve.
        assert!(directory.account_for_logon("dana").is_none(), "{wanted}");
        assert!(directory.account("dana").is_none(), "{wanted}");
        assert_eq!(directory.seen().away, None, "others are asked about");
        let why = directory.person("dana").unwrap_err();
        assert!(why.contains(wanted), "{wanted}: {why}");
        // The second question within seconds has the same answer.
        for _ in 0..2 {
            let why = directory.user_for_settings("dana").unwrap_err();
            assert!(matches!(&why, Unresolved::Unusable(why) if why.contains(wanted)), "{why}");
        }
    }
}

#[test]
fn loaded_server_ends_no_session_and_makes_no_old_password_valid() {
    for (code, wanted) in [(3, "timeLimitExceeded"), (11, "adminLimitExceeded")] {
        let directory = directory(vec![serve(limit("dana", code))]);
        locked(&directory.cache).add_earlier((vec![earlier("dana")], Vec::new()));
        assert_eq!(directory.look_up("dana"), LookedUp::Busy, "{wanted}");
        assert!(directory.must_look_up("dana", Look::Unknown), "no logon without an answer");
        assert!(directory.account("dana").is_some() && directory.take_changes().is_none());
        assert!(directory.ask_again() && directory.account("dana").is_some());
        assert!(!directory.is_away(), "others are asked about");
        let of_check = directory.person("dana").unwrap().unwrap();
        assert!(of_check.1[0].contains("last answer"));
        let new = directory.person("other").unwrap_err();
        assert!(new.contains("no such uid"), "{new}");
        // It is loaded for users, too.
        let all = fault(Double::Answers(vec![bound(0), done(2, code)]));
        assert!(all.contains(wanted), "{all}");
    }
    let sound = serve(Double::Answers(dana(b"5001")));
    let both = directory(vec![serve(limit("dana", 3)), sound]);
    assert_eq!(both.look_up("dana"), LookedUp::Answered);
    assert_eq!(both.account_for_logon("dana").unwrap().cred.uid, 5001);
}

#[test]
fn repeated_questions_end_before_a_server_is_late() {
    for servers in 1..=4 {
        // Some time is left for the last question.
        assert!(again_time(servers as usize) * 2 <= ANSWER_MAX / servers, "{servers}");
    }
    assert_eq!(again_time(1), AGAIN_TIME);
}

#[test]
fn first_user_of_a_uid_is_found_without_those_of_the_configuration() {
    let directory = directory(vec![]);
    let all = vec![earlier("dana"), earlier("alice"), earlier("bob")];
    locked(&directory.cache).add_earlier((all, Vec::new()));
    let found = |uid, own: &str| directory.by_uid(uid, &|name| name != own).map(|it| it.name);
    assert_eq!(found(5001, "root").unwrap(), "alice");
    assert_eq!(found(5001, "alice").unwrap(), "bob");
    assert_eq!(found(5002, "root"), None);
}

#[test]
fn user_without_answer_keeps_no_other_from_its_turn() {
    let loaded = [3, 11].map(|code| (limit("large", code), "loaded"));
    for (double, _) in limits("large").into_iter().chain(loaded) {
        let sound = Double::Ends(dana(b"5001"));
        let directory = directory(vec![serve(Double::InTurn(vec![double, sound]))]);
        let mut first = earlier("large");
        first.answered -= Duration::from_secs(60);
        locked(&directory.cache).add_earlier((vec![first, earlier("dana")], Vec::new()));
        for _ in 0..2 {
            assert!(directory.ask_again());
        }
        assert_eq!(directory.account("dana").unwrap().nt_hash, NtHash::of("password").0);
    }
    // The server ends the connection instead of an answer about the first.
    let (ends, sound) = (Double::Ends(vec![bound(0)]), Double::Ends(dana(b"5001")));
    let directory = directory(vec![serve(Double::InTurn(vec![ends, sound]))]);
    let mut first = earlier("large");
    first.answered -= Duration::from_secs(60);
    locked(&directory.cache).add_earlier((vec![first, earlier("dana")], Vec::new()));
    assert!(directory.ask_again() && directory.is_away());
    assert!(directory.ask_again() && !directory.is_away());
    assert_eq!(directory.account("dana").unwrap().nt_hash, NtHash::of("password").0);
    assert!(directory.account("large").is_some());
}

#[test]
fn settings_may_name_users_who_cannot_log_on() {
    let entry = |uid: &[u8], more: &[(&str, &[u8])]| {
        let usual: [(&str, &[u8]); 3] =
            [("uid", b"dana"), ("uidNumber", uid), ("gidNumber", b"5000")];
        let all = [&usual[..], more].concat();
        let user = [entry_of(2, "uid=dana,o=lab", &all), done(2, 0)].concat();
        directory(vec![serve(Double::Answers(vec![bound(0), user, done(3, 0)]))])
    };
    let cred = Cred { uid: 5001, gid: 5000, groups: [].into(), token: Token::NONE };
    let disabled: [(&str, &[u8]); 2] = [("sambaNTPassword", HASH), ("sambaAcctFlags", b"[UD]")];
    let none: [(&str, &[u8]); 0] = [];
    for more in [&none[..], &disabled[..]] {
        let directory = entry(b"5001", more);
        for _ in 0..2 {
            assert_eq!(directory.user_for_settings("dana"), Ok(Some(cred.clone())));
        }
        assert!(directory.account_for_logon("dana").is_none() && !directory.is_away());
        // A configuration that denies the user can be read while the directory is silent.
        locked(&directory.state).away = Some("it is silent".into());
        assert_eq!(directory.user_for_settings("dana"), Ok(Some(cred.clone())));
    }
    for uid in [&b"0"[..], b"65534"] {
        let directory = entry(uid, &[]);
        for _ in 0..2 {
            assert_eq!(directory.user_for_settings("dana"), Ok(None), "the host's is meant");
        }
    }
}

/// The host's user of the name is not the one that is meant, and one who may not log on needs no groups to be refused.
#[test]
fn loaded_server_hides_neither_names_nor_locks() {
    let disabled: [(&str, &[u8]); 5] = [
        ("uid", b"dana"),
        ("uidNumber", b"5001"),
        ("gidNumber", b"5000"),
        ("sambaNTPassword", HASH),
        ("sambaAcctFlags", b"[UD]"),
    ];
    for code in [3, 11] {
        let loaded = directory(vec![serve(limit("dana", code))]);
        let why = loaded.user_for_settings("dana").unwrap_err();
        assert!(matches!(why, Unresolved::Unusable(_)), "{why}");
        locked(&loaded.cache).add_earlier((vec![earlier("dana")], Vec::new()));
        assert_eq!(loaded.user_for_settings("dana").unwrap().unwrap().uid, 5001);

        let user = [entry_of(2, "uid=dana,o=lab", &disabled), done(2, 0)].concat();
        let locks = Double::Ends(vec![bound(0), user, done(3, code)]);
        let locks = directory(vec![serve(locks)]);
        locked(&locks.cache).add_earlier((vec![earlier("dana")], Vec::new()));
        assert_eq!(locks.look_up("dana"), LookedUp::Answered);
        assert!(!knows_dana(&locks), "its sessions end");
    }
}

/// Returns the directory of a configuration with this server, below the folder.
fn of_settings(state: &std::path::Path, base: &str) -> Arc<Ldap> {
    let gone = LdapServer { tls: false, host: "127.0.0.1".into(), port: 1 };
    let from = UsersFrom { base: base.into(), ..directory(vec![gone]).from.clone() };
    let state = state.to_owned();
    of(&Settings { state, users_from: Some(from), ..Settings::default() }).unwrap().unwrap()
}

fn knows_dana(directory: &Ldap) -> bool {
    directory.account("dana").is_some()
}

/// A configuration with other certificates may be refused.
#[test]
fn certificates_are_those_of_the_configuration_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let write = || {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        std::fs::write(&ca, own.cert.pem()).unwrap();
    };
    let gone = LdapServer { tls: true, host: "127.0.0.1".into(), port: 1 };
    let from = UsersFrom { ca: Some(ca.clone()), ..directory(vec![]).from.clone() };
    let from = UsersFrom { ldap: vec![gone], base: "o=certificates".into(), ..from };
    let state = dir.path().to_owned();
    let settings = Settings { state, users_from: Some(from), ..Settings::default() };
    let read = || of(&settings).unwrap().unwrap();
    let tls = |it: &Ldap| locked(&it.tls).clone().unwrap();
    write();
    let directory = read();
    directory.start_by(None, |_| Ok(()));
    let before = tls(&directory);
    write();
    assert!(Arc::ptr_eq(&read(), &directory) && Arc::ptr_eq(&tls(&directory), &before));
    directory.start_by(None, |_| Ok(()));
    assert!(!Arc::ptr_eq(&tls(&directory), &before), "it is in force");
    directory.stop();
}

#[test]
fn answers_that_nothing_kept_new_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let watched = |it: &Ldap| *locked(&it.watched) = Some(Arc::new(()));
    let first = of_settings(dir.path(), "o=one");
    watched(&first);
    locked(&first.cache).add_earlier((vec![earlier("dana")], Vec::new()));
    assert!(knows_dana(&of_settings(dir.path(), "o=one")), "it is in force");
    // The user is removed while another configuration is in force.
    let other = of_settings(dir.path(), "o=two");
    watched(&other);
    first.stop();
    assert!(!knows_dana(&of_settings(dir.path(), "o=one")));
    // A refused configuration has learned of the user, who is removed since.
    locked(&of_settings(dir.path(), "o=one").cache).add_earlier((vec![earlier("dana")], vec![]));
    assert!(!knows_dana(&of_settings(dir.path(), "o=one")));
    other.stop();
}

#[test]
fn name_of_a_host_user_is_resolved_again_when_the_directory_has_it() {
    let none = || Double::Answers(vec![bound(0), done(2, 0)]);
    let sound = || Double::Answers(dana(b"5001"));
    let all = vec![none(), sound(), sound(), none()];
    let directory = directory(vec![serve(Double::InTurn(all))]);
    assert_eq!(directory.user_for_settings("dana"), Ok(None), "the host's is meant");
    assert_eq!(directory.take_changes(), None);
    // The user is made, and logs on before any other configuration is read.
    assert_eq!(directory.look_up("DANA"), LookedUp::Answered);
    assert_eq!(directory.take_changes(), Some(vec![]));
    assert_eq!(directory.user_for_settings("dana").unwrap().unwrap().uid, 5001);
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    assert_eq!(directory.take_changes(), None, "nothing is new");
    // Without the entry, the name means that of the host again.
    assert_eq!(directory.look_up("dana"), LookedUp::Answered);
    assert_eq!(directory.user_for_settings("dana"), Ok(None));
    assert_eq!(directory.take_changes().unwrap().len(), 1);
    // Other names that clients invent change nothing.
    assert_eq!(directory.look_up("other"), LookedUp::Answered);
    assert_eq!(directory.take_changes(), None);
    // A configuration that is refused afterwards has asked first.
    assert!(locked(&directory.cache).note_meant("dana", Some(&cred(&earlier("dana").value))));
}

/// A configuration that was refused in silence is read again, and nothing watches its directory.
#[test]
fn silence_that_nothing_watches_ends_with_the_next_question() {
    let sound = Double::Answers(dana(b"5001"));
    let directory = directory(vec![serve(Double::InTurn(vec![Double::Ends(vec![]), sound]))]);
    assert!(matches!(directory.user_for_settings("dana"), Err(Unresolved::Silent(_))));
    let age = |by: Duration| {
        let mut state = locked(&directory.state);
        state.asked = state.asked.and_then(|asked| asked.checked_sub(by));
    };
    assert!(directory.user_for_settings("dana").is_err(), "it has just been asked");
    age(WATCH_AWAY);
    *locked(&directory.watched) = Some(Arc::new(()));
    assert!(directory.user_for_settings("dana").is_err(), "the watch asks");
    *locked(&directory.watched) = None;
    assert_eq!(directory.user_for_settings("dana").unwrap().unwrap().uid, 5001);
}

#[test]
fn watch_without_a_thread_is_started_again() {
    let directory = directory(vec![]);
    let mut begun = 0;
    for (is_begun, has_thread) in [(false, false), (true, true), (true, true)] {
        directory.start_by(None, |_| {
            begun += 1;
            if has_thread { Ok(()) } else { Err(std::io::ErrorKind::WouldBlock.into()) }
        });
        assert_eq!(directory.is_watched(), is_begun);
    }
    assert_eq!(begun, 2);
}

#[test]
fn names_of_a_configuration_share_a_connection_and_have_their_time() {
    let mut all = dana(b"5001");
    all.extend(further("bob", b"5002", 4));
    all.push(crew(6));
    // There is one connection.
    let double = Double::InTurn(vec![Double::Answers(all), Double::Ends(vec![])]);
    let directory = directory(vec![serve(double)]);
    let names = [Name::User("dana"), Name::User("bob"), Name::Group("crew"), Name::User("a\\b")];
    let late = directory.for_settings(&names, Duration::ZERO);
    let is_silent = |it: &Answer| matches!(it, Err(Unresolved::Silent(why)) if why.contains("no time for this name"));
    assert!(late[..3].iter().all(is_silent) && late[3] == Ok(None), "{late:?}");
    let told = directory.for_settings(&names, time_for(names.len()));
    let uid = |it: &Answer| match it {
        Ok(Some(Meant::User(cred))) => cred.uid,
        other => panic!("{other:?}"),
    };
    assert_eq!((uid(&told[0]), uid(&told[1])), (5001, 5002));
    assert_eq!(told[2..], [Ok(Some(Meant::Group(7))), Ok(None)]);
    assert_eq!(directory.take_changes(), Some(vec![]), "late names are asked about again");
    assert!(time_for(40) > time_for(4) && time_for(usize::MAX) == Duration::from_secs(30));
}

#[test]
fn names_are_resolved_again_after_silence() {
    let sound = Double::Answers(dana(b"5001"));
    let directory = directory(vec![serve(Double::InTurn(vec![Double::Ends(vec![]), sound]))]);
    assert!(matches!(directory.user_for_settings("dana"), Err(Unresolved::Silent(_))));
    assert_eq!(directory.take_changes(), None, "it is still silent");
    assert!(directory.person("dana").unwrap().is_some());
    assert_eq!(directory.take_changes(), Some(vec![]));
    assert_eq!(directory.take_changes(), None);
}

#[test]
fn probe_tells_each_server_and_users_without_hashes() {
    let none = [bound(0), done(2, 0), done(3, 0)].to_vec();
    let hash: [(&str, &[u8]); 1] = [("sambaNTPassword", HASH)];
    let some = [bound(0), done(2, 0), [entry_of(3, "o=lab", &hash), done(3, 0)].concat()].to_vec();
    let bad = serve(Double::Answers(vec![bound(49)]));
    let (lines, has_hash) = directory(vec![bad, serve(Double::Answers(none.clone()))]).probe();
    assert_eq!(has_hash, Some(false));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("invalidCredentials") && line.contains("correct `bind_dn`"), "{line}");
    let both = vec![serve(Double::Answers(some)), serve(Double::Answers(none))];
    assert_eq!(directory(both).probe(), (vec![], Some(true)));
}
