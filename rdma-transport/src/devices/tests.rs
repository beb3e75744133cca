//! Tests on artificial trees, laid out like those of real machines.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::{Devices, Fabric, GidType, Hindrance, read};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn netdev(root: &Path, name: &str, address: &str, mtu: u32) {
    write(root, &format!("class/net/{name}/address"), address);
    write(root, &format!("class/net/{name}/mtu"), &mtu.to_string());
}

/// Creates a device with one port and these entries: GID, type, network device.
pub(super) fn device(root: &Path, name: &str, kind: [&str; 3], gids: &[(&str, &str, &str)]) {
    let [node_type, link_layer, state] = kind;
    let at = |file: &str| format!("class/infiniband/{name}/{file}");
    write(root, &at("node_type"), node_type);
    write(root, &at("ports/1/link_layer"), link_layer);
    write(root, &at("ports/1/state"), state);
    write(root, &at("ports/1/rate"), "100 Gb/sec (4X EDR)");
    for (i, (gid, gid_type, ndev)) in gids.iter().enumerate() {
        write(root, &at(&format!("ports/1/gids/{i}")), gid);
        if !gid_type.is_empty() {
            write(root, &at(&format!("ports/1/gid_attrs/types/{i}")), gid_type);
        }
        if !ndev.is_empty() {
            write(root, &at(&format!("ports/1/gid_attrs/ndevs/{i}")), ndev);
        }
    }
    let node = format!("uverbs{}", name.len());
    write(root, &format!("class/infiniband_verbs/{node}/ibdev"), name);
    write(root, "class/infiniband_verbs/abi_version", "6");
}

pub(super) const ROCE: [&str; 3] = ["1: CA", "Ethernet", "4: ACTIVE"];
const IWARP: [&str; 3] = ["4: RNIC", "Ethernet", "4: ACTIVE"];
const IB: [&str; 3] = ["1: CA", "InfiniBand", "4: ACTIVE"];
const NONE: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

/// Creates a RoCE card with an address of each version.
fn roce(root: &Path, state: &str) {
    netdev(root, "eth1", "02:00:00:00:00:01", 1500);
    let gids = [
        ("fe80:0000:0000:0000:0000:00ff:fe00:0001", "IB/RoCE v1", "eth1"),
        ("fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2", "eth1"),
        ("0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1", "eth1"),
        ("0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2", "eth1"),
        (NONE, "", ""),
        ("fd00:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth1"),
    ];
    device(root, "mlx5_0", ["1: CA", "Ethernet", state], &gids);
}

fn at(devices: &Devices, ip: &str, netdev: &str) -> Result<Option<super::Served>, Hindrance> {
    devices.at(ip.parse::<IpAddr>().unwrap(), netdev)
}

#[test]
fn roce_port_serves_addresses_of_table() {
    let root = tempfile::tempdir().unwrap();
    roce(root.path(), "4: ACTIVE");
    let devices = read(root.path());
    assert_eq!(devices.list[0].ports[0].gids.len(), 5);
    let s = at(&devices, "192.0.2.1", "eth1").unwrap().unwrap();
    assert_eq!((s.device.as_str(), s.port, s.fabric), ("mlx5_0", 1, Fabric::Roce));
    assert_eq!((s.gid_index, s.gid_type), (3, GidType::V2));
    assert_eq!((s.path_mtu, s.speed), (Some(1024), Some(100_000)));
    assert_eq!(s.node.as_deref(), Some("uverbs6"));
    assert_eq!(s.to_string(), "mlx5_0 port 1, RoCE v2");
    assert_eq!(at(&devices, "fd00::1", "eth1").unwrap().unwrap().gid_index, 5);
    // Another network device of the same host.
    assert_eq!(at(&devices, "198.51.100.1", "eth0"), Ok(None));
}

/// The kernel takes the version of the port's mode, and none other.
#[test]
fn gid_has_version_that_configfs_prescribes() {
    let root = tempfile::tempdir().unwrap();
    roce(root.path(), "4: ACTIVE");
    let file = "kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode";
    let gid = |mode: &str, ip: &str| {
        write(root.path(), file, mode);
        at(&read(root.path()), ip, "eth1").map(|s| s.map(|s| (s.gid_index, s.gid_words())))
    };
    assert_eq!(gid("RoCE v2", "192.0.2.1"), Ok(Some((3, "RoCE v2"))));
    assert_eq!(gid("IB/RoCE v1", "192.0.2.1"), Ok(Some((2, "RoCE v1"))));
    let why = gid("IB/RoCE v1", "fd00::1").unwrap_err().to_string();
    for words in ["uses `IB/RoCE v1`", "no GID of that version", "echo 'RoCE v2'", file] {
        assert!(why.contains(words), "{words} in {why}");
    }
    // Without a mode of its own, an address of version 1 is of no use on a port that has version 2.
    fs::remove_file(root.path().join(file)).unwrap();
    let gids = [("fd00::2", "IB/RoCE v1", "eth1"), ("fd00::1", "RoCE v2", "eth1")];
    device(root.path(), "mlx5_1", ROCE, &gids);
    fs::remove_dir_all(root.path().join("class/infiniband/mlx5_0")).unwrap();
    let why = at(&read(root.path()), "fd00::2", "eth1").unwrap_err();
    assert!(matches!(why, Hindrance::OtherMode { mode: GidType::V2, .. }), "{why}");
    // A port that has only version 1 uses it.
    fs::remove_dir_all(root.path().join("class/infiniband/mlx5_1")).unwrap();
    device(root.path(), "mlx4_0", ROCE, &gids[..1]);
    let served = at(&read(root.path()), "fd00::2", "eth1").unwrap().unwrap();
    assert_eq!(served.gid_words(), "RoCE v1");
}

/// VLAN, bond and macvlan have addresses of their own in the table of the port below them.
#[test]
fn gid_is_of_network_device_with_address() {
    let root = tempfile::tempdir().unwrap();
    let gids = [
        ("::ffff:192.0.2.1", "RoCE v2", "eth1"),
        ("::ffff:192.0.2.1", "RoCE v2", "eth1.7"),
        ("::ffff:192.0.2.2", "RoCE v2", "bond0"),
        ("::ffff:192.0.2.3", "RoCE v2", "macvlan0"),
        ("::ffff:192.0.2.4", "RoCE v2", "macvlan0"),
        ("fe80::1", "RoCE v2", "eth1"),
    ];
    for (n, name) in ["eth1", "eth1.7", "bond0", "macvlan0"].into_iter().enumerate() {
        netdev(root.path(), name, &format!("02:00:00:00:00:0{n}"), 9000);
    }
    device(root.path(), "mlx5_0", ROCE, &gids);
    let devices = read(root.path());
    let index = |ip, netdev| at(&devices, ip, netdev).unwrap().unwrap().gid_index;
    assert_eq!(index("192.0.2.1", "eth1"), 0);
    assert_eq!(index("192.0.2.1", "eth1.7"), 1);
    assert_eq!(index("192.0.2.2", "bond0"), 2);
    assert_eq!([index("192.0.2.3", "macvlan0"), index("192.0.2.4", "macvlan0")], [3, 4]);
    assert_eq!(index("fe80::1", "eth1"), 5);
}

#[test]
fn inactive_port_is_reported_with_remedy() {
    let root = tempfile::tempdir().unwrap();
    roce(root.path(), "1: DOWN");
    let down = at(&read(root.path()), "192.0.2.1", "eth1").unwrap_err();
    assert!(matches!(&down, Hindrance::NotActive { state, .. } if state == "DOWN"));
    let words = down.to_string();
    assert!(words.contains("port 1 of mlx5_0 is DOWN"), "{words}");
    assert!(words.contains("ip link set eth1 up"), "{words}");
    roce(root.path(), "4: ACTIVE");
    let no_gid = at(&read(root.path()), "192.0.2.9", "eth1").unwrap_err();
    assert!(matches!(no_gid, Hindrance::NoGid { .. }));
    assert!(no_gid.to_string().contains("mlx5_0 has no GID"), "{no_gid}");
    // Down with an empty table: the state is the cause.
    roce(root.path(), "1: DOWN");
    let down = at(&read(root.path()), "192.0.2.9", "eth1").unwrap_err();
    assert!(matches!(down, Hindrance::NotActive { .. }));
}

/// The table of a RoCE port does not name network devices that are switched off.
#[test]
fn port_of_disabled_netdev_is_found() {
    for (file, says) in [("parent", "eth1"), ("device/net/eth1/dev_port", "0")] {
        let root = tempfile::tempdir().unwrap();
        netdev(root.path(), "eth1", "02:00:00:00:00:01", 1500);
        netdev(root.path(), "eth2", "02:00:00:00:00:02", 1500);
        let gid = "0000:0000:0000:0000:0000:ffff:c000:0201";
        device(root.path(), "mlx5_0", ["1: CA", "Ethernet", "1: DOWN"], &[(gid, "RoCE v2", "")]);
        write(root.path(), "class/infiniband/mlx5_0/device/net/eth2/dev_port", "1");
        assert_eq!(at(&read(root.path()), "192.0.2.1", "eth1"), Ok(None), "nothing told");
        write(root.path(), &format!("class/infiniband/mlx5_0/{file}"), says);
        let devices = read(root.path());
        let down = at(&devices, "192.0.2.1", "eth1").unwrap_err();
        assert!(down.to_string().contains("ip link set eth1 up"), "{down}");
        assert_eq!(at(&devices, "192.0.2.1", "eth2"), Ok(None), "another port");
    }
}

#[test]
fn iwarp_port_is_found_by_address() {
    let root = tempfile::tempdir().unwrap();
    netdev(root.path(), "eth2", "02:00:00:00:00:02", 9000);
    let gid = "0200:0000:0002:0000:0000:0000:0000:0000";
    for ndev in ["", "eth2"] {
        device(root.path(), "siw0", IWARP, &[(gid, "IB/RoCE v1", ndev)]);
        let devices = read(root.path());
        let s = at(&devices, "192.0.2.2", "eth2").unwrap().unwrap();
        assert_eq!((s.fabric, s.path_mtu, s.gid_words()), (Fabric::Iwarp, None, "iWARP"));
        assert_eq!(at(&devices, "192.0.2.3", "eth3"), Ok(None));
    }
}

#[test]
fn infiniband_port_is_found_by_netdev() {
    let root = tempfile::tempdir().unwrap();
    let gid = "fe80:0000:0000:0000:0002:c903:0001:0203";
    let address = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:01:02:03";
    netdev(root.path(), "ib0", address, 2044);
    netdev(root.path(), "ib1", &address.replace("02:03", "02:04"), 2044);
    device(root.path(), "mlx4_0", IB, &[(gid, "IB/RoCE v1", "")]);
    let devices = read(root.path());
    let s = at(&devices, "192.0.2.2", "ib0").unwrap().unwrap();
    assert_eq!((s.fabric, s.gid_words(), s.path_mtu), (Fabric::InfiniBand, "IB", None));
    assert_eq!(at(&devices, "192.0.2.3", "ib1"), Ok(None));
}

#[test]
fn vlan_is_served_by_iwarp_card() {
    let root = tempfile::tempdir().unwrap();
    netdev(root.path(), "eth2", "02:00:00:00:00:02", 1500);
    netdev(root.path(), "eth2.7", "02:00:00:00:00:02", 1500);
    fs::create_dir_all(root.path().join("class/net/eth2.7/lower_eth2")).unwrap();
    device(root.path(), "siw0", IWARP, &[("0200::", "IB/RoCE v1", "eth2")]);
    let devices = read(root.path());
    assert!(at(&devices, "192.0.2.2", "eth2.7").unwrap().is_some());
    assert_eq!(at(&devices, "192.0.2.2", "eth3.7"), Ok(None));
}

/// A new device with the same name is a different device.
#[test]
fn readded_device_has_new_incarnation() {
    let root = tempfile::tempdir().unwrap();
    let gids = [("::ffff:192.0.2.1", "RoCE v2", "eth1")];
    device(root.path(), "rxe0", ROCE, &gids);
    let before = read(root.path());
    let (first, kept) =
        (root.path().join("class/infiniband/rxe0"), root.path().join("class/infiniband-old"));
    // Renamed instead of removed, so that its inode number is not reused.
    fs::rename(first, kept).unwrap();
    assert!(read(root.path()).list.is_empty());
    device(root.path(), "rxe0", ROCE, &gids);
    assert_ne!(before.list[0].incarnation, read(root.path()).list[0].incarnation);
}

#[test]
fn malformed_entries_are_skipped() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(read(root.path()), Devices::default());
    device(root.path(), "usnic_0", ["5: usNIC", "Ethernet", "4: ACTIVE"], &[]);
    device(root.path(), "odd", ["", "", ""], &[("no address", "", "")]);
    write(root.path(), "class/infiniband/rxe0/ports/x/state", "4: ACTIVE");
    let devices = read(root.path());
    assert!(devices.list.iter().all(|d| d.ports.is_empty()), "{devices:?}");
}

#[test]
fn speeds() {
    let root = tempfile::tempdir().unwrap();
    let rate = "class/infiniband/mlx5_0/ports/1/rate";
    for (text, wanted) in [
        ("2.5 Gb/sec (1X SDR)", Some(2500)),
        ("400 Gb/sec (4X NDR)", Some(400_000)),
        ("0 Gb/sec", None),
        ("fast", None),
        ("99999999999 Gb/sec", None),
    ] {
        roce(root.path(), "4: ACTIVE");
        write(root.path(), rate, text);
        assert_eq!(read(root.path()).list[0].ports[0].speed, wanted, "{text}");
    }
}
