//! The YAML that `import` writes.

use config::{NfsLocks, Protocols};

use super::{Imported, Share};

/// The whole file. Shares that cannot be served as they were are comments.
pub(super) fn yaml(all: &Imported) -> String {
    let mut out =
        String::from("# Made by `headgate import`; ask `headgate check --config FILE` about it.\n");
    let (ready, waiting): (Vec<&Share>, Vec<&Share>) =
        all.shares.iter().partition(|s| s.lost.is_empty());
    out += "shares:\n";
    for share in ready {
        out += &one(share);
    }
    for share in waiting {
        for why in &share.lost {
            out +=
                &format!("  # `{}` was restricted in a way that is lost here: {why}\n", share.name);
        }
        for line in one(share).lines() {
            out += &format!("  #{}\n", line.strip_prefix(' ').unwrap_or(line));
        }
    }
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
    if !smb.is_empty() {
        out += &format!("smb:\n{smb}");
    }
    out
}

fn one(share: &Share) -> String {
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
        let list: Vec<String> = clients.iter().map(|c| quoted(&c.to_string())).collect();
        out += &format!("    clients: [{}]\n", list.join(", "));
    }
    if !share.comment.is_empty() {
        out += &format!("    comment: {}\n", quoted(&share.comment));
    }
    out
}

/// A value as YAML takes it literally: plain where nothing in it has a meaning, else in double quotes as JSON writes them.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "none"];
    match word && text.chars().all(plain) && !reserved.contains(&text.to_lowercase().as_str()) {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}
