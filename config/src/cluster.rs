//! `cluster`: the services of a cluster and their nodes. This is a separate file, next to the configurations of the services.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::fault::{Faults, Location};
use crate::keys::{CLUSTER, CLUSTER_FILE, SERVICE};
use crate::reader::{Absolute, Group, Origin, Report, Set, Text, groups, parse_list, shown};
use crate::refer::ReferHost;
use crate::server;
use crate::settings::Admin;
use crate::text::{faults, place_of, root, text_of};
use crate::tree::{Node, Value};
use crate::units::Span;

/// etcd's default configuration allows no shorter lease, and an owner stops one second before the lease ends.
const TTL_MIN: Duration = Duration::from_secs(2);
/// Limits the time without service after the death of a node.
const TTL_MAX: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(5);
/// Maximum number of services, and of addresses, nodes and etcd members.
const MANY: usize = 10_000;
const NAME_MAX: usize = 64;

/// The settings of `headgate cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The members of etcd; at least one.
    pub etcd: Vec<Endpoint>,
    /// Prefix of the cluster's keys in etcd.
    pub name: String,
    /// Name of this node, by default the host name.
    pub node: Option<String>,
    /// Time after which etcd drops an owner that does not renew its lease.
    pub ttl: Duration,
    /// Certificate authorities for etcd.
    pub ca: Option<PathBuf>,
    /// Client certificate and key for etcd.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// etcd user, and the file with its password.
    pub user: Option<(String, PathBuf)>,
    /// Address at which the node serves its metrics.
    pub metrics: Option<SocketAddr>,
    /// At least one; names are unique.
    pub services: Vec<Service>,
}

/// A group of shares and addresses that moves between nodes as a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// Position of the name in the file.
    pub place: Location,
    /// Configuration file of the service's gateway.
    pub config: PathBuf,
    /// Addresses that move with the service; at least one.
    pub addresses: Vec<Moving>,
    /// DNS name of the addresses, to which gateways of other services refer their clients.
    pub host: Option<ReferHost>,
    /// Nodes that may run the service; empty: all nodes.
    pub nodes: Vec<String>,
    /// Program and arguments that fence the previous owner; empty: no program.
    pub fence: Vec<String>,
    /// Program and arguments that attach the storage; empty: no program.
    pub attach: Vec<String>,
    /// Program and arguments that detach the storage; empty: no program.
    pub detach: Vec<String>,
}

/// Schemes of an endpoint: the one with TLS first, then the plain one.
const SCHEMES: [&str; 2] = ["https", "http"];

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Connect with TLS.
    pub tls: bool,
    /// Host name, or address without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        server::write(f, SCHEMES[usize::from(!self.tls)], &self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not an endpoint of etcd; write one like `https://10.0.0.5:2379`",
                shown(text)
            )
        };
        let (tls, host, port) = server::parse(text, SCHEMES).ok_or_else(wrong)?;
        let port = port.unwrap_or(2379);
        Ok(Self { tls, host: host.into(), port })
    }
}

/// An address that moves with its service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    pub ip: IpAddr,
    /// Prefix length of the address.
    pub prefix: u8,
    /// Network device that carries the address.
    pub device: String,
}

impl FromStr for Moving {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` is not an address with its prefix length and device; write one like `192.0.2.10/24@eth0`",
                shown(text)
            )
        };
        let (network, device) = text.split_once('@').ok_or_else(wrong)?;
        let (ip, prefix) = network.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        // IFNAMSIZ, including the terminating zero.
        let fits = (1..16).contains(&device.len())
            && device.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != ':');
        let most = if ip.is_ipv4() { 32 } else { 128 };
        if !fits || device.starts_with('-') || prefix == 0 || prefix > most {
            return Err(wrong());
        }
        if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
            return Err(format!(
                "{ip} cannot move between nodes; name an address of their network"
            ));
        }
        Ok(Self { ip, prefix, device: device.into() })
    }
}

/// A name in etcd.
struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(fits) {
            return Err(format!(
                "`{}` is not a name; write 1 to {NAME_MAX} letters, digits, `-`, `_` or `.`",
                shown(text)
            ));
        }
        Ok(Self(text.into()))
    }
}

/// Reads the configuration file of a cluster. Does not read the configurations of its services.
pub fn load_cluster(file: &Path) -> Result<Cluster, Faults> {
    let text = text_of(file)?;
    settle(file, &text)
}

/// Reports a fault if a file that should configure a gateway is a cluster file.
pub(crate) fn refuse_elsewhere(root: &Node, report: &mut Report) {
    let Value::Map(map) = &root.value else { return };
    let is_of_cluster = |key: &Node| matches!(&key.value, Value::Scalar(name) if name == "cluster");
    if let Some((key, _)) = map.iter().find(|(key, _)| is_of_cluster(key)) {
        report.add_help(
            Origin::Node(key.number),
            "this file configures a cluster, not a gateway",
            "run `headgate cluster run` with it; each service names the file of its gateway as `config`",
        );
    }
}

fn settle(file: &Path, text: &str) -> Result<Cluster, Faults> {
    let root = root(file, text)?;
    let mut report = Report::default();
    match cluster(&root, &mut report) {
        Some((cluster, origins)) if report.0.is_empty() => {
            let placed = cluster.services.into_iter().zip(origins);
            let placed =
                placed.map(|(service, at)| Service { place: place_of(file, text, at), ..service });
            Ok(Cluster { services: placed.collect(), ..cluster })
        }
        _ => Err(faults(file, text, report)),
    }
}

fn cluster(root: &Node, report: &mut Report) -> Option<(Cluster, Vec<Origin>)> {
    let top = Group::read(root, "the file of a cluster", &CLUSTER_FILE, report)?;
    let Some(node) = top.get("cluster") else {
        if top.all_known {
            let help = "begin it with `cluster:`";
            report.add_help(Origin::Node(root.number), "this file has no group `cluster`", help);
        }
        return None;
    };
    let group = Group::read(node, "`cluster`", &CLUSTER, report)?;
    let at = Origin::Node(node.number);
    let etcd = group.get("etcd").map(|n| parse_list::<Endpoint>(n, report)).unwrap_or_default();
    let had_faults = !report.0.is_empty();
    if etcd.is_empty() && !had_faults {
        report.add_help(at, "`etcd` is missing", "write `etcd: [https://10.0.0.5:2379]`");
    }
    let text = |set: Option<Set<Text>>| set.map(|set| set.value.0);
    let name = |set: Option<Set<Name>>| set.map(|set| set.value.0);
    let ttl = group.parse::<Span>("ttl", report);
    if let Some(set) = &ttl
        && (!(TTL_MIN..=TTL_MAX).contains(&set.value.0) || set.value.0.subsec_nanos() > 0)
    {
        let what = format!("`ttl: {}` is out of range", set.value);
        report.add_help(set.origin, what, "write whole seconds from `2s` to `1m`");
    }
    let mut path = |key| group.parse::<Absolute>(key, report);
    let (ca, certificate, key) = (path("ca"), path("certificate"), path("key"));
    let password = path("password_file");
    let user = text(group.parse("user", report));
    check_tls(&etcd, at, (&ca, &certificate, &key), report);
    if user.is_some() != password.is_some() && !had_faults {
        report.add_help(
            at,
            "a user of etcd needs a password",
            "set both `user` and `password_file`",
        );
    }
    let services = groups(&group, "services", "service", service, report);
    if services.is_empty() && report.0.is_empty() {
        let help = "write `services:` with `- name: NAME` below it";
        report.add_help(at, "this cluster has no services", help);
    }
    check_services(&services, report);
    let (services, origins) = services.into_iter().unzip();
    let cluster = Cluster {
        etcd: etcd.into_iter().map(|set| set.value).take(MANY).collect(),
        name: name(group.parse("name", report)).unwrap_or_else(|| "headgate".into()),
        node: name(group.parse("node", report)),
        ttl: ttl.map_or(TTL, |set| set.value.0),
        ca: ca.map(|set| set.value.0),
        certificate: certificate.zip(key).map(|(c, k)| (c.value.0, k.value.0)),
        metrics: group.parse::<Admin>("metrics", report).and_then(|set| match set.value {
            Admin::At(at) => Some(at),
            Admin::Off | Admin::Usual => None,
        }),
        user: user.zip(password.map(|set| set.value.0)),
        services,
    };
    Some((cluster, origins))
}

type File = Option<Set<Absolute>>;

fn check_tls(
    etcd: &[Set<Endpoint>],
    at: Origin,
    (ca, certificate, key): (&File, &File, &File),
    report: &mut Report,
) {
    if ca.is_none()
        && let Some(set) = etcd.iter().find(|set| set.value.tls)
    {
        let what = format!("no authority is set to verify the certificate of {}", set.value);
        report.add_help(set.origin, what, "set `ca` to the file of that authority");
    }
    if certificate.is_some() != key.is_some() {
        report.add_help(
            at,
            "a certificate needs its private key",
            "set both `certificate` and `key`",
        );
    }
}

fn service(node: &Node, report: &mut Report) -> Option<(Service, Origin)> {
    let group = Group::read(node, "a service", &SERVICE, report)?;
    let at = Origin::Node(node.number);
    let before = report.0.len();
    let name = group.parse::<Name>("name", report);
    let config = group.parse::<Absolute>("config", report);
    let addresses: Vec<Set<Moving>> =
        group.get("addresses").map(|n| parse_list(n, report)).unwrap_or_default();
    let host = group.parse::<ReferHost>("host", report);
    if let Some(Set { value: ReferHost::Ip(ip), origin }) = &host {
        let what = format!("`host` is a name in DNS, and {ip} is an address");
        report.add_help(*origin, what, "write a name like `files.example.org`, or remove `host`");
    }
    let names: Vec<Set<Name>> =
        group.get("nodes").map(|n| parse_list(n, report)).unwrap_or_default();
    let mut words = |key: &str| -> Vec<String> {
        let words: Vec<Set<Text>> =
            group.get(key).map(|n| parse_list(n, report)).unwrap_or_default();
        words.into_iter().map(|set| set.value.0).collect()
    };
    let (fence, attach, detach) = (words("fence"), words("attach"), words("detach"));
    if report.0.len() == before && group.all_known {
        let missing = [
            (name.is_none(), "name", "`name: files`"),
            (config.is_none(), "config", "`config: /etc/headgate/files.yaml`"),
            (addresses.is_empty(), "addresses", "`addresses: [192.0.2.10/24@eth0]`"),
        ];
        for (_, key, help) in missing.into_iter().filter(|(is_missing, ..)| *is_missing) {
            report.add_help(at, format!("this service has no `{key}`"), format!("write {help}"));
        }
    }
    let origin = name.as_ref().map_or(at, |set| set.origin);
    let service = Service {
        name: name?.value.0,
        place: Location::Nowhere,
        config: config?.value.0,
        addresses: addresses.into_iter().map(|set| set.value).collect(),
        host: host.map(|set| set.value),
        nodes: names.into_iter().map(|set| set.value.0).collect(),
        fence,
        attach,
        detach,
    };
    Some((service, origin))
}

fn check_services(services: &[(Service, Origin)], report: &mut Report) {
    if let Some((_, at)) = services.get(MANY) {
        report.add(*at, format!("a cluster has at most {MANY} services"));
    }
    for (i, (service, at)) in services.iter().enumerate() {
        for (other, _) in &services[..i] {
            let shared = |one: &&Moving| other.addresses.iter().any(|two| two.ip == one.ip);
            if other.name == service.name {
                let what = format!("two services are named `{}`", service.name);
                report.add_help(*at, what, "give each a different name");
            } else if other.config == service.config {
                let what = format!(
                    "the services `{}` and `{}` have the same configuration",
                    other.name, service.name
                );
                report.add_help(*at, what, "give each a separate file with a separate `state`");
            } else if let Some(address) = service.addresses.iter().find(shared) {
                let what = format!(
                    "the services `{}` and `{}` have the same address, {}",
                    other.name, service.name, address.ip
                );
                report.add_help(*at, what, "give each service separate addresses");
            }
        }
        if service.detach.is_empty() != service.attach.is_empty() {
            let what = "`attach` and `detach` belong together: storage that stays attached on two nodes is damaged";
            report.add_help(*at, what, "set both");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
cluster:
  etcd: [https://10.0.0.5:2379, 'https://[2001:db8::1]']
  name: site
  node: gw1
  ttl: 3s
  ca: /etc/etcd/ca.pem
  certificate: /etc/etcd/gw1.pem
  key: /etc/etcd/gw1.key
  user: headgate
  password_file: /etc/etcd/password
  services:
    - name: files
      config: /etc/headgate/files.yaml
      addresses: [192.0.2.10/24@eth0, '2001:db8::10/64@eth0']
      nodes: [gw1, gw2]
      fence: [/usr/sbin/fence, --off]
      attach: [mount, /srv/files]
      detach: [umount, /srv/files]
    - name: scratch
      config: /etc/headgate/scratch.yaml
      addresses: 192.0.2.11/24@eth0
      host: scratch.example.org
";

    fn read(text: &str) -> Result<Cluster, String> {
        settle(Path::new("c.yaml"), text).map_err(|faults| faults.to_string())
    }

    #[test]
    fn cluster_file_accepts_every_key() {
        let cluster = read(WHOLE).unwrap();
        let shown: Vec<_> = cluster.etcd.iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, ["https://10.0.0.5:2379", "https://[2001:db8::1]:2379"]);
        assert_eq!((cluster.name.as_str(), cluster.node.as_deref()), ("site", Some("gw1")));
        assert_eq!(cluster.ttl, Duration::from_secs(3));
        assert_eq!(cluster.user, Some(("headgate".into(), "/etc/etcd/password".into())));
        assert!(cluster.certificate.is_some() && cluster.ca.is_some());
        let [files, scratch] = &cluster.services[..] else { panic!() };
        assert_eq!(files.fence, ["/usr/sbin/fence", "--off"]);
        assert_eq!(files.host, None);
        assert_eq!(scratch.host, Some(ReferHost::Name("scratch.example.org".into())));
        assert_eq!((files.nodes.len(), files.addresses.len()), (2, 2));
        assert_eq!(files.addresses[1].to_owned(), "2001:db8::10/64@eth0".parse().unwrap());
        assert_eq!(
            (scratch.addresses[0].prefix, scratch.addresses[0].device.as_str()),
            (24, "eth0")
        );
        assert!(scratch.fence.is_empty() && scratch.nodes.is_empty());
    }

    #[test]
    fn cluster_file_has_defaults() {
        let text = "cluster:\n  etcd: http://e\n  services: [{name: a, config: /a, addresses: 10.0.0.1/8@e}]\n";
        let cluster = read(text).unwrap();
        assert_eq!((cluster.name.as_str(), cluster.node, cluster.ttl), ("headgate", None, TTL));
    }

    #[test]
    fn cluster_faults_name_place_and_fix() {
        let told = |from: &str, to: &str| {
            assert!(WHOLE.contains(from), "{from}");
            read(&WHOLE.replace(from, to)).unwrap_err()
        };
        for (from, to, at, what) in [
            ("https://10.0.0.5:2379", "10.0.0.5", "c.yaml:2:10", "is not an endpoint of etcd"),
            (
                "https://10.0.0.5:2379",
                "https://10.0.0.5:0",
                "c.yaml:2:10",
                "is not an endpoint of etcd",
            ),
            ("ttl: 3s", "ttl: 1s", "c.yaml:5:8", "from `2s` to `1m`"),
            ("ttl: 3s", "ttl: 2500ms", "c.yaml:5:8", "whole seconds"),
            (
                "  ca: /etc/etcd/ca.pem\n",
                "",
                "c.yaml:2:10",
                "set `ca` to the file of that authority",
            ),
            ("  key: /etc/etcd/gw1.key\n", "", "c.yaml:2:", "set both `certificate` and `key`"),
            ("  user: headgate\n", "", "c.yaml:2:", "set both `user` and `password_file`"),
            ("name: files", "name: a/b", "c.yaml:12:13", "is not a name"),
            ("name: scratch", "name: files", "c.yaml:19:13", "two services are named `files`"),
            (
                "/etc/headgate/scratch.yaml",
                "/etc/headgate/files.yaml",
                "c.yaml:19:13",
                "have the same configuration",
            ),
            (
                "192.0.2.11/24@eth0",
                "192.0.2.10/24@eth1",
                "c.yaml:19:13",
                "have the same address, 192.0.2.10",
            ),
            (
                "192.0.2.11/24@eth0",
                "192.0.2.11",
                "c.yaml:21:18",
                "write one like `192.0.2.10/24@eth0`",
            ),
            ("192.0.2.11/24@eth0", "192.0.2.11/33@eth0", "c.yaml:21:18", "write one like"),
            ("scratch.example.org", "192.0.2.12", "c.yaml:22:13", "`host` is a name in DNS"),
            ("192.0.2.11/24@eth0", "127.0.0.1/8@lo", "c.yaml:21:18", "cannot move between nodes"),
            ("      detach: [umount, /srv/files]\n", "", "c.yaml:12:13", "belong together"),
            (
                "addresses: 192.0.2.11/24@eth0",
                "nodes: gw1",
                "c.yaml:19:7",
                "write `addresses: [192.0.2.10/24@eth0]`",
            ),
            ("fence:", "fense:", "c.yaml:16:7", "did you mean `fence`?"),
            ("cluster:\n", "shares: []\ncluster:\n", "c.yaml:1:1", "has no key `shares`"),
        ] {
            let told = told(from, to);
            assert!(told.contains(at) && told.contains(what), "{from} -> {to}: {told}");
        }
        assert!(read("{}").unwrap_err().contains("has no group `cluster`"));
        assert!(
            read("cluster: {etcd: http://e}").unwrap_err().contains("this cluster has no services")
        );
    }
}
