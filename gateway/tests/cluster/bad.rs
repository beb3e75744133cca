//! Tests that mistakes of administrators are rejected with a remedy.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::lease::{killed, ready, start_as};
use crate::world::{Setup, World, sh};
use crate::{headgate, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_machine_has_is_not_taken() {
    let setup = Setup { is_address_taken: true, has_ipv6: true, ..Setup::default() };
    let world = World::of(setup).await;
    let refused = |ip: &str| {
        let what = format!("another machine has the address {ip}");
        world.logs().lines().any(|l| l.contains(&what) && l.contains("take it away there"))
    };
    until("the address of IPv4 is refused", || refused(&world.vip())).await;
    assert!(!world.has_address(0));
    let (bridge, vip6) = (world.bridge(), world.vip6());
    sh(&format!("ip address add {vip6}/64 dev {bridge} nodad"));
    sh(&format!("ip address delete {}/24 dev {bridge}", world.vip()));
    until("the address of IPv6 is refused", || refused(&vip6)).await;
    assert!(!world.has_address(0));
    sh(&format!("ip address delete {vip6}/64 dev {bridge}"));
    until("it is served once nobody else has its addresses", || world.has_address(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_machine_with_one_name_ends_and_the_first_serves_on() {
    let mut world = World::new().await;
    until("the service is served", || world.has_address(0)).await;
    let file = world.path("gw1.yaml");
    let text = fs::read_to_string(&file).unwrap().replace("node: gw1", "node: gw0");
    fs::write(&file, text).unwrap();
    let owner = world.owner().unwrap();
    world.start(1);
    world.refused(1).await;
    let logs = world.logs();
    assert!(logs.contains("two nodes are named gw0: the machine 0"), "{logs}");
    assert_eq!(world.owner(), Some(owner), "{logs}");
    assert!(world.has_address(0) && !world.has_address(1));
}

#[test]
fn records_of_another_service_or_a_later_epoch_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |epoch: &str, cluster: &str, service: &str| {
        let mut gateway = start_as(dir.path(), 100, epoch, cluster, service);
        let _runner = gateway.stdin.take();
        let output = gateway.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let serves = |epoch: &str| {
        let mut gateway = start_as(dir.path(), 100, epoch, "c", "files");
        ready(&mut gateway);
        drop(gateway.stdin.take());
        killed(gateway);
    };
    serves("7");
    for (epoch, cluster, service, why) in [
        ("6", "c", "files", "are of epoch 7, and this node was elected in epoch 6"),
        ("8", "other", "files", "belong to the service c/files, and this is other/files"),
        ("8", "c", "other", "belong to the service c/files, and this is c/other"),
    ] {
        let said = refused(epoch, cluster, service);
        assert!(said.contains(why) && said.contains("move"), "{said}");
    }
    // The rejected starts have changed nothing.
    serves("7");
    serves("8");
    assert!(refused("7", "c", "files").contains("are of epoch 8"));
}

/// Starts a member of etcd with this certificate and returns its port.
fn etcd(dir: &Path, files: Option<(&Path, &Path)>) -> (Child, u16) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, peers) = (free(), free());
    let scheme = if files.is_some() { "https" } else { "http" };
    let (at, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    let mut etcd = Command::new(std::env::var("ETCD").unwrap_or("etcd".into()));
    etcd.arg("--data-dir").arg(dir.join(format!("etcd{port}")));
    etcd.args(["--listen-client-urls", &at, "--advertise-client-urls", &at]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    if let Some((certificate, key)) = files {
        etcd.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
    }
    (etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), port)
}

#[tokio::test]
async fn an_etcd_whose_certificate_is_not_trusted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let authority = |name: &str| {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(path(&format!("{name}.pem")), issuer.pem()).unwrap();
        issuer
    };
    let (right, _wrong) = (authority("right"), authority("wrong"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    fs::write(path("etcd.pem"), params.signed_by(&key, &right).unwrap().pem()).unwrap();
    fs::write(path("etcd.key"), key.serialize_pem()).unwrap();
    let (mut tls, tls_port) = etcd(dir.path(), Some((&path("etcd.pem"), &path("etcd.key"))));
    let (mut plain, plain_port) = etcd(dir.path(), None);
    let status = |scheme: &str, port: u16, ca: &str| {
        let here = dir.path().display();
        let ca = if ca.is_empty() { String::new() } else { format!("  ca: {here}/{ca}.pem\n") };
        let text = format!(
            "cluster:\n  etcd: {scheme}://127.0.0.1:{port}\n{ca}  services:\n  - name: files\n    \
             config: {here}/files.yaml\n    addresses: 192.0.2.10/24@eth0\n    fence: /bin/true\n"
        );
        fs::write(path("cluster.yaml"), text).unwrap();
        let output = Command::new(headgate())
            .args(["cluster", "status", "--config"])
            .arg(path("cluster.yaml"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    until("etcd with TLS answers", || status("https", tls_port, "right").is_ok()).await;
    until("etcd without TLS answers", || status("http", plain_port, "").is_ok()).await;
    let cases = [
        ("https", tls_port, "wrong", "`ca` has to name the authority of etcd's certificate"),
        ("https", plain_port, "right", "does that port speak TLS?"),
        ("http", tls_port, "", "does that port want `https`?"),
    ];
    let said = cases.map(|(scheme, port, ca, why)| (status(scheme, port, ca), why));
    for etcd in [&mut tls, &mut plain] {
        etcd.kill().unwrap();
        etcd.wait().unwrap();
    }
    for (said, why) in said {
        let said = said.unwrap_err();
        assert!(said.contains(why), "{why}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_does_and_why_it_cannot_is_told() {
    let world = World::of(Setup { is_address_taken: true, ..Setup::default() }).await;
    let ip = world.vip();
    let status = || world.ask(0, &["status"]).unwrap();
    until("status says why the node cannot serve", || {
        let status = status();
        status.contains("gw0 could not serve it") && status.contains(&format!("the address {ip}"))
    })
    .await;
    let told = |name: &str| {
        let text = world.metrics(0);
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    assert_eq!(told("headgate_cluster_may_not_serve"), Some(1.0));
    assert_eq!(told("headgate_cluster_serves"), Some(0.0));
    assert!(told("headgate_cluster_failed_takeovers_total") >= Some(1.0));
    sh(&format!("ip address delete {ip}/24 dev {}", world.bridge()));
    until("it serves", || told("headgate_cluster_serves") == Some(1.0)).await;
    assert_eq!(told("headgate_cluster_may_not_serve"), Some(0.0));
    assert_eq!(told("headgate_cluster_file_unreadable"), Some(0.0));
    fs::remove_file(world.path("files0.yaml")).unwrap();
    assert_eq!(told("headgate_cluster_file_unreadable"), Some(1.0));
    let epoch = f64::from(u32::try_from(world.owner().unwrap().1).unwrap());
    assert_eq!(told("headgate_cluster_epoch"), Some(epoch));
    let left = told("headgate_cluster_lease_left_seconds").unwrap();
    assert!(left > 0.0 && left <= 2.0, "{left}");
    until("status says what the takeover took", || {
        let status = status();
        status.contains("gw0 took over in") && !status.contains("could not serve")
    })
    .await;
    assert!(told("headgate_cluster_takeover_seconds").unwrap() > 0.0);
}
