//! Tests of the admin address of a running daemon.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use config::{Admin, Settings, Share, Source};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn settings(state: &std::path::Path) -> Settings {
    let share = Share::new("data", Source::Memory);
    Settings {
        shares: vec![share],
        bind: vec![[127, 0, 0, 1].into()],
        nfs_port: 0,
        nfs_rdma_port: 0,
        admin: Admin::At(([127, 0, 0, 1], 0).into()),
        state: state.to_owned(),
        ..Settings::default()
    }
}

/// A NULL call of NFS 3 with its record mark (RFC 5531).
const NULL_CALL: [u8; 44] = [
    0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[tokio::test]
async fn a_connection_is_seen_while_it_lives_and_counted_afterwards() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let admin = running.admin.unwrap();
    let look = || async {
        let text = fetch(admin, "/status").await.unwrap();
        serde_json::from_str::<Snapshot>(&text).unwrap()
    };
    assert_eq!(fetch(admin, "/healthz").await.unwrap(), "ok\n");
    assert_eq!(fetch(admin, "/readyz").await.unwrap(), "ready\n");
    assert!(fetch(admin, "/nowhere").await.unwrap_err().contains("404"));

    let mut client = tokio::net::TcpStream::connect(running.nfs[0]).await.unwrap();
    client.write_all(&NULL_CALL).await.unwrap();
    let mut answer = [0; 28];
    client.read_exact(&mut answer).await.unwrap();
    let seen = look().await;
    let [one] = &seen.connections[..] else { panic!("{seen:?}") };
    assert_eq!(one.peer, client.local_addr().unwrap().to_string());
    assert_eq!((one.transport.as_str(), one.moved.requests), ("tcp", 1));
    let port = running.nfs_rdma[0].port().to_string();
    assert!(one.why_not.as_ref().unwrap().text.contains(&port));

    drop(client);
    let gone = async {
        while !look().await.connections.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    assert_eq!(look().await.moved["nfs/tcp"].requests, 1);
    let metrics = fetch(admin, "/metrics").await.unwrap();
    let line = "headgate_requests_total{protocol=\"nfs\",transport=\"tcp\"} 1";
    assert!(metrics.lines().any(|l| l == line), "{metrics}");
}

#[tokio::test]
async fn an_address_that_was_asked_for_and_is_taken_stops_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let state = tempfile::tempdir().unwrap();
    let admin = Admin::At(taken.local_addr().unwrap());
    let refused = gateway::serve::start(Settings { admin, ..settings(state.path()) }).await;
    let why = refused.unwrap_err();
    assert!(why.contains("--admin"), "{why}");
}

fn headgate(args: &[&str]) -> String {
    let run =
        std::process::Command::new(env!("CARGO_BIN_EXE_headgate")).args(args).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_daemon_in_lines_and_on_a_terminal() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let admin = running.admin.unwrap().to_string();
    let mut client = tokio::net::TcpStream::connect(running.nfs[0]).await.unwrap();
    client.write_all(&NULL_CALL).await.unwrap();
    client.read_exact(&mut [0; 28]).await.unwrap();
    let at = admin.clone();
    let look = move || headgate(&["top", "--admin", &at, "--count", "2", "--interval", "100ms"]);
    let lines = tokio::task::spawn_blocking(look).await.unwrap();
    assert_eq!(lines.matches("serving for").count(), 2, "{lines}");
    assert!(lines.contains(": 1 connections"), "{lines}");

    // `script` provides a separate terminal.
    let at = admin.clone();
    let on_terminal = move || {
        let binary = env!("CARGO_BIN_EXE_headgate");
        let command =
            format!("stty rows 24 cols 100; {binary} top --admin {at} --interval 100ms --count 3");
        let script = std::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm")
            .output()
            .unwrap();
        (script.status.success(), String::from_utf8_lossy(&script.stdout).into_owned())
    };
    let (fine, seen) = tokio::task::spawn_blocking(on_terminal).await.unwrap();
    assert!(fine, "{seen}");
    // The program enters and leaves the alternate screen.
    assert!(seen.contains("\x1b[?1049h") && seen.contains("\x1b[?1049l"), "{seen:?}");
    assert!(seen.contains("mounted-tcp"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_whole_and_shows_nothing_to_a_page_of_somebody_else() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let admin = running.admin.unwrap();
    let page = fetch(admin, "/").await.unwrap();
    for part in ["page.css", "page.js"] {
        assert!(page.contains(part));
        fetch(admin, &format!("/{part}")).await.unwrap();
    }
    let whole = with_host(admin, "/", "localhost").await;
    assert!(whole.contains("content-security-policy: default-src 'none'; script-src 'self'"));
    for path in ["/", "/page.js", "/status", "/history", "/metrics"] {
        let answer = with_host(admin, path, "evil.example").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        assert!(!answer.contains("connections"), "{path}: {answer}");
        assert!(
            with_host(admin, path, &admin.to_string()).await.starts_with("HTTP/1.1 200"),
            "{path}"
        );
    }
    assert!(with_host(admin, "/healthz", "evil.example").await.starts_with("HTTP/1.1 200"));
}

async fn with_host(at: std::net::SocketAddr, path: &str, host: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Sends incomplete requests: each connection holds a descriptor and sends no more.
#[tokio::test(flavor = "multi_thread")]
async fn half_requests_keep_nobody_from_the_admin_address_and_end() {
    use gateway::admin::listener::{CONNECTIONS_OF_ADDRESS_MAX, HEADER_SECONDS};
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let admin = running.admin.unwrap();
    let begun = std::time::Instant::now();
    let mut halves = Vec::new();
    for _ in 0..3 * CONNECTIONS_OF_ADDRESS_MAX {
        let mut half = tokio::net::TcpStream::connect(admin).await.unwrap();
        half.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ").await.unwrap();
        halves.push(half);
        assert_eq!(fetch(admin, "/readyz").await.unwrap(), "ready\n");
    }
    // All end without an answer: the older ones were evicted, the others timed out.
    for half in &mut halves {
        let mut rest = Vec::new();
        let limit = Duration::from_secs(HEADER_SECONDS + 20);
        let ended = tokio::time::timeout(limit, half.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a half request is held for more than {:?}", begun.elapsed());
    }
    let met = rdma_transport::count::limits_met();
    let times = |name: &str| met.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    assert!(times("admin-connections") >= 2 * CONNECTIONS_OF_ADDRESS_MAX as u64, "{met:?}");
    assert!(times("admin-header") >= 1, "{met:?}");
}

/// Returns the answer of the admin address to another user of this host, who uses only tools that every host has.
fn ask_as(user: u32, at: std::net::SocketAddr, path: &str) -> String {
    use std::os::unix::process::CommandExt;
    let (ip, port) = (at.ip(), at.port());
    let request = format!("GET {path} HTTP/1.1\\r\\nhost: {at}\\r\\nconnection: close\\r\\n\\r\\n");
    let script = format!("exec 3<>/dev/tcp/{ip}/{port}; printf '{request}' >&3; cat <&3");
    let mut bash = std::process::Command::new("bash");
    let asked = bash.args(["-c", &script]).uid(user).gid(user).current_dir("/").output().unwrap();
    String::from_utf8_lossy(&asked.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_this_host_is_told_that_the_gateway_lives_and_nothing_more() {
    let own = rustix::process::geteuid();
    // Only root can send as another user; an ordinary user already is one.
    let stranger = if own.is_root() { 65_534 } else { own.as_raw() };
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let at = running.admin.unwrap();
    let ask = async |path: &'static str| {
        tokio::task::spawn_blocking(move || ask_as(stranger, at, path)).await.unwrap()
    };
    for path in ["/livez", "/healthz", "/readyz"] {
        let answer = ask(path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    for path in ["/", "/page.js", "/status", "/history", "/metrics"] {
        let answer = ask(path).await;
        let expected = if own.is_root() { "HTTP/1.1 403" } else { "HTTP/1.1 200" };
        assert!(answer.starts_with(expected), "{path}: {answer}");
        if own.is_root() {
            assert!(answer.contains("admin_clients"), "it names the remedy: {answer}");
            assert!(ask_as(0, at, path).starts_with("HTTP/1.1 200"), "{path}: root");
        }
    }
    let admin_clients = vec!["127.0.0.0/8".parse().unwrap()];
    let other = tempfile::tempdir().unwrap();
    let open = gateway::serve::start(Settings { admin_clients, ..settings(other.path()) }).await;
    let open = open.unwrap();
    let at = open.admin.unwrap();
    let answer = tokio::task::spawn_blocking(move || ask_as(stranger, at, "/status")).await;
    assert!(answer.unwrap().starts_with("HTTP/1.1 200"), "the configuration says so");
}
