//! The command line.
//!
//! *Operation.* One module per command; this one parses options, and turns outcomes into exit codes.
//!
//! *Errors.* Exit code 0: fine. 1: the work failed. 2: wrong usage or configuration. Messages go to standard error.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::admin::show::Asked;
use crate::cluster::ClusterArgs;
use crate::control::client::{self as control, Refused};
use crate::control::ending::{Client, What};
use crate::identities;
use crate::keytab;
use crate::load::Load;
use crate::place::{self, DaemonArgs};
use crate::records::ServiceFiles;
use crate::top::TopArgs;
use crate::trust;
use crate::user::UserArgs;
use crate::users::{self, read_database_in_time, read_password_in_time};
use crate::wastebasket::command::WastebasketArgs;
use clap::{Args, CommandFactory, Parser, Subcommand};
use config::{
    Admin, AuditTo, Discovery, Encryption, Faults, Identity, Known, LogFilter, LogFormat, Options,
    Port, Portmap, PrivilegedPorts, Rdma, RdmaCrc, Settings, ShareOption, Signing, Size, Span,
    UserOption,
};
use tools::bench::BenchArgs;
use tools::demo::DemoArgs;
use tools::import::ImportArgs;

/// Serves folders to Linux over NFS and to Windows over SMB, by TCP or RDMA, and needs no RDMA device.
#[derive(Debug, Parser)]
#[command(name = "headgate", version, max_term_width = 110, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve folders until stopped
    Serve(Configuration),
    /// Add, remove and list the users that may log on over SMB
    User(UserArgs),
    /// Show the running daemon and its clients, and why a client does not use RDMA
    Status(StatusArgs),
    /// Watch the running daemon: clients, operations, shares, memory; redrawn in place
    Top(TopArgs),
    /// Have the running daemon read its configuration again and put it in force, without dropping clients
    Reload(OrderArgs),
    /// List the files that clients hold open, locked or delegated (NFS 3 has no opens, only locks)
    Files(OrderArgs),
    /// Close a file that clients hold, with its locks: all its opens, or the one with a number from `headgate files`
    Close(CloseArgs),
    /// End the connections, sessions, opens and locks of one client; it may connect again, without them
    Disconnect(DisconnectArgs),
    /// List what clients removed from shares with a wastebasket, give it back, or remove it for good
    Wastebasket(WastebasketArgs),
    /// Have the running daemon finish the requests in progress and stop
    Drain(OrderArgs),
    /// Change what the running daemon logs, until its next reload
    Log(LogArgs),
    /// Get a token for one session on the status page, to close files, disconnect clients, and add users and shares
    AdminToken(OrderArgs),
    /// Check the configuration, and show what clients type for every address
    Check(CheckArgs),
    /// Serve a temporary folder on loopback and move files through every protocol; no configuration
    Demo(DemoArgs),
    /// Measure one server, or compare two: rates, latency and CPU over NFS or SMB, with TCP or RDMA
    Bench(Box<BenchArgs>),
    /// Write a configuration from Samba's smb.conf or from /etc/exports, and report what has no counterpart
    Import(ImportArgs),
    /// Run and manage a cluster: several machines that take over each other's services
    Cluster(ClusterArgs),
    /// Write man pages and shell completions below DIR
    #[command(hide = true)]
    Generate {
        /// Folder, created if missing
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    asked: Asked,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct OrderArgs {
    #[command(flatten)]
    told: DaemonArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CloseArgs {
    /// A file as `headgate files` shows it, /SHARE/PATH, or the number in front of one
    #[arg(value_name = "FILE-OR-ID")]
    what: What,
    #[command(flatten)]
    order: OrderArgs,
}

#[derive(Debug, Args)]
struct DisconnectArgs {
    /// Address of the client, or what an NFS client calls itself in `headgate files`
    #[arg(value_name = "CLIENT")]
    client: Client,
    #[command(flatten)]
    order: OrderArgs,
}

#[derive(Debug, Args)]
struct LogArgs {
    /// A level, and levels of parts of the program: `info,nfsrdma=debug`
    #[arg(value_name = "LEVEL")]
    filter: LogFilter,
    #[command(flatten)]
    told: DaemonArgs,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    configuration: Configuration,
    /// With `--user NAME`, which shows what that user may do in each share, and why: as a client at this address
    #[arg(long, value_name = "ADDR")]
    client: Option<IpAddr>,
    /// Walk this share, and list each file whose access control list has a denial that is not enforced
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["client", "users"])]
    lists: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options of `serve` and `check`. They take precedence over the file; shares and addresses add to it.
#[derive(Clone, Debug, Args)]
struct Configuration {
    /// Configuration file (YAML); default, where no --share is given: /etc/headgate/headgate.yaml
    #[arg(long, value_name = "FILE", env = "HEADGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Serve DIR as /NAME; `mem:` for DIR is a volume in memory, `ceph:FS/PATH` a folder of CephFS (with id=USER of the cluster).
    /// Repeatable. Options: ro, protocols=nfs|smb|both,
    /// squash=root|all|none, clients=CLIENT[,CLIENT...] (ranges, hosts, patterns, @netgroups), durability=strict|relaxed,
    /// tls=offered|required|mutual; for SMB: encrypt, guest, ca (continuously available: persistent handles survive a restart),
    /// symlinks=server|client (who follows symbolic links)
    #[arg(long = "share", value_name = "NAME=DIR[,OPTION...]")]
    shares: Vec<ShareOption>,
    /// Also show the shares of this cluster's other services, and refer clients there; FILE as for `headgate cluster`, which
    /// passes this option to its gateways
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Serve records of a cluster's service without its `headgate cluster run`; no other gateway may serve them
    #[arg(long)]
    outside_cluster: bool,
    /// See [`Known::is_start`].
    #[arg(skip)]
    is_start: bool,
    /// Listen on this address only. Repeatable; default: all addresses
    #[arg(long, value_name = "ADDR", value_parser = config::address)]
    bind: Vec<IpAddr>,
    /// RDMA provider: auto, iwarp, verbs or off; auto: verbs where a device serves the address, else iWARP in user space. `headgate
    /// check --rdma` without a provider checks all that RDMA needs on this host (link, GID, MTU, DSCP, memory, ports, firewall),
    /// and transfers a megabyte over each device and over iWARP in user space
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, default_missing_value = "", value_parser = rdma_option)]
    rdma: Option<RdmaOption>,
    /// A CRC in every iWARP frame: asked (by the client) or always; default: asked
    #[arg(long, value_name = "WHEN")]
    rdma_crc: Option<RdmaCrc>,
    /// NFS over TCP; default: 2049
    #[arg(long, value_name = "PORT")]
    nfs_port: Option<Port>,
    /// NFS over RDMA; default: 20049
    #[arg(long, value_name = "PORT")]
    nfs_rdma_port: Option<Port>,
    /// An SMB user, with the password in the first line of FILE. Repeatable; `headgate user add` needs no file. Options:
    /// uid=NUMBER, gid=NUMBER, groups=NUMBER+NUMBER; default: the numbers of the host's user of this name
    #[arg(long = "user", value_name = "NAME=FILE[,OPTION...]")]
    users: Vec<UserOption>,
    /// SMB over TCP, and SMB Direct over RoCE and InfiniBand; default: 445
    #[arg(long, value_name = "PORT")]
    smb_port: Option<Port>,
    /// SMB Direct over iWARP; default: 5445
    #[arg(long, value_name = "PORT")]
    smb_direct_port: Option<Port>,
    /// Signing of SMB messages: required or offered; default: required. Linux does not place signed data directly
    #[arg(long, value_name = "HOW")]
    smb_signing: Option<Signing>,
    /// Encryption of SMB messages: off, offered or required; default: offered
    #[arg(long, value_name = "HOW")]
    smb_encryption: Option<Encryption>,
    /// The certificate of this gateway in PEM, for NFS over TCP with `xprtsec=tls`
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Authorities in PEM that sign certificates of clients, for `xprtsec=mtls`
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Kerberos: the keys of this server, of cifs/NAME or host/NAME. Only its owner may read it
    #[arg(long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Append the audit trail to this file, or to the journal with `journald`; `audit` of a share adds operations on its files
    #[arg(long, value_name = "FILE", value_parser = audit_to)]
    audit: Option<AuditTo>,
    /// Folder for what must survive a restart; default: /var/lib/headgate
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// NFSv4 lease time; default: 90s
    #[arg(long, value_name = "TIME")]
    lease: Option<Span>,
    /// How long after a restart clients may reclaim locks; default: the lease time
    #[arg(long, value_name = "TIME")]
    grace: Option<Span>,
    /// How NFSv3 clients find MOUNT and locks, on port 111: register (with the host's rpcbind), own, auto (either) or off;
    /// default: auto
    #[arg(long, value_name = "HOW")]
    portmap: Option<Portmap>,
    /// Memory for payload of all connections; default: 256MiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Connections held at once; default: 2048
    #[arg(long, value_name = "NUMBER")]
    connections: Option<usize>,
    /// Health, metrics and status; `off` for none; default: 127.0.0.1:9464
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<Admin>,
    /// Other addresses that may read metrics and status. Repeatable; default: none
    #[arg(long, value_name = "CIDR")]
    admin_clients: Vec<config::Cidr>,
    /// Callers of NFS over TCP and UDP that must use a port below 1024, which needs root: local (this host's own addresses),
    /// required (all) or off; default: local
    #[arg(long, value_name = "WHOM")]
    privileged_ports: Option<PrivilegedPorts>,
    /// Whether the gateway is announced on the networks that it serves: on or off; default: on
    #[arg(long, value_name = "MODE")]
    discovery: Option<Discovery>,
    /// How long requests in progress may take at a stop; default: 8s
    #[arg(long, value_name = "TIME")]
    drain: Option<Span>,
    /// Which lines go to the log: a level, and levels of parts of the program, `info,nfsrdma=debug`; default: info
    #[arg(long, value_name = "LEVEL", env = "HEADGATE_LOG")]
    log: Option<LogFilter>,
    /// How log lines are written: text or json; default: text
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// Parses the target of the audit trail; a relative path starts at the current folder.
fn audit_to(text: &str) -> Result<AuditTo, String> {
    match text.parse() {
        Ok(to) => Ok(to),
        Err(_) if !text.is_empty() => {
            std::path::absolute(text).map(AuditTo::File).map_err(|e| e.to_string())
        }
        Err(why) => Err(why),
    }
}

/// The option `--rdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RdmaOption {
    /// Without a value: `check` walks all that RDMA needs.
    Walk,
    By(Rdma),
}

impl RdmaOption {
    fn provider(self) -> Option<Rdma> {
        match self {
            Self::Walk => None,
            Self::By(rdma) => Some(rdma),
        }
    }
}

fn rdma_option(text: &str) -> Result<RdmaOption, String> {
    match text {
        "" => Ok(RdmaOption::Walk),
        text => text.parse().map(RdmaOption::By),
    }
}

impl Configuration {
    /// Uses the default file if it exists and no option says what to serve.
    fn or_file(&mut self, usual: &Path) {
        if self.shares.is_empty() {
            self.config = place::file_or(self.config.as_deref(), usual);
        }
    }

    /// Removes and returns the user of `--user NAME`, which `check` reports on and does not add.
    fn asked_about(&mut self) -> Option<String> {
        let is_name = |option: &UserOption| {
            option.0.password_file.is_none() && option.0.identity == Identity::default()
        };
        let at = self.users.iter().position(is_name)?;
        Some(self.users.remove(at).0.name)
    }

    fn load(self) -> Result<Settings, Faults> {
        let elsewhere = match &self.cluster {
            Some(file) => crate::cluster::others(file, self.config.as_deref())?,
            None => Vec::new(),
        };
        let options = Options {
            elsewhere,
            shares: self.shares,
            bind: self.bind,
            rdma: self.rdma.and_then(RdmaOption::provider),
            rdma_crc: self.rdma_crc,
            nfs_port: self.nfs_port,
            nfs_rdma_port: self.nfs_rdma_port,
            users: self.users,
            smb_port: self.smb_port,
            smb_direct_port: self.smb_direct_port,
            smb_signing: self.smb_signing,
            smb_encryption: self.smb_encryption,
            tls: [self.tls_cert, self.tls_key, self.tls_ca],
            keytab: self.keytab,
            audit: self.audit,
            state: self.state,
            lease: self.lease,
            grace: self.grace,
            portmap: self.portmap,
            memory: self.memory,
            connections: self.connections,
            admin: self.admin,
            admin_clients: self.admin_clients,
            privileged_ports: self.privileged_ports,
            discovery: self.discovery,
            drain: self.drain,
            log: self.log,
            log_format: self.log_format,
        };
        let is_start = self.is_start;
        let settings =
            config::load(self.config.as_deref(), options, Known { is_start, ..known() })?;
        trust::check_settings(&settings)?;
        Ok(settings)
    }

    /// Warns of files that control the gateway and that other users can change.
    fn warn(&self) {
        let files = [("configuration", &self.config), ("file of the cluster", &self.cluster)];
        trust::warn(files.into_iter().filter_map(|(what, file)| Some((what, file.as_deref()?))));
    }
}

/// Returns the checks that the configuration's rules need from the rest of the program.
fn known() -> Known {
    Known {
        share_id: vfs::namespace::Share::id_of,
        password: |file| read_password_in_time(file).map(drop),
        keytab: |file| users::in_time(file, keytab::prove),
        users: |state| {
            let files = ServiceFiles::Local(state.to_owned());
            let database = read_database_in_time(&files).ok()?;
            Some(database.entries().map(|e| e.name.clone()).collect())
        },
        host: identities::of_host,
        is_start: false,
        memory: crate::memory::most,
    }
}

/// Reasons why a command failed.
enum Failure {
    /// Exit code 1.
    Work(String),
    /// Exit code 1; the command has printed the reason.
    Shown,
    /// Exit code 2.
    Usage(Faults),
    /// Exit code 2; the command has printed the reason.
    Wrong,
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Usage(faults)
    }
}

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    // On wrong usage, clap prints its message and exits here with code 2; for help and version with 0.
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(configuration) => serve(configuration),
        Command::User(args) => crate::user::run(args).map_err(Failure::Work),
        Command::Status(args) => status(&args),
        Command::Top(args) => {
            runtime().and_then(|r| crate::top::run(&args, &r).map_err(Failure::Work))
        }
        Command::Reload(args) => reload(args),
        Command::Files(args) => files(args),
        Command::Close(args) => close(args),
        Command::Disconnect(args) => disconnect(args),
        Command::Wastebasket(args) => wastebasket(args),
        Command::Drain(args) => drain(args),
        Command::Log(args) => log(args),
        Command::AdminToken(args) => admin_token(args),
        Command::Check(args) => check(args),
        Command::Demo(args) => demo(&args),
        Command::Bench(args) => tools::bench::run(*args).map_err(Failure::Work),
        Command::Import(args) => tools::import::run(&args).map_err(Failure::Work),
        Command::Cluster(args) => cluster(&args),
        Command::Generate { dir } => {
            crate::generate::run(Cli::command(), &dir).map_err(Failure::Work)
        }
    };
    // Wait for the unmounts, because a cluster keeps the state of a client that disappears without one: for a minute no other
    // client could read the records, for example. A cluster that does not answer in time is left without an unmount.
    vfs::ceph::wait_unmounted(UNMOUNT_MAX);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Work(why)) => {
            complain!("error: {why}");
            ExitCode::from(1)
        }
        Err(Failure::Shown) => ExitCode::from(1),
        Err(Failure::Wrong) => ExitCode::from(2),
        Err(Failure::Usage(faults)) => {
            complain!("{faults}");
            ExitCode::from(2)
        }
    }
}

/// Threads for blocking work, and for workers that replace those blocked by it.
const BLOCKING_MAX: usize = 4096;

/// The environment variable that turns on the watchdog of operations in a release build.
pub const WATCHDOG: &str = "HEADGATE_WATCHDOG";

/// Longest wait at the end of the process for clusters whose folders it has mounted.
const UNMOUNT_MAX: Duration = Duration::from_secs(3);

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // An operation on a share that hangs has blocked its worker and uses a replacement thread: allow many such shares. Threads
        // are made when needed.
        .max_blocking_threads(BLOCKING_MAX)
        .event_interval(rdma_transport::limits::POLLS_BEFORE_IO)
        .build()
        .map_err(|e| Failure::Work(format!("cannot start threads: {e}")))
}

fn serve(mut configuration: Configuration) -> Result<(), Failure> {
    if configuration.rdma == Some(RdmaOption::Walk) {
        let why = "`--rdma` needs a provider: auto, iwarp, verbs or off\n";
        clap::Error::raw(clap::error::ErrorKind::InvalidValue, why).exit();
    }
    configuration.or_file(Path::new(place::USUAL_FILE));
    configuration.warn();
    if configuration.outside_cluster {
        crate::cluster::member::serve_outside();
    }
    let first = Configuration { is_start: true, ..configuration.clone() };
    let load = Load::new(configuration.config.clone(), move |file| {
        Configuration { config: file.map(Path::to_owned), ..configuration.clone() }.load()
    });
    let lease = crate::cluster::member::join().map_err(Failure::Work)?;
    let settings = first.load()?;
    // Do this before other threads serve. If no share lets a caller act as root, no caller may create devices, so the process gives
    // up the right to.
    if !identities::make_root(&settings) {
        vfs::local::give_up_devices();
    }
    if let Some(lease) = lease {
        lease.follow().map_err(Failure::Work)?;
    }
    if std::env::var_os(WATCHDOG).is_some() {
        rdma_transport::watchdog::turn_on();
    }
    let runtime = runtime()?;
    crate::pulse::start(&runtime);
    let ended = runtime.block_on(crate::daemon::run(settings, load)).map_err(Failure::Work);
    // Do not wait for in-flight file I/O: its callers have already been answered.
    runtime.shutdown_background();
    ended
}

/// Prints the daemon's answer.
fn told(answer: Result<String, Refused>) -> Result<(), Failure> {
    match answer {
        Ok(text) => {
            say!("{text}");
            Ok(())
        }
        Err(Refused::Wrong(text)) => {
            complain!("{text}");
            Err(Failure::Wrong)
        }
        Err(Refused::Failed(text)) => {
            complain!("{text}");
            Err(Failure::Shown)
        }
    }
}

fn reload(OrderArgs { told: daemon, json }: OrderArgs) -> Result<(), Failure> {
    told(runtime()?.block_on(control::reload(&daemon.state(), json)))
}

fn files(OrderArgs { told: daemon, json }: OrderArgs) -> Result<(), Failure> {
    told(runtime()?.block_on(control::files(&daemon.state(), json)))
}

fn close(
    CloseArgs { what, order: OrderArgs { told: daemon, json } }: CloseArgs,
) -> Result<(), Failure> {
    told(runtime()?.block_on(control::close(&daemon.state(), &what, json)))
}

fn disconnect(args: DisconnectArgs) -> Result<(), Failure> {
    let DisconnectArgs { client, order: OrderArgs { told: daemon, json } } = args;
    told(runtime()?.block_on(control::disconnect(&daemon.state(), &client, json)))
}

fn wastebasket(args: WastebasketArgs) -> Result<(), Failure> {
    match runtime()?.block_on(crate::wastebasket::command::run(args, known)) {
        Ok((output, true)) => told(Ok(output)),
        Ok((output, false)) => told(Ok(output)).and(Err(Failure::Shown)),
        Err(refused) => told(Err(refused)),
    }
}

fn drain(OrderArgs { told: daemon, json }: OrderArgs) -> Result<(), Failure> {
    told(runtime()?.block_on(control::drain(&daemon.state(), json)))
}

fn log(LogArgs { filter, told: daemon }: LogArgs) -> Result<(), Failure> {
    let done = runtime()?.block_on(control::log(&daemon.state(), &filter));
    told(done.map(|()| format!("the daemon logs {filter} until its next reload")))
}

fn admin_token(OrderArgs { told: daemon, json }: OrderArgs) -> Result<(), Failure> {
    let given = runtime()?.block_on(control::admin_token(&daemon.state()));
    if let (Ok(given), false) = (&given, json) {
        // Printed to standard error, so that a program reads only the token from standard output.
        complain!("enter this at http://{}/ within {} minutes:", given.page, given.seconds / 60);
    }
    told(given.map(|given| if json { serde_json::json!(given).to_string() } else { given.token }))
}

fn demo(args: &DemoArgs) -> Result<(), Failure> {
    match tools::demo::run::<crate::serve::Running>(args).map_err(Failure::Work)? {
        true => Ok(()),
        false => Err(Failure::Shown),
    }
}

fn cluster(args: &ClusterArgs) -> Result<(), Failure> {
    let file = args.file();
    let cluster = config::load_cluster(&file)?;
    let services = match args.runs() {
        true => crate::cluster::programs(&cluster, &file, |file| {
            config::load(Some(file), Options::default(), known())
        })?,
        false => Vec::new(),
    };
    let load = |file: &Path| config::load(Some(file), Options::default(), known());
    let runtime = runtime()?;
    let done = runtime.block_on(crate::cluster::run(args, cluster, services, load));
    // Do not wait for a thread that storage blocks: all services have ended.
    runtime.shutdown_background();
    done.map_err(|why| match why {
        crate::cluster::Failure::Work(why) => Failure::Work(why),
        crate::cluster::Failure::Usage(what) => {
            complain!("error: {what}");
            Failure::Wrong
        }
    })
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    runtime()?.block_on(crate::admin::show::run(&args.asked, args.json)).map_err(Failure::Work)
}

fn check(mut args: CheckArgs) -> Result<(), Failure> {
    args.configuration.or_file(Path::new(place::USUAL_FILE));
    let asked = args.configuration.asked_about();
    if args.client.is_some() && asked.is_none() {
        return Err(Failure::Work(
            "`--client ADDR` shows what a user may do from there; give `--user NAME` as well"
                .into(),
        ));
    }
    let walks = args.configuration.rdma == Some(RdmaOption::Walk);
    if walks && (asked.is_some() || args.lists.is_some()) {
        let why = "`--rdma` without a provider does not combine with `--user NAME` and `--lists`";
        return Err(Failure::Work(why.into()));
    }
    let says_nothing = args.configuration.config.is_none() && args.configuration.shares.is_empty();
    if walks && says_nothing {
        // A host can be looked at before it has a configuration.
        args.configuration.shares.extend("any=mem:".parse());
    }
    args.configuration.warn();
    let file = args.configuration.config.clone();
    let settings = match args.configuration.load() {
        Ok(settings) => settings,
        Err(faults) if args.json => {
            crate::check::wrong(&faults);
            return Err(Failure::Wrong);
        }
        Err(faults) => return Err(faults.into()),
    };
    if walks {
        let is_good = runtime()?.block_on(crate::check::card::run(&settings, args.json));
        return if is_good { Ok(()) } else { Err(Failure::Shown) };
    }
    if let Some(share) = &args.lists {
        let done = runtime()?.block_on(crate::check::lists::run(&settings, share, args.json));
        return if done.map_err(Failure::Work)? { Ok(()) } else { Err(Failure::Shown) };
    }
    if let Some(name) = asked {
        let file = file.as_deref();
        let done = crate::check::user::run((&settings, file), &name, args.client, args.json);
        return done.map_err(Failure::Work);
    }
    if crate::check::run(&settings, args.json) { Ok(()) } else { Err(Failure::Shown) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_without_provider_walks() {
        let rdma = |words: &[&str]| {
            let words = [&["headgate", "check"], words].concat();
            let Command::Check(args) = Cli::try_parse_from(words).ok()?.command else { panic!() };
            args.configuration.rdma
        };
        assert_eq!(rdma(&[]), None);
        assert_eq!(rdma(&["--rdma"]), Some(RdmaOption::Walk));
        assert_eq!(rdma(&["--rdma", "--json"]), Some(RdmaOption::Walk));
        assert_eq!(rdma(&["--rdma", "verbs"]), Some(RdmaOption::By(Rdma::Verbs)));
        assert_eq!(rdma(&["--rdma=off"]), Some(RdmaOption::By(Rdma::Off)));
        assert_eq!(rdma(&["--rdma", "card"]), None, "refused");
    }

    #[test]
    fn check_looks_at_the_usual_file_where_nothing_else_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let looks_at = |words: &[&str], file: &Path| {
            let words = [&["headgate", "check"], words].concat();
            let Command::Check(mut args) = Cli::parse_from(words).command else { panic!() };
            args.configuration.or_file(file);
            args.configuration.config
        };
        assert_eq!(looks_at(&[], file.path()).as_deref(), Some(file.path()));
        assert_eq!(looks_at(&["--config", "x"], file.path()), Some("x".into()));
        assert_eq!(looks_at(&["--share", "a=mem:"], file.path()), None);
        assert_eq!(looks_at(&["--rdma", "--config", "x"], file.path()), Some("x".into()));
        assert_eq!(looks_at(&[], Path::new("/no/such/file")), None);
    }
}
