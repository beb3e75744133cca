//! Tests of the actions on the status page through real HTTP requests: valid ones, and each kind of invalid one.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::connect::{self, Local};
use client::smb::{Options, Smb, User};
use client::{NoCallbacks, Result};
use serde_json::{Value, json};

mod common;

const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "correct horse";
/// A line of the file next to the shares, which must remain.
const COMMENT: &str = "# why this share: ask the archive\n";

struct Daemon {
    child: Child,
    nfs: SocketAddr,
    smb: SocketAddr,
    admin: SocketAddr,
    home: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        Self::start_with("")
    }

    /// Starts the daemon with these additional lines.
    fn start_with(more: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        for folder in ["data", "more"] {
            fs::create_dir(path(folder)).unwrap();
            // Every user must be able to write there.
            fs::set_permissions(path(folder), Permissions::from_mode(0o777)).unwrap();
        }
        fs::write(path("password"), PASSWORD).unwrap();
        fs::set_permissions(path("password"), Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "shares:\n  - name: data\n    path: {}\n    {COMMENT}bind: 0.0.0.0\ndiscovery: off\n\
             admin: 0.0.0.0:0\nadmin_clients: 0.0.0.0/0\n\
             nfs: {{port: 0, rdma_port: 0, portmap: off}}\nsmb: {{port: 0, direct_port: 0}}\n\
             users: [{{name: alice, password_file: {}, uid: 0, gid: 0, groups: []}}]\n{more}",
            path("data").display(),
            path("password").display()
        );
        fs::write(path("gw.yaml"), text).unwrap();
        fs::set_permissions(path("gw.yaml"), Permissions::from_mode(0o640)).unwrap();
        Self::run(home, &["--config", "gw.yaml"])
    }

    fn run(home: tempfile::TempDir, by: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(["serve", "--state", "state"])
            .args(by)
            .current_dir(&home)
            .stdout(Stdio::piped())
            .stderr(File::create(home.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let [nfs, smb, admin] = common::listening(&mut child, home.path());
        Self { child, nfs, smb, admin, home }
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("gw.yaml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap()
    }

    fn order(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(args).arg("--state").arg(self.home.path().join("state")).output().unwrap()
    }

    fn token(&self) -> String {
        let given = self.order(&["admin-token"]);
        assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
        String::from_utf8(given.stdout).unwrap().trim().to_owned()
    }

    /// Returns a browser session that has logged in.
    fn page(&self) -> Page {
        let mut page = Page::new(self.admin);
        let answer = page.ask("/login", json!({"token": self.token()}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        page.session = answer.json()["session"].as_str().unwrap().to_owned();
        let cookie = answer.header("set-cookie");
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        page.cookie = cookie.split(';').next().unwrap().to_owned();
        page
    }

    fn refusals(&self, rule: &str) -> u64 {
        let metrics = Page::new(self.admin).send("GET", "/metrics", "").text;
        let line = format!("headgate_refusals_total{{rule=\"{rule}\"}} ");
        let found = metrics.lines().find_map(|l| l.strip_prefix(&line));
        found.unwrap_or_else(|| panic!("{line} in\n{metrics}")).parse().unwrap()
    }

    async fn smb(&self, share: &str, name: &str, password: &str) -> Result<Smb> {
        let (name, password) = (name.to_owned(), password.to_owned());
        let user = User { name, domain: String::new(), password };
        let (share, options) = (("127.0.0.1", share), Options::default());
        Smb::connect(self.smb, false, share, &user, options, &Local::default()).await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Headers and cookie of a browser.
#[derive(Clone)]
struct Page {
    at: SocketAddr,
    cookie: String,
    session: String,
    /// Replaced headers; an empty value omits the header.
    headers: Vec<(&'static str, String)>,
}

struct Answer {
    status: u16,
    head: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    fn header(&self, name: &str) -> String {
        let found = self.head.lines().find_map(|l| l.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.head)).to_owned()
    }
}

impl Page {
    fn new(at: SocketAddr) -> Self {
        Self { at, cookie: String::new(), session: String::new(), headers: Vec::new() }
    }

    /// Returns the same session with another header.
    fn but(&self, name: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name, value.to_owned()));
        other
    }

    fn ask(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &body.to_string())
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut headers = vec![
            ("host", self.at.to_string()),
            ("origin", format!("http://{}", self.at)),
            ("content-type", "application/json".to_owned()),
            ("sec-fetch-site", "same-origin".to_owned()),
            ("cookie", self.cookie.clone()),
            ("x-headgate-session", self.session.clone()),
            ("content-length", body.len().to_string()),
            ("connection", "close".to_owned()),
        ];
        for (name, value) in &self.headers {
            headers.retain(|(known, _)| known != name);
            headers.push((name, value.clone()));
        }
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("\r\n{body}");
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.replace("\r\n", "\n"), text: text.to_owned() }
    }
}

/// Returns the body of a valid action, whose effect is visible in the file.
fn share(daemon: &Daemon, name: &str) -> Value {
    json!({"name": name, "path": daemon.home.path().join("more")})
}

#[track_caller]
fn is_refused(daemon: &Daemon, page: &Page, path: &str, body: Value, rule: &str) {
    let (before, text) = (daemon.refusals(rule), daemon.text());
    let answer = page.ask(path, body);
    assert_eq!(answer.status, 403, "{rule}: {}", answer.text);
    assert!(answer.text.contains(rule) || answer.text.contains("127.0.0.1"), "{}", answer.text);
    assert_eq!(daemon.refusals(rule), before + 1, "{rule} is counted");
    assert_eq!(daemon.text(), text, "nothing is done");
    assert!(daemon.log().contains(&format!("rule=\"{rule}\"")), "{rule} is logged");
}

#[test]
fn an_action_without_a_right_by_another_page_or_by_an_old_token_is_refused() {
    let daemon = Daemon::start();
    let page = daemon.page();
    let act = |page: &Page, rule: &str| {
        is_refused(&daemon, page, "/action/share", share(&daemon, "more"), rule)
    };
    let nobody = Page::new(daemon.admin);
    act(&nobody, "admin-session");
    act(&page.but("cookie", ""), "admin-session");
    act(&page.but("x-headgate-session", ""), "admin-session");
    act(&page.but("x-headgate-session", page.cookie.split_once('=').unwrap().1), "admin-session");
    let other = daemon.page();
    act(&page.but("cookie", &other.cookie), "admin-session");
    // A page of another port, of another site, of no site; a form; and a request that the browser marks as cross-site.
    act(&page.but("origin", "http://127.0.0.1:1"), "admin-origin");
    act(&page.but("origin", "http://evil.example"), "admin-origin");
    act(&page.but("origin", "null"), "admin-origin");
    act(&page.but("origin", ""), "admin-origin");
    act(&page.but("sec-fetch-site", "same-site"), "admin-origin");
    act(&page.but("content-type", "application/x-www-form-urlencoded"), "admin-origin");
    // A name that resolves to this address is rejected for actions as for readers.
    let rebound = page.but("host", "evil.example").but("origin", "http://evil.example");
    assert_eq!(rebound.ask("/action/share", share(&daemon, "more")).status, 403);

    let login = |token: &str, rule: &str| {
        is_refused(&daemon, &nobody, "/login", json!({"token": token}), rule)
    };
    login("", "admin-token");
    login(&"0".repeat(64), "admin-token");
    let token = daemon.token();
    assert_eq!(nobody.ask("/login", json!({"token": token})).status, 200);
    login(&token, "admin-token");

    for path in ["/action/look", "/action/close", "/action/disconnect", "/action/user", "/logout"] {
        is_refused(&daemon, &nobody, path, json!({"what": "1"}), "admin-session");
        assert_eq!(page.send("GET", path, "").status, 405, "{path}");
    }
    // Valid again, which shows that each request above was rejected for its fault; and invalid after the logout.
    assert_eq!(page.ask("/action/look", json!({})).status, 200);
    assert_eq!(page.ask("/logout", json!({})).status, 204);
    act(&page, "admin-session");
    assert_eq!(other.ask("/action/look", json!({})).status, 200, "the other session goes on");

    // Acts from an address other than loopback, if this host has one.
    let away = UdpSocket::bind("0.0.0.0:0").unwrap();
    if away.connect("192.0.2.1:9").is_ok() && !away.local_addr().unwrap().ip().is_loopback() {
        let at = (away.local_addr().unwrap().ip(), daemon.admin.port()).into();
        let page = Page { at, ..other };
        act(&page, "admin-away");
        is_refused(&daemon, &page, "/login", json!({"token": daemon.token()}), "admin-away");
    }
    for secret in [token, page.session] {
        assert!(!daemon.log().contains(&secret), "a secret is in the log");
    }
}

#[test]
fn another_user_of_this_host_does_not_act_by_a_session_that_it_got_hold_of() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        // Only root can act as another user.
        return;
    }
    let daemon = Daemon::start();
    let page = daemon.page();
    let at = daemon.admin;
    let body = share(&daemon, "more").to_string();
    let request = format!(
        "POST /action/share HTTP/1.1\\r\\nhost: {at}\\r\\norigin: http://{at}\\r\\ncontent-type: application/json\\r\\n\
         cookie: {}\\r\\nx-headgate-session: {}\\r\\ncontent-length: {}\\r\\nconnection: close\\r\\n\\r\\n{}",
        page.cookie,
        page.session,
        body.len(),
        body.replace('"', "\\\"")
    );
    let script =
        format!("exec 3<>/dev/tcp/{}/{}; printf \"{request}\" >&3; cat <&3", at.ip(), at.port());
    let ask = |user: u32| {
        let mut bash = Command::new("bash");
        let asked = bash.args(["-c", &script]).uid(user).gid(user).current_dir("/").output();
        String::from_utf8_lossy(&asked.unwrap().stdout).into_owned()
    };
    let before = daemon.text();
    let stranger = ask(65_534);
    assert!(
        stranger.starts_with("HTTP/1.1 403") && stranger.contains("admin-session"),
        "{stranger}"
    );
    assert_eq!(daemon.text(), before);
    let own = ask(0);
    assert!(own.starts_with("HTTP/1.1 200"), "the same request of the user who logged in: {own}");
    assert!(daemon.text().contains("more"));
}

#[test]
fn a_share_that_is_added_is_in_the_file_and_served_and_comments_stay() {
    let daemon = Daemon::start();
    let page = daemon.page();
    let before = daemon.text();
    let answer = page.ask("/action/share", share(&daemon, "more"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["shares_added"], json!(["more"]));
    let folder = daemon.home.path().join("more");
    let added = format!("  - name: more\n    path: {}\n", folder.display());
    assert_eq!(daemon.text(), before.replace(COMMENT, &format!("{COMMENT}{added}")));
    let mode = fs::metadata(daemon.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "its mode stays");
    let status = daemon.order(&["status", "--json"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("\"name\":\"more\""));
    // An invalid action changes neither the file nor the shares, and the error names the file.
    let text = daemon.text();
    let wrong = [
        (share(&daemon, "more"), "two shares named `more`"),
        (json!({"name": "gone", "path": "/no/such/folder"}), "/no/such/folder"),
        (json!({"name": "a/b", "path": "/"}), "share name"),
        (json!({"name": "x", "path": "data"}), "absolute"),
        (json!({"name": "x", "path": folder, "clients": ["10.0.0.0/99"]}), "10.0.0.0/99"),
        (json!({"name": "x"}), "path"),
    ];
    for (body, why) in wrong {
        let answer = page.ask("/action/share", body);
        assert!(matches!(answer.status, 409 | 422), "{}: {}", answer.status, answer.text);
        assert!(answer.text.contains(why), "{why} in {}", answer.text);
        assert!(!answer.text.contains(".headgate"), "{}", answer.text);
        assert_eq!(daemon.text(), text);
    }
    let left: Vec<_> = fs::read_dir(daemon.home.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|e| !e.file_name().to_string_lossy().starts_with(".headgate")));
    // The file is valid but cannot be applied: the share is removed from it again.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("nfs: {{port: {}", taken.local_addr().unwrap().port());
    fs::write(daemon.file(), text.replace("nfs: {port: 0", &port)).unwrap();
    let text = daemon.text();
    fs::create_dir(daemon.home.path().join("third")).unwrap();
    let third = json!({"name": "third", "path": daemon.home.path().join("third")});
    let answer = page.ask("/action/share", third);
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert_eq!(daemon.text(), text);
    assert!(daemon.log().contains("an administrator has added a share"), "{}", daemon.log());
}

#[test]
fn a_gateway_without_a_file_adds_no_share_and_says_why() {
    let home = tempfile::tempdir().unwrap();
    let ports =
        ["--nfs-port", "0", "--nfs-rdma-port", "0", "--smb-port", "0", "--smb-direct-port", "0"];
    let others = ["--share", "a=mem:,guest", "--bind", "127.0.0.1", "--admin", "127.0.0.1:0"];
    let daemon = Daemon::run(home, &[&ports[..], &others, &["--portmap", "off"]].concat());
    let answer = daemon.page().ask("/action/share", json!({"name": "b", "path": "/tmp"}));
    assert_eq!(answer.status, 409, "{}", answer.text);
    assert!(answer.text.contains("--config FILE"), "{}", answer.text);
}

/// Waits until `is` returns true.
async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_added_logs_on_and_the_password_is_nowhere() {
    let daemon = Daemon::start();
    let page = daemon.page();
    assert!(daemon.smb("data", "bob", "wachtelkoenig").await.is_err());
    let bob = json!({"name": "bob", "password": "wachtelkoenig", "uid": 0});
    let answer = page.ask("/action/user", bob);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(
        answer.json()["what"].as_str().unwrap().starts_with("added bob: uid 0"),
        "{}",
        answer.text
    );
    until("bob never logs on", async || daemon.smb("data", "bob", "wachtelkoenig").await.is_ok())
        .await;
    assert_eq!(page.ask("/action/look", json!({})).json()["accounts"], json!(["alice", "bob"]));
    for (body, why) in [
        (json!({"name": "b:b", "password": "x"}), "user name"),
        (json!({"name": "carol", "password": ""}), "empty"),
        (json!({"name": "carol", "password": "a\nb"}), "one line"),
        (json!({"name": "carol"}), "password"),
    ] {
        let answer = page.ask("/action/user", body);
        assert!(answer.status == 422 && answer.text.contains(why), "{why}: {}", answer.text);
    }
    let answer = page
        .ask("/action/user", json!({"name": "carol", "password": "wachtelkoenig", "uid": 65534}));
    assert!(answer.status != 200 && answer.text.contains("another uid"), "{}", answer.text);
    let listed = daemon.order(&["user", "list"]);
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("carol"));
    let log = daemon.log();
    assert!(log.contains("an administrator has added a user"), "{log}");
    assert!(!log.contains("wachtelkoenig"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_closed_and_a_client_is_sent_away() {
    let daemon = Daemon::start();
    let page = daemon.page();
    let alice = daemon.smb("data", "alice", PASSWORD).await.unwrap();
    let held = alice.create("plan.txt").await.unwrap();
    let seen = page.ask("/action/look", json!({})).json();
    let files = seen["files"].as_array().unwrap();
    let file = files.iter().find(|f| f["path"] == "plan.txt").unwrap_or_else(|| panic!("{seen}"));
    assert_eq!((&file["share"], &file["user"]), (&json!("data"), &json!("alice")));
    // The page names a file by its number.
    let answer = page.ask("/action/close", json!({"what": file["id"].to_string()}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(alice.close(held).await.is_err(), "the client is told that it has nothing open");
    let again = page.ask("/action/close", json!({"what": file["id"].to_string()}));
    assert_eq!(again.status, 404, "{}", again.text);
    assert_eq!(page.ask("/action/close", json!({"what": "plan.txt"})).status, 422);

    let local = Local { reserved_port: false, ..Local::default() };
    let rpc = connect::tcp(daemon.nfs, &local, Arc::new(NoCallbacks)).await.unwrap();
    let answer = page.ask("/action/disconnect", json!({"what": "127.0.0.1"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let gone = answer.json();
    assert_eq!((&gone["connections"], &gone["smb_sessions"]), (&json!(2), &json!(1)), "{gone}");
    drop(rpc);
    assert!(alice.create("other").await.is_err(), "its session is gone");
    assert_eq!(page.ask("/action/disconnect", json!({"what": "192.0.2.77"})).status, 404);
    assert_eq!(page.ask("/action/disconnect", json!({"what": "127.0.0.1:7"})).status, 422);
    let log = daemon.log();
    for line in
        ["an administrator has closed what was open", "an administrator has disconnected a client"]
    {
        let line =
            log.lines().find(|l| l.contains(line)).unwrap_or_else(|| panic!("{line}: {log}"));
        assert!(line.contains("by=\"status page\"") && line.contains("uid="), "{line}");
    }
    assert!(Path::new(&daemon.home.path().join("data/plan.txt")).exists());
}

#[test]
fn who_has_logged_in_and_what_was_done_is_in_the_audit_trail() {
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let daemon = Daemon::start_with(&format!("audit: {{to: {}}}\n", trail.display()));
    let token = daemon.token();
    let wrong = Page::new(daemon.admin).ask("/login", json!({"token": "another"}));
    assert_eq!(wrong.status, 403, "{}", wrong.text);
    let page = daemon.page();
    let done = page.ask("/action/share", share(&daemon, "more"));
    assert_eq!(done.status, 200, "{}", done.text);
    let began = Instant::now();
    let record = |what: &str, is: &dyn Fn(&Value) -> bool| loop {
        let text = fs::read_to_string(&trail).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut all = whole.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        if let Some(found) = all.find(is) {
            break found;
        }
        assert!(began.elapsed() < PATIENCE, "no {what} in {text}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let uid = rustix::process::getuid().as_raw();
    for (act, on) in [("page-login", ""), ("add-share", "more")] {
        let found = record(act, &|r| r["act"] == act);
        assert_eq!(
            (&found["event"], &found["by"]),
            (&"administrator".into(), &"status page".into())
        );
        assert_eq!((&found["uid"], &found["on"]), (&uid.into(), &on.into()), "{found}");
        assert_eq!(found["result"], "ok", "{found}");
    }
    let refused = record("a refused login", &|r| r["event"] == "refused");
    assert_eq!(refused["rule"], "admin-token", "{refused}");
    let text = fs::read_to_string(&trail).unwrap();
    assert!(!text.contains(&token) && !text.contains(&page.session), "{text}");
}
