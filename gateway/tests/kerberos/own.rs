//! Tests of this repository's client with tickets: data written and read with each flavor and encryption type, and the error
//! if no context is possible.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::connect::Local;
use client::{Credential, Volume};
use iobuf::Buf;

use super::{World, kdc};

/// Target that [`a_client`] opens. The library finds realm and tickets through the environment of the process, so each client
/// is a separate process.
const TARGET: &str = "TARGET_OF_A_CLIENT";
/// Principal of the service; NFS clients find a server only through its name.
const NAME: &str = "nfs/localhost";

/// Sizes close to those of cipher blocks, receive buffers and pool buffers, and the largest READ and WRITE.
fn sizes() -> Vec<usize> {
    let around = [16, 512, 1024, 4096, 8192, 65_536, 131_072];
    let mut sizes: Vec<usize> = around.iter().flat_map(|n| [n - 1, *n, n + 1]).collect();
    sizes.extend([1, 2, 3, 4, 5, (1 << 20) - 5, (1 << 20) - 1, 1 << 20]);
    sizes
}

/// Returns bytes that depend on their position.
fn bytes(size: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ at >> 8 ^ at >> 16 ^ size).to_le_bytes()[0];
    (0..size).map(byte).collect()
}

/// Run by [`World::runs`] in a child process: writes a file of each size and reads it back. Without its environment it
/// returns at once.
#[test]
fn a_client() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let target = target.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let user = Credential::sys(65_534, 65_534, &[]);
        let volume = match Volume::open(&target, &Local::default(), user).await {
            Ok(volume) => volume,
            Err(why) => return println!("refused={why}."),
        };
        for size in sizes() {
            let (name, data) = (format!("of-{size}"), bytes(size));
            let file = volume.create(&name).await.unwrap();
            // Writes the data as one piece, and as pieces of odd sizes.
            let pieces = data.chunks(size / 3 + 1).map(|p| Buf::from(p.to_vec())).collect();
            let count = u32::try_from(size).unwrap();
            assert_eq!(volume.write(&file, 0, pieces).await, Ok(count), "{name}");
            volume.commit(&file).await.unwrap();
            let (read, _) = volume.read(&file, 0, count).await.unwrap();
            let read: Vec<u8> = read.iter().flat_map(|p| p.as_slice().to_vec()).collect();
            assert!(read == data, "{name} differs");
            volume.close(file).await.unwrap();
        }
        println!("by={:?}.", volume.enctype().map(gss_krb5::Enctype::name));
        volume.leave().await.unwrap();
    });
}

impl World {
    /// Creates a gateway that clients reach by a name of this host.
    fn of_localhost() -> Self {
        let world = Self::new();
        world.kdc.service(NAME, &world.at("keytab"));
        fs::copy(world.kdc.config(), world.client_config()).unwrap();
        world
    }

    /// Restricts tickets and contexts to this encryption type. Returns a keytab of the user `nobody`.
    fn keys_of(&self, enctype: &str) -> PathBuf {
        let (keytab, own) = (self.at("keytab"), self.at("own.keytab"));
        for (at, name) in [(&keytab, NAME), (&own, "nobody")] {
            let _ = fs::remove_file(at);
            self.kdc.admin(&format!("ktadd -k {} -e {enctype}:normal {name}", at.display()));
        }
        self.kdc.admin(&format!("setstr krbtgt/{} session_enctypes {enctype}", kdc::REALM));
        // Does not apply to the KDC, whose own keys have another type.
        let config = fs::read_to_string(self.kdc.config()).unwrap();
        let here = format!("[libdefaults]\n permitted_enctypes = {enctype}");
        fs::write(self.client_config(), config.replace("[libdefaults]", &here)).unwrap();
        own
    }

    /// Returns the path of the clients' `krb5.conf`.
    fn client_config(&self) -> PathBuf {
        self.at("client.conf")
    }

    /// Runs the client on a target with these options and tickets, and returns its output.
    fn runs(&self, cache: &Path, host: &str, options: &str) -> String {
        let port = self.daemon().nfs.port();
        let target = format!("nfs://{host}:{port}/data?{options}");
        let program = std::env::current_exe().unwrap();
        let mut command: Command = self.kdc.command(&program.display().to_string());
        command.args(["--exact", "own::a_client", "--nocapture"]).env(TARGET, &target);
        command.env("KRB5CCNAME", format!("FILE:{}", cache.display()));
        command.env("KRB5_CONFIG", self.client_config());
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{target}: {said}\n{}", self.log());
        said
    }

    /// Checks that each file has the data that the client wrote, and removes it.
    fn takes_what_was_written(&self) {
        for size in sizes() {
            let at = self.at(&format!("data/of-{size}"));
            assert!(fs::read(&at).unwrap() == bytes(size), "{size} bytes differ");
            fs::remove_file(at).unwrap();
        }
    }
}

#[test]
fn bytes_of_every_size_by_each_flavor_and_encryption_type() {
    let mut world = World::of_localhost();
    world.serve("    sec: [krb5, krb5i, krb5p]\n", &[]);
    let none = world.at("no-tickets");
    for enctype in [
        "aes128-cts-hmac-sha1-96",
        "aes256-cts-hmac-sha1-96",
        "aes128-cts-hmac-sha256-128",
        "aes256-cts-hmac-sha384-192",
    ] {
        let keytab = world.keys_of(enctype);
        for (version, sec) in [("3", "krb5p"), ("4.1", "krb5p"), ("4.2", "krb5i"), ("3", "krb5i")] {
            let options = format!("version={version}&sec={sec}&keytab={}", keytab.display());
            let said = world.runs(&none, "localhost", &options);
            assert!(said.contains(&format!("by=Some({enctype:?})")), "{said}\n{}", world.log());
            world.takes_what_was_written();
        }
        for version in ["3", "4.1", "4.2"] {
            let options = format!("version={version}&sec=krb5&keytab={}", keytab.display());
            world.runs(&none, "localhost", &options);
            world.takes_what_was_written();
        }
    }
    assert!(!world.log().contains("refused"), "{}", world.log());
}

#[test]
fn a_client_is_told_why_there_is_no_context() {
    let mut world = World::of_localhost();
    world.serve("    sec: [krb5p]\n", &[]);
    let (cache, none) = (world.tickets("nobody", &[]), world.at("no-tickets"));
    let address = "write its name in place of 127.0.0.1";
    for (cache, host, options, why) in [
        (&cache, "127.0.0.1", "sec=krb5p", address),
        (&none, "localhost", "sec=krb5p", "no ticket for nfs@localhost"),
        (&cache, "localhost", "version=4.2&sec=krb5", "wants another `sec`"),
        (&cache, "localhost", "version=4.2", "wants another `sec`"),
    ] {
        let said = world.runs(cache, host, options);
        let refusal = said.split_once("refused=").map_or("", |(_, rest)| rest);
        assert!(refusal.contains(why), "{options}: {said}\n{}", world.log());
    }
    // A key that the gateway lacks: the client gets its ticket, and the log names the missing key.
    world.kdc.service(NAME, &world.at("newer"));
    let said = world.runs(&world.tickets("nobody", &[]), "localhost", "sec=krb5p");
    assert!(said.contains("the server takes no ticket of this client"), "{said}");
    assert!(world.log().contains("ticket of NFS refused"), "{}", world.log());
}

/// The client uses a separate keytab; also checks the output of `headgate bench`.
#[test]
fn bench_by_a_keytab() {
    let mut world = World::of_localhost();
    let own = world.at("own.keytab");
    world.kdc.service("nobody", &own);
    world.serve("    sec: [krb5p]\n", &[]);
    let port = world.daemon().nfs.port();
    let of = format!("version=4.2&sec=krb5p&keytab={}", own.display());
    let mut command = world.kdc.command(env!("CARGO_BIN_EXE_headgate"));
    let target = format!("nfs://localhost:{port}/data?{of}");
    command.args(["bench", &target, "--size", "2MiB", "--only", "sequential", "--json"]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let failed = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}{failed}\n{}", world.log());
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let text = json.to_string();
    assert!(text.contains("sec=krb5p") && !text.contains("own.keytab"), "{text}");
    assert!(fs::read_dir(world.at("data")).unwrap().next().is_none(), "it leaves nothing");
}
