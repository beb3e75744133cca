//! Tests of the same keytab over NFS (RFC 2203): tickets of the KDC make contexts, or the error explains why not. Mounts are
//! tested in the lab.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gss_sys::Initiator;
use nfs_proto::oncrpc::{CallHead, OpaqueAuth, ReplyHead, program};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInitArg, GssInitRes, GssProc, GssService, RPCSEC_GSS, VERSION_1,
};
use nfs_proto::xdr::{self, Xdr};

use super::{HOST, SOON, World, kdc};

/// The library finds its realm through the environment of the process, so a separate process makes each token.
pub(super) const CACHE: &str = "TICKETS_OF_A_TOKEN";
const SERVICE: &str = "SERVICE_OF_A_TOKEN";

/// Run by [`token`] in a child process; without its environment it returns at once.
#[test]
fn a_token_of_a_client() {
    let (Ok(cache), Ok(service)) = (std::env::var(CACHE), std::env::var(SERVICE)) else { return };
    let mut client = Initiator::new(Path::new(&cache), &service).unwrap();
    let (token, _) = client.step(&[]).unwrap();
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("token={hex}.");
}

/// Returns the first token for this service, with the tickets of the cache.
fn token(world: &World, cache: &Path, service: &str) -> Vec<u8> {
    let program = std::env::current_exe().unwrap();
    let mut command: Command = world.kdc.command(&program.display().to_string());
    command.args(["--exact", "nfs::a_token_of_a_client", "--nocapture"]).env(CACHE, cache);
    command.env(SERVICE, format!("{service}/{HOST}@{}", kdc::REALM));
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    let hex = said.split("token=").nth(1).and_then(|rest| rest.split('.').next());
    let hex = hex.unwrap_or_else(|| panic!("{said}"));
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Returns the call that requests a context.
pub(super) fn init(token: &[u8]) -> Vec<u8> {
    let service = GssService::Privacy;
    let cred =
        GssCred { vers: VERSION_1, gss_proc: GssProc::Init, seq_num: 0, service, handle: &[] };
    let cred = xdr::encode(&cred);
    let (cred, verf) = (OpaqueAuth { flavor: RPCSEC_GSS, body: &cred }, OpaqueAuth::NONE);
    let mut call = Vec::new();
    let head = CallHead { xid: 7, program: program::NFS, version: 4, procedure: 0, cred, verf };
    head.emit(&mut call);
    GssInitArg { gss_token: token }.emit(&mut call);
    call
}

/// Requests a context; returns the major status, and whether a context exists.
fn context(world: &World, token: &[u8]) -> (u32, bool) {
    let reply = exchange(&mut connect(world.daemon().nfs), &init(token));
    let (results, _) = wire::decode(&reply, ReplyHead::parse).unwrap();
    let (_, made) = xdr::decode::<GssInitRes<'_>>(results).unwrap();
    (made.gss_major, !made.handle.is_empty())
}

pub(super) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Returns a message of a stream (RFC 5531 section 11).
fn record(call: &[u8]) -> Vec<u8> {
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
    [&mark.to_be_bytes()[..], call].concat()
}

fn answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

/// Sends a call and returns the answer.
pub(super) fn exchange(stream: &mut TcpStream, call: &[u8]) -> Vec<u8> {
    stream.write_all(&record(call)).unwrap();
    answer(stream).unwrap()
}

impl World {
    /// Creates a world with a key of `nfs`, and a share that requires tickets.
    pub(super) fn of_nfs() -> Self {
        let world = Self::new();
        world.kdc.service(&format!("nfs/{HOST}"), &world.at("keytab"));
        world
    }

    fn mounts(&self, cache: &Path) {
        let made = context(self, &token(self, cache, "nfs"));
        assert_eq!(made, (0, true), "{}", self.log());
    }

    /// Checks that no context is made, and that `status` and one log line per minute give the reason.
    fn is_not_mounted(&self, token: &[u8], user: &str, remedy: &str) {
        let principal = format!("principal=\"{user}\"");
        let is_it =
            |l: &&str| ["ticket of NFS refused", &principal, remedy].iter().all(|p| l.contains(p));
        let times = || {
            let rows = self.refused();
            rows.iter()
                .filter(|row| row.remedy.contains(remedy) && row.user == user)
                .map(|row| row.count)
                .sum::<u64>()
        };
        let before = times();
        let (major, made) = context(self, token);
        assert!(major != 0 && !made, "a context: {}", self.log());
        let log = self.log();
        let line = log.lines().rfind(is_it).unwrap_or_default();
        for part in [&principal, "reason=", "detail=", remedy] {
            assert!(line.contains(part), "{part}: {log}");
        }
        assert_eq!(log.lines().filter(is_it).count(), 1, "{log}");
        assert_eq!(times(), before + 1);
        let rows = self.refused();
        let row = rows.iter().find(|row| row.remedy.contains(remedy));
        let row = row.unwrap_or_else(|| panic!("{remedy}: {rows:?}"));
        assert_eq!((&*row.rule, &*row.user), ("rpc-kerberos", user));
    }
}

fn keys_anew(world: &World) -> PathBuf {
    let keytab = world.at("keytab");
    world.kdc.service(&format!("nfs/{HOST}"), &keytab);
    keytab
}

#[test]
fn contexts_are_made_by_the_keys_of_the_moment_and_without_a_kdc() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5p]", &[]);
    let old = world.tickets("nobody", &[]);
    world.mounts(&old);
    // New keys are added to the old ones.
    let keytab = keys_anew(&world);
    world.mounts(&old);
    let new = world.tickets("nobody", &[]);
    world.mounts(&new);
    // Only clients contact the KDC.
    let late = token(&world, &new, "nfs");
    world.kdc.stop();
    assert_eq!(context(&world, &late), (0, true));
    world.kdc.resume();
    // The keytab has only the new keys.
    std::fs::remove_file(keytab).unwrap();
    keys_anew(&world);
    let stale = token(&world, &new, "nfs");
    world.is_not_mounted(&stale, "", "put the key of `nfs/NAME` into the keytab");
    world.kdc.user("late", super::PASSWORD);
    world.mounts(&world.tickets("late", &[]));
}

#[test]
fn clocks_that_differ_by_nfs() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5]", &["faketime", "-f", "+10m"]);
    let cache = world.tickets("nobody", &[]);
    let early = token(&world, &cache, "nfs");
    world.is_not_mounted(&early, "", "synchronize the clocks of client and server");
}

#[test]
fn tickets_of_other_services_and_those_that_ran_out_make_no_context() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5]", &[]);
    let cache = world.tickets("nobody", &["-l", "20s"]);
    let (of_files, good) = (token(&world, &cache, "cifs"), token(&world, &cache, "nfs"));
    let user = format!("nobody@{}", kdc::REALM);
    world.is_not_mounted(&of_files, &user, "the ticket is for another service");
    world.serve("    sec: [krb5]", &["faketime", "-f", "+60s"]);
    world.is_not_mounted(&good, &user, "`kinit` gets a new one");
}

#[test]
fn tokens_of_nobody_and_of_another_realm_make_no_context() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5]", &[]);
    let nothing_in_it = &b"\x60\x10\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00xxx"[..];
    // The first is the start of a Kerberos message outside of a GSS token.
    let ntlm = &b"NTLMSSP\0\x01"[..];
    for garbage in [b"no token", &b"token"[..], ntlm, b"", nothing_in_it] {
        world.is_not_mounted(garbage, "", "mount by a client that sends tickets of Kerberos 5");
    }
    // A ticket from another KDC with the same names.
    let other = World::of_nfs();
    let cache = other.tickets("nobody", &[]);
    let foreign = token(&other, &cache, "nfs");
    world.is_not_mounted(&foreign, "", "its key is not the one that the KDC has");
}

/// Successful and failed contexts.
#[test]
fn contexts_and_refused_tickets_are_in_the_audit_trail() {
    let mut world = World::of_nfs();
    let trail = world.at("audit.jsonl");
    world.serve(&format!("    sec: [krb5]\naudit: {{to: {}}}", trail.display()), &[]);
    let cache = world.tickets("nobody", &["-l", "10m"]);
    world.mounts(&cache);
    let user = format!("nobody@{}", kdc::REALM);
    let of_files = token(&world, &cache, "cifs");
    world.is_not_mounted(&of_files, &user, "the ticket is for another service");
    let began = std::time::Instant::now();
    let record = |event: &str, rule: &str| loop {
        let text = std::fs::read_to_string(&trail).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut all = whole.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        let found = all.find(|r| r["event"] == event && (rule.is_empty() || r["rule"] == rule));
        if let Some(found) = found {
            assert_eq!((&found["peer"], &found["user"]), (&"127.0.0.1".into(), &(&*user).into()));
            break found;
        }
        assert!(began.elapsed() < SOON, "no {event} in {text}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let made = record("context", "");
    assert_eq!(made["uid"], 65_534, "{made}");
    let seconds = made["seconds"].as_u64().unwrap();
    assert!((1..=600).contains(&seconds), "{made}");
    record("refused", "rpc-kerberos");
}

/// Replaces the keytab by a pipe without a writer: opening it blocks forever.
#[test]
fn a_keytab_that_blocks_takes_no_turn_from_the_one_that_comes_back() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5]", &[]);
    let cache = world.tickets("nobody", &[]);
    // More tokens than may be checked at once.
    let tokens: Vec<Vec<u8>> = (0..6).map(|_| token(&world, &cache, "nfs")).collect();
    let (keytab, aside) = (world.at("keytab"), world.at("aside"));
    std::fs::rename(&keytab, &aside).unwrap();
    assert!(Command::new("mkfifo").arg(&keytab).status().unwrap().success());
    world.is_refused(&cache, "", "the keytab cannot be used", "`headgate check` says");
    for token in &tokens[..5] {
        world.is_not_mounted(token, "", "look at the keytab");
    }
    let log = world.log();
    let named = format!("keytab {}: not a regular file", keytab.display());
    let lines = log.lines().filter(|line| line.contains(&named));
    assert_eq!(lines.count(), 2, "one of each protocol: {log}");
    std::fs::rename(&aside, &keytab).unwrap();
    assert_eq!(context(&world, &tokens[5]), (0, true), "{}", world.log());
    world.works(&cache, &[]);
}

/// Connections of the flood, and tokens on each.
const FLOOD: (usize, usize) = (64, 64);

/// One address sends tokens without a pause; the next address is served before the backlog of the first.
#[test]
fn a_flood_of_one_address_keeps_no_other_from_a_context() {
    let mut world = World::of_nfs();
    world.serve("    sec: [krb5]\n    clients: [127.0.0.0/8]", &[]);
    let cache = world.tickets("nobody", &[]);
    let token = token(&world, &cache, "nfs");
    // An empty token of the mechanism.
    let garbage =
        [&b"\x60\x10\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00"[..], b"xxx"].concat();
    let call = record(&init(&garbage));
    let answered = AtomicUsize::new(0);
    let streams: Vec<TcpStream> = (0..FLOOD.0).map(|_| flooding(&world)).collect();
    let meanwhile = std::thread::scope(|scope| {
        for stream in &streams {
            let (call, answered) = (&call, &answered);
            scope.spawn(move || {
                let _ = (&*stream).write_all(&call.repeat(FLOOD.1));
            });
            scope.spawn(move || {
                let mut stream = stream.try_clone().unwrap();
                while answer(&mut stream).is_ok() {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let began = std::time::Instant::now();
        while answered.load(Ordering::SeqCst) < 2 * FLOOD.0 {
            assert!(began.elapsed() < SOON, "no answers");
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = answered.load(Ordering::SeqCst);
        let made = context(&world, &token);
        let meanwhile = answered.load(Ordering::SeqCst) - before;
        for stream in &streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        assert_eq!(made, (0, true), "{}", world.log());
        meanwhile
    });
    println!("{meanwhile} tokens of the flood meanwhile");
    assert!(meanwhile < FLOOD.0 * FLOOD.1 / 8, "{meanwhile} tokens came before");
    assert!(!world.log().contains("kerberos-nfs"), "{}", world.log());
}

/// Connects from an address other than the victim's.
fn flooding(world: &World) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&world.daemon().nfs.into()).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.into()
}
