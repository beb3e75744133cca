//! Tests that refusals of clients are in `headgate status --json`, the log and the metrics, over both protocols.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use client::Credential;
use client::connect::Local;
use client::smb::{Options, Smb, User};
use common::{Daemon, PASSWORD};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::{RefusedStatus, Snapshot};
use smb_proto::smb2::negotiate::Dialect;
use socket2::{Domain, Socket, Type};

mod common;

/// Time limit for every answer.
const SOON: Duration = Duration::from_secs(30);

fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Waits until the peer has closed the connection.
fn end_of(mut stream: TcpStream) {
    let ended = match stream.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(ended, "it is still open after {SOON:?}");
}

/// Sends an SMB1 NEGOTIATE that offers only `NT LM 0.12` (MS-CIFS section 2.2.4.52.1).
fn only_smb1(at: SocketAddr) {
    let mut message = b"\xffSMB\x72".to_vec();
    message.resize(32, 0);
    let dialects = b"\x02NT LM 0.12\0";
    message.extend([0, u8::try_from(dialects.len()).unwrap(), 0]);
    message.extend(dialects);
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    let mut stream = dial(at);
    stream.write_all(&[&len[..], &message].concat()).unwrap();
    // The answer that rejects all of its dialects (MS-CIFS section 2.2.4.52.2).
    let mut answer = [0; 41];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[36..], [1, 0xff, 0xff, 0, 0]);
    end_of(stream);
}

/// Sends NULL of NFS with an RPCSEC_GSS credential (RFC 2203), as `mount -o sec=krb5` starts (RFC 5531 section 9).
fn by_gss(at: SocketAddr) {
    let words: [u32; 10] = [7, 0, 2, 100_003, 3, 0, 6, 0, 0, 0];
    let call: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
    let mut stream = dial(at);
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
    // Denied with the authentication error AUTH_TOOWEAK.
    let mut reply = [0; 24];
    stream.read_exact(&mut reply).unwrap();
    let word = |n: usize| u32::from_be_bytes(reply[4 * n..4 * n + 4].try_into().unwrap());
    assert_eq!([word(1), word(2), word(3), word(4), word(5)], [7, 1, 1, 1, 5]);
}

/// Starts a proxy that removes the signature from every message after the logon (MS-SMB2 section 2.2.1.2).
fn without_signatures(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        const SESSION_SETUP: u8 = 1;
        const SIGNED: u8 = 8;
        let (mut client, mut server) = (listener.accept().unwrap().0, dial(to));
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let mut length = [0; 4];
        while client.read_exact(&mut length).is_ok() {
            let mut message = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
            client.read_exact(&mut message).unwrap();
            if message[12] > SESSION_SETUP {
                message[16] &= !SIGNED;
                message[48..64].fill(0);
            }
            // The server may have closed the connection.
            let _ = server.write_all(&[&length[..], &message].concat());
        }
    });
    at
}

/// Logs on through the proxy, where signatures are required and missing.
async fn unsigned(daemon: &Daemon) {
    let at = without_signatures(daemon.smb);
    let user = User { name: "alice".into(), domain: String::new(), password: PASSWORD.into() };
    let options = Options { dialect: Dialect::V210, ..Options::default() };
    let (share, local) = (("127.0.0.1", "data"), Local::default());
    assert!(Smb::connect(at, false, share, &user, options, &local).await.is_err());
}

fn row<'a>(s: &'a Snapshot, rule: &str, user: &str, share: &str) -> &'a RefusedStatus {
    let found = s.refused.iter().find(|r| (&*r.rule, &*r.user, &*r.share) == (rule, user, share));
    found.unwrap_or_else(|| panic!("{rule} {user} {share}: {:#?}", s.refused))
}

/// Provokes each refusal, over both protocols if possible.
async fn provoke(daemon: &Daemon) {
    let alice =
        async |share: &str, options: Options| daemon.smb(share, "alice", PASSWORD, options).await;
    for _ in 0..2 {
        daemon.mount("/closed", Credential::none()).await.unwrap_err();
    }
    daemon.mount("/nowhere", Credential::none()).await.unwrap_err();
    daemon.mount("/windows", Credential::none()).await.unwrap_err();
    daemon.mount("/by-smb", Credential::none()).await.unwrap_err();
    daemon.mount("/data", Credential::sys(7, 7, &[])).await.unwrap_err();
    by_gss(daemon.nfs);
    for share in ["nowhere4", "closed", "by-smb", "windows"] {
        assert!(daemon.volume(share).await.is_err(), "{share}");
    }
    for share in ["team", "others"] {
        daemon.volume(share).await.unwrap().list().await.unwrap_err();
    }
    let usual = Options::default;
    for (share, options) in [
        ("closed", usual()),
        ("nosuch", usual()),
        ("linux", usual()),
        ("by-nfs", usual()),
        ("team", usual()),
        ("others", usual()),
        ("sealed", Options { dialect: Dialect::V210, ..usual() }),
    ] {
        assert!(alice(share, options).await.is_err(), "{share}");
    }
    assert!(daemon.smb("data", "alice", "wrong", usual()).await.is_err());
    assert!(daemon.smb("data", "mallory\u{1b}[2J", "any", usual()).await.is_err());
    only_smb1(daemon.smb);
    unsigned(daemon).await;
    let nfs = daemon.volume("data").await.unwrap();
    let mut opened = 0;
    // An open may come with three other states.
    while nfs.create(&format!("n{opened}")).await.is_ok() {
        opened += 1;
    }
    assert!((2..=8).contains(&opened), "{opened}");
    let files = alice("data", usual()).await.unwrap();
    for name in ["a", "b"] {
        files.create(name).await.unwrap();
    }
    assert!(files.create("c").await.is_err());
    // No connection is idle long enough to be evicted.
    let many: Vec<TcpStream> = (0..40).map(|_| dial(daemon.nfs)).collect();
    end_of(many.into_iter().next_back().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_refused_is_in_status_in_the_log_and_counted() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: calls of root come from a port below 1024");
        return;
    }
    let daemon = Daemon::start(
        "shares: [{name: data, memory: true}, {name: closed, memory: true, clients: [192.0.2.0/24]}, \
         {name: team, memory: true, squash: none, access: {read: [alice], deny: [\"0\"]}}, \
         {name: others, memory: true, squash: none, access: {read: [\"5\"]}}, \
         {name: windows, memory: true, protocols: smb}, {name: linux, memory: true, protocols: nfs}, \
         {name: by-smb, memory: true, squash: none, clients: {from: 127.0.0.0/8, protocols: smb}}, \
         {name: by-nfs, memory: true, clients: {from: 127.0.0.0/8, protocols: nfs}}, \
         {name: sealed, memory: true, encrypt: true}]\nconnections: 32\nlimits: {client_opens: 2}\nlog: {level: trace}",
    );
    provoke(&daemon).await;
    let seen = daemon.status().await;
    let expected = [
        ("share-clients", "uid 65534", "closed", "`clients`"),
        ("share-clients", "alice", "closed", "`clients`"),
        ("share-name", "uid 65534", "nowhere", "`headgate check`"),
        ("share-name", "uid 0", "nowhere4", "`headgate check`"),
        ("share-name", "alice", "nosuch", "`headgate check`"),
        ("share-clients", "uid 65534", "by-smb", "`clients`"),
        ("share-clients", "uid 0", "by-smb", "`clients`"),
        ("share-clients", "alice", "by-nfs", "`clients`"),
        ("share-name", "uid 65534", "windows", "`protocols`"),
        ("share-name", "uid 0", "windows", "`protocols`"),
        ("share-name", "alice", "linux", "`protocols`"),
        ("share-access", "uid 0", "others", "`access`"),
        ("share-access", "alice", "others", "`access`"),
        ("rpc-credential", "", "", "`sec=sys`"),
        ("share-access-deny", "uid 0", "team", "`deny`"),
        ("share-access-deny", "alice", "team", "`deny`"),
        ("rpc-source-port", "", "data", "`privileged_ports: off`"),
        ("smb-encryption", "alice", "sealed", "`encrypt`"),
        ("smb-dialect", "", "", "SMB 2"),
        ("logon", "alice", "", "password"),
        ("logon", "mallory\u{fffd}[2J", "", "`headgate user add`"),
        ("smb-signing", "alice", "", "`smb.signing: offered`"),
        ("opens-of-session", "", "", "`limits.client_opens`"),
        ("opens-of-client", "", "", "`limits.client_opens`"),
        ("connections", "", "", "`connections`"),
    ];
    let (metrics, log) = (fetch(daemon.admin, "/metrics").await.unwrap(), daemon.log());
    // The first is the page's query, the second the command's.
    let told = daemon.told_status();
    assert!(expected.len() >= 20);
    for (rule, user, share, remedy) in expected {
        let r = row(&seen, rule, user, share);
        assert_eq!(row(&told, rule, user, share).remedy, r.remedy);
        assert_eq!(r.client, "127.0.0.1");
        assert!(r.remedy.contains(remedy) && r.count > 0 && r.age_seconds < 60, "{r:?}");
        let counted = |name: &str| {
            let series = format!("headgate_{name} ");
            metrics.lines().find_map(|l| l.strip_prefix(&series)).unwrap_or("0") != "0"
        };
        let is_counted = counted(&format!("refusals_total{{rule=\"{rule}\"}}"))
            || counted(&format!("limits_met_total{{limit=\"{rule}\"}}"));
        assert!(is_counted, "{rule} in\n{metrics}");
        let is_logged = log.lines().any(|l| {
            let of =
                l.contains(&format!("rule=\"{rule}\"")) || l.contains(&format!("limit=\"{rule}\""));
            of && l.contains(&r.remedy) && l.contains(share)
        });
        assert!(is_logged, "{rule} {user} {share} in\n{log}");
    }
    let logons = |outcome: &str| {
        let series = format!("headgate_smb_logons_total{{outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|l| l.strip_prefix(&series)).unwrap().parse::<u64>().unwrap()
    };
    assert!(logons("user") >= 5 && logons("refused") == 2, "{metrics}");
    assert_eq!(row(&seen, "share-clients", "uid 65534", "closed").count, 3, "merged");
    assert!(seen.refused.is_sorted_by(|a, b| a.last >= b.last), "the newest is first");
    assert!(!seen.violations.contains_key("smb-logon") && seen.refusals["logon"] == 2);
    assert!(!format!("{seen:?}{log}").contains("::ffff:"), "IPv4 is shown as IPv4\n{log}");
}

/// Connects from this loopback address.
fn dial_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_host_that_meets_a_limit_is_told_of_once() {
    let daemon = Daemon::start("shares: [{name: data, memory: true}]\nconnections: 4");
    // Each uses a separate address, so that no connection exceeds its address's part and is evicted.
    let held: Vec<TcpStream> = (10..14).map(|host| dial_from(host, daemon.nfs)).collect();
    let all_open = async { while daemon.status().await.connections.len() < held.len() {} };
    tokio::time::timeout(SOON, all_open).await.unwrap();
    for _ in 0..3 {
        for host in [2, 3] {
            end_of(dial_from(host, daemon.nfs));
        }
    }
    let seen = daemon.status().await;
    let log = daemon.log();
    for host in ["127.0.0.2", "127.0.0.3"] {
        let of = |r: &&RefusedStatus| r.rule == "connections" && r.client == host;
        assert_eq!(seen.refused.iter().find(of).map(|r| r.count), Some(3), "{:?}", seen.refused);
        let line =
            |l: &&str| l.contains("limit=\"connections\"") && l.contains(&format!("{host}:"));
        assert_eq!(log.lines().filter(line).count(), 1, "{host} in\n{log}");
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_no_share_admits_and_a_guest_are_among_the_refused() {
    let daemon = Daemon::start("shares: [{name: data, memory: true, clients: [192.0.2.0/24]}]");
    for at in [daemon.nfs, daemon.smb] {
        end_of(dial(at));
    }
    let seen = daemon.status().await;
    let stranger = row(&seen, "clients", "", "");
    assert_eq!((&*stranger.client, stranger.count), ("127.0.0.1", 2));
    assert!(stranger.remedy.contains("`clients`") && daemon.log().contains(&stranger.remedy));
    assert_eq!(seen.connections_refused, 2);

    let shares = "shares: [{name: data, memory: true}, {name: open, memory: true, guest: true}]";
    let daemon = Daemon::start(shares);
    assert!(daemon.smb("data", "visitor", "", Options::default()).await.is_err());
    let seen = daemon.status().await;
    assert!(row(&seen, "share-guest", "Guest", "data").remedy.contains("`guest: true`"));
}

/// Rules that the tests of this file provoke.
const HERE: [&str; 11] = [
    "share-clients",
    "share-access",
    "share-access-deny",
    "share-name",
    "share-guest",
    "logon",
    "smb-encryption",
    "smb-signing",
    "smb-dialect",
    "rpc-source-port",
    "rpc-credential",
];

/// Rules that need programs of Samba, a name service, a KDC, certificates, a browser or another gateway, and the test that provokes
/// each with a gateway or its server.
const ELSEWHERE: [(&str, &str); 15] = [
    ("share-access-deny-unsure", "vfs/src/acl/identities.rs"),
    ("share-access-unresolved", "gateway/src/shares.rs"),
    ("password-change", "gateway/tests/passwords.rs"),
    ("tls-certificate", "tests/tests/tls.rs"),
    ("admin-proof", "tests/tests/admin_tls.rs"),
    ("share-sec", "nfsrdma/tests/gss.rs"),
    ("share-elsewhere", "nfsrdma/tests/mount.rs"),
    ("share-clients-name", "gateway/tests/client_names.rs"),
    ("share-tls", "tests/tests/tls.rs"),
    ("share-tls-certificate", "tests/tests/tls.rs"),
    ("rpc-kerberos", "nfsrdma/tests/gss.rs"),
    ("admin-away", "gateway/tests/actions.rs"),
    ("admin-origin", "gateway/tests/actions.rs"),
    ("admin-token", "gateway/tests/actions.rs"),
    ("admin-session", "gateway/tests/actions.rs"),
];

/// The metrics list every rule from the start, so a new rule must be provoked by a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_by_which_clients_are_refused_is_provoked_by_a_test() {
    let daemon = Daemon::start("shares: [{name: data, memory: true}]");
    let metrics = fetch(daemon.admin, "/metrics").await.unwrap();
    let of = |line: &str| {
        let rest = line.strip_prefix("headgate_refusals_total{rule=\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let known: BTreeSet<String> = metrics.lines().filter_map(of).collect();
    let elsewhere = ELSEWHERE.iter().map(|(rule, _)| *rule);
    let provoked: BTreeSet<String> = HERE.into_iter().chain(elsewhere).map(str::to_owned).collect();
    assert_eq!(known, provoked);
    let own = include_str!("refused.rs");
    for rule in HERE {
        // Once in this list, and again in its test.
        assert!(own.matches(&format!("\"{rule}\"")).count() > 1, "nothing here provokes {rule}");
    }
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (rule, file) in ELSEWHERE {
        let test = std::fs::read_to_string(format!("{workspace}/{file}")).unwrap();
        assert!(test.contains(&format!("\"{rule}\"")), "{file} does not provoke {rule}");
    }
}
