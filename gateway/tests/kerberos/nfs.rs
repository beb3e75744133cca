//! The same keytab by NFS (RFC 2203): contexts are made by tickets of the KDC, or it is said why not. Mounts are in the lab.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use gss_sys::Initiator;
use nfs_proto::oncrpc::{CallHead, OpaqueAuth, ReplyHead, program};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInitArg, GssInitRes, GssProc, GssService, RPCSEC_GSS, VERSION_1,
};
use nfs_proto::xdr::{self, Xdr};

use super::{HOST, SOON, World, kdc};

/// The library finds its realm by the environment of the process, so each token is made by one of its own.
const CACHE: &str = "TICKETS_OF_A_TOKEN";
const SERVICE: &str = "SERVICE_OF_A_TOKEN";

/// What [`token`] runs; by itself it makes none.
#[test]
fn a_token_of_a_client() {
    let (Ok(cache), Ok(service)) = (std::env::var(CACHE), std::env::var(SERVICE)) else { return };
    let mut client = Initiator::new(Path::new(&cache), &service).unwrap();
    let (token, _) = client.step(&[]).unwrap();
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("token={hex}.");
}

/// The first token to this service by the tickets of the cache.
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

/// Asks for a context; the major status, and whether there is one.
fn context(world: &World, token: &[u8]) -> (u32, bool) {
    let service = GssService::Privacy;
    let cred =
        GssCred { vers: VERSION_1, gss_proc: GssProc::Init, seq_num: 0, service, handle: &[] };
    let cred = xdr::encode(&cred);
    let (cred, verf) = (OpaqueAuth { flavor: RPCSEC_GSS, body: &cred }, OpaqueAuth::NONE);
    let mut call = Vec::new();
    let head = CallHead { xid: 7, program: program::NFS, version: 4, procedure: 0, cred, verf };
    head.emit(&mut call);
    GssInitArg { gss_token: token }.emit(&mut call);
    let mut stream = TcpStream::connect(world.daemon().nfs).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mark = 0x8000_0000 | u32::try_from(call.len()).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    let (results, _) = wire::decode(&reply, ReplyHead::parse).unwrap();
    let (_, made) = xdr::decode::<GssInitRes<'_>>(results).unwrap();
    (made.gss_major, !made.handle.is_empty())
}

impl World {
    /// With a key of `nfs`, and a share that wants tickets.
    fn of_nfs() -> Self {
        let world = Self::new();
        world.kdc.service(&format!("nfs/{HOST}"), &world.at("keytab"));
        world
    }

    fn mounts(&self, cache: &Path) {
        let made = context(self, &token(self, cache, "nfs"));
        assert_eq!(made, (0, true), "{}", self.log());
    }

    /// There is no context, and `status` says why.
    fn is_not_mounted(&self, token: &[u8], user: &str, remedy: &str) {
        let (major, made) = context(self, token);
        assert!(major != 0 && !made, "a context: {}", self.log());
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
    // New keys beside the old ones.
    let keytab = keys_anew(&world);
    world.mounts(&old);
    let new = world.tickets("nobody", &[]);
    world.mounts(&new);
    // The KDC is asked by clients alone.
    let late = token(&world, &new, "nfs");
    world.kdc.stop();
    assert_eq!(context(&world, &late), (0, true));
    world.kdc.resume();
    // New keys alone.
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
    world.is_not_mounted(&early, "", "set the clocks of client and server");
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
