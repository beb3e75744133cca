//! Tests of a gateway whose lease ended while it was stopped, and that continues before another process can end it.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iobuf::Buf;

use crate::late::Late;
use crate::load::{block, connect};
use crate::world::{Setup, World};
use crate::{PATIENCE, headgate, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_wakes_after_its_time_answers_and_writes_nothing() {
    let world = World::of_both(Setup { is_storage_fenced: true, ..Setup::default() }).await;
    let late = Late::stopped(&world).await;
    until("another node serves", || world.has_address(1)).await;
    for name in ["nfs", "smb"] {
        let began = Instant::now();
        let written = async {
            let volume = connect(&late.nfs).await?;
            let file = volume.find(name).await?;
            volume.write(&file, 0, vec![Buf::from(block("after", 3))]).await?;
            volume.commit(&file).await
        };
        written.await.unwrap_or_else(|e| panic!("{e} after {:?}", began.elapsed()));
    }
    late.wakes(&world).await;
}

/// Starts a gateway whose runner is this test, with a lease of this many seconds.
pub fn start(dir: &std::path::Path, seconds: u64) -> Child {
    start_as(dir, seconds, "7", "c", "files")
}

/// Starts a gateway of this service in this epoch.
pub fn start_as(
    dir: &std::path::Path,
    seconds: u64,
    epoch: &str,
    cluster: &str,
    service: &str,
) -> Child {
    let here = dir.display();
    fs::create_dir_all(dir.join("share")).unwrap();
    fs::write(
        dir.join("files.yaml"),
        format!(
            "shares: [{{name: data, path: {here}/share, squash: none}}]\nstate: {here}/state\nadmin: off\n\
             bind: 127.0.0.1\nnfs: {{port: 0, portmap: off}}\nrdma: off\n"
        ),
    )
    .unwrap();
    let mut gateway = Command::new(headgate())
        .args(["serve", "--config"])
        .arg(dir.join("files.yaml"))
        .env("HEADGATE_PARENT", std::process::id().to_string())
        .env("HEADGATE_EPOCH", epoch)
        .env("HEADGATE_CLUSTER", cluster)
        .env("HEADGATE_SERVICE", service)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    renew(&mut gateway, seconds);
    gateway
}

/// Renews the lease for this many seconds from now.
fn renew(gateway: &mut Child, seconds: u64) {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let now: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let until = Duration::from_secs_f64(now) + Duration::from_secs(seconds);
    writeln!(gateway.stdin.as_mut().unwrap(), "{}", until.as_nanos()).unwrap();
}

pub fn ready(gateway: &mut Child) {
    let mut line = String::new();
    let out = gateway.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    assert!(line.starts_with("headgate ready"), "{line}");
}

/// Waits for its end through SIGKILL and returns the time that took.
pub fn killed(mut gateway: Child) -> Duration {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = gateway.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "it serves on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    began.elapsed()
}

#[test]
fn a_gateway_that_is_not_renewed_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut gateway = start(dir.path(), 2);
    ready(&mut gateway);
    for _ in 0..3 {
        renew(&mut gateway, 3);
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(gateway.try_wait().unwrap().is_none(), "it was renewed");
    let took = killed(gateway);
    assert!(took > Duration::from_millis(1500), "{took:?}");
}

#[test]
fn a_gateway_whose_runner_closes_its_input_or_writes_nonsense_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut gateway = start(dir.path(), 1000);
    ready(&mut gateway);
    drop(gateway.stdin.take());
    killed(gateway);
    let mut gateway = start(dir.path(), 1000);
    ready(&mut gateway);
    writeln!(gateway.stdin.as_mut().unwrap(), "soon").unwrap();
    killed(gateway);
}
