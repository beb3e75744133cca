//! Tests that a principal is the same user over SMB and NFS, according to the owner of its files.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};

use gss_sys::Initiator;
use nfs_proto::oncrpc::{AcceptStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead, program};
use nfs_proto::rpcsec_gss::{GssCred, GssInitRes, GssProc, GssService, RPCSEC_GSS, VERSION_1};
use nfs_proto::xdr;

use super::nfs::{CACHE, connect, exchange, init};
use super::{HOST, PASSWORD, World, kdc};

/// Address of the gateway, for [`a_client_that_makes_files`].
const AT: &str = "ADDRESS_OF_A_CLIENT";
const ANONYMOUS: u32 = 65_534;
/// CREATE (RFC 1813 section 3.3.8), MNT (section 5.2.1).
const CREATE: u32 = 8;
const MNT: u32 = 1;

/// Run by [`World::client`] in a child process: creates a file for each name on its input, in one context, and prints the
/// results. Without its environment it returns at once.
#[test]
fn a_client_that_makes_files() {
    let (Ok(cache), Ok(at)) = (std::env::var(CACHE), std::env::var(AT)) else { return };
    let service = format!("nfs/{HOST}@{}", kdc::REALM);
    let mut keys = Initiator::new(Path::new(&cache), &service).unwrap();
    let (token, _) = keys.step(&[]).unwrap();
    let mut stream = connect(at.parse().unwrap());
    let reply = exchange(&mut stream, &init(&token));
    let (results, _) = wire::decode(&reply, ReplyHead::parse).unwrap();
    let (_, made) = xdr::decode::<GssInitRes<'_>>(results).unwrap();
    println!("context={}.", made.gss_major);
    let handle = made.handle.to_vec();
    keys.step(made.gss_token).unwrap();
    let mut client = Client { stream, keys, handle, number: 0 };
    let mounted = client.call(program::MOUNT, MNT, &opaque(b"/data")).unwrap();
    assert_eq!(mounted[..4], [0; 4], "MNT");
    let root = mounted[4..].to_vec();
    let root = &root[..4 + u32::from_be_bytes(root[..4].try_into().unwrap()) as usize];
    for name in std::io::stdin().lines().map_while(Result::ok) {
        // GUARDED, with only the mode 0644.
        let how = [1u32, 1, 0o644, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let args = [root, &opaque(name.as_bytes()), &how].concat();
        match client.call(program::NFS, CREATE, &args) {
            Ok(results) => {
                println!("status={}.", u32::from_be_bytes(results[..4].try_into().unwrap()))
            }
            Err(why) => println!("status={why}."),
        }
    }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// One `krb5` context.
struct Client {
    stream: TcpStream,
    keys: Initiator,
    handle: Vec<u8>,
    number: u32,
}

impl Client {
    /// Returns the results, or the RPC error.
    fn call(&mut self, program: u32, procedure: u32, args: &[u8]) -> Result<Vec<u8>, String> {
        self.number += 1;
        let (seq_num, handle, service) = (self.number, &self.handle[..], GssService::None);
        let cred = GssCred { vers: VERSION_1, gss_proc: GssProc::Data, seq_num, service, handle };
        let cred = xdr::encode(&cred);
        let cred = OpaqueAuth { flavor: RPCSEC_GSS, body: &cred };
        let mut call = Vec::new();
        let none = OpaqueAuth::NONE;
        CallHead { xid: seq_num, program, version: 3, procedure, cred, verf: none }.emit(&mut call);
        // The verifier covers the bytes before it; AUTH_NONE has two words.
        call.truncate(call.len() - 8);
        let mic = self.keys.mic(&call).unwrap();
        call.extend(RPCSEC_GSS.to_be_bytes());
        call.extend(opaque(&mic));
        call.extend(args);
        let reply = exchange(&mut self.stream, &call);
        let (results, head) = wire::decode(&reply, ReplyHead::parse).unwrap();
        match head.body {
            ReplyBody::Accepted(_, AcceptStat::Success) => Ok(results.to_vec()),
            other => Err(format!("{other:?}")),
        }
    }
}

/// A child process of a user with a ticket and a context.
pub(super) struct Program {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Program {
    /// Returns its next output about `what`.
    fn says(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some((_, value)) = line.split_once(&format!("{what}=")) {
                return value.trim_end().trim_end_matches('.').to_owned();
            }
            line.clear();
        }
        panic!("nothing of {what}");
    }

    /// Returns the result of creating a file with this name.
    pub(super) fn makes(&mut self, name: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{name}").unwrap();
        self.says("status")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    pub(super) fn client(&self, cache: &Path) -> Program {
        let program = std::env::current_exe().unwrap();
        let mut command = self.kdc.command(&program.display().to_string());
        command
            .args(["--exact", "people::a_client_that_makes_files", "--nocapture"])
            .env(CACHE, cache)
            .env(AT, self.daemon().nfs.to_string());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, said };
        assert_eq!(program.says("context"), "0", "{}", self.log());
        program
    }

    /// Returns the owner of a new file that this principal creates over SMB, if it can log on, and over NFS.
    fn owners(&self, principal: &str) -> (Option<u32>, u32) {
        let cache = self.tickets(principal, &[]);
        let (smb, nfs) = (self.at("data/smb"), self.at("data/nfs"));
        let _ = (fs::remove_file(&smb), fs::remove_file(&nfs));
        let said = self.said(&cache, &[], "put smb.conf smb");
        let by_smb = fs::metadata(&smb).ok().map(|m| m.uid());
        assert!(by_smb.is_some() != said.contains("NT_STATUS_LOGON_FAILURE"), "{said}");
        assert_eq!(self.client(&cache).makes("nfs"), "0", "{principal}: {}", self.log());
        (by_smb, fs::metadata(&nfs).unwrap().uid())
    }

    /// As [`World::of_nfs`], with these additional users, and configured accounts for some of them.
    fn of_people(principals: &[&str]) -> Self {
        let world = Self::of_nfs();
        for principal in principals {
            world.kdc.user(principal, PASSWORD);
        }
        fs::write(world.at("password"), "another one").unwrap();
        fs::set_permissions(world.at("password"), fs::Permissions::from_mode(0o600)).unwrap();
        world
    }

    /// Returns the configuration of a share for all flavors without squash, and of these users by name and uid.
    fn lines(&self, users: &[(&str, u32)], more: &str) -> String {
        let file = self.at("password").display().to_string();
        let user = |(name, uid): &(&str, u32)| {
            format!("  - {{name: {name}, password_file: {file}, uid: {uid}, gid: {uid}}}\n")
        };
        let users: String = users.iter().map(user).collect();
        let users = if users.is_empty() { String::new() } else { format!("users:\n{users}") };
        format!("    sec: [krb5, krb5i, krb5p]\n    squash: none\n{users}{more}")
    }
}

/// `bin` and `daemon` have the uids 2 and 1 on every host.
#[test]
fn names_of_the_configuration_alone_are_so_by_both_protocols() {
    let mut world = World::of_people(&["bin", "daemon", "root"]);
    world.serve(&world.lines(&[("bin", 5555)], "names: own"), &[]);
    assert_eq!(world.owners("bin"), (Some(5555), 5555));
    assert_eq!(world.owners("daemon"), (None, ANONYMOUS), "a user of the host, not of ours");
    assert_eq!(world.owners("root"), (None, ANONYMOUS));
}

#[test]
fn users_stand_before_those_of_the_host_and_the_superuser_among_them_alone() {
    let mut world = World::of_people(&["bin", "daemon", "root", "host/client.lab.test"]);
    world.serve(&world.lines(&[("bin", 5555)], ""), &[]);
    assert_eq!(world.owners("bin"), (Some(5555), 5555));
    assert_eq!(world.owners("daemon"), (Some(1), 1));
    assert_eq!(world.owners("root"), (None, ANONYMOUS), "the realm's root is not the host's");
    assert!(world.log().contains("this principal would be the superuser"), "{}", world.log());
    assert_eq!(world.owners("host/client.lab.test"), (None, ANONYMOUS), "a machine");
    world.serve(&world.lines(&[("root", 0)], ""), &[]);
    assert_eq!(world.owners("root"), (Some(0), 0), "`users` names it");
}

/// The KDC is not Active Directory: its tickets contain no numbers.
#[test]
fn where_numbers_are_mapped_a_ticket_without_them_is_nobodys_by_both_protocols() {
    let mut world = World::of_people(&["daemon"]);
    let keytab = world.at("keytab").display().to_string();
    let realm = kdc::REALM;
    let kerberos =
        format!("kerberos: {{keytab: {keytab}, realm: {realm}, map: rid, rid_base: 100000}}");
    world.serve(&world.lines(&[], &kerberos), &[]);
    assert_eq!(world.owners("daemon"), (None, ANONYMOUS));
    let reason = "the ticket does not say who the user is in its domain";
    assert_eq!(world.log().matches(reason).count(), 2, "by each of them: {}", world.log());
}

/// A context keeps its user's identity from its start.
#[test]
fn a_reload_with_other_users_ends_contexts_and_one_with_the_same_does_not() {
    let mut world = World::of_people(&["bin"]);
    let before = world.lines(&[("bin", 5555)], "names: own");
    world.serve(&before, &[]);
    let cache = world.tickets("bin", &[]);
    let mut program = world.client(&cache);
    assert_eq!(program.makes("first"), "0");
    world.reload();
    assert_eq!(program.makes("second"), "0", "{}", world.log());
    let text = fs::read_to_string(world.at("gw.yaml")).unwrap();
    fs::write(world.at("gw.yaml"), text.replace("uid: 5555", "uid: 5556")).unwrap();
    world.reload();
    let gone = program.makes("third");
    assert!(gone.contains("Credproblem"), "{gone}: {}", world.log());
    assert_eq!(world.client(&cache).makes("third"), "0");
    let uid = |name: &str| fs::metadata(world.at("data").join(name)).unwrap().uid();
    assert_eq!((uid("second"), uid("third")), (5555, 5556));
}
