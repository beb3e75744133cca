//! Settings that are valid on only some hosts, or are only suspicious.

use super::*;
use crate::{Cidr, RelaxedOrdering};

#[test]
fn size_needs_a_folder() {
    let with = |share: &str| told(&format!("shares: [{{name: d, {share}}}]\n"));
    assert!(read("shares: [{name: d, path: /usr, size: 1MiB}]\n").is_ok());
    assert!(with("path: /usr, size: 1023KiB").contains("is smaller than 1MiB"));
    assert!(with("memory: true, size: 1GiB").contains("has no folder on this host"));
    let ceph = with("ceph: {filesystem: fs, path: /}, size: 1GiB");
    assert!(ceph.contains("ceph.quota.max_bytes"), "{ceph}");
}

#[test]
fn snapshots_need_a_folder_and_a_time() {
    let with = |share: &str| told(&format!("shares: [{{name: d, {share}}}]\n"));
    let pattern = "snapshots: '/s/{time:%Y%m%d}'";
    assert!(read(&format!("shares: [{{name: d, path: /usr, {pattern}}}]\n")).is_ok());
    assert!(with(&format!("memory: true, {pattern}")).contains("has no folder on this host"));
    let ceph = with(&format!("ceph: {{filesystem: fs, path: /}}, {pattern}"));
    assert!(ceph.contains("they are found in `.snap`"), "{ceph}");
    assert!(with("path: /usr, snapshots: /s").contains("has no time"));
}

/// A file is one file, whatever share a client uses.
#[test]
fn overlapping_shares_are_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir_all(path("a/b")).unwrap();
    let share = |(name, folder)| format!("- name: {name}\n  path: {}\n", path(folder));
    let list = [("one", "a"), ("two", "a/b"), ("three", "a")].map(share).concat();
    let settings = read(&format!("shares:\n{list}")).unwrap();
    assert_eq!((settings.shares.len(), settings.warnings.len()), (3, 0));
}

#[test]
fn excessive_memory_is_refused_or_warned() {
    const SHARES: &str = "shares: [{name: a, memory: true}]\n";
    let with = |size: &str| read(&format!("{SHARES}memory: {size}\n"));
    assert_eq!(with("4GiB").unwrap().memory, 4 << 30);
    let told = with("5GiB").unwrap_err().to_string();
    let wanted = "gw.yaml:2:9: 5GiB of payload memory is more than the 4GiB of this machine";
    assert!(told.contains(wanted) && told.contains("`memory: 2GiB`"), "{told}");
    let little = Known { memory: || Some((100 << 20, "a group")), ..KNOWN };
    let unsaid = settle(Path::new("gw.yaml"), SHARES, Options::default(), little).unwrap();
    let [warning] = &unsaid.warnings[..] else { panic!("{:?}", unsaid.warnings) };
    assert!(
        warning
            .to_string()
            .starts_with("256MiB of payload memory is more than the 100MiB of a group")
    );
}

#[test]
fn ipv4_mapped_addresses_are_ipv4() {
    let text = "shares: [{name: a, memory: true, clients: ['::ffff:10.0.0.0/104', '::ffff:192.0.2.7']}]\n\
                bind: '::ffff:127.0.0.1'\nadmin: '[::ffff:127.0.0.1]:9'\nadmin_clients: '::ffff:192.0.2.0/120'\n";
    let settings = read(text).unwrap();
    let shown = format!("{settings:?}");
    assert!(!shown.contains("ffff"), "{shown}");
    assert_eq!(settings.bind, [std::net::IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(settings.admin_clients[0].to_string(), "192.0.2.0/24");
    let ranges = settings.shares[0].clients.as_ref().unwrap();
    assert_eq!(
        (ranges[0].from.to_string(), ranges[1].from.to_string()),
        ("10.0.0.0/8".into(), "192.0.2.7/32".into())
    );
    assert_eq!("::/0".parse::<Cidr>().unwrap().to_string(), "::/0", "all of IPv6 stays that");
}

#[test]
fn smb_settings_need_smb() {
    let told = told("shares: [{name: a, memory: true, protocols: nfs, guest: true}]\n");
    assert!(
        told.contains(
            "gw.yaml:1:17: the share `a` is served over NFS only, and `guest` is for SMB"
        ),
        "{told}"
    );
    assert!(told.contains("= remove `guest`, or set `protocols: both`"), "{told}");
    let told =
        read("shares: [{name: a, memory: true, protocols: [nfs, smb]}]\n").unwrap_err().to_string();
    assert!(told.contains("expected a single value"), "{told}");
}

/// Tries each pair of equal ports with each mode of RDMA: refused if both listeners would use the same port space.
#[test]
fn equal_ports_in_one_space_conflict() {
    let ports =
        ["nfs: {port: 7}", "nfs: {rdma_port: 7}", "smb: {port: 7}", "smb: {direct_port: 7}"];
    let names = ["NFS over TCP", "NFS over RDMA", "SMB over TCP", "SMB Direct"];
    // TCP port spaces collide; with only devices, SMB Direct uses the SMB port number in the devices' space.
    let collide = |mode: &str, a: usize, b: usize| match mode {
        "off" => (a, b) == (0, 2),
        "verbs" => [(0, 2), (1, 2), (1, 3)].contains(&(a, b)),
        _ => true,
    };
    for mode in ["auto", "iwarp", "verbs", "off"] {
        for (a, b) in (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b))) {
            let both = match (a < 2, b < 2) {
                (true, true) => "nfs: {port: 7, rdma_port: 7}".to_owned(),
                (false, false) => "smb: {port: 7, direct_port: 7}".to_owned(),
                _ => format!("{}\n{}", ports[a], ports[b]),
            };
            let text = format!("shares: [{{name: d, memory: true}}]\nrdma: {mode}\n{both}\n");
            let read = read(&text);
            let said = format!("{mode}: {} and {}", names[a], names[b]);
            match collide(mode, a, b) {
                false => assert!(read.is_ok(), "{said}: {read:?}"),
                true => {
                    let told = read.unwrap_err().to_string();
                    let [one, other] =
                        [(a, b), (b, a)].map(|(a, b)| format!("{} and {}", names[a], names[b]));
                    let of_devices =
                        mode == "verbs" && b == 2 && told.contains("NFS over RDMA and SMB Direct");
                    assert!(
                        told.contains(&one) || told.contains(&other) || of_devices,
                        "{said}: {told}"
                    );
                    assert_eq!(told.matches("cannot share port 7").count(), 1, "{said}: {told}");
                }
            }
        }
        let free = format!(
            "shares: [{{name: d, memory: true}}]\nrdma: {mode}\nnfs: {{port: 0, rdma_port: 0}}\nsmb: {{port: 0, direct_port: 0}}\n"
        );
        assert!(read(&free).is_ok(), "{mode}: any port");
    }
}

#[test]
fn rdma_accepts_word_or_group() {
    let with = |rdma: &str| read(&format!("shares: [{{name: d, memory: true}}]\nrdma: {rdma}\n"));
    let of = |rdma: &str| with(rdma).map(|s| (s.rdma, s.rdma_relaxed_ordering)).unwrap();
    assert_eq!(of("verbs"), (Rdma::Verbs, RelaxedOrdering::On));
    assert_eq!(of("{by: iwarp}"), (Rdma::Iwarp, RelaxedOrdering::On));
    assert_eq!(of("{relaxed_ordering: off}"), (Rdma::Auto, RelaxedOrdering::Off));
    assert_eq!(of("{by: verbs, relaxed_ordering: on}"), (Rdma::Verbs, RelaxedOrdering::On));
    let dscp = |rdma: &str| with(rdma).unwrap().rdma_dscp.map(|d| d.0);
    let given = ["verbs", "{by: iwarp}", "{dscp: 0}", "{dscp: 26}", "{by: verbs, dscp: 63}"];
    assert_eq!(given.map(dscp), [None, None, Some(0), Some(26), Some(63)]);
    for (wrong, said) in [
        ("{dscp: 64}", "gw.yaml:2:14: `64` is not a DSCP; write a number from 0 to 63"),
        ("{dscp: -1}", "is not a DSCP"),
        ("{dscp: AF31}", "is not a DSCP"),
        ("{mode: verbs}", "`rdma` has no key `mode`"),
        ("{by: card}", "gw.yaml:2:12: "),
        ("{relaxed_ordering: perhaps}", "is not a mode of relaxed ordering"),
        ("[verbs]", "gw.yaml:2:7: "),
    ] {
        let told = with(wrong).unwrap_err().to_string();
        assert!(told.contains(said), "{wrong}: {told}");
    }
}

#[test]
fn cluster_file_for_gateway_is_refused() {
    let text = "cluster:\n  etcd: [http://127.0.0.1:2379]\n  services: []\n";
    let file = std::path::Path::new("c.yaml");
    let wrong = crate::rules::settle(file, text, crate::Options::default(), super::KNOWN);
    let wrong = wrong.unwrap_err();
    assert_eq!(wrong.0.len(), 1, "{wrong}");
    assert!(wrong.0[0].what.contains("configures a cluster"), "{wrong}");
}
