//! Converts `interfaces` together with `bind interfaces only` of smb.conf(5) to the addresses that Samba serves, as `bind`
//! writes them.

use std::net::IpAddr;

/// Values of the two keys.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// Value of `interfaces`, with its line number.
    list: Option<(usize, String)>,
    only: bool,
}

/// Result for the two keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Samba serves all addresses.
    All,
    /// Samba serves these addresses.
    Addresses(Vec<IpAddr>),
    /// Samba serves some addresses that the file does not specify; these are the words that name them.
    Unknown(String),
}

impl Interfaces {
    pub(super) fn set_list(&mut self, line: usize, list: &str) {
        self.list = Some((line, list.to_owned()));
    }

    pub(super) fn set_only(&mut self, only: bool) {
        self.only = only;
    }

    /// Returns the line number and the value of `interfaces`.
    pub(super) fn list(&self) -> Option<(usize, &str)> {
        self.list.as_ref().map(|(line, list)| (*line, list.as_str()))
    }

    /// Returns the addresses that Samba serves. smb.conf(5): without `bind interfaces only` the list is not a restriction.
    pub(super) fn bound(&self) -> Bound {
        let Some((_, list)) = self.list.as_ref().filter(|_| self.only) else { return Bound::All };
        let (mut addresses, mut unknown) = (Vec::new(), Vec::new());
        for word in words(list) {
            match address(&word) {
                Some(address) if addresses.contains(&address) => {}
                Some(address) => addresses.push(address),
                None => unknown.push(word),
            }
        }
        match (addresses.is_empty(), unknown.is_empty()) {
            (_, false) => Bound::Unknown(unknown.join(" ")),
            (true, true) => Bound::All,
            (false, true) => Bound::Addresses(addresses),
        }
    }
}

/// Returns the words of a list. Quotes, and the speed and abilities of an interface after `;`, do not affect its addresses.
fn words(list: &str) -> Vec<String> {
    let mut is_quoted = false;
    let ends = |c: char| {
        is_quoted ^= c == '"';
        !is_quoted && matches!(c, ' ' | ',' | '\t')
    };
    let words = list.split(ends).map(|word| word.trim_matches('"'));
    let names = words.map(|word| word.split(';').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the one address that a word names. A network means the interface with an address in it, which only the Samba host
/// knows.
fn address(word: &str) -> Option<IpAddr> {
    if word == "lo" {
        return Some(IpAddr::from([127, 0, 0, 1]));
    }
    let host = word.split('/').next().unwrap_or(word);
    let address: IpAddr = host.parse().ok()?;
    let is_network = word.contains('/')
        && super::range(word).is_some_and(|net| {
            let whole = if address.is_ipv4() { 32 } else { 128 };
            net.bits < whole && net.addr == address
        });
    // Samba serves all of 127.0.0.0/8 through the host's one loopback address.
    match is_network {
        true if address == IpAddr::from([127, 0, 0, 0]) => Some(IpAddr::from([127, 0, 0, 1])),
        true => None,
        false => Some(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_bound_and_names_are_unknown() {
        for (list, only, wanted) in [
            ("lo eth1", false, Ok("")),
            ("lo eth1", true, Err("eth1")),
            ("eth*", true, Err("eth*")),
            ("", true, Ok("")),
            ("lo", true, Ok("127.0.0.1")),
            ("127.0.0.0/8 192.0.2.1/24", true, Ok("127.0.0.1 192.0.2.1")),
            ("192.0.2.1/255.255.255.0, 192.0.2.1", true, Ok("192.0.2.1")),
            ("192.0.2.0/24", true, Err("192.0.2.0/24")),
            ("10.0.0.0/255.0.0.0 10.0.0.1", true, Err("10.0.0.0/255.0.0.0")),
            ("fd00::1/64 fd00::2", true, Ok("fd00::1 fd00::2")),
            ("\"192.0.2.1;speed=1000000000,capability=RSS\"", true, Ok("192.0.2.1")),
            ("\"eth0;speed=1000000000\"", true, Err("eth0")),
        ] {
            let mut interfaces = Interfaces::default();
            interfaces.set_list(1, list);
            interfaces.set_only(only);
            let shown =
                |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let bound = match interfaces.bound() {
                Bound::All => Ok(String::new()),
                Bound::Addresses(all) => Ok(shown(&all)),
                Bound::Unknown(words) => Err(words),
            };
            assert_eq!(bound.as_deref().map_err(String::as_str), wanted, "{list}");
        }
    }
}
