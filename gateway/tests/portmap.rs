//! Tests of `nfs: {portmap: auto}`, the default: which program answers on port 111, according to queries by the host's
//! programs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

const CONFIG: &str = "shares: [{name: data, memory: true}]\nbind: 127.0.0.1\nadmin: off\nrdma: off\nnfs: {port: 2049}\n";

/// Starts the gateway after `before`, queries port 111, stops the gateway and queries again; returns the output. Runs in
/// private namespaces with separate ports and /run. `None` without root or namespaces.
fn asked(by: &str, before: &str) -> Option<(String, String)> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("gw.yaml"), CONFIG).unwrap();
    let script = format!(
        "ip link set lo up && mount -t tmpfs none /run || exit 77\n\
         {before}\n\
         mkfifo ready\n\
         {by} \"$0\" serve --config gw.yaml --state state > ready 2> log &\n\
         gateway=$!\n\
         read line < ready && echo \"$line\"\n\
         \"$0\" check --json --config gw.yaml --state state\n\
         rpcinfo -p 127.0.0.1; rpcinfo -T udp 127.0.0.1 nfs_acl; rpcinfo -T tcp 127.0.0.1 nfs 3\n\
         echo versionless; rpcinfo -T tcp 127.0.0.1 100003; rpcinfo -T udp 127.0.0.1 mountd\n\
         echo by version 4; rpcinfo 127.0.0.1; rpcinfo -m 127.0.0.1; rpcinfo -l 127.0.0.1 mountd 3; echo end\n\
         kill $gateway; wait $gateway\n\
         echo stopped; rpcinfo -p 127.0.0.1\n\
         kill $other 2>/dev/null; true\n"
    );
    let program = env!("CARGO_BIN_EXE_headgate");
    let mut command = Command::new("unshare");
    command.args(["-n", "-m", "--kill-child", "-f", "-p", "sh", "-c", &script, program]);
    let o = command.current_dir(&home).output().ok()?;
    if o.status.code() == Some(77) || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root, namespaces and rpcinfo");
        return None;
    }
    let told = String::from_utf8_lossy(&o.stdout).into_owned();
    let log = fs::read_to_string(home.path().join("log")).unwrap_or_default();
    Some((told, format!("{log}\n{}", String::from_utf8_lossy(&o.stderr))))
}

/// Returns the programs that port 111 lists, before and after the stop of the gateway.
fn programs(told: &str) -> [Vec<&str>; 2] {
    let (while_served, after) = told.split_once("\nstopped\n").unwrap();
    [while_served, after]
        .map(|text| {
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            rows.filter(|row| row.len() >= 4 && row[0].parse::<u32>().is_ok())
                .map(|row| row[0].to_owned())
                .collect::<Vec<_>>()
        })
        .map(|rows| rows.into_iter().map(|row| &*row.leak()).collect())
}

#[test]
fn without_rpcbind_the_gateway_answers_itself() {
    let Some((told, log)) = asked("", "") else { return };
    assert!(told.contains("headgate ready"), "{told}\n{log}");
    let [served, after] = programs(&told);
    for program in ["100000", "100003", "100005", "100021"] {
        assert!(served.contains(&program), "{program} in\n{told}\n{log}");
    }
    assert!(told.contains("program 100003 version 3 ready and waiting"), "{told}\n{log}");
    assert!(after.is_empty(), "{told}");
    let (versionless, by_four) =
        told.split_once("versionless").unwrap().1.split_once("by version 4").unwrap();
    for line in [
        "program 100003 version 3 ready",
        "program 100003 version 4 ready",
        "program 100005 version 1 ready",
    ] {
        assert!(versionless.contains(line), "{line} in\n{told}\n{log}");
    }
    let by_four = by_four.split_once("\nend").unwrap().0;
    for line in ["127.0.0.1.8.1", "headgate", "PORTMAP (version 2) statistics", "inet/tcp/cots_ord"]
    {
        assert!(by_four.contains(line), "{line} in\n{told}\n{log}");
    }
    assert!(log.contains("the gateway answers there itself"), "{log}");
    assert!(told.contains(r#""portmap":{"asked":"auto","is":"own""#), "{told}");
}

#[test]
fn a_running_rpcbind_is_told_and_told_again_at_the_end() {
    let rpcbind = "rpcbind -f -w & other=$!\nuntil [ -S /run/rpcbind.sock ]; do kill -0 $other || exit 1; done";
    let Some((told, log)) = asked("", rpcbind) else { return };
    let [served, after] = programs(&told);
    assert!(served.contains(&"100003") && served.contains(&"100005"), "{told}\n{log}");
    assert!(after.contains(&"100000") && !after.contains(&"100003"), "{told}\n{log}");
    assert!(log.contains("this host's rpcbind answers there"), "{log}");
    assert!(told.contains(r#""portmap":{"asked":"auto","is":"register""#), "{told}");
}

#[test]
fn where_port_111_may_not_be_had_the_rest_is_served() {
    let as_nobody =
        "setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-net_bind_service";
    let Some((told, log)) = asked(as_nobody, "chmod 777 .") else { return };
    assert!(told.contains("headgate ready nfs=127.0.0.1:2049"), "{told}\n{log}");
    assert!(programs(&told)[0].is_empty(), "{told}");
    assert!(log.contains("ports below 1024 need root or CAP_NET_BIND_SERVICE"), "{log}");
}
