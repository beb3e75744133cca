//! Tests of the program from the user's view: exit codes, messages, JSON.

#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on says so.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Output, Stdio};

fn headgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headgate")).args(args).output().unwrap()
}

fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

fn json(o: &Output) -> serde_json::Value {
    serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(o)))
}

#[test]
fn demo_moves_every_byte_through_all_protocols() {
    let o = headgate(&["demo", "--json", "--size", "3MiB"]);
    assert_eq!(o.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&o.stdout), stderr(&o));
    let told = json(&o);
    let rows = told["rows"].as_array().unwrap();
    let small = 1 + 127 + 1340 + 4095 + 4096 + 4097 + 8193 + 16384 + 40000 + 65535 + 65537;
    let all = (3 << 20) + small;
    let mut seen = Vec::new();
    for row in rows {
        let of = |key: &str| row[key].as_u64().unwrap();
        let text = |key: &str| row[key].as_str().unwrap();
        seen.push((text("protocol"), text("transport"), text("protection")));
        assert_eq!(of("verified_bytes"), 2 * all, "{row}");
        if row["transport"] == "rdma" {
            // Bulk data uses RDMA, small data is inside of messages.
            assert!(of("rdma_write_bytes") > 3 << 20, "{row}");
            assert!(of("rdma_read_bytes") > 3 << 20, "{row}");
            assert!(of("inline_bytes") < 1 << 20, "{row}");
        } else {
            assert_eq!(of("rdma_write_bytes") + of("rdma_read_bytes"), 0);
            assert!(of("inline_bytes") > 2 * all);
        }
    }
    let ways =
        ["nfs3", "nfs4.1", "smb3.1.1"].map(|p| [(p, "tcp", "none"), (p, "rdma", "none")]).concat();
    let protected = [("smb3.1.1", "rdma", "sign"), ("smb3.1.1", "rdma", "seal")];
    assert_eq!(seen, [&ways[..], &protected].concat());
}

/// The reader ends early, as in `| head`.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let state = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
        .args(["check", "--share", "a=mem:", "--state"])
        .arg(state.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()));
}

#[test]
fn shares_that_overlap_are_served_and_more_memory_than_there_is_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    let (outer, inner) = (dir.path().display(), dir.path().join("in"));
    let (a, b) = (format!("a={outer}"), format!("b={}", inner.display()));
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    let o = headgate(&["check", "--json", "--share", &a, "--share", &b, "--state", state]);
    let warnings = json(&o)["warnings"].to_string();
    assert!(!warnings.contains("of the share `b`"), "{warnings}");
    let o = headgate(&["check", "--share", "a=mem:", "--memory", "100000GiB"]);
    assert_eq!(o.status.code(), Some(2));
    let told = stderr(&o);
    assert!(told.contains("--memory: 100000GiB of payload memory is more than the "), "{told}");
}

#[test]
fn wrong_usage_and_wrong_configuration_end_with_2() {
    for args in [
        &["serve"][..],
        &["serve", "--share", "data"],
        &["serve", "--share", "data=/no/such/folder"],
        &["serve", "--share", "a=mem:", "--nfs-port", "nfs"],
        &["check", "--config", "/no/such/file"],
        &["bench"],
        &["bench", "http://x"],
        &["no-such-command"],
        &["serve", "--share", "a=mem:", "--user", "me=/no/such/file"],
        &["serve", "--share", "a=mem:", "--user", "a:b=/etc/passwd"],
        // Only `check` takes a user of a domain.
        &["serve", "--share", "a=mem:", "--user", r"LAB\alice"],
        &["serve", "--share", "a=mem:", "--smb-port", "smb"],
        &["serve", "--share", "a=mem:", "--smb-signing", "maybe"],
        &["serve", "--share", "a=mem:,crypt"],
        &["user", "add", "a:b"],
    ] {
        let o = headgate(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {}", stderr(&o));
        assert!(stderr(&o).starts_with("error: "), "{args:?}: {}", stderr(&o));
        assert!(o.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_fault_of_the_file_is_shown_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gw.yaml");
    std::fs::write(&path, "shares:\n  - name: data\n    pth: /srv\n").unwrap();
    let o = headgate(&["check", "--config", path.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2));
    let expected = format!(
        "error: {}:3:5: a share has no key `pth`\n  |\n3 |     pth: /srv\n  |     ^\n  = did you mean `path`?\n",
        path.display()
    );
    assert_eq!(stderr(&o), expected);
}

#[test]
fn check_tells_programs_what_it_tells_people() {
    let folder = tempfile::tempdir().unwrap();
    let share = format!("data={},ro,clients=10.0.0.0/8", folder.path().display());
    let state = format!("{}", folder.path().with_extension("state").display());
    let args = [
        "--share",
        &share,
        "--bind",
        "127.0.0.1",
        "--nfs-port",
        "0",
        "--nfs-rdma-port",
        "0",
        "--state",
        &state,
    ];
    let o = headgate(&[&["check"][..], &args, &["--json"]].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let told = json(&o);
    assert_eq!(told["sound"], true);
    assert_eq!(told["shares"][0]["name"], "data");
    assert_eq!(told["shares"][0]["read_only"], true);
    assert_eq!(told["shares"][0]["clients"][0], "10.0.0.0/8");
    assert_eq!(told["connections"], 2048);
    assert!(told["open_files"].as_u64().is_none_or(|files| files > 0), "{told}");
    assert_eq!(told["addresses"][0]["address"], "127.0.0.1");
    assert_eq!(told["addresses"][0]["device"], "lo");
    let mount = told["addresses"][0]["mount"][0].as_str().unwrap();
    assert_eq!(mount, "mount -t nfs -o vers=4.2,proto=tcp,port=0 127.0.0.1:/data /mnt");
    let o = headgate(&[&["check"][..], &args].concat());
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(text.contains("The configuration is sound.") && text.contains(mount), "{text}");
}

/// Without configuration as well. The ports are any, because other programs may use the usual ones.
#[test]
fn check_walks_what_rdma_needs_and_places_data() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let words =
        ["--bind", "127.0.0.1", "--nfs-rdma-port", "0", "--smb-direct-port", "0", "--state", state];
    let o = headgate(&[&["check", "--rdma", "--json"], &words[..]].concat());
    assert_eq!(o.status.code(), Some(0), "{o:?}");
    let told = json(&o);
    assert_eq!(told["ready"], true);
    let steps = told["steps"].as_array().unwrap();
    let of = |step| steps.iter().filter(|s| s["step"] == step).collect::<Vec<_>>();
    assert!(!of("link").is_empty() && !of("firewall").is_empty(), "{told}");
    let [write] = of("write")[..] else { panic!("{told}") };
    let found = write["found"].as_str().unwrap();
    assert!(found.contains("placed 1 MiB at 127.0.0.1") && write["verdict"] == "good", "{told}");
    // For people: each step with its word, problems with the remedy below.
    let o = headgate(&[&["check", "--rdma"], &words[..]].concat());
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(
        text.lines().any(|l| l.starts_with("ok       write     iWARP in user space")),
        "{text}"
    );
    let o = headgate(&["check", "--rdma", "--lists", "a", "--share", "a=mem:"]);
    assert_eq!(o.status.code(), Some(1), "{o:?}");
    // Only `check` has the option without a provider.
    let o = headgate(&["serve", "--rdma", "--share", "a=mem:"]);
    assert_eq!(o.status.code(), Some(2), "{o:?}");
}

#[test]
fn check_names_lists_that_are_not_obeyed() {
    use vfs::acl::{Ace, Acl, Who, flag, mask};
    use vfs::local::{LocalBackend, LocalConfig};
    use vfs::{Backend, Cred};
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("data");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    for file in ["sub/deep/listed", "sub/plain", "top"] {
        fs::write(root.join(file), "x").unwrap();
    }
    let share = format!("data={}", root.display());
    let state = folder.path().join("state").display().to_string();
    let ask = |more: &[&str]| {
        let words = ["check", "--share", &share, "--state", &state, "--admin", "off", "--lists"];
        headgate(&[&words[..], more].concat())
    };
    let backend = LocalBackend::open(LocalConfig::new(&root)).unwrap();
    // Sealed lists need a key in the state folder; the tests of seals cover them.
    if !backend.has_trusted_lists() {
        return;
    }
    let o = ask(&["data"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sid = "S-1-5-32-551".parse().unwrap();
        let flags = flag::OBJECT_INHERIT | flag::INHERIT_ONLY;
        let denies = Ace::deny(Who::Sid(sid), mask::READ_DATA, flags);
        let object = Ace::Other { kind: 6, flags: 0, body: vec![0; 16] };
        let all = Ace::allow(Who::Everyone, mask::FILE_ALL, 0);
        let (cred, mut at) = (Cred::root(), backend.root());
        for name in [&b"sub"[..], b"deep", b"listed"] {
            at = at.lookup(&cred, name).await.unwrap().0;
            let first = if name == b"listed" { &object } else { &denies };
            let list = if name == b"sub" { vec![] } else { vec![first.clone()] };
            let list = list.into_iter().chain([all.clone()]).collect();
            at.acl_set(&Acl::new(list), 0o777).await.unwrap();
        }
    });
    let o = ask(&["data", "--json"]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    let told = json(&o);
    assert_eq!((&told["files"], &told["unread"]), (&6.into(), &0.into()));
    let found = told["not_obeyed"].as_array().unwrap();
    let paths: Vec<_> = found.iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/sub/deep", "/sub/deep/listed"]);
    let text = String::from_utf8(ask(&["data"]).stdout).unwrap();
    assert!(text.contains("/sub/deep: denies S-1-5-32-551"), "{text}");
    let o = ask(&["date"]);
    assert_eq!((o.status.code(), stderr(&o).contains("`data`")), (Some(1), true));
}

#[test]
fn check_tells_what_a_user_may_do_and_by_what() {
    let folder = tempfile::tempdir().unwrap();
    let (file, password) = (folder.path().join("x.yaml"), folder.path().join("password"));
    std::fs::write(&password, "secret\n").unwrap();
    let text = format!(
        "\
shares:
  - {{name: open, memory: true}}
  - {{name: team, memory: true, access: {{read: [alice, '@2100'], write: bob, deny: '13'}}, force: {{user: bob}}}}
  - {{name: lab, memory: true, clients: [10.0.0.0/8, {{from: 10.1.0.0/16, read_only: true}}]}}
  - {{name: box, memory: true, guest: true, squash: all, access: {{write: '65534', read: [alice, '13']}}}}
users:
  - {{name: alice, uid: 2001, gid: 2001, groups: 2100, password_file: {0}}}
  - {{name: bob, uid: 2002, gid: 2002, groups: 2100, password_file: {0}}}
state: {1}
",
        password.display(),
        folder.path().join("state").display()
    );
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let ask = |words: &[&str]| {
        let o = headgate(&[&["check", "--json", "--config", file], words].concat());
        assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
        json(&o)
    };
    let may = |told: &serde_json::Value, share: usize, by: &str| {
        let answer = &told["shares"][share][by];
        let text = |key: &str| answer[key].as_str().unwrap().to_owned();
        (text("may"), text("because"))
    };
    let is = |may: &str, why: &str| (may.to_owned(), why.to_owned());
    let alice = ask(&["--user", "alice", "--client", "10.1.2.3"]);
    assert_eq!(alice["uid"], 2001);
    assert_eq!(may(&alice, 0, "smb"), is("write", "no rule of the share"));
    assert_eq!(may(&alice, 1, "smb"), is("read", "`access: read: alice`"));
    assert_eq!(may(&alice, 2, "nfs"), is("read", "`read_only` of its entry in `clients`"));
    let said_in = |told: &serde_json::Value, share: usize, by: &str| {
        let line = told["shares"][share][by]["said_in"].as_str().unwrap().to_owned();
        line.strip_prefix(file).unwrap().to_owned()
    };
    for (share, by, line) in
        [(0, "smb", ":2"), (1, "smb", ":3"), (2, "nfs", ":4"), (3, "smb", ":5")]
    {
        assert_eq!(said_in(&alice, share, by), line, "{share} {by}");
    }
    let anywhere = ask(&["--user", "alice"]);
    assert_eq!(may(&anywhere, 2, "nfs"), is("write", "no rule of the share"));
    let bob = ask(&["--user", "bob", "--client", "192.0.2.1"]);
    assert_eq!(may(&bob, 1, "smb"), is("write", "`access: write: bob`"));
    assert_eq!(
        may(&bob, 2, "smb"),
        is("nothing", "`clients` has no entry that matches the address")
    );
    // A number without an account, as NFS may send it.
    let denied = ask(&["--user", "13"]);
    assert_eq!(may(&denied, 1, "nfs"), is("nothing", "`access: deny: 13`"));
    assert_eq!(may(&denied, 0, "smb").0, "nothing");
    // An address in TEST-NET-3 (RFC 5737), to which no host is attached.
    let far = ask(&["--user", "alice", "--client", "203.0.113.9"]);
    let own = "without `clients` the share is for this host and its directly attached networks";
    assert_eq!(may(&far, 0, "nfs"), is("nothing", own));
    let near = ask(&["--user", "alice", "--client", "127.0.0.1"]);
    assert_eq!(may(&near, 0, "nfs"), is("write", "no rule of the share"));
    assert_eq!(near["shares"][1]["nfs"]["acts_as"]["uid"], 2002);
    let bob = ask(&["--user", "bob", "--client", "127.0.0.1"]);
    assert_eq!(may(&bob, 1, "nfs"), is("write", "`access: write: bob`"));
    // `access` applies to the identity after the squash, and to guests.
    assert_eq!(may(&near, 3, "nfs"), is("write", "`access: write: 65534`"));
    assert_eq!(may(&near, 3, "smb"), is("read", "`access: read: alice`"));
    assert_eq!(may(&denied, 3, "smb"), is("write", "as a guest: `access: write: 65534`"));
    assert_eq!(denied["shares"][3]["smb"]["acts_as"]["uid"], 65_534);
    check_tells_people(file);
}

/// Checks the same in the text for people, with its notes on cases without result.
fn check_tells_people(file: &str) {
    let o = headgate(&["check", "--config", file, "--user", "alice"]);
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(
        text.starts_with("alice: user 2001, groups 2001 2100") && text.contains("2002:2002"),
        "{text}"
    );
    for (words, why) in [
        (&["--user", "nobody-has-this-name"][..], "there is no user `nobody-has-this-name`"),
        (&["--client", "10.0.0.1"], "give `--user NAME` as well"),
    ] {
        let o = headgate(&[&["check", "--config", file], words].concat());
        assert_eq!(o.status.code(), Some(1));
        assert!(stderr(&o).contains(why), "{}", stderr(&o));
    }
}

#[test]
fn check_tells_programs_where_the_faults_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, "shares: [{name: a, memory: true}]\ndrian: 3s\nstate: x\n").unwrap();
    let file = file.to_str().unwrap();
    let o = headgate(&["check", "--json", "--config", file]);
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    let told = json(&o);
    assert_eq!((&told["sound"], &told["would_start"]), (&false.into(), &false.into()));
    let faults = told["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{told}");
    assert_eq!((&faults[0]["file"], &faults[0]["line"]), (&file.into(), &2.into()));
    assert_eq!(faults[0]["help"], "did you mean `drain`?");
    assert!(faults[1]["what"].as_str().unwrap().contains("absolute"), "{told}");
    let o = headgate(&["check", "--json", "--share", "a=/no/such/folder"]);
    assert_eq!(json(&o)["faults"][0]["option"], "--share");
}

#[test]
fn check_warns_of_a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let o = headgate(&[
        "check",
        "--json",
        "--share",
        "a=mem:",
        "--bind",
        "127.0.0.1",
        "--nfs-port",
        &port,
        "--nfs-rdma-port",
        "0",
    ]);
    assert_eq!(o.status.code(), Some(1));
    let told = json(&o);
    assert_eq!(told["would_start"], false);
    let warnings = told["stops"].as_array().unwrap();
    let in_use = |w: &serde_json::Value| {
        w.as_str().unwrap().contains(&format!("127.0.0.1:{port} is in use by"))
    };
    assert!(warnings.iter().any(in_use), "{warnings:?}");
}

#[test]
fn work_that_fails_ends_with_1() {
    let o = headgate(&["bench", "nfs://127.0.0.1:1/x"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).starts_with("error: nfs://127.0.0.1:1/x?"), "{}", stderr(&o));
}

/// A running gateway that ends on drop.
struct Gateway(std::process::Child, String);

impl Gateway {
    fn start(args: &[&str]) -> Self {
        use std::io::BufRead;
        let mut child = Command::new(env!("CARGO_BIN_EXE_headgate"))
            .args(args)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line)
    }

    fn port(&self, what: &str) -> String {
        let field = self.1.split_whitespace().find_map(|f| f.strip_prefix(what)).unwrap();
        field.rsplit_once(':').unwrap().1.to_owned()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a gateway with the user `alice` and a share in memory for both protocols; returns its folder too.
fn gateway_for_bench() -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (state, password) = (folder.path().join("state"), folder.path().join("password"));
    std::fs::write(&password, "secret\n").unwrap();
    let user = format!("alice={},uid=0", password.display());
    let mut args = vec!["serve", "--share", "m=mem:,squash=none", "--bind", "127.0.0.1"];
    for port in ["--nfs-port", "--nfs-rdma-port", "--smb-port", "--smb-direct-port"] {
        args.extend([port, "0"]);
    }
    args.extend(["--user", &user, "--portmap", "off", "--admin", "off"]);
    args.extend(["--state", state.to_str().unwrap()]);
    (Gateway::start(&args), folder)
}

const SHORT: [&str; 6] = ["--size", "3MiB", "--time", "50ms", "--rounds", "1"];
const LOADS: [&str; 8] =
    ["write", "read", "random-read", "random-write", "mixed", "getattr", "open", "create"];

/// Checks that every measurement of a target is present and plausible.
fn judge(target: &serde_json::Value, loads: &[&str]) {
    let measured = target["loads"].as_array().unwrap();
    let words: Vec<&str> = measured.iter().map(|l| l["load"].as_str().unwrap()).collect();
    assert_eq!(words, loads);
    for load in measured {
        assert!(load["rate"].as_f64().unwrap() > 0.0, "{load}");
        let of = |p: &str| load["latency_us"][p].as_f64().unwrap();
        let spread = ["p50", "p95", "p99", "p99.9", "max"].map(of);
        assert!(spread[0] > 0.0 && spread.is_sorted(), "{load}");
    }
}

#[test]
fn bench_measures_every_load_over_both_transports() {
    let (gateway, _folder) = gateway_for_bench();
    let (tcp, rdma) = (gateway.port("nfs="), gateway.port("nfs-rdma="));
    let first = format!("nfs://127.0.0.1:{tcp}/m?version=4.2");
    let second = format!("nfs://127.0.0.1:{rdma}/m?version=3&transport=rdma&mountport={tcp}");
    let pid = gateway.0.id().to_string();
    let args = ["bench", &first, "--compare", &second, "--json"];
    let pids = ["--server-pid", &pid, "--server-pid", &pid];
    let o = headgate(&[&args[..], &pids, &SHORT].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let told = json(&o);
    assert_eq!(told["ratios"].as_array().unwrap().len(), LOADS.len());
    for target in told["targets"].as_array().unwrap() {
        judge(target, &LOADS);
        for load in target["loads"].as_array().unwrap() {
            assert!(load["server_cpu_us"].as_f64().is_some(), "{load}");
        }
    }
}

#[test]
fn bench_measures_smb_and_smb_direct_and_draws_both() {
    let (gateway, folder) = gateway_for_bench();
    let (tcp, rdma) = (gateway.port("smb="), gateway.port("smb-direct="));
    let first = format!("smb://alice:secret@127.0.0.1:{tcp}/m?protect=sign");
    let second = format!("smb+rdma://alice@127.0.0.1:{rdma}/m");
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let svg = folder.path().join("plot.svg");
    let args = ["bench", &first, "--compare", &second, "--json", "--svg", svg.to_str().unwrap()];
    let how = ["--only", "random,sequential", "--depth", "3", "--connections", "2"];
    let password = ["--password-file", password.to_str().unwrap()];
    let sizes = ["--block", "256KiB", "--random-block", "8KiB"];
    let o = headgate(&[&args[..], &password, &how, &sizes, &SHORT].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(!String::from_utf8_lossy(&o.stdout).contains("secret"));
    for target in json(&o)["targets"].as_array().unwrap() {
        judge(target, &LOADS[..4]);
        for (load, block) in target["loads"].as_array().unwrap().iter().zip([256, 256, 8, 8]) {
            assert_eq!((&load["depth"], &load["block"]), (&3.into(), &(block << 10).into()));
        }
    }
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("random write 8KiB"), "{picture}");
    // A rate and a latency, for each of two servers and four loads.
    assert_eq!(picture.matches("<rect x=").count(), 2 * 2 * 4);
}

#[test]
fn bench_prints_a_table_for_people() {
    let (gateway, _folder) = gateway_for_bench();
    let target = format!("nfs://127.0.0.1:{}/m?version=4.1", gateway.port("nfs="));
    let o = headgate(&[&["bench", &target, "--only", "metadata,mixed"][..], &SHORT].concat());
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let text = String::from_utf8(o.stdout).unwrap();
    for words in ["p50", "p95", "p99", "p99.9", "client CPU", "getattr, depth 32", "mixed 4KiB"] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

/// A malformed target is explained, without showing the password.
#[test]
fn bench_says_what_is_wrong_with_a_target() {
    let (gateway, _folder) = gateway_for_bench();
    let at = |what: &str| format!("127.0.0.1:{}", gateway.port(what));
    let (nfs, smb) = (at("nfs="), at("smb="));
    for (target, why) in [
        ("nfs://127.0.0.1:1/m".into(), "cannot connect: 127.0.0.1:1: Connection refused"),
        (
            "nfs://127.0.0.1:1/m".into(),
            "where MOUNT was looked for, `mountport=PORT` names another",
        ),
        (format!("nfs://{nfs}/none"), "MOUNT: the server has no such share"),
        (format!("nfs://{nfs}/none?version=4.2"), "LOOKUP: NoEnt (2)"),
        (
            format!("smb://alice@{smb}/m"),
            "no password for alice; name its file with --password-file FILE",
        ),
        (format!("smb://alice:secret@{smb}/none"), "STATUS_BAD_NETWORK_NAME"),
        (format!("smb://alice:wrong-secret@{smb}/m"), "STATUS_LOGON_FAILURE"),
        (format!("nfs://{smb}/m?version=4.1"), "does that address serve NFS?"),
    ] {
        let o = headgate(&["bench", &target]);
        let told = stderr(&o);
        assert_eq!(o.status.code(), Some(1), "{target}: {told}");
        assert!(told.starts_with("error: ") && told.contains(why), "{target}: {told}");
        assert!(told.lines().count() == 1 && !told.contains("secret"), "{target}: {told}");
    }
    for (args, why) in [
        (["nfs://gw"], "the target names no share"),
        (["gw:/data"], "write nfs://HOST[:PORT]/SHARE"),
    ] {
        let o = headgate(&[&["bench"][..], &args].concat());
        assert_eq!(o.status.code(), Some(2));
        assert!(stderr(&o).contains(why), "{}", stderr(&o));
    }
    for (option, value, code, why) in [
        ("--block", "2MiB", 2, "an operation moves 512 bytes to 1MiB, not 2MiB"),
        ("--depth", "0", 2, "write a number from 1 to 1024"),
        ("--connections", "257", 2, "write a number from 1 to 256"),
        ("--rounds", "many", 2, "write a number from 1 to 1000"),
        ("--svg", "/no/such/folder/x.svg", 1, "there is no folder /no/such/folder"),
    ] {
        let o = headgate(&["bench", "nfs://127.0.0.1:1/x", option, value]);
        assert_eq!(o.status.code(), Some(code), "{}", stderr(&o));
        assert!(stderr(&o).contains(why), "{}", stderr(&o));
    }
}

#[test]
fn help_and_version_end_with_0() {
    for args in [&["--help"][..], &["--version"], &["serve", "--help"], &["demo", "--help"]] {
        assert_eq!(headgate(args).status.code(), Some(0), "{args:?}");
    }
}

/// A password is never an argument; it comes from a file or from standard input.
#[test]
fn users_are_added_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "three plain words\n").unwrap();
    let file = file.to_str().unwrap();
    let user = |args: &[&str]| headgate(&[&["user", "--state", state], args].concat());
    let o = user(&["add", "alice", "--password-file", file, "--uid", "1234", "--groups", "7,8"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let o = user(&["add", "Alice", "--password-file", file, "--uid", "1235"]);
    assert!(String::from_utf8_lossy(&o.stdout).starts_with("changed"), "{}", stderr(&o));
    let o = user(&["list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(list[0]["name"], "Alice");
    assert_eq!(list[0]["uid"], 1235);
    assert!(user(&["remove", "ALICE"]).status.success());
    let list = user(&["list", "--json"]).stdout;
    for words in [
        &["add", "no-such-user", "--gid", "5"][..],
        &["add", "nobody"],
        &["add", "alice", "--uid", "65534"],
        &["add", "alice", "--uid", "4294967295"],
        &["add", "alice", "--uid", "5", "--gid", "4294967295"],
        &["add", "alice", "--uid", "5", "--groups", "6,4294967295"],
    ] {
        // A gateway that runs as another user serves all clients as that user.
        if words[1] == "no-such-user" && fs::metadata("/proc/self").unwrap().uid() != 0 {
            continue;
        }
        let o = user(&[words, &["--password-file", file][..]].concat());
        assert_eq!(o.status.code(), Some(1), "{words:?}");
        let is_number = stderr(&o).contains("number of no user");
        assert!(is_number || stderr(&o).contains("--uid NUMBER"), "{}", stderr(&o));
        assert_eq!(user(&["list", "--json"]).stdout, list, "{words:?}");
    }
    let o = user(&["remove", "alice"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("there is no user `alice`"));
}

#[test]
fn check_tells_what_smb_clients_type() {
    let folder = tempfile::tempdir().unwrap();
    let (state, file) = (folder.path().join("state"), folder.path().join("password"));
    std::fs::write(&file, "secret\n").unwrap();
    let user = format!("alice={},uid=1234", file.display());
    let args = [
        "check",
        "--json",
        "--share",
        "data=mem:",
        "--bind",
        "127.0.0.1",
        "--nfs-port",
        "0",
        "--nfs-rdma-port",
        "0",
        "--smb-port",
        "0",
        "--smb-direct-port",
        "0",
        "--state",
        state.to_str().unwrap(),
    ];
    let o = headgate(&[&args[..], &["--user", &user]].concat());
    let told = json(&o);
    assert_eq!(told["smb"]["served"], true, "{}", stderr(&o));
    assert_eq!(told["smb"]["users"][0], "alice");
    assert_eq!(told["smb"]["signing"], "required");
    let place = &told["addresses"][0]["smb"];
    assert_eq!(place["windows"][0], r"\\127.0.0.1\data");
    let mount = "mount -t cifs -o vers=3.1.1,username=alice,port=0 //127.0.0.1/data /mnt";
    assert_eq!(place["mount"][0], mount);
    let warnings = told["warnings"].to_string();
    assert!(warnings.contains("can be read by others"), "{warnings}");
    let o = headgate(&["check", "--share", "data=mem:", "--state", state.to_str().unwrap()]);
    let text = String::from_utf8(o.stdout).unwrap();
    assert!(text.contains("no SMB: no user can log on"), "{text}");
}

/// The loopback device never has an RDMA device.
#[test]
fn devices_that_are_demanded_and_not_there_are_said_by_check_and_stop_serve() {
    let state = tempfile::tempdir().unwrap();
    let args = [
        "--share",
        "a=mem:",
        "--bind",
        "127.0.0.1",
        "--rdma",
        "verbs",
        "--nfs-port",
        "0",
        "--nfs-rdma-port",
        "0",
        "--state",
        state.path().to_str().unwrap(),
    ];
    let o = headgate(&[&["check", "--json"][..], &args].concat());
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    let told = json(&o);
    let warnings = told["stops"].to_string();
    assert!(warnings.contains("no RDMA device belongs to lo"), "{warnings}");
    assert!(warnings.contains("will not start"), "{warnings}");
    let place = &told["addresses"][0];
    assert_eq!(place["rdma_providers"].as_array().unwrap().len(), 0, "{place}");
    assert!(place["rdma_device"].is_null() && place["rdma_device_why_not"].is_null(), "{place}");
    assert!(!place["mount"].to_string().contains("proto=rdma"), "{place}");
    let o = headgate(&[&["serve"][..], &args].concat());
    assert_eq!(o.status.code(), Some(1));
    assert!(
        stderr(&o).contains("`--rdma verbs` needs an RDMA device: 127.0.0.1"),
        "{}",
        stderr(&o)
    );
}

#[test]
fn a_weak_password_is_refused_unless_it_is_asked_for_and_keys_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (state, file) = (folder.path().join("state"), folder.path().join("password"));
    let add = |name: &str, password: &str, more: &[&str]| {
        fs::write(&file, password).unwrap();
        let mut args = vec!["user", "--state", state.to_str().unwrap(), "add", name, "--uid", "7"];
        args.extend(["--password-file", file.to_str().unwrap()]);
        args.extend(more);
        headgate(&args)
    };
    fs::create_dir(&state).unwrap();
    let database = state.join("smb-users");
    let old = "old:a4f49c406510bdcab6824ee7c30fd852:7:-:-";
    fs::write(&database, format!("headgate smb users 1\n{old}\n")).unwrap();
    fs::set_permissions(&database, fs::Permissions::from_mode(0o600)).unwrap();
    for (password, why) in [("secret", "has 6 characters"), ("Password1234", "`password`")] {
        let o = add("alice", password, &[]);
        assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
        assert!(stderr(&o).contains(why) && stderr(&o).contains("`--weak`"), "{}", stderr(&o));
        assert!(!stderr(&o).contains("Password1234"));
    }
    assert!(fs::read_to_string(&database).unwrap().starts_with("headgate smb users 1\n"));
    assert!(add("weak", "secret", &["--weak"]).status.success());
    assert!(add("alice", "three plain words", &[]).status.success());
    let text = fs::read_to_string(&database).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("headgate smb users 2", 4), "{text}");
    assert!(lines.contains(&format!("{old}:-:-").as_str()), "as version 1 had it: {text}");
    let parts = |name: &str| -> Vec<String> {
        let line = lines.iter().find(|l| l.starts_with(&format!("{name}:"))).unwrap();
        line.split(':').map(str::to_owned).collect()
    };
    let (alice, weak) = (parts("alice"), parts("weak"));
    assert_eq!((alice.len(), alice[5].len()), (7, 32), "{text}");
    let types: Vec<&str> = alice[6].split(',').map(|k| k.split_once('=').unwrap().0).collect();
    assert_eq!(types, ["17", "18", "19", "20"]);
    assert!(alice[5] != weak[5], "each has a salt of its own");
    assert!(!text.contains("plain") && !text.contains("secret"));
}

#[test]
fn a_credential_of_systemd_stands_for_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gw.yaml");
    let check = |credential: &str, given: bool| {
        let user = format!("{{name: alice, uid: 0, password_file: \"credential:{credential}\"}}");
        let text = format!("shares: [{{name: a, memory: true}}]\nadmin: off\nusers:\n  - {user}\n");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        command.args(["check", "--config", file.to_str().unwrap(), "--portmap", "off"]);
        command.args(["--nfs-port", "0", "--nfs-rdma-port", "0", "--smb-port", "0"]);
        command.args(["--state", folder.path().join("state").to_str().unwrap()]);
        command.env_remove("CREDENTIALS_DIRECTORY");
        if given {
            command.env("CREDENTIALS_DIRECTORY", folder.path());
        }
        command.output().unwrap()
    };
    fs::write(folder.path().join("alice"), "three plain words\n").unwrap();
    let o = check("alice", true);
    assert!(o.status.code() != Some(2), "{}", stderr(&o));
    for (credential, given, why) in [
        ("alice", false, "`LoadCredential=alice:/PATH`"),
        ("nobody", true, "there is no password file"),
        ("../alice", true, "is not the name of a credential"),
        ("", true, "is not the name of a credential"),
    ] {
        let o = check(credential, given);
        assert_eq!(o.status.code(), Some(2), "{credential}");
        assert!(stderr(&o).contains(":4:") && stderr(&o).contains(why), "{}", stderr(&o));
    }
}

/// Accounts with the uid of guests cannot log on; an account that is unknown to the host has a uid derived from its name.
#[test]
fn users_without_a_uid_are_named() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a gateway of another user serves all as that user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("password"), "a long pass phrase\n").unwrap();
    fs::set_permissions(path("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let user = |name: &str, more: &str| {
        format!("  - {{name: {name}, password_file: {}{more}}}\n", path("password"))
    };
    let config = format!(
        "shares: [{{name: data, memory: true}}]\nstate: {}\nusers:\n{}{}{}{}",
        path("state"),
        user("no-such-user", ""),
        user("nobody", ""),
        user("ann", ", uid: 65534"),
        user("ben", ", uid: 4242")
    );
    fs::write(path("gw.yaml"), config).unwrap();
    let check = |words: &[&str]| {
        let o = headgate(&[&["check", "--config", &path("gw.yaml")], words].concat());
        (o.status, format!("{}{}", String::from_utf8_lossy(&o.stdout), stderr(&o)))
    };
    let (_, all) = check(&[]);
    for (name, is_refused) in
        [("no-such-user", false), ("nobody", true), ("ann", true), ("ben", false)]
    {
        let told = format!("user `{name}` cannot log on");
        assert_eq!(all.contains(&told), is_refused, "{name}: {all}");
        let (status, one) = check(&["--user", name]);
        assert_eq!(!status.success(), is_refused, "{name}: {one}");
        assert_eq!(one.contains("--uid NUMBER"), is_refused, "{name}: {one}");
    }
    let named = "the host has no user `no-such-user`: files will belong to uid 2";
    assert!(all.contains(named), "{all}");
}

/// A folder that only root can access, shared with `access: write`.
#[test]
fn a_share_that_no_client_writes_is_told() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path("data")).unwrap();
    fs::write(path("password"), "a long pass phrase\n").unwrap();
    fs::set_permissions(path("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "shares:\n  - name: data\n    path: {}\n    access: {{write: [ann]}}\n\
         users: [{{name: ann, uid: 4242, password_file: {}}}]\nstate: {}\n",
        path("data"),
        path("password"),
        path("state")
    );
    fs::write(path("gw.yaml"), config).unwrap();
    let check = |words: &[&str]| {
        let o = headgate(&[&["check", "--config", &path("gw.yaml")], words].concat());
        format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
    };
    for (mode, owner, is_told) in [(0o755, 0, true), (0o755, 4242, false), (0o777, 0, false)] {
        fs::set_permissions(path("data"), fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(path("data"), Some(owner), Some(owner)).unwrap();
        let told = check(&[]);
        let what = "none of the users that may write to it can make a file";
        assert_eq!(told.contains(what), is_told, "{mode:o} {owner}: {told}");
        let told = check(&["--user", "ann"]);
        assert_eq!(told.contains("does not let 4242:4242 make a file"), is_told, "{told}");
    }
}
