//! Tests the status page in a real browser: Chromium loads it from a gateway with a thousand connections.
//!
//! *Operation.* The page is loaded without a window, its scripts run, and the finished document is checked. Then the test acts as
//! an administrator through the page ([`crate::browser`]). `cargo xtask page --write` takes the pictures of the documentation, from
//! a gateway under load.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::browser::Browser;
use crate::lab;
use crate::sh::{Outcome, Result, Tally, target_dir};

pub(crate) const BROWSER: &str = "chromium-headless-shell";
/// The gateway's configuration; the page adds a share to it.
const CONFIGURATION: &str = "shares:\n  - name: data\n    memory: true\n  - name: home\n    memory: true\n    squash: none\n\
                             # of the page's test\nbind: 127.0.0.1\nadmin: 127.0.0.1:0\nnfs: {port: 0, rdma_port: 0}\n\
                             smb: {port: 0, direct_port: 0}\n";
/// Connections that the page shows.
const CONNECTIONS: usize = 1000;
/// Rows that the page shows at first.
const ROWS: usize = 500;
/// Milliseconds of virtual time that the page gets.
const BUDGET: &str = "--virtual-time-budget=9000";
/// Time for two points of the history.
const HISTORY: Duration = Duration::from_secs(11);

/// A NULL call of NFS 3 with its record mark (RFC 5531).
const NULL_CALL: [u8; 44] = [
    0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// `cargo xtask page [--write]`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    match args {
        [] => Ok(tier()?.report(None)),
        [write] if write == "--write" => picture().map(|()| Outcome::Passed),
        _ => Err("usage: cargo xtask page [--write]".into()),
    }
}

/// Runs the checks of the tier `third`.
pub(crate) fn tier() -> Result<Tally> {
    let dir = target_dir().join("page");
    let daemon = Daemon::start(&dir)?;
    let mut clients = Vec::with_capacity(CONNECTIONS);
    for n in 0..CONNECTIONS {
        clients.push(connect(daemon.nfs).map_err(|e| format!("connection {n}: {e}"))?);
    }
    sleep(HISTORY);
    let mut tally = Tally::default();
    let page = format!("http://{}/", daemon.admin);
    let (document, said) = browse(&[&page])?;
    let mut must = |name: &str, is: bool, seen: &str| {
        let why = || format!("the document is in {}: {seen}", dir.display());
        tally.count(&format!("page/{name}"), if is { Ok(()) } else { Err(why()) });
    };
    save(&dir.join("document.html"), &document)?;
    let rows = document.matches("data-id=").count();
    must("rows", rows == ROWS, &format!("{rows} rows"));
    must("the rest on demand", document.contains(&format!("show {} more", CONNECTIONS - ROWS)), "");
    must("count", document.contains(&format!("{CONNECTIONS} connections")), "");
    must("reasons", document.contains(&format!("mounted-tcp: {CONNECTIONS}")), "");
    must("operations", document.contains("<td class=\"\">NULL</td>"), "");
    let plotted = document.matches("<path class=\"s0\" d=\"M").count();
    must("plots", plotted == 4 && document.contains("L400.0 "), &format!("{plotted} plots"));
    must("no complaint", !complains(&said), &said);
    // A foreign host name that resolves to this address: the attack that another site's page could make a browser do.
    let rebound = format!("http://elsewhere.example:{}/", daemon.admin.port());
    let (refused, _) =
        browse(&["--host-resolver-rules=MAP elsewhere.example 127.0.0.1", &rebound])?;
    let hidden = refused.contains("use 127.0.0.1") && !refused.contains("data-id=");
    must("nothing for others", hidden, &refused);
    drop(clients);
    let (page, load) = (format!("http://{}/", daemon.admin), daemon.holds_a_file()?);
    let acted = act(&daemon, &page).map(drop).map_err(|e| format!("{e}; see {}", dir.display()));
    tally.count("page/actions", acted);
    wait(load)?;
    Ok(tally)
}

/// Acts as an administrator only through the page: logs in, adds a share and a user, closes a file and disconnects a client.
fn act(daemon: &Daemon, page: &str) -> Result<Browser> {
    let mut browser = Browser::open(page)?;
    browser.until("document.getElementById('version')?.textContent !== ''")?;
    let says =
        |what: &str| format!("document.getElementById('done').textContent.includes({what:?})");
    browser.enter("#login [name=token]", "no token")?;
    browser.click("#login button")?;
    browser.until(&says("admin-token"))?;
    browser.value("document.querySelector('#login').reset()")?;
    browser.enter("#login [name=token]", &daemon.token()?)?;
    browser.click("#login button")?;
    browser.until(&says("logged in"))?;
    browser.enter("#add-user [name=name]", "ann")?;
    browser.enter("#add-user [name=password]", "three words here")?;
    browser.enter("#add-user [name=uid]", "1000")?;
    browser.click("#add-user button")?;
    browser.until(&says("added ann: uid 1000"))?;
    browser.until("document.getElementById('accounts').textContent === 'ann'")?;
    let folder = daemon.dir.join("archive");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    browser.enter("#add-share [name=name]", "archive")?;
    browser.enter("#add-share [name=path]", &folder.display().to_string())?;
    browser.click("#add-share [name=read_only]")?;
    browser.click("#add-share button")?;
    browser.until(&says("added the share archive"))?;
    browser.until("document.getElementById('shares').textContent.includes('archive')")?;
    let text = fs::read_to_string(daemon.dir.join("gw.yaml")).map_err(|e| e.to_string())?;
    if !text.contains("# of the page's test\n") || !text.contains("  - name: archive\n") {
        return Err(format!("the file is {text}"));
    }
    browser.until("document.querySelector('#files [data-act^=f]') !== null")?;
    browser.click("#files [data-act^=f]")?;
    browser.until("document.querySelector('#files .sure')?.textContent === 'really close?'")?;
    browser.click("#files .sure")?;
    browser.until(&says("closed /"))?;
    // The refused wrong token is the test's own request.
    browser.complaints.retain(|c| !c.contains("/login"));
    if let Some(complaint) = browser.complaints.first() {
        return Err(format!("the page complains: {complaint}"));
    }
    Ok(browser)
}

/// Takes the picture of the documentation.
fn picture() -> Result<()> {
    let dir = target_dir().join("page");
    let daemon = Daemon::start(&dir)?;
    let running = daemon.under_load()?;
    let page = format!("http://{}/", daemon.admin);
    let images = Path::new("docs/images");
    fs::create_dir_all(images).map_err(|e| format!("docs/images: {e}"))?;
    let held = daemon.holds_a_file()?;
    let mut browser = act(&daemon, &page)?;
    let desk = (1400, 1100);
    browser.picture(&images.join("status.png"), desk, false, None)?;
    browser.picture(&images.join("status-dark.png"), desk, true, Some("#admin"))?;
    browser.picture(&images.join("status-phone.png"), (390, 844), false, Some("#admin"))?;
    drop(browser);
    wait(held)?;
    running.into_iter().try_for_each(wait)
}

/// Waits until a load has ended.
pub(crate) fn wait(mut load: Child) -> Result<()> {
    load.wait().map(drop).map_err(|e| format!("bench: {e}"))
}

/// Returns the final document of the browser, and its log.
pub(crate) fn browse(args: &[&str]) -> Result<(String, String)> {
    let common =
        ["60", BROWSER, "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", BUDGET];
    let dump: &[&str] =
        if args.iter().any(|a| a.starts_with("--screenshot")) { &[] } else { &["--dump-dom"] };
    let done = Command::new("timeout").args(common).args(dump).args(args).output();
    let done = done.map_err(|e| format!("{BROWSER}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{BROWSER}: {}", done.status));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&done.stdout), text(&done.stderr)))
}

/// Checks whether the page's scripts failed, or requested what its policy forbids.
fn complains(said: &str) -> bool {
    said.lines().any(|l| l.contains("CONSOLE"))
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn connect(at: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(&NULL_CALL)?;
    stream.read_exact(&mut [0; 28])?;
    // A NULL call identifies no client, and the gateway admits few connections of unknown clients, so each connection mounts as
    // well.
    stream.write_all(&mount_call())?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let len = usize::try_from(u32::from_be_bytes(mark) & 0x7fff_ffff).unwrap_or(0);
    let mut answer = vec![0; len.min(4096)];
    stream.read_exact(&mut answer)?;
    Ok(stream)
}

/// Builds the call MNT of `/data` (MOUNT version 3, RFC 1813 section 5.2.1) with its record mark.
fn mount_call() -> Vec<u8> {
    let path = [u32::from_be_bytes(*b"/dat"), u32::from_be_bytes(*b"a\0\0\0")];
    let words = [0x8000_0034, 9, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 5, path[0], path[1]];
    words.iter().flat_map(|w: &u32| w.to_be_bytes()).collect()
}

/// A gateway on free ports.
pub(crate) struct Daemon {
    child: Child,
    dir: PathBuf,
    pub(crate) nfs: SocketAddr,
    nfs_rdma: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Daemon {
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        lab::gateway::build()?;
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let log = File::create(dir.join("gateway.log")).map_err(|e| e.to_string())?;
        // State of an earlier run would add its shares and users.
        let _ = fs::remove_dir_all(dir.join("state"));
        save(&dir.join("gw.yaml"), CONFIGURATION)?;
        let mut child = Command::new(lab::gateway::program())
            .args(["serve", "--config"])
            .arg(dir.join("gw.yaml"))
            .arg("--state")
            .arg(dir.join("state"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("the gateway: {e}"))?;
        let mut ready = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut ready).map_err(|e| e.to_string())?;
        }
        let at = |name: &str| {
            let prefix = format!("{name}={}:", Ipv4Addr::LOCALHOST);
            let port = ready.split_whitespace().find_map(|w| w.strip_prefix(&prefix));
            let port = port.and_then(|p| p.trim_end_matches(',').parse::<u16>().ok());
            port.map(|p| SocketAddr::from((Ipv4Addr::LOCALHOST, p)))
                .ok_or_else(|| format!("the gateway says `{}`", ready.trim()))
        };
        let found = (at("nfs"), at("nfs-rdma"), at("admin"));
        match found {
            (Ok(nfs), Ok(nfs_rdma), Ok(admin)) => {
                Ok(Self { child, dir: dir.to_owned(), nfs, nfs_rdma, admin })
            }
            (Err(e), ..) | (_, Err(e), _) | (.., Err(e)) => {
                let _ = child.kill();
                Err(e)
            }
        }
    }
}

impl Daemon {
    /// Returns a token for its page.
    fn token(&self) -> Result<String> {
        let mut command = Command::new(lab::gateway::program());
        let given = command.args(["admin-token", "--state"]).arg(self.dir.join("state")).output();
        let given = given.map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&given.stdout).trim().to_owned();
        if text.is_empty() {
            Err(String::from_utf8_lossy(&given.stderr).into_owned())
        } else {
            Ok(text)
        }
    }

    /// Starts an NFS 4.2 client that holds a file open for some seconds; an administrator may close that file.
    fn holds_a_file(&self) -> Result<Child> {
        let target = format!("nfs://127.0.0.1:{}/home?version=4.2", self.nfs.port());
        let load = Command::new(lab::gateway::program())
            .args(["bench", &target, "--size", "16MiB", "--time", "20s", "--only", "random-read"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        load.map_err(|e| format!("bench: {e}"))
    }

    /// Starts five kinds of load over TCP and by RDMA, 6 s each. The last ones still run when this returns.
    pub(crate) fn under_load(&self) -> Result<Vec<Child>> {
        let load = |target: String, only: &str, time: &str| {
            Command::new(lab::gateway::program())
                .args(["bench", &target, "--size", "64MiB", "--time", time, "--only", only])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| format!("bench: {e}"))
        };
        let (port, rdma) = (self.nfs.port(), self.nfs_rdma.port());
        let mut running = Vec::new();
        for round in 0..5 {
            let only =
                ["random-read", "write,read", "getattr", "write,read,random-read", "create"][round];
            let time = if round == 4 { "30s" } else { "6s" };
            let by_tcp = format!("nfs://127.0.0.1:{port}/data?mountport={port}");
            let by_rdma = format!("nfs://127.0.0.1:{rdma}/home?version=4.2&transport=rdma");
            running.extend([load(by_tcp, only, time)?, load(by_rdma, only, time)?]);
            sleep(Duration::from_secs(6));
        }
        Ok(running)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_complaints_are_detected() {
        assert!(complains("[1:2:INFO:CONSOLE(3)] \"Uncaught Error\", source: page.js (3)"));
        assert!(!complains("WARNING:sandbox: InitializeSandbox() called"));
    }
}
