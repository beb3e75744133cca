//! Programs of other projects find the gateway in a network of two namespaces: Avahi, Python's zeroconf and WSDiscovery, wsdd and
//! nmap. tshark reads every packet.
//!
//! It takes root, and these programs: the tier `third` installs them. Debian's Python has both packages, or that of
//! `HEADGATE_PYTHON`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const CONFIG: &str = "shares: [{name: data, memory: true, guest: true, time_machine: {}}]\n\
    smb: {model: MacSamba}\nadmin: 127.0.0.1:9464\nrdma: off\n\
    nfs: {portmap: off}\n";

/// Sets up a gateway `gw` at 198.51.100.1 and 2001:db8:1::1, and functions that run programs at a client beside it.
const BEGIN: &str = r#"
mount -t tmpfs none /run && mount --make-rprivate / || exit 77
hostname gw || exit 77
ip link set lo up && ip link add here type veth peer name there || exit 77
unshare -n sleep 300 & client=$!
until [ "$(readlink /proc/$client/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link set there netns $client
in_client() { nsenter -t $client -n "$@"; }
in_client ip link set lo up; in_client ip addr add 198.51.100.2/24 dev there
in_client ip -6 addr add 2001:db8:1::2/64 dev there nodad; in_client ip link set there up
ip addr add 198.51.100.1/24 dev here; ip -6 addr add 2001:db8:1::1/64 dev here nodad; ip link set here up
for n in $(seq 100); do ip -6 addr show dev here tentative | grep -q inet6 || break; sleep 0.05; done
ports='udp port 5353 or udp port 5355 or udp port 3702 or tcp port 5357'
tshark -q -i here -w packets.pcapng -f "$ports" 2> tshark.log & sniffer=$!
for n in $(seq 100); do grep -q Capturing tshark.log && break; sleep 0.1; done
mkfifo ready
"$HEADGATE" serve --config gw.yaml --state state > ready 2> log & gateway=$!
read line < ready
status() { "$HEADGATE" status --json --state state; }
announced() {
    for n in $(seq 100); do status | grep -q '"name":"'$1'.local"' && return; sleep 0.1; done
    echo "not announced as $1"
}
"#;

const END: &str = r#"
kill $gateway; wait $gateway; echo "ended $?"
sleep 0.5
kill $sniffer; wait $sniffer 2>/dev/null
kill $client
true
"#;

/// Runs the script between [`BEGIN`] and [`END`] in namespaces of its own; returns what it printed, and the log. `None`: it takes
/// root and namespaces.
fn run(config: &str, script: &str) -> Option<(String, String, tempfile::TempDir)> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("gw.yaml"), config).unwrap();
    fs::write(home.path().join("find.py"), FIND).unwrap();
    let whole = format!("{BEGIN}\n{script}\n{END}");
    let mut command = Command::new("unshare");
    command.args([
        "-n",
        "-m",
        "-u",
        "--kill-child",
        "-f",
        "-p",
        "--mount-proc",
        "sh",
        "-c",
        &whole,
    ]);
    command.env("HEADGATE", env!("CARGO_BIN_EXE_headgate"));
    let python = std::env::var("HEADGATE_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    command.env("PYTHON", python);
    let done = command.current_dir(&home).output().unwrap();
    if done.status.code() == Some(77) || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root and namespaces");
        return None;
    }
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let log = fs::read_to_string(home.path().join("log")).unwrap_or_default();
    Some((told, format!("{log}\n{}", String::from_utf8_lossy(&done.stderr)), home))
}

/// Python: what zeroconf and WSDiscovery find.
const FIND: &str = r#"
import sys, time
what = sys.argv[1]
if what == "zeroconf":
    from zeroconf import Zeroconf, ServiceBrowser, IPVersion
    zc = Zeroconf(interfaces=["198.51.100.2"], ip_version=IPVersion.V4Only)
    class Listener:
        def add_service(self, zc, kind, name):
            info = zc.get_service_info(kind, name, timeout=3000)
            at = sorted(info.parsed_addresses())
            print("zeroconf", name, info.server, info.port, at, dict(info.properties), flush=True)
        def update_service(self, zc, kind, name): pass
        def remove_service(self, zc, kind, name): print("zeroconf removed", name, flush=True)
    kinds = ["_smb._tcp.local.", "_nfs._tcp.local.", "_device-info._tcp.local.", "_adisk._tcp.local."]
    browser = ServiceBrowser(zc, kinds, Listener())
    time.sleep(float(sys.argv[2]))
    zc.close()
elif what == "llmnr":
    import socket, struct
    from zeroconf import DNSIncoming
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("198.51.100.2"))
    s.settimeout(3)
    s.sendto(struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\x02gw\0\0\x01\0\x01", ("224.0.0.252", 5355))
    answers = DNSIncoming(s.recv(2000)).answers
    answers = answers() if callable(answers) else answers
    print("llmnr", answers[0].name.rstrip("."), [socket.inet_ntoa(a.address) for a in answers], flush=True)
else:
    from wsdiscovery import QName
    from wsdiscovery.discovery import ThreadedWSDiscovery
    wsd = ThreadedWSDiscovery()
    wsd.start()
    kinds = [QName("http://schemas.xmlsoap.org/ws/2006/02/devprof", "Device")]
    for service in wsd.searchServices(types=kinds, timeout=3):
        types = [t.getLocalname() for t in service.getTypes()]
        print("wsd", service.getEPR(), sorted(service.getXAddrs()), types, flush=True)
    wsd.stop()
"#;

/// Checks that tshark finds nothing wrong in what was captured, and messages of each protocol from the gateway.
fn packets_are_sound(home: &Path) {
    let file = home.join("packets.pcapng");
    let found = |filter: &str| {
        let read =
            Command::new("tshark").arg("-r").arg(&file).args(["-Y", filter]).output().unwrap();
        String::from_utf8_lossy(&read.stdout).into_owned()
    };
    assert_eq!(found("_ws.malformed or _ws.expert.severity == error or udp.checksum.bad"), "");
    for filter in [
        "mdns and ip.src == 198.51.100.1 and dns.flags.response == 1",
        "mdns and ipv6.src == 2001:db8:1::1 or mdns and ipv6.dst == ff02::fb",
        "llmnr and ip.src == 198.51.100.1 and dns.flags.response == 1",
        "udp.port == 3702 and ip.src == 198.51.100.1 and frame contains \"ProbeMatches\"",
        "http.response.code == 200 and ip.src == 198.51.100.1",
    ] {
        assert_ne!(found(filter), "", "{filter}");
    }
    // Answers to all leave with the hops that the specification says.
    assert_eq!(found("mdns and ip.src == 198.51.100.1 and ip.ttl != 255"), "");
}

fn has(told: &str, wanted: &str, log: &str) {
    assert!(told.contains(wanted), "{wanted:?} in\n{told}\n{log}");
}

#[test]
fn programs_of_others_find_the_gateway_and_its_name() {
    let script = r#"
announced gw
echo "STATUS $(status)"
in_client "$PYTHON" find.py zeroconf 2
in_client "$PYTHON" find.py wsd
printf '[server]\nhost-name=peer\n' > peer.conf
in_client sh -c 'mkdir -p /run/dbus; dbus-daemon --system --fork
  avahi-daemon -D --no-drop-root --no-chroot -f $PWD/peer.conf; sleep 1
  timeout 20 avahi-browse -trp _smb._tcp; timeout 20 avahi-browse -trp _nfs._tcp
  timeout 20 avahi-resolve -n gw.local; timeout 20 avahi-resolve -a 198.51.100.1; avahi-daemon -k'
in_client "$PYTHON" find.py llmnr
in_client timeout 60 nmap -n -e there --script broadcast-wsdd-discover 2>&1
in_client timeout 15 wsdd -v --discovery --no-host --interface there 2>&1
"#;
    let Some((told, log, home)) = run(CONFIG, script) else { return };
    for kind in ["_smb", "_nfs", "_device-info", "_adisk"] {
        let name = format!("gw.{kind}._tcp.local.");
        has(&told, &format!("zeroconf {name} gw.local."), &log);
    }
    has(&told, "gw.local. 445 ['198.51.100.1'", &log);
    has(&told, "b'path': b'/'", &log);
    has(&told, "b'model': b'MacSamba'", &log);
    has(&told, "b'dk0': b'adVN=data,adVF=0x82'", &log);
    has(&told, "['Device', 'Computer']", &log);
    has(&told, ":5357/", &log);
    has(&told, ";gw;Microsoft Windows Network;local;gw.local;198.51.100.1;445;", &log);
    has(&told, ";gw;Network File System;local;gw.local;198.51.100.1;2049;\"path=/\"", &log);
    has(&told, "gw.local\t198.51.100.1", &log);
    has(&told, "198.51.100.1\tgw.local", &log);
    has(&told, "broadcast-wsdd-discover", &log);
    has(&told, "Type: Device pub:Computer", &log);
    has(&told, "discovered GW in Workgroup:WORKGROUP on 198.51.100.1%there", &log);
    has(&told, "discovered GW in Workgroup:WORKGROUP on [fe80:", &log);
    has(&told, "llmnr gw ['198.51.100.1']", &log);
    has(&told, "ended 0", &log);
    let status = told.lines().find_map(|line| line.strip_prefix("STATUS ")).unwrap();
    let status: Value = serde_json::from_str(status).unwrap();
    let link = &status["announced"][0];
    assert_eq!(
        (link["link"].as_str(), link["name"].as_str()),
        (Some("here"), Some("gw.local")),
        "{status}"
    );
    assert_eq!(link["by"], serde_json::json!(["mdns", "llmnr", "wsd"]), "{status}");
    packets_are_sound(home.path());
}

#[test]
fn what_goes_is_withdrawn_and_what_comes_is_announced() {
    let script = r#"
announced gw
in_client "$PYTHON" find.py zeroconf 9 & finder=$!
sleep 2
sed -i 's/guest: true/guest: true, protocols: smb/' gw.yaml; kill -HUP $gateway; sleep 2
ip addr add 198.51.100.77/24 dev here; sleep 2
sed -i '$ a discovery: off' gw.yaml; kill -HUP $gateway; sleep 1
wait $finder
echo "STATUS $(status)"
"#;
    let Some((told, log, _home)) = run(CONFIG, script) else { return };
    has(&told, "zeroconf removed gw._nfs._tcp.local.", &log);
    has(&told, "zeroconf removed gw._smb._tcp.local.", &log);
    let off = told.split_once("STATUS ").unwrap().1;
    has(off, "\"announced\":[]", &log);
}

#[test]
fn ports_of_other_programs_are_left_to_them() {
    let script = r#"
kill $gateway; wait $gateway
"$PYTHON" -c '
import socket, time
t = socket.create_server(("198.51.100.1", 5357)); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("", 5355))
print("held", flush=True); time.sleep(60)' > held & holder=$!
for n in $(seq 100); do grep -q held held && break; sleep 0.05; done
"$HEADGATE" check --config gw.yaml --state state | sed 's/^/CHECK /'
"$HEADGATE" serve --config gw.yaml --state state > ready 2>> log & gateway=$!
read line < ready; echo "$line"
announced gw
echo "STATUS $(status)"
kill $holder
"#;
    let Some((told, log, _home)) = run(CONFIG, script) else { return };
    has(&told, "headgate ready", &log);
    for port in ["UDP port 5355", "TCP port 5357"] {
        has(told.split_once("STATUS ").unwrap().1, port, &log);
        has(&log, port, &log);
        assert!(
            told.lines().any(|line| line.starts_with("CHECK ") && line.contains(port)),
            "{port}: {told}"
        );
    }
}

#[test]
fn a_name_of_another_host_gets_a_number() {
    let script = r#"
kill $gateway; wait $gateway
in_client "$PYTHON" -c '
import socket, time
from zeroconf import Zeroconf, ServiceInfo
zc = Zeroconf(interfaces=["198.51.100.2"])
at = [socket.inet_aton("198.51.100.2")]
zc.register_service(ServiceInfo("_smb._tcp.local.", "other._smb._tcp.local.", addresses=at, port=445, server="gw.local."))
print("held", flush=True); time.sleep(60)' > held & holder=$!
for n in $(seq 100); do grep -q held held && break; sleep 0.05; done
"$HEADGATE" serve --config gw.yaml --state state > ready 2>> log & gateway=$!
read line < ready
announced gw-2
echo "STATUS $(status)"
kill $holder
"#;
    let Some((told, log, _home)) = run(CONFIG, script) else { return };
    has(told.split_once("STATUS ").unwrap().1, "gw-2.local", &log);
}

#[test]
fn a_network_without_multicast_is_no_reason_not_to_serve() {
    let script = r#"
kill $gateway; wait $gateway
ip link set here multicast off
"$HEADGATE" serve --config gw.yaml --state state > ready 2>> log & gateway=$!
read line < ready; echo "$line"
"#;
    let Some((told, log, _home)) = run(CONFIG, script) else { return };
    has(&told, "headgate ready", &log);
    has(&told, "ended 0", &log);
}
