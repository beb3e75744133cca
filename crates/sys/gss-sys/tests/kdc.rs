//! Tests acceptor and initiator with tickets of a real KDC.
#![allow(unsafe_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use gss_sys::{
    Acceptor, Cause, Error, Established, Fault, Initiator, Step, Tickets, keytab, prove,
};

#[path = "../../../../tests/src/kdc.rs"]
#[allow(dead_code)]
mod kdc;

use kdc::Kdc;

/// Returns the one KDC of all tests, because the library finds it through environment variables.
fn lab() -> &'static Mutex<Kdc> {
    static LAB: OnceLock<Mutex<Kdc>> = OnceLock::new();
    LAB.get_or_init(|| {
        let kdc = Kdc::start();
        for (name, value) in kdc.environment() {
            // SAFETY: every test of this program calls this first and waits, and libtest's own thread does not read the
            // environment.
            unsafe { std::env::set_var(name, value) };
        }
        kdc.user("alice", "secret");
        kdc.user("admin/alice", "secret");
        kdc.service("cifs/localhost", &kdc.dir().join("cifs.keytab"));
        kdc.service("nfs/localhost", &kdc.dir().join("cifs.keytab"));
        kdc.kinit("alice", "secret", &kdc.dir().join("alice"), &[]);
        Mutex::new(kdc)
    })
}

fn at(name: &str) -> PathBuf {
    lab().lock().unwrap().dir().join(name)
}

/// Runs a complete exchange.
fn meet(cache: &Path, service: &str, keytab: &Path) -> Result<(Initiator, Established), Error> {
    let mut client = Initiator::new(cache, service).expect("a ticket");
    let (token, _) = client.step(&[]).expect("a first token");
    match Acceptor::new(keytab)?.step(&token)? {
        Step::Done { token, established } => {
            let (last, complete) = client.step(&token).expect("the server's answer");
            assert!(complete && last.is_empty());
            Ok((client, *established))
        }
        Step::Continue(_) => panic!("Kerberos needs one round"),
    }
}

#[test]
fn exchange_authenticates_and_shares_key() {
    let (cache, keytab) = (at("alice"), at("cifs.keytab"));
    let (mut client, mut server) = meet(&cache, "cifs/localhost@LAB.TEST", &keytab).unwrap();
    assert_eq!(server.principal(), "alice@LAB.TEST");
    assert_eq!(server.service(), "cifs/localhost@LAB.TEST");
    assert_eq!(server.local_name().as_deref(), Some("alice"));
    assert_eq!(server.session_key().unwrap().len(), 32);
    assert_eq!(server.logon_info(), None, "a KDC without a PAC of Active Directory");
    assert!((35_000..=36_300).contains(&server.lifetime().as_secs()), "{:?}", server.lifetime());
    let mic = server.mic(b"a list").unwrap();
    client.verify(b"a list", &mic).unwrap();
    let mic = client.mic(b"another").unwrap();
    let changed = server.verify(b"Another", &mic).unwrap_err();
    assert_eq!(changed.cause, Cause::Mic, "{changed}");
    let mic = client.mic(b"another").unwrap();
    server.verify(b"another", &mic).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let key = server.session_key().unwrap();
    let lucid = server.lucid().unwrap();
    assert!(u64::from(lucid.end_time) > now.as_secs() + 35_000);
    let acceptor_key = lucid.acceptor_key.expect("a subkey of the acceptor");
    assert_eq!((acceptor_key.enctype, acceptor_key.key.len()), (18, 32));
    assert_eq!(acceptor_key.key, key, "the key of SMB is the acceptor's subkey");
    assert_eq!((lucid.initiator_key.enctype, lucid.initiator_key.key.len()), (18, 32));
    assert_ne!(lucid.initiator_key.key, key);
}

/// A program without a user: a key of its keytab, and a host name.
#[test]
fn keytab_client_shares_server_keys() {
    let (own, keytab) = (at("own.keytab"), at("cifs.keytab"));
    lab().lock().unwrap().service("host/client.lab.test", &own);
    let by_keytab = Tickets::Keytab(own);
    let mut client = Initiator::of_host(&by_keytab, "nfs", "localhost").unwrap();
    let (token, complete) = client.step(&[]).unwrap();
    assert!(!complete, "the server has to answer");
    let Step::Done { token, established } = Acceptor::new(&keytab).unwrap().step(&token).unwrap()
    else {
        panic!("Kerberos needs one round")
    };
    assert_eq!(established.principal(), "host/client.lab.test@LAB.TEST");
    assert_eq!(established.service(), "nfs/localhost@LAB.TEST");
    let (last, complete) = client.step(&token).unwrap();
    assert!(complete && last.is_empty());
    let (client, server) = (client.lucid().unwrap(), established.lucid().unwrap());
    assert_eq!((client.send_seq, client.recv_seq), (server.recv_seq, server.send_seq));
    assert_eq!(client.end_time, server.end_time);
    for (of_client, of_server) in [
        (Some(&client.initiator_key), Some(&server.initiator_key)),
        (client.acceptor_key.as_ref(), server.acceptor_key.as_ref()),
    ] {
        let (of_client, of_server) = (of_client.unwrap(), of_server.unwrap());
        assert_eq!((of_client.enctype, &*of_client.key), (of_server.enctype, &*of_server.key));
    }
}

/// Keys of the keytab and of the KDC are the same, or not.
#[test]
fn keytab_is_compared_with_kdc() {
    let of = |keytab: &str, client: &str, service: &str| {
        let [client, service] = [client, service].map(|name| format!("{name}@LAB.TEST"));
        prove(&at(keytab), &client, &service).map_err(|(fault, _)| fault)
    };
    {
        let kdc = lab().lock().unwrap();
        let keys = |name: &str, keytab: &str| kdc.service(name, &kdc.dir().join(keytab));
        keys("GW$", "good.keytab");
        keys("cifs/gw.lab.test", "good.keytab");
        for name in ["OLD$", "PROVED$"] {
            keys(name, "old.keytab");
            kdc.admin(&format!("cpw -randkey {name}"));
        }
        kdc.admin("modprinc +requires_preauth PROVED$");
        keys("GONE$", "gone.keytab");
        kdc.admin("delprinc -force GONE$");
        keys("OFF$", "off.keytab");
        kdc.admin("modprinc -allow_tix OFF$");
        keys("GW2$", "other.keytab");
        keys("cifs/gw2.lab.test", "other.keytab");
        kdc.admin("cpw -randkey cifs/gw2.lab.test");
    }
    for (keytab, client, service, wanted) in [
        ("good.keytab", "GW$", "cifs/gw.lab.test", Ok(())),
        ("good.keytab", "cifs/gw.lab.test", "cifs/gw.lab.test", Ok(())),
        ("good.keytab", "GW$", "cifs/none.lab.test", Err(Fault::UnknownService)),
        ("old.keytab", "OLD$", "cifs/gw.lab.test", Err(Fault::OldKey)),
        ("old.keytab", "PROVED$", "cifs/gw.lab.test", Err(Fault::OldKey)),
        ("gone.keytab", "GONE$", "cifs/gw.lab.test", Err(Fault::UnknownClient)),
        ("off.keytab", "OFF$", "cifs/gw.lab.test", Err(Fault::Disabled)),
        ("other.keytab", "GW2$", "cifs/gw2.lab.test", Err(Fault::OtherKey)),
        ("good.keytab", "ALICE$", "cifs/gw.lab.test", Err(Fault::Other)),
    ] {
        assert_eq!(of(keytab, client, service), wanted, "{client} {service}");
    }
}

#[test]
fn missing_tickets_are_named() {
    let none = Tickets::Cache(at("no-tickets"));
    let why = Initiator::of_host(&none, "nfs", "localhost").err().unwrap();
    assert!(why.text.contains("no-tickets"), "{why}");
    // The KDC does not know this service.
    let mut client =
        Initiator::of_host(&Tickets::Cache(at("alice")), "nfs", "elsewhere.lab.test").unwrap();
    let why = client.step(&[]).err().unwrap();
    assert!(why.text.contains("nfs/elsewhere.lab.test"), "{why}");
    // A context that has not begun has no keys.
    assert!(client.lucid().is_err());
}

#[test]
fn every_keytab_service_is_accepted() {
    let (cache, keytab) = (at("alice"), at("cifs.keytab"));
    let (_, server) = meet(&cache, "nfs/localhost@LAB.TEST", &keytab).unwrap();
    assert_eq!(server.service(), "nfs/localhost@LAB.TEST");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let left = server.end_time().unwrap() - now.as_secs();
    assert!((35_000..=36_000).contains(&left), "{left}");
}

#[test]
fn two_component_principal_has_no_user() {
    let cache = at("admin");
    lab().lock().unwrap().kinit("admin/alice", "secret", &cache, &[]);
    let (_, server) = meet(&cache, "cifs/localhost@LAB.TEST", &at("cifs.keytab")).unwrap();
    assert_eq!(server.principal(), "admin/alice@LAB.TEST");
    assert_eq!(server.local_name(), None);
}

#[test]
fn missing_or_wrong_keys_are_refused() {
    let (cache, other) = (at("alice"), at("other.keytab"));
    {
        let kdc = lab().lock().unwrap();
        kdc.service("cifs/other", &other);
        kdc.service("cifs/rotated", &kdc.dir().join("rotated.keytab"));
    }
    let why = meet(&cache, "cifs/localhost@LAB.TEST", &other).err().unwrap();
    assert_eq!(why.cause, Cause::NoKey, "{why}");
    assert!(!why.token.is_empty(), "the client is told");
    // The client's ticket uses the old key when the service gets a new one.
    let old = at("rotated.keytab");
    meet(&cache, "cifs/rotated@LAB.TEST", &old).unwrap();
    let new = at("rotated-new.keytab");
    lab().lock().unwrap().service("cifs/rotated", &new);
    let why = meet(&cache, "cifs/rotated@LAB.TEST", &new).err().unwrap();
    assert_eq!(why.cause, Cause::NoKey, "{why}");
    let versions: Vec<u32> = keytab::read(&new).unwrap().iter().map(|e| e.kvno).collect();
    assert_eq!(versions, [3, 3], "two encryption types of the third version");
    // The same name, version and type, but another key.
    let forged = at("forged.keytab");
    {
        let kdc = lab().lock().unwrap();
        kdc.service("cifs/forged", &kdc.dir().join("unused.keytab"));
        kdc.kinit("alice", "secret", &kdc.dir().join("alice2"), &[]);
    }
    let cache2 = at("alice2");
    meet(&cache2, "cifs/forged@LAB.TEST", &at("unused.keytab")).unwrap();
    {
        let kdc = lab().lock().unwrap();
        kdc.admin("delprinc -force cifs/forged");
        kdc.service("cifs/forged", &forged);
    }
    let why = meet(&cache2, "cifs/forged@LAB.TEST", &forged).err().unwrap();
    assert_eq!(why.cause, Cause::WrongKey, "{why}");
}

#[test]
fn invalid_keytabs_are_refused() {
    let missing = Acceptor::new(&at("no.keytab")).err().unwrap();
    assert_eq!(missing.cause, Cause::Keytab, "{missing}");
    assert!(missing.text.contains("no.keytab"), "{missing}");
    std::fs::write(at("broken.keytab"), b"nothing of the kind").unwrap();
    let broken = Acceptor::new(&at("broken.keytab")).err().unwrap();
    assert_eq!(broken.cause, Cause::Keytab, "{broken}");
    assert!(broken.text.contains("broken.keytab"), "{broken}");
    let entries = keytab::read(&at("cifs.keytab")).unwrap();
    assert!(entries.iter().any(|e| e.principal == "cifs/localhost@LAB.TEST" && !e.is_weak()));
}

#[test]
fn malformed_tokens_are_refused() {
    let keytab = at("cifs.keytab");
    let mut client = Initiator::new(&at("alice"), "cifs/localhost@LAB.TEST").unwrap();
    let (token, _) = client.step(&[]).unwrap();
    for bad in [&b""[..], b"\x60", &token[..40], &token[20..]] {
        let refused = Acceptor::new(&keytab).unwrap().step(bad).err().unwrap();
        assert!(!refused.text.is_empty());
    }
    for at in (0..token.len()).step_by(7) {
        let mut changed = token.clone();
        changed[at] ^= 0x55;
        // A flipped bit in the frame may be harmless; the important parts are encrypted.
        let _ = Acceptor::new(&keytab).unwrap().step(&changed);
    }
    let long = vec![0; (256 << 10) + 1];
    let refused = Acceptor::new(&keytab).unwrap().step(&long).err().unwrap();
    assert_eq!(refused.cause, Cause::Malformed);
    let mut client = Initiator::new(&at("alice"), "cifs/localhost@LAB.TEST").unwrap();
    let (token, _) = client.step(&[]).unwrap();
    let taken = Acceptor::new(&keytab).unwrap().step(&token);
    assert!(matches!(taken, Ok(Step::Done { .. })));
    let again = Acceptor::new(&keytab).unwrap().step(&token).err().unwrap();
    assert_eq!(again.cause, Cause::Replay, "{again}");
}
