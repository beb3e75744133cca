//! Tests of networks to which the host is attached while the gateway runs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

const CONFIG: &str = "shares: [{name: data, memory: true}]\nadmin: off\nrdma: off\nnfs: {port: 2049}\nsmb: {port: 4455}\n";

/// Calls the gateway from a client in a separate namespace until it is served, before and after the gateway's host gets an
/// address in the client's network. Prints how many milliseconds that took.
const SCRIPT: &str = r#"
ip link set lo up && mount -t tmpfs none /run || exit 77
ip link add here type veth peer name there || exit 77
mkfifo ready
unshare -n sleep 120 & client=$!
until [ "$(readlink /proc/$client/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link set there netns $client
in_client() { nsenter -t $client -n "$@"; }
in_client ip addr add 198.51.100.2/24 dev there
in_client ip link set there up
ip link set here up
"$0" serve --config gw.yaml --state state > ready 2> log &
gateway=$!
read line < ready && echo "$line"
sleep 0.5
ip addr add 198.51.100.1/24 dev here
began=$(date +%s%N)
for n in $(seq 200); do
    if in_client rpcinfo -T tcp 198.51.100.1 nfs 3 >/dev/null 2>&1; then
        echo "tcp $(( ($(date +%s%N) - began) / 1000000 ))"
        break
    fi
    sleep 0.02
done
in_client rpcinfo -T udp 198.51.100.1 portmapper 2 && echo "udp"
kill $gateway; wait $gateway
kill $client
true
"#;

#[test]
fn clients_of_new_networks_are_served_soon() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("gw.yaml"), CONFIG).unwrap();
    let mut command = Command::new("unshare");
    let program = env!("CARGO_BIN_EXE_headgate");
    command.args([
        "-n",
        "-m",
        "--kill-child",
        "-f",
        "-p",
        "--mount-proc",
        "sh",
        "-c",
        SCRIPT,
        program,
    ]);
    let done = command.current_dir(&home).output();
    let is_root = rustix::process::geteuid().is_root();
    let Some(done) = done.ok().filter(|done| is_root && done.status.code() != Some(77)) else {
        println!("skipped: it takes root, namespaces and rpcinfo");
        return;
    };
    let told = String::from_utf8_lossy(&done.stdout);
    let log = fs::read_to_string(home.path().join("log")).unwrap_or_default();
    let all = format!("{told}\n{log}\n{}", String::from_utf8_lossy(&done.stderr));
    let waited =
        told.lines().find_map(|line| line.strip_prefix("tcp ")).unwrap_or_else(|| panic!("{all}"));
    println!("served after {waited} ms");
    // Half a second on an idle machine; without notifications up to 30 s.
    assert!(waited.parse::<u32>().unwrap() < 5000, "{all}");
    assert!(told.lines().any(|line| line == "udp"), "{all}");
}
