//! Addresses of this host.

use std::net::IpAddr;

use crate::reader::shown;

/// One address to bind. Names are not looked up: what they mean changes, and finding out may take long.
pub fn address(text: &str) -> Result<IpAddr, String> {
    // One of IPv4 in IPv6's clothes is IPv4's: nobody shows it otherwise.
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
