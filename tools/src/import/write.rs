//! The YAML that `import` writes.

use config::{Client, NfsLocks, Protocols, Who};

use super::{Imported, Share};

/// Returns the whole file. Shares that cannot be served as before are comments.
pub(super) fn yaml(all: &Imported) -> String {
    let mut out = String::from(
        "# Written by `headgate import`; check it with `headgate check --config FILE`.\n",
    );
    let (ready, waiting): (Vec<&Share>, Vec<&Share>) =
        all.shares.iter().partition(|s| s.lost.is_empty());
    if all.source_ports.required() {
        out += "# exports(5) asks every client for a source port below 1024 (`secure`, its default), which only\n\
                # root of the client's host can take. Without it, any user of a client host can claim any uid.\n\
                privileged_ports: required\n";
    }
    out += "shares:\n";
    for share in ready {
        out += &one(share);
    }
    for share in waiting {
        for why in &share.lost {
            // exports(5) can encode any character as an octal number; a line break would end the comment.
            let why = why.replace(ends_lines_of_yaml, "?");
            out += &format!("  # `{}` had a restriction that would be lost: {why}\n", share.name);
        }
        for line in one(share).lines() {
            out += &format!("  #{}\n", line.strip_prefix(' ').unwrap_or(line));
        }
    }
    out += &all.ldap.yaml();
    if !all.bind.is_empty() {
        let list: Vec<String> = all.bind.iter().map(|ip| quoted(&ip.to_string())).collect();
        out += &format!("bind: [{}]\n", list.join(", "));
    }
    let mut smb = String::new();
    if let Some(port) = all.smb_port {
        smb += &format!("  port: {port}\n");
    }
    if let Some(signing) = all.signing {
        smb += &format!("  signing: {signing}\n");
    }
    if let Some(encryption) = all.encryption {
        smb += &format!("  encryption: {}\n", quoted(&encryption.to_string()));
    }
    if let Some(model) = &all.model {
        smb += &format!("  model: {}\n", quoted(&model.to_string()));
    }
    if !smb.is_empty() {
        out += &format!("smb:\n{smb}");
    }
    out
}

pub(super) fn one(share: &Share) -> String {
    if !share.refer.is_empty() {
        return elsewhere(share);
    }
    let mut out = format!("  - name: {}\n    path: {}\n", quoted(&share.name), quoted(&share.path));
    if share.protocols != Protocols::Both {
        out += &format!("    protocols: {}\n", share.protocols);
    }
    for (key, on) in
        [("read_only", share.read_only), ("encrypt", share.encrypt), ("guest", share.guest)]
    {
        if on {
            out += &format!("    {key}: true\n");
        }
    }
    if let Some(squash) = share.squash {
        out += &format!("    squash: {}\n", quoted(&squash.to_string()));
    }
    if share.locking.nfs_locks() == NfsLocks::Advisory {
        out += &format!("    nfs_locks: {}\n", NfsLocks::Advisory);
    }
    if let Some(clients) = &share.clients {
        let list: Vec<String> = clients.iter().map(client).collect();
        out += &format!("    clients: [{}]\n", list.join(", "));
    }
    out += &rights(share);
    if !share.comment.is_empty() {
        out += &format!("    comment: {}\n", quoted(&share.comment));
    }
    out
}

/// Returns a share that refers its clients to other servers, which have all settings about its files.
fn elsewhere(share: &Share) -> String {
    let to: Vec<String> = share.refer.iter().map(|to| quoted(&to.to_string())).collect();
    let mut out = format!("  - name: {}\n    refer: [{}]\n", quoted(&share.name), to.join(", "));
    if share.protocols != Protocols::Both {
        out += &format!("    protocols: {}\n", share.protocols);
    }
    if let Some(clients) = &share.clients {
        let list: Vec<String> = clients.iter().map(|c| quoted(&c.from.to_string())).collect();
        out += &format!("    clients: [{}]\n", list.join(", "));
    }
    if let Some(export) = &share.export {
        out += &format!("    export: {}\n", quoted(&export.to_string()));
    }
    if share.view.hidden == Some(true) {
        out += "    hidden: true\n";
    }
    if !share.comment.is_empty() {
        out += &format!("    comment: {}\n", quoted(&share.comment));
    }
    out
}

/// Returns the keys for users, identities, visibility and modes.
fn rights(share: &Share) -> String {
    let mut out = String::new();
    if let Some(export) = &share.export {
        out += &format!("    export: {}\n", quoted(&export.to_string()));
    }
    if share.view.hidden == Some(true) {
        out += "    hidden: true\n";
    }
    let list = |who: &[Who]| {
        let names: Vec<String> = who.iter().map(|who| quoted(&who.to_string())).collect();
        Some(format!("[{}]", names.join(", "))).filter(|_| !who.is_empty())
    };
    let mut keys = |key: &str, pairs: [(&str, Option<String>); 3]| {
        let said = pairs.into_iter().filter_map(|(k, v)| v.map(|v| format!("{k}: {v}")));
        let said: Vec<String> = said.collect();
        if !said.is_empty() {
            out += &format!("    {key}: {{{}}}\n", said.join(", "));
        }
    };
    if let Some(a) = &share.access {
        let pairs = [("read", list(&a.read)), ("write", list(&a.write)), ("deny", list(&a.deny))];
        keys("access", pairs);
    }
    let name =
        |who: &Option<Who>| who.as_ref().map(|who| quoted(who.to_string().trim_start_matches('@')));
    let force = &share.force;
    keys("force", [("user", name(&force.user)), ("group", name(&force.group)), ("", None)]);
    let masks = share.view.modes.masks();
    let mode = |mode: Option<config::Mode>| mode.map(|mode| mode.to_string());
    keys("masks", [("file", mode(masks.file)), ("folder", mode(masks.folder)), ("", None)]);
    if let Some(exclude) = share.recycle.exclude().filter(|_| !share.read_only) {
        let exclude: Vec<String> = exclude.iter().map(|one| quoted(one)).collect();
        out += &format!("    wastebasket: {{keep: 30d, exclude: [{}]}}\n", exclude.join(", "));
    }
    if let Some(backups) = share.fruit.time_machine().filter(|_| !share.read_only) {
        out += &format!("    time_machine: {backups}\n");
    }
    if share.view.only_visible == Some(true) {
        out += "    list: visible\n";
    }
    if share.view.hides_mounts == Some(true) {
        out += "    cross: false\n";
    }
    if share.view.leaves_links == Some(true) {
        out += "    symlinks: client\n";
    }
    if share.view.msdfs == Some(true) {
        out += "    links: msdfs\n";
    }
    if let Some(pattern) = &share.snapshots {
        out += &format!("    snapshots: {}\n", quoted(pattern));
    }
    out
}

fn client(client: &Client) -> String {
    let from = quoted(&client.from.to_string());
    let id = |key: &str, id: Option<u32>| id.map(|id| format!("{key}: {id}"));
    let said = [
        (client.protocols != Protocols::Both).then(|| format!("protocols: {}", client.protocols)),
        client.read_only.then(|| "read_only: true".to_owned()),
        client.squash.map(|squash| format!("squash: {}", quoted(&squash.to_string()))),
        id("anonuid", client.anonuid),
        id("anongid", client.anongid),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { from } else { format!("{{from: {from}, {}}}", said.join(", ")) }
}

/// Returns a value that YAML takes literally: plain if no character has a special meaning, else in double quotes as in JSON.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "none"];
    match word && text.chars().all(plain) && !reserved.contains(&text.to_lowercase().as_str()) {
        true => text.to_owned(),
        false => {
            let escaped = |c: char| match ends_lines_of_yaml(c) {
                true => format!("\\u{:04x}", u32::from(c)),
                false => c.to_string(),
            };
            serde_json::Value::from(text).to_string().chars().map(escaped).collect()
        }
    }
}

/// JSON does not escape these. In YAML some end a line, and with it a comment; the other control characters are invalid.
fn ends_lines_of_yaml(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}
