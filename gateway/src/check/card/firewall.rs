//! Reads the rules of the host's firewall as far as they concern ports of TCP.
//!
//! *Operation.* `nft list ruleset` lists rules of nftables, and those that iptables, firewalld and ufw have made of them. [`judge`]
//! looks for chains of incoming packets that drop, and for rules that accept a port by its number. It does not evaluate rules: one
//! that accepts by address or interface is not found, so its result is a warning at most.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::Line;

/// Limit of the program's answer.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Knowledge of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    Text(String),
    /// They cannot be read, for this reason.
    Unknown(String),
}

/// Reads the rules of this host.
pub(super) fn read() -> Rules {
    let (tell, told) = mpsc::channel();
    // A thread that waits for a program that hangs ends with the process.
    std::thread::spawn(move || {
        let asked = Command::new("nft").args(["list", "ruleset"]).stdin(Stdio::null()).output();
        let _ = tell.send(asked);
    });
    match told.recv_timeout(TIME_MAX) {
        Ok(Ok(done)) if done.status.success() => {
            Rules::Text(String::from_utf8_lossy(&done.stdout).into_owned())
        }
        Ok(Ok(done)) => {
            let why = String::from_utf8_lossy(&done.stderr);
            Rules::Unknown(why.lines().next().unwrap_or("nft fails").to_owned())
        }
        Ok(Err(e)) => Rules::Unknown(format!("nft: {e}")),
        Err(_) => Rules::Unknown("nft does not answer".into()),
    }
}

/// Judges whether clients reach these ports of TCP.
pub(super) fn line(rules: &Rules, ports: &[u16]) -> Line {
    let shown: Vec<String> = ports.iter().map(u16::to_string).collect();
    let shown = shown.join(", ");
    let missing: Vec<u16> = match rules {
        Rules::Unknown(why) => {
            return Line::warning(
                "firewall",
                format!("the rules of the firewall cannot be read ({why})"),
                format!(
                    "run this as root with nftables installed, or make sure that TCP ports {shown} are open"
                ),
            );
        }
        Rules::Text(text) => judge(text, ports),
    };
    if missing.is_empty() {
        return Line::good(
            "firewall",
            format!("no rule drops TCP ports {shown}, or one accepts them"),
        );
    }
    let list: Vec<String> = missing.iter().map(u16::to_string).collect();
    let add: Vec<String> = missing.iter().map(|port| format!("--add-port={port}/tcp")).collect();
    Line::warning(
        "firewall",
        format!(
            "the firewall drops what no rule accepts, and no rule names TCP port {}",
            list.join(" or ")
        ),
        format!(
            "`firewall-cmd --permanent {} && firewall-cmd --reload`, or \
             `nft insert rule inet TABLE CHAIN tcp dport {{ {} }} accept`",
            add.join(" "),
            list.join(", ")
        ),
    )
}

/// Returns the ports that no rule accepts, if some chain of incoming packets drops the rest.
fn judge(ruleset: &str, ports: &[u16]) -> Vec<u16> {
    let (mut is_input, mut drops) = (false, false);
    let mut accepted: Vec<(u16, u16)> = Vec::new();
    for text in ruleset.lines().map(str::trim) {
        if text.starts_with("chain ") {
            is_input = false;
        }
        if text.contains("hook input") {
            is_input = true;
            drops |= text.contains("policy drop");
        }
        // A rule without a condition that ends the chain; chains that it jumps to are counted as well, in `accepted`.
        let counts =
            |w: &&str| w.parse::<u64>().is_ok() || matches!(*w, "counter" | "packets" | "bytes");
        let verdict = text.split_whitespace().find(|w| !counts(w));
        drops |= is_input && matches!(verdict, Some("drop" | "reject"));
        if text.contains("dport") && text.ends_with("accept") {
            accepted.extend(numbers(text));
        }
    }
    let is_accepted = |port: &u16| accepted.iter().any(|(from, to)| (from..=to).contains(&port));
    if drops {
        ports.iter().copied().filter(|port| !is_accepted(port)).collect()
    } else {
        Vec::new()
    }
}

/// Returns the numbers and ranges of numbers in the destination ports of a rule.
fn numbers(rule: &str) -> Vec<(u16, u16)> {
    let Some((_, after)) = rule.split_once("dport") else { return Vec::new() };
    let words = after.split(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ','));
    let one = |word: &str| {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    let is_word = |w: &&str| !w.is_empty();
    words
        .filter(is_word)
        .take_while(|w| w.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIREWALLD: &str = "table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_IN_public_allow {
		tcp dport 22 accept
		tcp dport 5445 accept
	}
}";
    const PLAIN: &str = "table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		iif \"lo\" accept
		tcp dport { 22, 2049, 20000-20100 } ct state new counter packets 7 bytes 420 accept
	}
	chain output {
		type filter hook output priority filter; policy accept;
	}
}";

    #[test]
    fn ports_that_no_rule_accepts_are_named() {
        let open = "table ip nat {\n\tchain input {\n\t\ttype nat hook input priority 100; policy accept;\n\t}\n}\n";
        let cases = [
            ("", vec![]),
            (open, vec![]),
            (FIREWALLD, vec![20049]),
            (PLAIN, vec![5445]),
            (&PLAIN.replace("policy drop", "policy accept"), vec![]),
            (
                &FIREWALLD.replace(
                    "reject with icmpx admin-prohibited",
                    "counter packets 1 bytes 2 drop",
                ),
                vec![20049],
            ),
            // A rule that drops some packets is not a rule for the rest.
            (
                &FIREWALLD.replace("reject with icmpx admin-prohibited", "ip saddr 192.0.2.1 drop"),
                vec![],
            ),
        ];
        for (text, missing) in cases {
            assert_eq!(judge(text, &[20049, 5445]), missing, "{text}");
        }
    }

    #[test]
    fn finding_has_remedy_unless_ports_are_open() {
        let of = |rules| line(&rules, &[20049, 5445]);
        assert!(of(Rules::Text(String::new())).problem().is_none());
        let closed = of(Rules::Text(PLAIN.into())).problem().unwrap();
        assert!(
            closed.contains("names TCP port 5445;") && closed.contains("--add-port=5445/tcp"),
            "{closed}"
        );
        let unknown = of(Rules::Unknown("Operation not permitted".into())).problem().unwrap();
        assert!(unknown.contains("20049, 5445"), "{unknown}");
    }
}
