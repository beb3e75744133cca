//! Compares the rights of each client by an independent model of exports(5) with those that `headgate check` reports for the
//! result.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use super::world::{HOSTS, NETGROUPS, World, folders};
use crate::{files, imported, name_of};

const ANONYMOUS: u64 = 65_534;
/// Clients to compare, in addition to those with names.
const OTHERS: [&str; 8] = [
    "192.168.178.99",
    "192.168.1.77",
    "192.168.1.9",
    "10.0.0.1",
    "10.0.0.2",
    "10.1.0.9",
    "198.51.100.1",
    "2001:db8::5",
];

/// Rights of a caller, and its user: 0 no access, 1 read, 2 write.
type May = (u8, u64);

/// Returns the name of an address, and its netgroups.
fn named(ip: IpAddr) -> (String, Vec<&'static str>) {
    let line = HOSTS.lines().find(|line| line.split(' ').next() == Some(&ip.to_string()));
    let name = line.map_or(String::new(), |line| line.split(' ').nth(1).unwrap().to_owned());
    let short = name.split('.').next().unwrap().to_owned();
    let is_in = |line: &&str| {
        let members = line.split(['(', ',']).skip(1).step_by(3);
        !name.is_empty() && members.into_iter().any(|m| m == name || m == short)
    };
    let groups = NETGROUPS.lines().filter(is_in).map(|line| line.split(' ').next().unwrap());
    let groups = groups.collect();
    (name, groups)
}

fn is_in_network(ip: IpAddr, text: &str) -> bool {
    let (addr, mask) = text.split_once('/').unwrap();
    let Ok(addr) = addr.parse::<IpAddr>() else { return false };
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let length = mask
        .parse::<u32>()
        .unwrap_or_else(|_| mask.parse::<std::net::Ipv4Addr>().unwrap().to_bits().count_ones());
    let ((a, width), (b, other)) = (bits(ip), bits(addr));
    width == other && (length == 0 || (a ^ b) >> (128 - length) == 0)
}

/// Returns the rank in exports(5) of a client field that matches this address; `None` if it does not match.
fn rank(who: &str, ip: IpAddr) -> Option<u8> {
    let (name, groups) = named(ip);
    if who == "*" {
        return Some(4);
    }
    if let Some(group) = who.strip_prefix('@') {
        return groups.contains(&group).then_some(3);
    }
    if who.contains(['*', '?', '[']) {
        return (!name.is_empty() && is_like(name.as_bytes(), who.as_bytes())).then_some(2);
    }
    if who.contains('/') {
        return is_in_network(ip, who).then_some(1);
    }
    (who.parse() == Ok(ip) || who == name).then_some(0)
}

fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, name) => name.is_none(),
        (Some((b'*', rest)), _) => (0..=name.len()).any(|n| is_like(&name[n..], rest)),
        (Some((b'?', rest)), Some((_, after))) => is_like(after, rest),
        (Some((b'[', rest)), Some((c, after))) => {
            let end = rest.iter().position(|c| *c == b']').unwrap();
            (rest[0]..=rest[end - 1]).contains(c) && is_like(after, &rest[end + 1..])
        }
        (Some((p, rest)), Some((c, after))) => p == c && is_like(after, rest),
        (Some(_), None) => false,
    }
}

/// Returns the rights that a line gives to a user at an address.
fn by_exports(clients: &[(String, String)], ip: IpAddr, uid: u64) -> May {
    let ranked = clients.iter().enumerate();
    let of = ranked.filter_map(|(n, (who, options))| Some((rank(who, ip)?, n, options)));
    let Some((_, _, options)) = of.min() else { return (0, 0) };
    let (mut write, mut root, mut all, mut anon) = (false, true, false, ANONYMOUS);
    for option in options.split(',') {
        match option {
            "rw" => write = true,
            "ro" => write = false,
            "no_root_squash" => root = false,
            "root_squash" => root = true,
            "all_squash" => all = true,
            _ => {}
        }
        if let Some(uid) = option.strip_prefix("anonuid=") {
            anon = uid.parse().unwrap();
        }
    }
    let uid = if all || root && uid == 0 { anon } else { uid };
    (if write { 2 } else { 1 }, uid)
}

/// Returns the folders of a file, with the clients of each and their options.
fn lines(text: &str) -> BTreeMap<String, Vec<(String, String)>> {
    let text = text.replace("\\\n", " ");
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, rest) = match line.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => line.split_once(char::is_whitespace).unwrap(),
        };
        let (mut common, mut clients) = (String::new(), Vec::new());
        for word in rest.split_whitespace() {
            if let Some(options) = word.strip_prefix('-') {
                common = options.to_owned();
                continue;
            }
            let (who, own) = word.split_once('(').unwrap_or((word, ")"));
            let options = format!("{common},{}", own.trim_end_matches(')'));
            clients.push((who.to_owned(), options));
        }
        all.insert(path.to_owned(), clients);
    }
    all
}

/// Returns the rights that `check` reports for each share of a result.
fn by_gateway(world: &World, config: &str, user: &str, ip: IpAddr) -> BTreeMap<String, May> {
    let o = world
        .headgate()
        .args(["check", "--json", "--config", config, "--state"])
        .arg(world.at("state"))
        .args(["--user", user, "--client", &ip.to_string()])
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&o.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&o.stderr)));
    let own = told["uid"].as_u64().unwrap();
    let may = |share: &serde_json::Value| {
        let nfs = &share["nfs"];
        let rights = ["nothing", "read", "write"].iter().position(|m| nfs["may"] == *m).unwrap();
        let uid = nfs["acts_as"]["uid"].as_u64().unwrap_or(own);
        let rights = u8::try_from(rights).unwrap();
        (share["share"].as_str().unwrap().to_owned(), (rights, if rights == 0 { 0 } else { uid }))
    };
    told["shares"].as_array().unwrap().iter().map(may).collect()
}

#[test]
fn exports_give_each_client_what_they_gave() {
    let Some(world) = World::new() else {
        println!("skipped: it takes root and mount namespaces");
        return;
    };
    let named = HOSTS.lines().skip(1).map(|line| line.split(' ').next().unwrap());
    let clients: Vec<IpAddr> = named.chain(OTHERS).map(|ip| ip.parse().unwrap()).collect();
    let (mut asked, mut wrong) = (0, Vec::new());
    for file in files().into_iter().filter(|file| file.extension().unwrap() == "exports") {
        let (yaml, said) = (imported(&file), lines(&fs::read_to_string(&file).unwrap()));
        let paths: Vec<String> = folders(&yaml);
        if paths.is_empty() {
            continue;
        }
        paths.iter().for_each(|path| world.make(path));
        let config = world.at("gw.yaml");
        fs::write(&config, &yaml).unwrap();
        let read: serde_yaml::Value = serde_yaml::from_str(&yaml).unwrap();
        let shares = read["shares"].as_sequence().unwrap();
        for (n, ip) in clients.iter().enumerate() {
            // Few options map users other than root.
            for (user, uid) in [("root", 0), ("alice", 3001)].into_iter().take(1 + n % 2) {
                let found = by_gateway(&world, config.to_str().unwrap(), user, *ip);
                for (share, path) in shares.iter().zip(&paths) {
                    let is = found[share["name"].as_str().unwrap()];
                    let was = by_exports(&said[path], *ip, uid);
                    asked += 1;
                    if is != was {
                        wrong.push(format!(
                            "{} {path} {ip} {user}: {is:?}, was {was:?}",
                            name_of(&file)
                        ));
                    }
                }
            }
        }
    }
    assert!(asked > 500, "{asked}");
    assert!(wrong.is_empty(), "{} of {asked}\n{}", wrong.len(), wrong.join("\n"));
}

/// Each combination of a comment and a continued line.
const COMMENTS: &str = r#"# a comment that goes on \
/srv/a 10.0.0.1(ro)
/srv/b 10.0.0.2(ro) # behind a client \
/srv/c 10.0.0.3(ro)
/srv/d 10.0.0.4(ro) \
# 10.0.0.9(rw)
/srv/e \
  10.0.0.5(ro) \
  # behind a line that went on \
/srv/f 10.0.0.6(ro)
 # indented \
"/srv/g" 10.0.0.7(ro)
/srv/h 10.0.0.8(ro)
"#;

/// Prints the table of `exportfs` for a file, in a private /var/lib/nfs: one line for each client of a folder.
const EXPORTFS: &str = "mount -t tmpfs none /var/lib/nfs && rm -rf /etc/exports.d && exportfs -a >&2; cat /var/lib/nfs/etab";

/// Uses nfs-utils itself to check where a comment ends.
#[test]
fn comments_end_where_exportfs_ends_them() {
    let has_it = std::path::Path::new("/usr/sbin/exportfs").exists();
    let Some(world) = World::new().filter(|_| has_it) else {
        println!("skipped: it takes root, mount namespaces and nfs-kernel-server");
        return;
    };
    let file = world.at("comments.exports");
    fs::write(&file, COMMENTS).unwrap();
    let yaml = imported(&file);
    let paths = folders(&yaml);
    (b'a'..=b'h').for_each(|c| world.make(&format!("/srv/{}", char::from(c))));
    world.edit("exports", |_| COMMENTS.to_owned());
    let told = world.command("sh").args(["-c", EXPORTFS]).output().unwrap();
    let table = String::from_utf8(told.stdout).unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    let mut exported: Vec<&str> = table.lines().map(|l| l.split('\t').next().unwrap()).collect();
    exported.sort_unstable();
    exported.dedup();
    assert!(exported.len() >= 6, "{table}{said}");
    assert_eq!(paths, exported, "{yaml}{said}");
}
