//! Tests on hosts that are made up, and of the transfer on this one.

use std::collections::BTreeMap;

use config::{Dscp, Share, Source};
use rdma_transport::devices::Device;

use super::*;
use crate::rdma::plan::tests::{card, host};

const WITH: &str = "198.51.100.1";

fn settings() -> Settings {
    Settings { shares: vec![Share::new("m", Source::Memory)], ..Settings::default() }
}

fn kernel() -> Kernel {
    let huge_pages = "always [madvise] never".into();
    Kernel { version: Some((6, 12)), fork_safe: false, huge_pages }
}

fn roce() -> Device {
    card("mlx5_0", Fabric::Roce, "eth1", WITH)
}

/// The findings that are problems, each with its step.
fn problems(lines: &[Line]) -> Vec<(&'static str, Verdict, String)> {
    lines.iter().filter_map(|l| Some((l.step, l.verdict, l.problem()?))).collect()
}

#[test]
fn host_without_devices_has_nothing_to_repair() {
    let lines = about_host(&host(vec![]), &Kernel::default());
    assert_eq!((lines.len(), problems(&lines)), (1, vec![]));
    let lines = about_host(&host(vec![roce()]), &kernel());
    assert_eq!(problems(&lines), []);
    let steps: Vec<&str> = lines.iter().map(|l| l.step).collect();
    assert_eq!(steps, ["link", "memlock", "fork", "pages"]);
    assert_eq!(lines[0].found, "mlx5_0 port 1 is ACTIVE: RoCE, on eth1");
}

/// Changes a good host and a good kernel in one way.
type Spoil = fn(&mut Host, &mut Kernel);

#[test]
fn each_fault_of_host_is_told_with_remedy() {
    let cases: [(&str, Verdict, &[&str], Spoil); 8] = [
        ("link", Verdict::Bad, &["mlx5_0 port 1", "DOWN", "ip link set eth1 up"], |h, _| {
            h.devices.list[0].ports[0].state = "DOWN".into();
        }),
        (
            "link",
            Verdict::Warning,
            &["no network device here", "rdma system set netns", "macvlan"],
            |h, _| {
                h.devices.list[0].ports[0].netdevs.clear();
            },
        ),
        ("library", Verdict::Bad, &["no libibverbs"], |h, _| {
            h.library = Err("no libibverbs".into())
        }),
        ("node", Verdict::Bad, &["uverbs0", "--device"], |h, _| {
            h.closed =
                BTreeMap::from([("uverbs0".into(), "there is no /dev/infiniband/uverbs0".into())]);
        }),
        ("memlock", Verdict::Bad, &["ulimit -l 1"], |h, _| {
            h.memlock = Err("raise it by `ulimit -l 1`".into())
        }),
        ("fork", Verdict::Warning, &["Linux 5.10", "5.12", "RDMAV_FORK_SAFE=1"], |_, k| {
            k.version = Some((5, 10))
        }),
        ("pages", Verdict::Warning, &["512 entries", "echo madvise"], |_, k| {
            k.huge_pages = "always madvise [never]".into()
        }),
        ("pages", Verdict::Warning, &["512 entries"], |_, k| k.huge_pages.clear()),
    ];
    for (step, verdict, words, spoil) in cases {
        let (mut host, mut kernel) = (host(vec![roce()]), kernel());
        spoil(&mut host, &mut kernel);
        let found = problems(&about_host(&host, &kernel));
        assert_eq!(found.len(), 1, "{step}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (step, verdict));
        for word in words {
            assert!(found[0].2.contains(word), "{word} in {found:?}");
        }
    }
    let old = Kernel { version: Some((5, 10)), fork_safe: true, ..kernel() };
    assert_eq!(problems(&about_host(&host(vec![roce()]), &old)), []);
}

fn at_addresses(settings: &Settings, host: &Host, mtu: u32) -> Vec<Line> {
    let offers = plan::offers(settings.rdma, &settings.bind, host, &Refused::new());
    about_addresses(settings, &offers, |_| Some(mtu))
}

#[test]
fn each_fault_of_address_is_told_with_remedy() {
    let marked = Settings { rdma_dscp: Some(Dscp(26)), ..settings() };
    let steps = |lines: &[Line]| problems(lines).into_iter().map(|p| p.0).collect::<Vec<_>>();
    // The constructed hosts have no MTU, so a packet has no room there.
    let lines = at_addresses(&marked, &host(vec![roce()]), 0);
    assert_eq!(steps(&lines), ["mtu"]);
    let lines = at_addresses(&settings(), &host(vec![roce()]), 0);
    assert_eq!(steps(&lines), ["mtu", "dscp"]);
    let infiniband = host(vec![card("mlx5_0", Fabric::InfiniBand, "eth1", WITH)]);
    assert_eq!(steps(&at_addresses(&settings(), &infiniband, 2044)), Vec::<&str>::new());
    // RoCE version 1 is named with its remedy.
    let mut old = roce();
    old.ports[0].gids[0].kind = GidType::V1;
    let lines = at_addresses(&marked, &host(vec![old]), 0);
    let gid = problems(&lines).into_iter().find(|p| p.0 == "gid").unwrap();
    assert_eq!(gid.1, Verdict::Warning);
    for word in [
        "RoCE v1",
        "no router",
        "echo 'RoCE v2' >/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode",
    ] {
        assert!(gid.2.contains(word), "{word} in {gid:?}");
    }
    // What keeps a device from use is bad, unless devices are not wanted.
    let little = Host { memlock: Err("raise the limit".into()), ..host(vec![roce()]) };
    let [gid] = &problems(&at_addresses(&marked, &little, 0))[..] else { panic!() };
    assert_eq!((gid.0, gid.1), ("gid", Verdict::Bad));
    assert_eq!(
        steps(&at_addresses(&Settings { rdma: Rdma::Iwarp, ..settings() }, &little, 0)),
        Vec::<&str>::new()
    );
    let off = Settings { rdma: Rdma::Off, ..settings() };
    assert_eq!(steps(&at_addresses(&off, &little, 0)), ["gid", "gid"]);
}

#[test]
fn packets_depend_on_mtu() {
    let ip = [192, 0, 2, 1].into();
    let of = |path, mtu| packets(ip, path, "eth1", Some(mtu));
    assert_eq!(of(Some(4096), 9000).verdict, Verdict::Good);
    let small = of(Some(1024), 1500);
    assert_eq!(small.verdict, Verdict::Warning);
    let said = small.problem().unwrap();
    assert!(said.contains("1024 bytes") && said.contains("ip link set eth1 mtu 9000"), "{said}");
    assert_eq!(of(None, 68).verdict, Verdict::Bad);
}

#[test]
fn ports_of_iwarp_are_tried() {
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut settings = Settings { nfs_rdma_port: port, ..settings() };
    settings.smb.direct_port = 0;
    let offers = |rdma| plan::offers(rdma, &[], &host(vec![]), &Refused::new());
    let lines = ports(&settings, &offers(Rdma::Iwarp), false);
    assert_eq!((lines[0].step, lines[0].verdict), ("port", Verdict::Bad));
    assert!(lines[0].found.contains(&format!("TCP port {port}")), "{lines:?}");
    drop(taken);
    assert_eq!(ports(&settings, &offers(Rdma::Iwarp), false)[0].verdict, Verdict::Good);
    assert_eq!(ports(&settings, &offers(Rdma::Verbs), false), []);
}

#[tokio::test]
async fn own_iwarp_places_a_megabyte() {
    let iwarp = Iwarp::new(IwarpConfig::default());
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        if std::net::TcpListener::bind((ip, 0)).is_ok() {
            proof::write_once(&iwarp, ip).await.unwrap();
        }
    }
}

#[tokio::test]
async fn provider_that_fails_is_told() {
    // An address of documentation, which no host has.
    let iwarp: Arc<dyn Provider> = Arc::new(Iwarp::new(IwarpConfig::default()));
    let ip: IpAddr = "203.0.113.7".parse().unwrap();
    let lines = proofs(vec![(iwarp, ip, "mlx5_0 port 1, RoCE v2".into())]).await;
    assert_eq!((lines.len(), lines[0].step, lines[0].verdict), (1, "write", Verdict::Bad));
    let said = lines[0].problem().unwrap();
    assert!(said.contains("mlx5_0 port 1, RoCE v2: no RDMA Write at 203.0.113.7"), "{said}");
    assert!(said.contains("rping"), "{said}");
}

#[test]
fn each_device_is_proven_once_and_own_iwarp_too() {
    let two = host(vec![roce(), card("cxgb4_0", Fabric::Iwarp, "eth0", "192.0.2.1")]);
    let names = |rdma| {
        let settings = Settings { rdma, ..settings() };
        let offers = plan::offers(rdma, &[], &two, &Refused::new());
        to_prove(&settings, &offers)
            .into_iter()
            .map(|(_, ip, name)| format!("{ip} {name}"))
            .collect::<Vec<_>>()
    };
    let [iwarp, roce] = ["192.0.2.1 cxgb4_0 port 1, iWARP", "198.51.100.1 mlx5_0 port 1, RoCE v2"];
    assert_eq!(names(Rdma::Auto), [iwarp, roce, "198.51.100.1 iWARP in user space"]);
    assert_eq!(names(Rdma::Verbs), [iwarp, roce]);
    assert_eq!(names(Rdma::Iwarp), ["192.0.2.1 iWARP in user space"]);
    assert_eq!(names(Rdma::Off), Vec::<String>::new());
}

#[test]
fn release_of_kernel_is_parsed() {
    assert_eq!(version("6.12.48-amd64\n"), Some((6, 12)));
    assert_eq!(version("7.3-rc1"), Some((7, 3)));
    assert_eq!(version("linux"), None);
}
