//! Parsing of this host's addresses.

use std::net::IpAddr;

use crate::reader::shown;

/// Parses an address to bind. Does not resolve names: a name may change its address, and resolving may take long.
pub fn address(text: &str) -> Result<IpAddr, String> {
    // Convert IPv4-mapped IPv6 addresses to IPv4, which is how other tools show them.
    text.parse().map(|ip: IpAddr| ip.to_canonical()).map_err(|_| {
        let text = shown(text);
        let in_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if text.chars().all(in_name) && text.contains(|c: char| c.is_ascii_alphabetic()) {
            format!(
                "`{text}` is a name; write an address of this host, like `192.0.2.1` (`getent ahosts {text}` shows its own)"
            )
        } else {
            format!("`{text}` is not an address of this host; write one like `192.0.2.1`")
        }
    })
}
