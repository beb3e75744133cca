//! Tests of a gateway of a cluster without the other parts, and of rejected configurations.

use std::fs;
use std::process::Command;

use crate::{headgate, until};

/// Only this process is killed, as by the kernel when memory is short.
#[tokio::test]
async fn a_gateway_ends_with_the_process_that_may_let_it_serve() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    for folder in ["share", "state"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    fs::write(
        dir.path().join("files.yaml"),
        format!(
            "shares: [{{name: data, path: {here}/share, squash: none}}]\nstate: {here}/state\nadmin: off\n\
             bind: 127.0.0.1\nnfs: {{port: 0, portmap: off}}\nrdma: off\n"
        ),
    )
    .unwrap();
    let line = format!(
        "mkfifo {here}/lease; exec 3<>{here}/lease; echo {} >&3; HEADGATE_PARENT=$$ HEADGATE_EPOCH=7 {} serve \
         --config {here}/files.yaml <&3 >{here}/out 2>{here}/err & echo $! >{here}/pid; wait",
        i64::MAX,
        headgate()
    );
    let mut parent = Command::new("sh").args(["-c", &line]).spawn().unwrap();
    let err = || fs::read_to_string(dir.path().join("err")).unwrap_or_default();
    until("it is ready", || {
        let out = fs::read_to_string(dir.path().join("out")).unwrap_or_default();
        assert!(parent.try_wait().unwrap().is_none(), "{out}{}", err());
        out.contains("headgate ready")
    })
    .await;
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(lives());
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the gateway has ended", || !lives()).await;
    // It does not start without the runner.
    let output = Command::new(headgate())
        .args(["serve", "--config"])
        .arg(dir.path().join("files.yaml"))
        .envs([("HEADGATE_PARENT", "1"), ("HEADGATE_EPOCH", "8")])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("`headgate cluster run` has ended"), "{why}");
}

#[tokio::test]
async fn what_cannot_be_served_safely_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    fs::create_dir(dir.path().join("share")).unwrap();
    let service = dir.path().join("files.yaml");
    let cluster = dir.path().join("cluster.yaml");
    let told = |service_text: &str, fence: &str| {
        fs::write(&service, service_text).unwrap();
        let text = format!(
            "cluster:\n  etcd: http://127.0.0.1:1\n  services:\n  - name: files\n    config: {here}/files.yaml\n    \
             addresses: 192.0.2.10/24@eth0\n{fence}"
        );
        fs::write(&cluster, text).unwrap();
        let output = Command::new(headgate())
            .args(["cluster", "run", "--config"])
            .arg(&cluster)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let share = format!("shares: [{{name: data, path: {here}/share}}]\n");
    let why = told(&format!("{share}state: {here}/state\n"), "");
    assert!(why.contains("cluster.yaml:4:11") && why.contains("set `fence` to a program"), "{why}");
    let why = told(&share, "    fence: /bin/true\n");
    assert!(why.contains("cluster.yaml:4:11") && why.contains("has no `state`"), "{why}");
    let why = told("shares: 1\n", "    fence: /bin/true\n");
    assert!(why.contains("files.yaml:1:9"), "{why}");
    // The file of a cluster is not a gateway's configuration.
    let output =
        Command::new(headgate()).args(["check", "--config"]).arg(&cluster).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("this file configures a cluster"), "{why}");
}
