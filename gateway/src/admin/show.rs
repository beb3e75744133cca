//! `headgate status`: queries the running daemon and prints the answer.

use std::fmt;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audit::PeerText;
use clap::Args;
use config::Admin;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use tokio::net::TcpStream;

use super::rules;
use super::snapshot::{
    AnnouncedStatus, ConnectionStatus, Nfs4Status, RateStatus, RefusedStatus, ServiceStatus,
    Snapshot,
};
use super::usage::{ShareStatus, Space, UserStatus};
use crate::control::client as control;
use crate::domain_service::what_fails;
use crate::place::DaemonArgs;
use crate::tls::EXPIRES_SOON;
use tools::table::{Table, Tone, bytes};

/// A daemon that works answers well within this time.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Refusals that the text of `status` shows.
const REFUSED_SHOWN: usize = 20;

/// The daemon to query.
#[derive(Debug, Args)]
pub struct Asked {
    /// Admin address of the daemon, asked by HTTP; default: its control socket, else the admin address of its file, else
    /// 127.0.0.1:9464 unless a state folder was named that no daemon uses
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<SocketAddr>,
    #[command(flatten)]
    place: DaemonArgs,
}

/// How to reach the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over the control socket in this state folder.
    Control(PathBuf),
    /// Over the admin address.
    Admin(SocketAddr),
}

impl Asked {
    /// Returns how to reach the daemon.
    pub async fn way(&self) -> Result<Way, String> {
        self.ask().await.map(|(way, _)| way)
    }

    /// Uses the control socket if this user may, unless an address was given. Admin addresses of this host are queried over
    /// loopback. An older daemon does not report its status over the socket, so only the first answer decides. Another daemon may
    /// listen on the default address: it is not queried if a state folder is named and known to have no daemon.
    async fn ask(&self) -> Result<(Way, Option<String>), String> {
        let admin = self.admin.map_or_else(|| self.place.admin(), Admin::At);
        let at = match admin {
            Admin::At(at) => Some(at),
            Admin::Usual => Some(Admin::USUAL),
            Admin::Off => None,
        };
        let at = at.map(|at| match at.ip() {
            ip if !ip.is_unspecified() => at,
            IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port()),
            IpAddr::V6(_) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port()),
        });
        let state = self.place.state();
        if self.admin.is_none() {
            let way = Way::Control(state.clone());
            let is_other = admin == Admin::Usual && self.place.names_state();
            match (way.text().await, at) {
                (Ok(text), _) => return Ok((way, Some(text))),
                (Err(nobody), None) => return Err(nobody),
                (Err(nobody), _) if is_other && control::is_deserted(&state).await => {
                    return Err(nobody);
                }
                (Err(_), Some(_)) => {}
            }
        }
        Ok((Way::Admin(at.unwrap_or(Admin::USUAL)), None))
    }
}

impl Way {
    /// Returns the daemon's status in JSON.
    async fn text(&self) -> Result<String, String> {
        let answer = async {
            match self {
                Self::Control(state) => control::status(state).await,
                Self::Admin(at) => fetch(*at, "/status").await,
            }
        };
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("the daemon at {self} did not answer in time")),
        }
    }

    fn understood(&self, text: &str) -> Result<Snapshot, String> {
        let wrong = |e: serde_json::Error| {
            format!("{self} did not answer as a headgate of this version: {e}")
        };
        let mut status: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
        // A new program may be installed while the daemon of the old one still runs. In its first form `refused` was a number.
        if let Some(keys) = status.as_object_mut()
            && keys.get("refused").is_some_and(serde_json::Value::is_u64)
            && let Some(connections) = keys.remove("refused")
        {
            keys.insert("connections_refused".into(), connections);
        }
        serde_json::from_value(status).map_err(wrong)
    }

    /// Returns the daemon's status.
    pub async fn snapshot(&self) -> Result<Snapshot, String> {
        self.understood(&self.text().await?)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control(state) => write!(f, "{}", crate::control::path(state).display()),
            Self::Admin(at) => write!(f, "{at}"),
        }
    }
}

/// Returns the status of the daemon at this admin address.
pub async fn snapshot(at: SocketAddr) -> Result<Snapshot, String> {
    Way::Admin(at).snapshot().await
}

/// Prints the daemon's status.
pub async fn run(asked: &Asked, json: bool) -> Result<(), String> {
    let (way, text) = asked.ask().await?;
    let text = match text {
        Some(text) => text,
        None => way.text().await?,
    };
    if json {
        say!("{text}");
        return Ok(());
    }
    say_as_is!("{}", show(&way.understood(&text)?, std::io::stdout().is_terminal()));
    Ok(())
}

/// Returns the response of the daemon at this admin address to a GET of `path`.
pub async fn fetch(at: SocketAddr, path: &str) -> Result<String, String> {
    let none = |e: &dyn fmt::Display| {
        format!("no daemon answers at {at}: {e}; is it running, with `--admin {at}`?")
    };
    let stream = TcpStream::connect(at).await.map_err(|e| none(&e))?;
    let request = Request::get(path)
        .header("host", at.to_string())
        .body(Full::<Bytes>::default())
        .map_err(|e| e.to_string())?;
    let (status, text) = crate::http::ask(stream, request).await.map_err(|e| none(&e))?;
    match status.is_success() {
        true => Ok(text),
        false => {
            let why = text.lines().next().filter(|l| !l.is_empty()).map(|l| format!(": {l}"));
            Err(format!("{at} answered {status}{}", why.unwrap_or_default()))
        }
    }
}

/// Describes silent NFSv4 clients, if there are any.
fn nfs4(s: &Nfs4Status) -> String {
    let mut text = String::new();
    if s.lapsed > 0 {
        text += &format!(
            "\nsilent NFSv4 clients: {} of {}, which keep {} opens and locks until another client needs them\n",
            s.lapsed, s.clients, s.lapsed_states
        );
    }
    if s.unstruck > 0 {
        text += &format!(
            "\nexpired NFSv4 clients whose locks stay, because the state folder cannot be written: {}\n",
            s.unstruck
        );
    }
    text
}

/// Returns the lines about what is announced on a link.
fn announced(link: &AnnouncedStatus) -> String {
    let mut text = match (&link.name, link.by.as_slice()) {
        (_, []) => format!("not announced on {}\n", link.link),
        (None, by) => format!("claims its name on {} by {}\n", link.link, by.join(", ")),
        (Some(name), by) => {
            format!(
                "announced on {} as {name} ({}) by {}\n",
                link.link,
                link.addresses.join(", "),
                by.join(", ")
            )
        }
    };
    link.troubles.iter().for_each(|trouble| text += &format!("  {trouble}\n"));
    text
}

/// Formats the snapshot for people: one line for each connection, and below it why it is not on RDMA.
pub fn show(s: &Snapshot, colour: bool) -> String {
    let (ready, up) = (if s.ready { "serving" } else { "stopping" }, span(s.uptime_seconds));
    let open = s.connections.len();
    let mut text = format!(
        "headgate {}: {ready} for {up}, {open} connections of {}\n",
        s.version, s.connections_max
    );
    if let Some((domain, why)) = s.domain.as_ref().and_then(|of| Some((of, of.why_not.as_ref()?))) {
        let what = what_fails(domain.by != "sssd");
        text += &format!("{}: {why}; {what}\n", domain.by);
    }
    if let Some(why) = s.directory.as_ref().and_then(|directory| directory.why_not.as_ref()) {
        text += &format!("LDAP: {why}; earlier answers decide about logons of its users\n");
    }
    if let Some(store) = &s.store {
        text += &format!("NOT READY: {}\n", store.what);
    }
    if let Some(ServiceStatus { name, node, epoch, lease_left_ms }) = &s.service {
        let left = Duration::from_millis(*lease_left_ms);
        text += &format!("service {name} on {node} in epoch {epoch}, lease valid for {left:?}\n");
    }
    s.announced.iter().for_each(|link| text += &announced(link));
    text += &certificate(s.tls_certificate_ends, SystemTime::now());
    if s.connections_refused > 0 {
        let n = s.connections_refused;
        text += &format!("{n} connections were refused\n");
    }
    for lost in &s.losses {
        let file = lost.file.as_deref().unwrap_or("unknown");
        text += &format!(
            "share {}: storage failed {} times to keep data that it had accepted, last of {file}; look at the log and the device\n",
            lost.share, lost.count
        );
    }
    for share in &s.shares {
        if let Some(why) = &share.ended {
            text += &format!("share {}: {why}\n", share.name);
        }
    }
    for share in s.shares.iter().filter(|share| share.waiting > 0) {
        text += &format!(
            "share {}: its storage does not respond, and {} operations wait for it; look at the log and the device\n",
            share.name, share.waiting
        );
    }
    text += &shares(&s.shares, colour);
    text += &users(&s.users, colour);
    if !s.connections.is_empty() {
        text.push('\n');
        text += &connections(&s.connections, colour);
        for c in &s.connections {
            text += &story(c);
        }
    }
    text += &rates(&s.rates, colour);
    text += &nfs4(&s.nfs4);
    text += &refused(&s.refused, colour);
    if !s.limits.is_empty() {
        text += "\nlimits that clients reached:\n";
        for (limit, n) in &s.limits {
            text += &format!("  {limit}: {n}\n");
        }
    }
    if !s.violations.is_empty() {
        text += "\nrules that peers broke:\n";
        for (rule, n) in &s.violations {
            let of = rules::of(rule).map(|of| format!(" ({of})")).unwrap_or_default();
            text += &format!("  {rule}: {n}{of}\n");
        }
    }
    if !s.rdma_failures.is_empty() {
        text += "\nwork that RDMA devices failed (the log has the vendor's code):\n";
        for (status, n) in &s.rdma_failures {
            text += &format!("  {status}: {n}\n");
        }
    }
    text
}

fn shares(all: &[ShareStatus], colour: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["share", "by", "access", "free", "of", "SMB connects"], 3, colour);
    for s in all {
        let access = match (s.read_only, s.hidden) {
            (false, false) => "write",
            (false, true) => "write, hidden",
            (true, false) => "read only",
            (true, true) => "read only, hidden",
        };
        let by = if s.protocols == "both" { "nfs, smb" } else { &s.protocols };
        let space = |of: fn(&Space) -> u64| s.space.as_ref().map_or("-".into(), |s| bytes(of(s)));
        let access = match &s.servers[..] {
            [] => access.to_owned(),
            servers => format!("at {}", servers.join(", ")),
        };
        let mut cells = vec![s.name.clone(), by.to_owned(), access];
        cells.extend([space(|s| s.free_bytes), space(|s| s.total_bytes), s.trees.to_string()]);
        table.row(cells, Tone::Plain);
    }
    format!("\n{}{}{}", table.render(), links(all, colour), snapshots(all, colour))
}

fn snapshots(all: &[ShareStatus], colour: bool) -> String {
    let mut table = Table::new(&["snapshots of", "latest", "told", "open"], 2, colour);
    let mut is_empty = true;
    for s in all {
        let Some(its) = &s.snapshots else { continue };
        is_empty = false;
        let (latest, tone) = match (&its.trouble, &its.latest) {
            (Some(why), _) => (why.clone(), Tone::Bad),
            (None, latest) => (latest.clone().unwrap_or_else(|| "none".into()), Tone::Plain),
        };
        table.row(vec![s.name.clone(), latest, its.told.to_string(), its.open.to_string()], tone);
    }
    if is_empty { String::new() } else { format!("\n{}", table.render()) }
}

fn links(all: &[ShareStatus], colour: bool) -> String {
    let mut table = Table::new(&["link", "to", "referred by smb", "nfs"], 2, colour);
    let mut is_empty = true;
    for s in all {
        let own =
            s.links.iter().map(|link| (format!("{}/{}", s.name, link.at), link.to.join(", ")));
        let msdfs = s.msdfs.then(|| (s.name.clone(), "symbolic links of Samba".into()));
        for (n, (at, to)) in own.chain(msdfs).enumerate() {
            is_empty = false;
            // Counted for each share.
            let count = |of: u64| if n == 0 { of.to_string() } else { String::new() };
            let cells = vec![at, to, count(s.referred.smb), count(s.referred.nfs)];
            table.row(cells, Tone::Plain);
        }
    }
    if is_empty { String::new() } else { format!("\n{}", table.render()) }
}

fn users(all: &[UserStatus], colour: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["SMB user", "from", "shares", "sessions"], 3, colour);
    for u in all {
        let name = match (&*u.name, u.guest) {
            ("", _) => "(without a name)".into(),
            (name, true) => format!("{name} (guest)"),
            (name, false) => name.to_owned(),
        };
        let list = |all: Vec<&str>| if all.is_empty() { "-".into() } else { all.join(" ") };
        let clients = list(u.clients.iter().map(String::as_str).collect());
        let shares = list(u.shares.iter().map(PeerText::as_str).collect());
        let cells = vec![name, clients, shares, u.sessions.to_string()];
        table.row(cells, Tone::Plain);
    }
    format!("\n{}", table.render())
}

fn rates(all: &[RateStatus], colour: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = ["rate of", "a second", "burst", "passed", "waited", "on average", "wait now"];
    let mut table = Table::new(&head, 1, colour);
    for r in all {
        let amount = |n: u64| if r.is_bytes() { bytes(n) } else { n.to_string() };
        let average = r.waited_ms.checked_div(r.waited).map_or("-".into(), |ms| format!("{ms} ms"));
        let cells = vec![
            r.title(),
            amount(r.rate),
            config::Span(Duration::from_millis(r.burst_ms)).to_string(),
            amount(r.passed),
            r.waited.to_string(),
            average,
            r.waiting.to_string(),
        ];
        table.row(cells, Tone::Plain);
    }
    format!("\n{}", table.render())
}

fn connections(all: &[ConnectionStatus], colour: bool) -> String {
    let head =
        ["client", "protocol", "by", "age", "requests", "RDMA Write", "RDMA Read", "in", "out"];
    let mut table = Table::new(&head, 3, colour);
    for c in all {
        let m = &c.moved;
        let numbers = [m.rdma_write, m.rdma_read, m.inline_in, m.inline_out].map(bytes);
        let mut cells = vec![
            c.peer.clone(),
            c.protocol.name().to_owned(),
            c.transport.clone(),
            span(c.age_seconds),
            m.requests.to_string(),
        ];
        cells.extend(numbers);
        table.row(cells, Tone::Plain);
    }
    table.render()
}

/// Formats the newest refusals, and below them the remedy for each rule among them.
fn refused(all: &[RefusedStatus], colour: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["client", "rule", "share", "user", "times", "last"], 4, colour);
    let mut remedies = Vec::new();
    for r in all.iter().take(REFUSED_SHOWN) {
        let or_none = |text: &str| if text.is_empty() { "-".into() } else { text.to_owned() };
        let last = format!("{} ago", span(r.age_seconds));
        let texts = [&*r.client, &*r.rule, &*r.share, &*r.user].map(or_none);
        let cells = texts.into_iter().chain([r.count.to_string(), last]).collect();
        table.row(cells, Tone::Plain);
        let [user, share] =
            [("as", &r.user), ("for", &r.share)].map(|(word, text)| match text.as_str() {
                "" => String::new(),
                text => format!(" {word} {text}"),
            });
        remedies.push(format!("  {}{user}{share}, {}: {}\n", r.client, r.rule, r.remedy));
    }
    let mut text = format!("\nrefused lately:\n{}", table.render());
    if all.len() > REFUSED_SHOWN {
        text += &format!("  and {} older ones; --json shows them\n", all.len() - REFUSED_SHOWN);
    }
    text += "to let them in:\n";
    text + &remedies.concat()
}

fn story(c: &ConnectionStatus) -> String {
    let mut text = format!("\n{} to {}\n", c.peer, c.local);
    for (name, value) in &c.facts {
        text += &format!("  {name}: {value}\n");
    }
    if c.placed {
        let how = match c.protection.as_str() {
            "sign" => "signed, placed directly",
            "seal" => "encrypted, placed directly",
            _ => "placed directly",
        };
        text += &format!("  bulk data: {how}\n");
    }
    if let Some(why) = &c.why_not {
        text += &format!("  no RDMA ({}): {}\n", why.reason, why.text);
    }
    text
}

/// Warns if the certificate has expired or soon will.
fn certificate(ends: Option<u64>, now: SystemTime) -> String {
    let Some(ends) = ends else { return String::new() };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match ends.saturating_sub(now) {
        0 => "the TLS certificate has expired, and clients refuse it: replace it, and run `headgate reload`\n".into(),
        left if left <= EXPIRES_SOON.as_secs() => {
            format!("the TLS certificate expires in {}: replace it, and run `headgate reload`\n", span(left))
        }
        _ => String::new(),
    }
}

/// Formats a duration in its largest fitting unit.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::testing::{full, snapshot};

    #[tokio::test]
    async fn the_admin_address_is_that_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let asked = |admin: Option<SocketAddr>, text: &str| {
            std::fs::write(file.path(), text).unwrap();
            // No daemon listens there.
            let state = Some(file.path().with_extension("state"));
            Asked { admin, place: DaemonArgs { state, config: Some(file.path().into()) } }
        };
        let at = |text: &str| Ok(Way::Admin(text.parse().unwrap()));
        let of_file = async |text: &str| asked(None, text).way().await;
        assert_eq!(of_file("admin: 192.0.2.1:1\nno-such-key: 1\n").await, at("192.0.2.1:1"));
        assert_eq!(of_file("admin: 0.0.0.0:1\n").await, at("127.0.0.1:1"));
        assert_eq!(of_file("admin: '[::]:1'\n").await, at("[::1]:1"));
        // The daemon at the default address may be another one than the folder's.
        for text in ["admin: off\n", "drain: 1s\n"] {
            let nobody = of_file(text).await.unwrap_err();
            assert!(nobody.starts_with("no daemon listens at "), "{text} {nobody}");
        }
        let said = asked("192.0.2.9:2".parse().ok(), "admin: off\n");
        assert_eq!(said.way().await, at("192.0.2.9:2"));
    }

    #[tokio::test]
    async fn a_daemon_that_does_not_tell_by_its_socket_is_asked_at_the_usual_address() {
        let state = tempfile::tempdir().unwrap();
        let socket = crate::control::path(state.path());
        let daemon = tokio::net::UnixListener::bind(socket).unwrap();
        // Acts like a daemon that does not know the order, and like one that this user may not access.
        tokio::spawn(async move { while daemon.accept().await.is_ok() {} });
        let config = Some(state.path().join("none"));
        let place = DaemonArgs { state: Some(state.path().into()), config };
        let asked = Asked { admin: None, place };
        assert_eq!(asked.way().await, Ok(Way::Admin(Admin::USUAL)));
    }

    #[test]
    fn a_daemon_from_before_the_rows_of_refusals_is_understood() {
        let now = Snapshot {
            connections_refused: 3,
            refused: vec![crate::admin::testing::refused()],
            ..snapshot()
        };
        let way = Way::Admin(Admin::USUAL);
        let mut told = serde_json::to_value(&now).unwrap();
        assert_eq!(way.understood(&told.to_string()), Ok(now));
        let keys = told.as_object_mut().unwrap();
        keys.remove("connections_refused");
        keys.remove("refusals");
        keys.insert("refused".into(), 7.into());
        let old = way.understood(&told.to_string()).unwrap();
        assert_eq!((old.connections_refused, old.refused.len()), (7, 0));
        assert!(way.understood("{}").unwrap_err().contains("missing field"));
    }

    #[test]
    fn each_row_of_refusals_has_its_remedy() {
        let mut s = snapshot();
        s.refused = vec![crate::admin::testing::refused(); REFUSED_SHOWN + 3];
        let text = show(&s, false);
        let row = text.lines().find(|l| l.trim_start().starts_with("192.0.2.8")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["192.0.2.8", "logon", "-", "ann", "12", "61", "s", "ago"]);
        assert_eq!(text.matches("192.0.2.8").count(), 2 * REFUSED_SHOWN);
        assert!(text.contains("and 3 older ones"), "{text}");
        assert_eq!(text.matches("the password of the user").count(), REFUSED_SHOWN);
        s.refused.clear();
        assert!(!show(&s, false).contains("refused lately"));
    }

    #[test]
    fn failures_of_rdma_devices_are_shown_by_status() {
        let text = show(&snapshot(), false);
        let (_, after) = text.split_once("work that RDMA devices failed").unwrap();
        assert_eq!(after.lines().nth(1), Some("  retries-exceeded: 2"), "{text}");
        let none = Snapshot { rdma_failures: Default::default(), ..snapshot() };
        assert!(!show(&none, false).contains("RDMA devices failed"));
    }

    #[test]
    fn a_certificate_that_expires_is_told() {
        let line = |left: i64| {
            let ends = 1_800_000_000_u64;
            let now = UNIX_EPOCH + Duration::from_secs(ends.saturating_add_signed(-left));
            certificate(Some(ends), now)
        };
        assert!(line(-5).contains("has expired") && line(0).contains("has expired"));
        assert!(line(3 * 86_400).contains("expires in 3 d"), "{}", line(3 * 86_400));
        assert_eq!(line(90 * 86_400), "");
        assert_eq!(certificate(None, UNIX_EPOCH), "");
    }

    #[test]
    fn a_state_folder_that_cannot_be_written_is_the_second_line() {
        let text = show(&full(), false);
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with("NOT READY") && second.ends_with(": make space"), "{text}");
    }

    #[test]
    fn a_connection_is_one_line_and_its_story() {
        let text = show(&snapshot(), false);
        for part in [
            "headgate 1.2.3: serving for 2 h, 1 connections of 2048",
            "2 connections were refused",
            "share data: storage failed 3 times to keep data that it had accepted, last of /srv/data/f",
            "share data: its cluster has cut this gateway off",
            "192.0.2.7:700",
            "61 s",
            "dialect: 3.1.1",
            "no RDMA (not-asked): it signs",
            "opens-of-session: 3",
            "refused lately:",
            "  192.0.2.8 as ann, logon: give the client the password of the user",
            "smb-signature: 1 (SMB, MS-SMB2)",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
