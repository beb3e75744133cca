//! `headgate cluster`: runs this machine as a node of a cluster.
//!
//! *Operation.* [`cluster`] elects the owners of services; this module makes its plan from the configuration, and shows and sets
//! its keys in etcd. A service is a separate gateway process: this program with the service's file.
//!
//! *Errors.* A service whose file is wrong, or whose storage cannot be fenced, is reported at the start, and no service runs.

mod adopt;
pub(crate) mod connections;
pub(crate) mod member;
mod metrics;
mod tls;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ::cluster::board::{Takeover, Trouble};
use ::cluster::election::{Keys, Last, Term, drained, owner_of};
use ::cluster::etcd::{self, Entry, Etcd};
use ::cluster::{Address, Connections, Plan, Runner, Service, tickle};
use clap::{Args, Subcommand};
use config::{Cluster, Elsewhere, Fault, Faults, ReferHost, Settings, Source};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::place::{self, USUAL_FILE};
use crate::trust::{self, check_folders, check_secret};
use tools::table::{Table, Tone};

/// Divides the TTL to give the time that a member of etcd has for an answer.
const PATIENCE_PART: u32 = 5;
/// Time between two attempts of a node that cannot reach etcd to record its name there.
const NOTE_AGAIN: std::time::Duration = std::time::Duration::from_secs(5);
/// Files that a node's runner opens in addition to the files of its services: connections to etcd and from clients of the metrics.
const OPEN_FILES: u64 = 256;
/// Files for one service: two pipes and a handle of its gateway, the same of a fence or an attachment, sockets for its addresses.
const OPEN_FILES_OF_SERVICE: u64 = 16;

/// Several machines that take over each other's services
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: Command,
    /// File of the cluster; default: /etc/headgate/headgate.yaml
    #[arg(long, value_name = "FILE", env = "HEADGATE_CONFIG", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be a candidate for every service that this node may serve, and serve those for which it is elected, until stopped
    Run,
    /// Show which node serves which service
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Move a service to another node, which then serves it whenever it can; without NODE any node may
    Move {
        /// Name of the service
        service: String,
        /// Name of the node
        node: Option<String>,
        /// Also to a node that no service lists and that has never been a candidate
        #[arg(long)]
        force: bool,
    },
    /// Have other nodes take over the services of a node, which then serves nothing
    Drain {
        /// Name of the node; default: this one
        node: Option<String>,
        /// Also a node that no service lists and that has never been a candidate
        #[arg(long)]
        force: bool,
    },
    /// Raise the next epochs of a service above that of its records, after etcd has lost data (restored from a backup, created
    /// again) and no node may serve them any more
    Adopt {
        /// Name of the service
        service: String,
        /// Confirms that no gateway on any node serves these records: one that does would be cut off, or write at the same time
        /// as the next
        #[arg(long)]
        nobody_serves: bool,
    },
    /// Let a drained node serve again
    Undrain {
        /// Name of the node; default: this one
        node: Option<String>,
    },
}

impl ClusterArgs {
    /// Returns the file of the cluster.
    pub(crate) fn file(&self) -> PathBuf {
        let usual = Path::new(USUAL_FILE);
        place::file_or(self.config.as_deref(), usual).unwrap_or_else(|| usual.to_owned())
    }

    /// Returns whether the command runs services.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.command, Command::Run)
    }
}

/// Returns the shares of the services whose gateways have other files than this one.
pub(crate) fn others(file: &Path, own: Option<&Path>) -> Result<Vec<Elsewhere>, Faults> {
    let cluster = config::load_cluster(file)?;
    let others = cluster.services.iter().filter(|service| Some(&*service.config) != own);
    let of = |service: &config::Service| {
        let addresses = service.addresses.iter().map(|address| ReferHost::Ip(address.ip));
        let hosts: Vec<_> = service.host.clone().into_iter().chain(addresses).collect();
        Elsewhere::of(&service.name, &service.config, &hosts)
    };
    Ok(others.map(of).collect())
}

/// Returns the gateways of the services in this file. `load` reads the file of one service.
pub(crate) fn programs(
    cluster: &Cluster,
    file: &Path,
    load: impl Fn(&Path) -> Result<Settings, Faults>,
) -> Result<Vec<Service>, Faults> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    trust::warn([("file of the cluster", &*file)]);
    trust::warn(cluster.services.iter().map(|service| ("configuration", &*service.config)));
    trust::warn(cluster.services.iter().flat_map(programs_of));
    let read = cluster.services.iter().map(|service| Ok((service, load(&service.config)?)));
    let services = read.collect::<Result<Vec<_>, Faults>>()?;
    check_records(&services)?;
    services.iter().map(|(service, settings)| program(service, &file, settings)).collect()
}

/// Returns the programs that root runs for a service. Their arguments may be files as well: scripts for an interpreter.
fn programs_of(service: &config::Service) -> impl Iterator<Item = (&'static str, &Path)> {
    let all = [("fence", &service.fence), ("attach", &service.attach), ("detach", &service.detach)];
    let words =
        all.into_iter().flat_map(|(what, words)| words.iter().map(move |word| (what, word)));
    words.map(|(what, word)| (what, Path::new(word))).filter(|(_, path)| path.is_absolute())
}

fn program(service: &config::Service, file: &Path, settings: &Settings) -> Result<Service, Faults> {
    let words = |words: &[String]| (!words.is_empty()).then(|| words.to_vec());
    if service.fence.is_empty()
        && let Some(what) = unfenced(service, settings)
    {
        let help = "a node that seems to have failed may still write: set `fence` to a program that cuts it off; only a service \
                    whose shares are all in CephFS, with its `records` in one of them, needs none";
        return Err(fault(service, what, help));
    }
    if settings.state == Settings::default().state {
        let what = format!("{} has no `state`", service.config.display());
        let help = match settings.records {
            Some(_) => {
                "each service has a lock and a control socket on its node: set `state` to a folder of this host"
            }
            None => "records move with the service: set `state` to a folder on its storage",
        };
        return Err(fault(service, what, help));
    }
    let this = env::current_exe().map_or_else(|_| "headgate".into(), |p| p.display().to_string());
    let mut command =
        vec![this, "serve".into(), "--config".into(), service.config.display().to_string()];
    command.extend(["--cluster".into(), file.display().to_string()]);
    for address in &service.addresses {
        command.extend(["--bind".into(), address.ip.to_string()]);
    }
    let of = |a: &config::Moving| Address { ip: a.ip, prefix: a.prefix, device: a.device.clone() };
    let is_in_ceph = |share: &config::Share| matches!(share.source, Source::Ceph(_));
    Ok(Service {
        name: service.name.clone(),
        has_sessions: settings.records.is_some() || settings.shares.iter().any(is_in_ceph),
        command,
        addresses: service.addresses.iter().map(of).collect(),
        nodes: service.nodes.clone(),
        fence: words(&service.fence),
        attach: words(&service.attach),
        detach: words(&service.detach),
        connections: Some(match settings.records {
            Some(_) => Connections::Brought(settings.state.join(tickle::BROUGHT)),
            None => Connections::Kept(settings.state.join(tickle::FILE)),
        }),
    })
}

/// Describes what a former owner of a service without a fence could still write; `None`: the storage itself keeps it out.
fn unfenced(service: &config::Service, settings: &Settings) -> Option<String> {
    let local = settings.shares.iter().find(|share| matches!(share.source, Source::Folder(_)));
    match (local, &settings.records) {
        (Some(share), Some(_)) => Some(format!(
            "nothing stops a previous owner from writing to the folder of the share `{}` of {}",
            share.name,
            service.config.display()
        )),
        (None, Some(_)) => None,
        (_, None) => Some(
            "nothing stops a previous owner from writing to the folders and the records of this service".into(),
        ),
    }
}

/// Checks that no two services store their records in the same place: they would evict each other forever.
fn check_records(services: &[(&config::Service, Settings)]) -> Result<(), Faults> {
    for (i, (service, settings)) in services.iter().enumerate() {
        let Some(ceph) = &settings.records else { continue };
        let is_same = |other: &&(&config::Service, Settings)| {
            other.1.records.as_ref().is_some_and(|it| (&it.fs, &it.path) == (&ceph.fs, &ceph.path))
        };
        if let Some((other, _)) = services[..i].iter().find(is_same) {
            let what = format!(
                "the services `{}` and `{}` both have their records in {ceph}",
                other.name, service.name
            );
            return Err(fault(service, what, "give each service a separate share for `records`"));
        }
    }
    Ok(())
}

fn fault(service: &config::Service, what: String, help: &str) -> Faults {
    Faults(vec![Fault { place: service.place.clone(), what, help: Some(help.into()) }])
}

fn client(cluster: &Cluster) -> Result<Etcd, String> {
    let endpoints = cluster.etcd.iter().map(|at| etcd::Endpoint {
        tls: at.tls,
        host: at.host.clone(),
        port: at.port,
    });
    let mut client = Etcd::new(endpoints.collect(), cluster.ttl / PATIENCE_PART);
    if let Some(ca) = &cluster.ca {
        client = client.with_tls(tls::client(ca, cluster.certificate.as_ref())?);
    }
    if let Some((name, file)) = &cluster.user {
        check_secret("password file", file)?;
        check_folders("password file", file)?;
        let password = tools::password::read_password(file)?;
        client = client.with_user(name.clone(), password.to_string());
    }
    Ok(client)
}

fn own_name(cluster: &Cluster) -> String {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    cluster.node.clone().unwrap_or_else(host)
}

/// Runs the command. `load` reads the file of a service.
pub(crate) async fn run(
    args: &ClusterArgs,
    cluster: Cluster,
    services: Vec<Service>,
    load: impl Fn(&Path) -> Result<Settings, Faults>,
) -> Result<(), Failure> {
    let etcd = client(&cluster)?;
    let done = |done: Result<(), etcd::Error>| done.map_err(|e| Failure::Work(e.to_string()));
    let node = |node: &Option<String>| node.clone().unwrap_or_else(|| own_name(&cluster));
    match &args.command {
        Command::Run => Ok(serve(&cluster, services, etcd).await?),
        Command::Status { json } => Ok(status(&cluster, &etcd, *json).await?),
        Command::Move { service, node, force } => {
            let known = known(&cluster, service)?;
            let key = Keys::new(&cluster.name, service).wanted;
            let Some(node) = node else { return done(etcd.delete(&key).await) };
            if !known.nodes.is_empty() && !known.nodes.contains(node) {
                let nodes = known.nodes.join(", ");
                let meant = suggestion(node, &known.nodes);
                return Err(Failure::Usage(format!(
                    "only {nodes} may serve `{service}` (`nodes`), not `{node}`{meant}"
                )));
            }
            check_node(&cluster, &etcd, node, *force).await?;
            done(etcd.put(&key, node.as_bytes()).await)
        }
        Command::Adopt { service, nobody_serves } => {
            let known = known(&cluster, service)?;
            let settings = load(&known.config).map_err(|faults| faults.to_string())?;
            let keys = Keys::new(&cluster.name, service);
            let named = format!("{}/{service}", cluster.name);
            Ok(adopt::run(&etcd, &keys, (&named, &settings), *nobody_serves).await?)
        }
        Command::Drain { node: of, force } => {
            if let Some(node) = of {
                check_node(&cluster, &etcd, node, *force).await?;
            }
            done(etcd.put(&drained(&cluster.name, &node(of)), b"").await)
        }
        Command::Undrain { node: of } => {
            done(etcd.delete(&drained(&cluster.name, &node(of))).await)
        }
    }
}

/// Reasons why a command failed.
pub(crate) enum Failure {
    /// The work failed.
    Work(String),
    /// The command line names something that does not exist.
    Usage(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Work(why)
    }
}

fn known<'a>(cluster: &'a Cluster, service: &str) -> Result<&'a config::Service, Failure> {
    let known = cluster.services.iter().find(|s| s.name == *service);
    known.ok_or_else(|| {
        let names: Vec<String> = cluster.services.iter().map(|s| s.name.clone()).collect();
        let meant = suggestion(service, &names);
        Failure::Usage(format!("there is no service `{service}`{meant}; {}", self::names(cluster)))
    })
}

/// Returns the key that records a node as a candidate.
fn candidate(cluster: &str, node: &str) -> String {
    format!("/{cluster}/nodes/{node}/candidate")
}

/// Refuses a node that neither the file of the cluster nor etcd knows.
async fn check_node(
    cluster: &Cluster,
    etcd: &Etcd,
    node: &str,
    force: bool,
) -> Result<(), Failure> {
    if force || node == own_name(cluster) {
        return Ok(());
    }
    let entries = etcd.below(&format!("/{}/", cluster.name)).await.map_err(|e| e.to_string())?;
    let known = nodes(cluster, &entries);
    if known.iter().any(|name| name == node) {
        return Ok(());
    }
    let (meant, list) = (suggestion(node, &known), known.join(", "));
    let what = format!(
        "there is no node `{node}`{meant}; the nodes are {list}; `--force` names it all the same"
    );
    Err(Failure::Usage(what))
}

/// Returns the nodes that services name, candidates, and nodes that own or owned a service.
fn nodes(cluster: &Cluster, entries: &[Entry]) -> Vec<String> {
    let (seen, drained) = read(cluster, entries);
    let of_services = cluster.services.iter().flat_map(|service| service.nodes.clone());
    let candidates = entries.iter().filter_map(|entry| {
        let words: Vec<&str> = entry.key.split('/').collect();
        matches!(words[..], ["", _, "nodes", _, "candidate"]).then(|| words[3].to_owned())
    });
    let mut all: Vec<String> = of_services.chain(candidates).chain(drained).collect();
    all.push(own_name(cluster));
    for seen in seen.into_values() {
        all.extend(seen.owner.map(|(node, _)| node));
        all.extend(seen.last.map(|last| last.node));
        all.extend(seen.trouble.into_keys());
    }
    all.sort();
    all.dedup();
    all
}

/// Returns `, did you mean ...?` if a known name is similar.
fn suggestion(name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    config::nearest(name, &known).map_or(String::new(), |near| format!(", did you mean `{near}`?"))
}

/// Records this node as a candidate, so that commands know its name; retries until etcd answers.
async fn note_candidate(etcd: Etcd, key: String) {
    while etcd.put(&key, b"").await.is_err() {
        tokio::time::sleep(NOTE_AGAIN).await;
    }
}

fn names(cluster: &Cluster) -> String {
    let names: Vec<_> = cluster.services.iter().map(|s| s.name.as_str()).collect();
    format!("the services are {}", names.join(", "))
}

async fn serve(cluster: &Cluster, services: Vec<Service>, etcd: Etcd) -> Result<(), String> {
    let settings = Settings::default();
    crate::logs::start(&settings.log, settings.log_format);
    let on = |kind| signal(kind).map_err(|e| format!("cannot wait for signals: {e}"));
    let (mut term, mut int) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let (name, node, ttl) = (cluster.name.clone(), own_name(cluster), cluster.ttl);
    tracing::info!(
        cluster = name,
        node,
        services = services.len(),
        "is a candidate for its services"
    );
    vfs::local::raise_open_files(OPEN_FILES + OPEN_FILES_OF_SERVICE * services.len() as u64);
    let (stop, stopped) = watch::channel(false);
    let files = cluster.services.iter().map(|it| (it.name.clone(), it.config.clone()));
    let files = metrics::Looks::at(files.collect());
    let told = metrics::Node { cluster: name.clone(), name: node.clone(), files };
    let noting = note_candidate(client(cluster)?, candidate(&name, &node));
    let runner = Runner::new(Plan { name, node, ttl, services }, etcd);
    let mut telling = JoinSet::new();
    telling.spawn(noting);
    if let Some(at) = cluster.metrics {
        telling.spawn(metrics::serve(metrics::listen(at).await?, told, runner.board()));
    }
    let running = runner.run(stopped);
    tokio::pin!(running);
    tokio::select! {
        done = &mut running => {
            return done.and(Err("no service lists this node in its `nodes`".into()));
        }
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    let _ = stop.send(true);
    running.await
}

/// State of a service in etcd.
#[derive(Debug, Default)]
struct Seen {
    owner: Option<(String, u64)>,
    last: Option<Last>,
    wanted: Option<String>,
    takeover: Option<Takeover>,
    /// Keyed by node.
    trouble: BTreeMap<String, Trouble>,
}

async fn status(cluster: &Cluster, etcd: &Etcd, as_json: bool) -> Result<(), String> {
    let entries = etcd.below(&format!("/{}/", cluster.name)).await.map_err(|e| e.to_string())?;
    let (seen, drained) = read(cluster, &entries);
    if as_json {
        let services: Vec<_> = seen
            .iter()
            .map(|(name, s)| {
                json!({
                    "service": name,
                    "node": s.owner.as_ref().map(|(node, _)| node),
                    "epoch": s.owner.as_ref().map(|(_, epoch)| epoch),
                    "chosen": s.wanted,
                    "last_node": s.last.as_ref().map(|last| &last.node),
                    "takeover": s.takeover.as_ref().map(|it| json!({
                        "node": it.node, "epoch": it.epoch, "fenced": it.fenced, "at": it.at,
                        "seconds": it.total.as_secs_f64(), "fence_seconds": it.fence.as_secs_f64(),
                        "attach_seconds": it.attach.as_secs_f64(),
                    })),
                    "trouble": s.trouble.iter().map(|(node, it)| {
                        json!({"node": node, "why": it.why, "at": it.at})
                    }).collect::<Vec<_>>(),
                    "fence_due": s.last.as_ref().is_some_and(|last| !last.ended && s.owner.is_none()),
                })
            })
            .collect();
        say!("{}", json!({"services": services, "drained": drained}));
        return Ok(());
    }
    let mut table = Table::new(&["service", "node", "epoch", "chosen", "last"], 9, false);
    for (name, s) in &seen {
        let (node, epoch) =
            s.owner.clone().map_or(("-".into(), "-".into()), |(n, e)| (n, e.to_string()));
        let last = s.last.as_ref().map_or("-".into(), |last| {
            let how = if last.ended { "released it" } else { "owns it, or must be fenced" };
            format!("{} in epoch {}, {how}", last.node, last.epoch)
        });
        let chosen = s.wanted.clone().unwrap_or_else(|| "any".into());
        let tone = if s.owner.is_some() { Tone::Plain } else { Tone::Bad };
        table.row(vec![name.clone(), node, epoch, chosen, last], tone);
    }
    say_as_is!("{}", table.render());
    for (name, s) in &seen {
        if let Some(it) = &s.takeover {
            let fenced =
                it.fenced.as_ref().map_or(String::new(), |node| format!(", {node} was fenced"));
            say!("\n  {name}: {} took over in {:?}, {} ago{fenced}", it.node, it.total, ago(it.at));
        }
        for (node, it) in &s.trouble {
            say!("\n  {name}: {node} could not serve it, {} ago: {}", ago(it.at), it.why);
        }
    }
    if !drained.is_empty() {
        say!("\n  drained: {}", drained.join(", "));
    }
    Ok(())
}

/// Returns the time since then, in words.
fn ago(at: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    crate::admin::show::span(now.saturating_sub(at))
}

/// Returns the services, first the configured ones, and the drained nodes.
fn read(cluster: &Cluster, entries: &[Entry]) -> (BTreeMap<String, Seen>, Vec<String>) {
    let mut seen: BTreeMap<String, Seen> =
        cluster.services.iter().map(|s| (s.name.clone(), Seen::default())).collect();
    let mut drained = Vec::new();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    for entry in entries {
        let words: Vec<&str> = entry.key.split('/').collect();
        match words[..] {
            ["", _, "services", name, what] => {
                let seen = seen.entry(name.to_owned()).or_default();
                match what {
                    "owner" => {
                        let base = Keys::new(&cluster.name, name).base;
                        let base = entries.iter().find(|it| it.key == base);
                        let term = Term::of(entry.created, base.map(|it| &*it.value));
                        let epoch = term.map_or(entry.created, |term| term.epoch);
                        seen.owner = Some((owner_of(&entry.value), epoch));
                    }
                    "last" => seen.last = Last::parse(&entry.value),
                    "takeover" => seen.takeover = Takeover::parse(&entry.value),
                    "wanted" => seen.wanted = Some(text(&entry.value)),
                    _ => {}
                }
            }
            ["", _, "services", name, "trouble", node] => {
                let seen = seen.entry(name.to_owned()).or_default();
                seen.trouble.extend(Trouble::parse(&entry.value).map(|it| (node.to_owned(), it)));
            }
            ["", _, "nodes", node, "drained"] => drained.push(node.to_owned()),
            _ => {}
        }
    }
    (seen, drained)
}
