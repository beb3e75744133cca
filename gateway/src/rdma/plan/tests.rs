//! Tests with constructed hosts.

use super::*;
use rdma_transport::devices::{Device, Devices, Gid, GidType, Port};

/// Returns a device with one active port, for one address of one network device.
pub(crate) fn card(name: &str, fabric: Fabric, netdev: &str, ip: &str) -> Device {
    let gid = match ip.parse().unwrap() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let gid = Gid { index: 1, gid, kind: GidType::V2, netdev: Some(netdev.into()) };
    let port = Port {
        number: 1,
        fabric,
        state: "ACTIVE".into(),
        speed: None,
        gids: vec![gid],
        roce_mode: None,
        netdevs: vec![netdev.into()],
    };
    let node = Some(format!("uverbs-{name}"));
    Device { name: name.into(), node, incarnation: 7, ports: vec![port] }
}

/// Returns a host with `eth0` without a device, `eth1` for one, and the loopback device.
pub(crate) fn host(cards: Vec<Device>) -> Host {
    let address =
        |ip: &str, dev: &str| Address { ip: ip.parse().unwrap(), device: Some(dev.into()) };
    let mut devices = Devices::default();
    devices.list = cards;
    Host {
        addresses: vec![
            address("192.0.2.1", "eth0"),
            address("198.51.100.1", "eth1"),
            address("127.0.0.1", "lo"),
        ],
        devices,
        library: Ok(()),
        closed: BTreeMap::new(),
        memlock: Ok(()),
    }
}

const PLAIN: &str = "192.0.2.1";
const WITH: &str = "198.51.100.1";

fn roce() -> Device {
    card("mlx5_0", Fabric::Roce, "eth1", WITH)
}

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|ip| ip.parse().unwrap()).collect()
}

/// Returns `v:IP` for each listener of a device and `i:IP` for user-space iWARP.
fn listens(mode: Rdma, bind: &[&str], host: &Host) -> Vec<String> {
    let bind = ips(bind);
    let offers = offers(mode, &bind, host, &Refused::new());
    let words =
        |s: ListenEndpoint| format!("{}:{}", if s.by == By::Iwarp { "i" } else { "v" }, s.ip);
    spots(mode, &bind, &offers).into_iter().map(words).collect()
}

#[test]
fn a_roce_device_serves_its_address_and_iwarp_serves_all() {
    let host = host(vec![roce()]);
    let v = format!("v:{WITH}");
    assert_eq!(listens(Rdma::Auto, &[], &host), [v.as_str(), "i:::"]);
    assert_eq!(listens(Rdma::Auto, &["0.0.0.0"], &host), [v.as_str(), "i:0.0.0.0"]);
    assert_eq!(listens(Rdma::Auto, &[PLAIN], &host), [format!("i:{PLAIN}")]);
    assert_eq!(listens(Rdma::Auto, &[WITH], &host), [v.clone(), format!("i:{WITH}")]);
    assert_eq!(listens(Rdma::Iwarp, &[], &host), ["i:::"]);
    assert_eq!(listens(Rdma::Verbs, &[], &host), [v]);
    assert!(listens(Rdma::Off, &[], &host).is_empty());
}

/// The card's ports are TCP's, so a listener on the unspecified address would conflict with it.
#[test]
fn beside_an_iwarp_card_our_own_iwarp_listens_on_the_other_addresses() {
    let host = host(vec![card("cxgb4_0", Fabric::Iwarp, "eth1", WITH)]);
    let wanted = [format!("v:{WITH}"), "i:127.0.0.1".into(), format!("i:{PLAIN}")];
    assert_eq!(listens(Rdma::Auto, &[], &host), wanted);
    assert_eq!(listens(Rdma::Auto, &[WITH], &host), [format!("v:{WITH}")]);
    assert_eq!(listens(Rdma::Iwarp, &[], &host), ["i:::"]);
    assert_eq!(listens(Rdma::Auto, &["::"], &host), wanted);
}

#[test]
fn a_host_without_devices_or_addresses_is_served_by_iwarp() {
    assert_eq!(listens(Rdma::Auto, &[], &host(vec![])), ["i:::"]);
    let nothing = Host { addresses: vec![], ..host(vec![]) };
    assert_eq!(listens(Rdma::Auto, &[], &nothing), ["i:::"]);
    assert!(listens(Rdma::Verbs, &[], &nothing).is_empty());
    assert!(listens(Rdma::Off, &[], &nothing).is_empty());
    // The address is not on this host: the attempt will report that.
    assert_eq!(listens(Rdma::Auto, &["203.0.113.9"], &nothing), ["i:203.0.113.9"]);
}

/// Checks the message about the device at its address for each obstacle, and that iWARP replaces the device.
#[test]
fn what_hinders_a_device_is_told_and_iwarp_serves() {
    let mut down = roce();
    down.ports[0].state = "DOWN".into();
    let mut no_gid = roce();
    no_gid.ports[0].gids.clear();
    let going = Device { node: None, ..roce() };
    let closed = |node: &str| {
        let closed = BTreeMap::from([(node.to_owned(), format!("no permission to use {node}"))]);
        Host { closed, ..host(vec![roce()]) }
    };
    let cases = [
        (host(vec![down]), "port 1 of mlx5_0 is DOWN"),
        (host(vec![no_gid]), "mlx5_0 has no GID"),
        (host(vec![going]), "mlx5_0 has no character device"),
        (Host { library: Err("rdma-core is missing".into()), ..host(vec![roce()]) }, "rdma-core"),
        (closed("uverbs-mlx5_0"), "mlx5_0 cannot be used: no permission to use uverbs"),
        (closed(CM_NODE), "mlx5_0 cannot be used: no permission to use rdma_cm"),
        (Host { memlock: Err("too little".into()), ..host(vec![roce()]) }, "too little"),
    ];
    for (host, words) in cases {
        let bind = ips(&[WITH]);
        let offers_of = |mode| offers(mode, &bind, &host, &Refused::new());
        let [offer] = &offers_of(Rdma::Auto)[..] else { panic!() };
        let why = offer.verbs.as_ref().unwrap_err();
        assert!(why.contains(words), "{words} in {why}");
        assert!(offer.rdma() && offer.iwarp.is_ok());
        assert_eq!(demanded(Rdma::Auto, &bind, &offers_of(Rdma::Auto)), Ok(()));
        let demand = demanded(Rdma::Verbs, &bind, &offers_of(Rdma::Verbs)).unwrap_err();
        assert!(demand.contains(words) && demand.contains(WITH), "{demand}");
    }
}

#[test]
fn a_demand_for_devices_is_met_or_says_where_not() {
    let demand = |bind: &[&str], host: &Host| {
        let bind = ips(bind);
        demanded(Rdma::Verbs, &bind, &offers(Rdma::Verbs, &bind, host, &Refused::new()))
    };
    let (with, without) = (host(vec![roce()]), host(vec![]));
    assert_eq!(demand(&[], &with), Ok(()));
    assert_eq!(demand(&[WITH], &with), Ok(()));
    let why = demand(&[WITH, PLAIN], &with).unwrap_err();
    assert!(why.contains("192.0.2.1: no RDMA device belongs to eth0"), "{why}");
    assert!(!why.contains(WITH), "{why}");
    let why = demand(&[], &without).unwrap_err();
    assert!(why.contains("eth0") && why.contains("eth1") && why.contains("rdma link"), "{why}");
    assert!(!why.contains("127.0.0.1"), "{why}");
    let why = demand(&["203.0.113.9"], &with).unwrap_err();
    assert!(why.contains("203.0.113.9 is not an address of this host"), "{why}");
    assert!(why.contains("network device is down"), "{why}");
}

#[test]
fn a_device_that_refused_is_left_alone_until_it_is_another_one() {
    let refused = Refused::from([((WITH.parse().unwrap(), 7), "mlx5_0 refused".to_owned())]);
    let bind = ips(&[WITH]);
    let one = offers(Rdma::Auto, &bind, &host(vec![roce()]), &refused).remove(0);
    assert_eq!(one.verbs, Err("mlx5_0 refused".into()));
    let again = host(vec![Device { incarnation: 8, ..roce() }]);
    assert!(offers(Rdma::Auto, &bind, &again, &refused)[0].device().is_some());
}

#[test]
fn loopback_offers_nobody_rdma() {
    let all = offers(Rdma::Auto, &[], &host(vec![]), &Refused::new());
    let rdma: Vec<bool> = all.iter().map(AddressOffer::rdma).collect();
    assert_eq!(rdma, [true, true, false]);
}

const SIX: &str = "2001:db8::1";
const LOOPBACK: &str = "127.0.0.1";

/// SMB Direct listeners that cover an address: whether a device has it, the port, and whether clients of its fabric dial that
/// port.
type Seen = BTreeSet<(bool, u16, bool)>;

/// Returns the listeners that the plan opens and that cover `ip`.
fn planned(mode: Rdma, bind: &[&str], host: &Host, (smb, direct): (u16, u16), ip: &str) -> Seen {
    let bind = ips(bind);
    let offers = offers(mode, &bind, host, &Refused::new());
    let mut seen = Seen::new();
    for spot in
        spots(mode, &bind, &offers).into_iter().filter(|s| covers(s.ip, ip.parse().unwrap()))
    {
        for (port, fabrics) in smb_direct_ports(smb, direct) {
            if fabrics.open(spot.by) {
                let is_new = seen.insert((spot.by != By::Iwarp, port, fabrics.dial(spot.by)));
                assert!(is_new, "two listeners at {ip} want port {port}");
            }
        }
    }
    seen
}

/// The rule in its plainest form: the fabrics of an address, and the ports that clients of each dial.
fn model(mode: Rdma, is_bound: bool, fabric: Option<Fabric>, (smb, direct): (u16, u16)) -> Seen {
    let device = fabric.filter(|_| is_bound && matches!(mode, Rdma::Auto | Rdma::Verbs));
    let own = is_bound && matches!(mode, Rdma::Auto | Rdma::Iwarp);
    let mut seen = Seen::new();
    match device {
        Some(Fabric::Iwarp) => {
            seen.insert((true, direct, true));
        }
        Some(Fabric::Roce | Fabric::InfiniBand) => {
            seen.insert((true, smb, true));
            if smb != direct {
                seen.insert((true, direct, false));
            }
        }
        None => {}
    }
    if own && device != Some(Fabric::Iwarp) {
        seen.insert((false, direct, true));
    }
    seen
}

#[test]
fn smb_direct_listens_where_each_fabric_dials() {
    let binds: [(&[&str], &[&str]); 7] = [
        (&[], &[PLAIN, WITH, SIX, LOOPBACK]),
        (&["::"], &[PLAIN, WITH, SIX, LOOPBACK]),
        (&["0.0.0.0"], &[PLAIN, WITH, LOOPBACK]),
        (&[PLAIN], &[PLAIN]),
        (&[WITH], &[WITH]),
        (&[SIX], &[SIX]),
        (&[WITH, PLAIN, SIX], &[WITH, PLAIN, SIX]),
    ];
    let modes = [Rdma::Auto, Rdma::Iwarp, Rdma::Verbs, Rdma::Off];
    let fabrics = [None, Some(Fabric::Roce), Some(Fabric::InfiniBand), Some(Fabric::Iwarp)];
    let ports = [(445, 5445), (1445, 6445), (445, 445)];
    let mut cases = 0;
    for (served_at, fabric) in [WITH, SIX].into_iter().flat_map(|at| fabrics.map(|f| (at, f))) {
        let device = fabric.map(|f| card("dev0", f, "eth1", served_at));
        let mut host = host(device.into_iter().collect());
        host.addresses.push(Address { ip: SIX.parse().unwrap(), device: Some("eth1".into()) });
        if served_at == SIX {
            // An iWARP card and InfiniBand have one entry for all addresses of the network device.
            host.addresses.retain(|a| a.ip.to_string() != WITH);
        } else {
            host.addresses.last_mut().unwrap().device = Some("eth0".into());
        }
        for (mode, (bind, bound)) in modes.into_iter().flat_map(|m| binds.map(|b| (m, b))) {
            // The configuration rejects equal ports if user-space iWARP may listen.
            for ports in ports.into_iter().filter(|(a, b)| a != b || mode == Rdma::Verbs) {
                for ip in host.addresses.iter().map(|a| a.ip.to_string()) {
                    let fabric = fabric.filter(|_| ip == served_at);
                    let expected = model(mode, bound.contains(&ip.as_str()), fabric, ports);
                    let said = format!("{mode:?} {bind:?} {fabric:?} {ports:?} {ip}");
                    assert_eq!(planned(mode, bind, &host, ports, &ip), expected, "{said}");
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 1000, "{cases} cases");
}

#[test]
fn nfs_has_one_port_on_every_fabric() {
    let all = [Fabric::Roce, Fabric::InfiniBand, Fabric::Iwarp].map(By::Verbs);
    for by in all.into_iter().chain([By::Iwarp]) {
        assert!(Fabrics::All.open(by) && Fabrics::All.dial(by), "{by:?}");
    }
}
