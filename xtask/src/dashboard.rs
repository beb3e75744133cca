//! Tests the metrics and the Grafana dashboard with Prometheus: it reads a gateway under load, and answers every query of the
//! dashboard.
//!
//! *Operation.* Debian's package is unpacked below `target` instead of installed, because installing it would start its service.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::page::{Daemon, wait};
use crate::sh::{Result, Tally, output, target_dir};
use crate::{lab, packages};

/// Longest wait for the result of a query: the time for the first two readings under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the checks of the tier `third`: one for each query.
pub(crate) fn tier() -> Result<Tally> {
    let dir = target_dir().join("dashboard");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let programs = unpack(&dir)?;
    let queries = queries()?;
    let daemon = Daemon::start(&dir)?;
    let server = Prometheus::start(&programs, &dir, &daemon.admin.to_string())?;
    let at = daemon.nfs;
    let target = format!("nfs://{at}/data?mountport={}", at.port());
    let over = AtomicBool::new(false);
    let mut tally = Tally::default();
    let promtool = programs.join("promtool").display().to_string();
    let alarms = output(&[&promtool, "check", "rules", "deploy/prometheus-alerts.yaml"]);
    tally.count("dashboard/alarms", alarms.map(drop));
    tally.count("dashboard/metrics", check_metrics(&promtool, &daemon.admin.to_string(), &dir));
    thread::scope(|scope| {
        // The load runs until the last answer, even if Prometheus starts late.
        scope.spawn(|| {
            let mut loaded = Ok(());
            while !over.load(Ordering::Relaxed) && loaded.is_ok() {
                loaded = load(&target);
            }
        });
        let until = Instant::now() + PATIENCE;
        for (title, query) in queries {
            tally.count(&format!("dashboard/{title}"), server.answers(&query, until));
        }
        over.store(true, Ordering::Relaxed);
    });
    Ok(tally)
}

/// Checks the answer to a client that asks for no format of metrics, by Prometheus' own rules for names, types and help texts.
fn check_metrics(promtool: &str, admin: &str, dir: &Path) -> Result<()> {
    let answer = http(admin, "/metrics")?;
    let file = dir.join("metrics.txt");
    fs::write(&file, answer).map_err(|e| format!("{}: {e}", file.display()))?;
    let input = fs::File::open(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let done = Command::new(promtool).args(["check", "metrics"]).stdin(input).output();
    let done = done.map_err(|e| format!("{promtool}: {e}"))?;
    let said = [done.stdout, done.stderr].concat();
    // For faults of style it exits with 3, and prints them.
    match done.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// Returns the body of the answer to a GET.
fn http(at: &str, path: &str) -> Result<String> {
    let failed = |e: io::Error| format!("{at}{path}: {e}");
    let mut stream = TcpStream::connect(at).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")
        .map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("{at}{path}: {answer}")),
    }
}

/// Returns the series that each query of each panel finds in half a minute of load: for each panel's number, a list of series for
/// each query. Also returns start and end, in seconds since 1970.
pub(crate) fn series() -> Result<Value> {
    let dir = target_dir().join("dashboard");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let programs = unpack(&dir)?;
    let dashboard = dashboard()?;
    let daemon = Daemon::start(&dir)?;
    let server = Prometheus::start(&programs, &dir, &daemon.admin.to_string())?;
    let from = now()?;
    let running = daemon.under_load()?;
    let to = now()?;
    let mut found = serde_json::Map::new();
    for panel in list(&dashboard, "panels") {
        let queries = list(&panel, "targets");
        let series = queries.iter().map(|q| server.range(&filled_in(q)?, from, to));
        found.insert(panel["id"].to_string(), series.collect::<Result<Vec<Value>>>()?.into());
    }
    drop(daemon);
    running.into_iter().try_for_each(wait)?;
    Ok(json!({"panels": dashboard["panels"], "range": {"from": from, "to": to}, "results": found}))
}

fn now() -> Result<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map(|d| d.as_secs()).map_err(|e| e.to_string())
}

/// Runs every kind of operation for a second.
fn load(target: &str) -> Result<()> {
    let program = lab::gateway::program().display().to_string();
    let args = ["bench", target, "--size", "16MiB", "--depth", "2", "--time", "1s"];
    output(&[&[program.as_str()], &args[..]].concat()).map(drop)
}

/// Unpacks the package and returns the folder of its programs.
fn unpack(dir: &Path) -> Result<PathBuf> {
    let promtool = packages::unpack("prometheus", dir, "usr/bin/promtool")?;
    Ok(promtool.parent().unwrap_or(dir).to_owned())
}

pub(crate) fn dashboard() -> Result<Value> {
    let text = fs::read_to_string("deploy/grafana.json").map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

fn list(of: &Value, name: &str) -> Vec<Value> {
    of[name].as_array().cloned().unwrap_or_default()
}

/// Returns the query with values for Grafana's variables.
fn filled_in(target: &Value) -> Result<String> {
    let query = target["expr"].as_str().ok_or("a panel asks for nothing")?;
    let query = query.replace("$instance", ".*").replace("$share", ".*");
    Ok(query.replace("$__rate_interval", "10s"))
}

/// Returns the title and the query of each panel.
fn queries() -> Result<Vec<(String, String)>> {
    let mut queries = Vec::new();
    for panel in list(&dashboard()?, "panels") {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in list(&panel, "targets") {
            let name = format!("{title}, {}", target["refId"].as_str().unwrap_or_default());
            queries.push((name, filled_in(&target)?));
        }
    }
    if queries.is_empty() {
        Err("deploy/grafana.json asks for nothing".into())
    } else {
        Ok(queries)
    }
}

/// A server that reads one gateway once a second.
struct Prometheus {
    _running: Running,
    promtool: String,
    url: String,
}

impl Prometheus {
    fn start(programs: &Path, dir: &Path, gateway: &str) -> Result<Self> {
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: headgate\n  static_configs:\n  \
             - targets: ['{gateway}']\n"
        );
        fs::write(&config, text).map_err(|e| e.to_string())?;
        let data = dir.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|e| e.to_string())?;
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let at = free.map_err(|e| e.to_string())?;
        let log = fs::File::create(dir.join("prometheus.log")).map_err(|e| e.to_string())?;
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={at}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("prometheus: {e}"))?;
        let promtool = programs.join("promtool").display().to_string();
        Ok(Self { _running: Running(child), promtool, url: format!("http://{at}") })
    }

    /// Repeats the query until it has a result, which shows that the query is valid and that the gateway has its metrics.
    fn answers(&self, query: &str, until: Instant) -> Result<()> {
        loop {
            let said = output(&[&self.promtool, "query", "instant", &self.url, query]);
            match said {
                Err(e) if e.contains("parse error") => return Err(e),
                Ok(series) if !series.trim().is_empty() => return Ok(()),
                Ok(_) | Err(_) if Instant::now() < until => sleep(Duration::from_millis(300)),
                Ok(_) => return Err(format!("nothing is found by {query}")),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Prometheus {
    /// Returns the series that a query finds, a value for each second.
    fn range(&self, query: &str, from: u64, to: u64) -> Result<Value> {
        let (start, end) = (format!("--start={from}"), format!("--end={to}"));
        let how = ["query", "range", "--format=json", "--step=1s", &start, &end, &self.url, query];
        let said = output(&[&[self.promtool.as_str()], &how[..]].concat())?;
        serde_json::from_str(&said).map_err(|e| format!("promtool: {e}"))
    }
}

/// A program that is ended when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
