//! Tests of `domain: {by: winbind}`: the gateway asks the winbindd of a Samba domain controller as that of this host. Only the
//! gateway sees its socket, in a mount namespace.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gateway::admin::show::fetch;

use super::domain::{self, Domain};
use super::{PASSWORD, SOON, World, kdc};

/// Services of a controller whose winbindd answers.
const WINBIND: &str =
    "server services = kdc, rpc, winbindd\ndcerpc endpoint servers = lsarpc, samr, netlogon";
/// Runs a program that finds the winbindd of the folder `$0`.
const WITH_SOCKET: &str =
    r#"mount -t tmpfs none /run && mkdir /run/samba && mount --bind "$0" /run/samba && exec "$@""#;
const OF_HOST: &str = "of-this-host";
/// The local account `alice`.
const LOCAL: u32 = 3001;

/// Serves with a local account that has the name of a domain user.
fn serve(world: &mut World, more: &str) {
    let run = world.at("domain/run");
    serve_at(world, &run, more);
}

/// Serves with the winbindd of this folder.
fn serve_at(world: &mut World, run: &Path, more: &str) {
    fs::write(world.at("password"), format!("{OF_HOST}\n")).unwrap();
    fs::set_permissions(world.at("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let file = world.at("password").display().to_string();
    let keytab = world.at("keytab").display().to_string();
    let run = run.display().to_string();
    let text = format!(
        "    sec: [krb5]\n{more}\nkerberos: {{keytab: {keytab}, realm: {}}}\ndomain: {{by: winbind}}\n\
         users: [{{name: alice, uid: {LOCAL}, password_file: {file}}}]\n",
        kdc::REALM
    );
    world.serve(&text, &["unshare", "--mount", "sh", "-c", WITH_SOCKET, &run]);
}

/// Writes the file `name` with this user, domain and password; returns what smbclient says.
fn put(world: &World, user: &str, more: &[&str], name: &str) -> String {
    let options = [&["--use-kerberos=off", "-U", user], more].concat();
    world.said(Path::new("/none"), &options, &format!("put smb.conf {name}"))
}

fn owner(world: &World, name: &str) -> Option<(u32, u32)> {
    let made = fs::metadata(world.at("data").join(name)).ok()?;
    Some((made.uid(), made.gid()))
}

fn by_domain(user: &str) -> String {
    format!("LAB\\{user}%{PASSWORD}")
}

fn ready(world: &World) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(fetch(world.daemon().admin, "/readyz")).unwrap()
}

#[test]
fn users_of_domain_are_one_by_password_and_ticket() {
    let Some((domain, mut world)) = domain::start(WINBIND) else { return };
    serve(&mut world, domain::AT_USUAL_PORT);
    // winbindd starts after the KDC.
    until(&|| world.status().domain.is_some_and(|domain| domain.answers), &world);
    let said = world.status().domain.unwrap();
    assert_eq!(said.domain.as_deref(), Some("LAB"));
    assert_eq!(ready(&world), "ready\n");

    // The password of the domain, signed, encrypted and at each dialect.
    for (n, more) in [
        &["-m", "SMB3_11", "--client-protection=sign"][..],
        &["-m", "SMB3_11", "--client-protection=encrypt"],
        &["-m", "SMB3_00", "--client-protection=encrypt"],
        &["-m", "SMB2_02", "--client-protection=sign"],
    ]
    .into_iter()
    .enumerate()
    {
        let said = put(&world, &by_domain("alice"), more, &format!("p{n}"));
        assert!(owner(&world, &format!("p{n}")).is_some(), "{more:?}: {said}\n{}", world.log());
    }
    let alice = owner(&world, "p0").unwrap();
    assert!(alice.0 != LOCAL && alice.0 > 1000, "winbind gives the number: {alice:?}");
    let said = put(&world, &format!("alice@lab.test%{PASSWORD}"), &[], "upn");
    assert_eq!(owner(&world, "upn"), Some(alice), "{said}\n{}", world.log());

    // The same user with a ticket, by both protocols.
    let tickets = world.tickets("alice", &[]);
    let said = world.said(&tickets, &[], "put smb.conf ticket");
    assert_eq!(owner(&world, "ticket"), Some(alice), "{said}\n{}", world.log());
    assert_eq!(world.client(&tickets).makes("nfs"), "0", "{}", world.log());
    assert_eq!(owner(&world, "nfs"), Some(alice));
    let shown = domain::smbcacls(&world, &tickets, "p0", &[]);
    assert!(shown.contains(&format!("OWNER:{}", domain.sid("alice"))), "{shown}");

    names_of_domain_are_known(&world, &domain);
    names_of_clients_decide(&world, alice);
    identifiers_decide(&world, &domain, &tickets);
    silence_heals(&world, &tickets, alice);
}

/// Returns what rpcclient prints for these commands, as a user of the domain.
fn rpcclient(world: &World, commands: &str) -> String {
    let mut command = world.kdc.command("rpcclient");
    let done = command
        .args(["-s", &world.at("smb.conf").display().to_string(), "-U", &by_domain("alice")])
        .args(["--use-kerberos=off", "-p", &world.daemon().smb.port().to_string()])
        .args(["-c", commands, "127.0.0.1"])
        .current_dir(&world.home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// LSA has the names of users and groups who have never logged on (MS-LSAT sections 3.1.4.5 and 3.1.4.9).
fn names_of_domain_are_known(world: &World, domain: &Domain) {
    let (bob, readers) = (domain.sid("bob"), domain.sid("readers"));
    let mut wrong = Vec::new();
    for (command, wanted) in [
        (r"lookupnames 'LAB\bob'".to_owned(), format!(r"LAB\bob {bob} (User: 1)")),
        (r"lookupnames 'lab.test\BOB'".to_owned(), format!(r"lab.test\BOB {bob} (User: 1)")),
        ("lookupnames bob".to_owned(), format!("bob {bob} (User: 1)")),
        ("lookupnames bob@lab.test".to_owned(), format!("bob@lab.test {bob} (User: 1)")),
        ("lookupnames readers".to_owned(), format!("readers {readers} (Domain Group: 2)")),
        ("lookupnames alice".to_owned(), format!("alice S-1-22-1-{LOCAL} (User: 1)")),
        (format!("lookupsids {bob}"), format!(r"{bob} LAB\bob (1)")),
        (format!("lookupsids {readers}"), format!(r"{readers} LAB\readers (2)")),
        (format!("lookupsids {}", domain.sid), format!("{} LAB (3)", domain.sid)),
        (r"lookupnames 'LAB\nobody-has-this-name'".to_owned(), "NT_STATUS_NONE_MAPPED".into()),
        ("lsaquery".to_owned(), format!("Domain Name: LAB\nDomain Sid: {}", domain.sid)),
    ] {
        let said = rpcclient(world, &command);
        println!("{command}: {}", said.trim());
        if !said.contains(&wanted) {
            wrong.push(format!("{command}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", world.log());
}

/// Entries of `access` for users and groups of the domain decide before their first logon. A gateway that starts before winbindd
/// refuses the shares with such entries until winbindd answers.
#[test]
fn names_in_access_are_resolved_by_winbind() {
    let Some((domain, mut world)) = domain::start(WINBIND) else { return };
    let run = world.at("domain/run");
    // Before winbindd answers.
    let hidden = world.at("domain/run-later");
    fs::create_dir(&hidden).unwrap();
    let data = world.at("data").display().to_string();
    let share = |name: &str, access: &str| {
        format!("  - {{name: {name}, path: {data}, access: {access}}}\n")
    };
    let shares = [
        share("user", r#"{write: ["bob@lab.test"]}"#),
        share("group", r#"{write: ["@readers"]}"#),
        share("other", r#"{deny: ['@LAB\readers']}"#),
        share("plain", r#"{write: ["*"]}"#),
    ];
    serve_at(&mut world, &hidden, &(shares.concat() + domain::AT_USUAL_PORT));
    let puts = |world: &World, user: &str, share: &str| {
        let options = ["--use-kerberos=off", "-U", user];
        let said = world.said_in(share, Path::new("/none"), &options, "ls");
        (!said.contains("NT_STATUS"), said)
    };
    let local = format!("WORKGROUP\\alice%{OF_HOST}");
    // WORKGROUP may be a trusted domain, so the local account is not logged on.
    let (is_in, said) = puts(&world, &local, "plain");
    assert!(!is_in && said.contains("LOGON_FAILURE"), "{said}\n{}", world.log());
    let here = format!(".\\alice%{OF_HOST}");
    for (share, wanted) in [("plain", true), ("user", false), ("other", false)] {
        let (is_in, said) = puts(&world, &here, share);
        assert_eq!(is_in, wanted, "{share}: {said}\n{}", world.log());
    }
    // It appears.
    let pid = world.daemon().child.id();
    let done = std::process::Command::new("nsenter")
        .args(["--mount", "--target", &pid.to_string(), "mount", "--bind"])
        .args([run.as_path(), Path::new("/run/samba")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    until(&|| world.status().domain.is_some_and(|domain| domain.answers), &world);
    // The gateway asks again every 15 seconds, and winbindd may be slow at its first answers.
    until_for(5 * SOON, &|| puts(&world, &by_domain("bob"), "user").0, &world);
    for (user, share, wanted) in [
        ("bob", "user", true),
        ("alice", "user", false),
        ("bob", "group", true),
        ("alice", "group", false),
        ("bob", "other", false),
        ("alice", "other", true),
    ] {
        let (is_in, said) = puts(&world, &by_domain(user), share);
        assert_eq!(is_in, wanted, "{user} {share}: {said}\n{}", world.log());
    }
    let (is_in, said) = puts(&world, &local, "plain");
    assert!(is_in, "winbind knows no such domain: {said}\n{}", world.log());
    owners_are_shown_by_identity(&mut world, &domain, &run);
}

/// A gateway that has never seen the owner of a file shows it by its SID and name.
fn owners_are_shown_by_identity(world: &mut World, domain: &Domain, run: &Path) {
    let said = put(world, &by_domain("bob"), &[], "of-bob");
    assert!(owner(world, "of-bob").is_some(), "{said}\n{}", world.log());
    world.daemon = None;
    fs::remove_dir_all(world.at("state")).unwrap();
    serve_at(world, run, domain::AT_USUAL_PORT);
    until(&|| world.status().domain.is_some_and(|domain| domain.answers), world);
    let alice = world.tickets("alice", &[]);
    let shown = domain::smbcacls(world, &alice, "of-bob", &[]);
    for line in [format!("OWNER:{}", domain.sid("bob")), format!("GROUP:{}-513", domain.sid)] {
        assert!(shown.contains(&line), "no {line} in {shown}\n{}", world.log());
    }
    let shown = domain::smbcacls_named(world, &alice, "of-bob", &[]);
    for line in ["OWNER:LAB\\bob", "GROUP:LAB\\Domain Users"] {
        assert!(shown.contains(line), "no {line} in {shown}\n{}", world.log());
    }
}

/// The domain that a client names says whose password it is.
fn names_of_clients_decide(world: &World, alice: (u32, u32)) {
    for (user, name, wanted) in [
        (format!("WORKGROUP\\alice%{OF_HOST}"), "unknown-domain", Some(LOCAL)),
        (format!("DC\\alice%{OF_HOST}"), "own-machine", Some(LOCAL)),
        (format!("LAB\\alice%{OF_HOST}"), "wrong", None),
        (format!("WORKGROUP\\alice%{PASSWORD}"), "wrong", None),
        (format!("LAB\\nobody-has-this-name%{PASSWORD}"), "wrong", None),
        (format!("lab.test\\ALICE%{PASSWORD}"), "dns-name", Some(alice.0)),
    ] {
        let said = put(world, &user, &[], name);
        assert_eq!(
            owner(world, name).map(|(uid, _)| uid),
            wanted,
            "{user}: {said}\n{}",
            world.log()
        );
        assert_eq!(said.contains("NT_STATUS_LOGON_FAILURE"), wanted.is_none(), "{user}: {said}");
    }
    let log = world.log();
    assert!(log.contains("the domain knows no such user with this password"), "{log}");
}

/// A group of the domain that a list denies has no way around by a password.
fn identifiers_decide(world: &World, domain: &Domain, tickets: &Path) {
    let entries =
        format!("ACL:{}:1/0x0/0x001f01ff,ACL:S-1-1-0:0/0x0/0x001f01ff", domain.sid("readers"));
    let said = domain::smbcacls(world, tickets, "p0", &["-S", &entries]);
    assert!(!said.contains("NT_STATUS") && !said.contains("ailed"), "{said}");
    let gets = |user: &str, name: &str| {
        let options = ["--use-kerberos=off", "-U", &by_domain(user)];
        let said = world.said(Path::new("/none"), &options, &format!("get {name} back"));
        assert!(!said.contains("LOGON_FAILURE"), "{said}");
        !said.contains("NT_STATUS")
    };
    assert!(gets("alice", "p0"), "{}", world.log());
    assert!(gets("bob", "p1") && !gets("bob", "p0"), "bob is one of the readers");
}

/// While winbindd is silent, known users log on with tickets and no password of the domain is right; then all is as before.
fn silence_heals(world: &World, tickets: &Path, alice: (u32, u32)) {
    let pid = fs::read_to_string(world.at("domain/run/winbindd.pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let began = Instant::now();
    let said = put(world, &by_domain("alice"), &[], "silent");
    assert!(said.contains("NT_STATUS_LOGON_FAILURE"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert!(world.log().contains("the domain cannot be asked now"), "{}", world.log());
    let row = world.refused().into_iter().find(|row| row.remedy.contains("wbinfo -p"));
    assert!(row.is_some_and(|row| row.user == "alice"), "{:?}", world.refused());
    until(&|| ready(world).contains("cannot log on with passwords"), world);
    assert!(!world.status().domain.unwrap().answers);
    let said = world.said(tickets, &[], "put smb.conf known");
    assert_eq!(owner(world, "known"), Some(alice), "{said}\n{}", world.log());
    let said = put(world, &format!("WORKGROUP\\alice%{OF_HOST}"), &[], "local");
    assert_eq!(owner(world, "local").map(|(uid, _)| uid), Some(LOCAL), "{said}");

    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    until(&|| ready(world) == "ready\n", world);
    let said = put(world, &by_domain("alice"), &[], "again");
    assert_eq!(owner(world, "again"), Some(alice), "{said}\n{}", world.log());
}

fn until(is: &dyn Fn() -> bool, world: &World) {
    until_for(SOON, is, world);
}

fn until_for(limit: Duration, is: &dyn Fn() -> bool, world: &World) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < limit, "{}", world.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}
