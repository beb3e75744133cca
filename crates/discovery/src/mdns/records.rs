//! The records of this host on one link (RFC 6762, RFC 6763).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::{A, AAAA, NSEC, PTR, RData, SRV, TXT};
use simple_dns::{CLASS, Name, QTYPE, ResourceRecord, TYPE};

use crate::dns::name;
use crate::links::Offer;

/// Seconds for which records that contain the host's name or address may be kept (RFC 6762 section 10).
const TTL_HOST: u32 = 120;
/// Seconds for which other records may be kept.
const TTL_OTHER: u32 = 4500;
/// The list of all types of services on a link (RFC 6763 section 9).
const TYPES: &str = "_services._dns-sd._udp.local";

/// The data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Ptr(String),
    Srv {
        port: u16,
        target: String,
    },
    Txt(Vec<String>),
    /// The types that its name has: all others do not exist (RFC 6762 section 6.1).
    Nsec(Vec<TYPE>),
}

/// A record of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) data: Data,
    pub(crate) ttl: u32,
}

impl Record {
    /// Returns the records of the host: the addresses under `label`, and the names `host` under the addresses.
    pub(crate) fn of_host(label: &str, host: &str, offer: &Offer) -> Vec<Self> {
        let of = |ip: &IpAddr| {
            let data = match ip {
                IpAddr::V4(ip) => Data::A(*ip),
                IpAddr::V6(ip) => Data::Aaaa(*ip),
            };
            let reverse =
                Self { name: reverse(*ip), data: Data::Ptr(host.to_owned()), ttl: TTL_HOST };
            [Self { name: label.to_owned(), data, ttl: TTL_HOST }, reverse]
        };
        offer.addresses.iter().flat_map(of).collect()
    }

    /// Returns true if other hosts have records of the same name and type too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.data, Data::Ptr(_)) && !self.name.ends_with(".arpa")
    }

    /// Returns the record with this time to live, for which the cache of a peer is renewed if no other host has such records.
    pub(crate) fn wire(&self, ttl: u32, flush: bool) -> ResourceRecord<'_> {
        let record = ResourceRecord::new(name(&self.name), CLASS::IN, ttl, self.rdata());
        record.with_cache_flush(flush && !self.is_shared())
    }

    pub(crate) fn rdata(&self) -> RData<'_> {
        match &self.data {
            Data::A(ip) => RData::A(A { address: ip.to_bits() }),
            Data::Aaaa(ip) => RData::AAAA(AAAA { address: ip.to_bits() }),
            Data::Ptr(to) => RData::PTR(PTR(name(to))),
            Data::Srv { port, target } => {
                RData::SRV(SRV { priority: 0, weight: 0, port: *port, target: name(target) })
            }
            Data::Txt(strings) => RData::TXT(txt(strings)),
            Data::Nsec(types) => RData::NSEC(NSEC::from_types(name(&self.name), types)),
        }
    }

    /// Returns true if a question with this name and type asks for the record.
    pub(crate) fn answers(&self, asked: &Name<'_>, kind: QTYPE) -> bool {
        let is_kind = match kind {
            QTYPE::ANY => !matches!(self.data, Data::Nsec(_)),
            QTYPE::TYPE(kind) => self.rdata().type_code() == kind,
            _ => false,
        };
        is_kind && *asked == name(&self.name)
    }

    /// Returns true if the other record, of a packet, has the same name and data.
    pub(crate) fn is(&self, other: &ResourceRecord<'_>) -> bool {
        self.is_any(std::iter::once(other))
    }

    /// Returns true if any of these records of a packet has the same name and data. The own name and data are built once.
    pub(crate) fn is_any<'a, 'b: 'a>(
        &self,
        mut others: impl Iterator<Item = &'a ResourceRecord<'b>>,
    ) -> bool {
        let (own, data) = (name(&self.name), self.rdata());
        others.any(|other| other.class == CLASS::IN && other.rdata == data && other.name == own)
    }

    /// Returns an upper bound of its bytes in a message.
    pub(crate) fn size(&self) -> usize {
        let data = match &self.data {
            Data::A(_) => 4,
            Data::Aaaa(_) => 16,
            Data::Ptr(to) | Data::Srv { target: to, .. } => to.len() + 8,
            Data::Txt(strings) => 1 + strings.iter().map(|text| text.len() + 1).sum::<usize>(),
            Data::Nsec(_) => self.name.len() + 2 + 36,
        };
        self.name.len() + 2 + 10 + data
    }
}

/// Returns a text record; one without strings is one empty string (RFC 6763 section 6.1).
fn txt(strings: &[String]) -> TXT<'_> {
    let mut txt = TXT::new();
    // A string of more than 255 bytes does not occur.
    strings.iter().for_each(|text| drop(txt.add_string(text)));
    if strings.is_empty() {
        let _ = txt.add_string("");
    }
    txt
}

/// A service with its type, port and strings.
struct Service {
    kind: &'static str,
    port: u16,
    strings: Vec<String>,
}

/// The port of a service that nothing connects to: Time Machine takes only the strings of `_adisk._tcp`.
const DISCARD: u16 = 9;

/// Returns the strings with which Time Machine finds shares for backups, as Samba and Netatalk write them: one of the host
/// (`waMa`: no hardware address), and one of each share (`adVF`: over SMB, for backups). `None`: no share is one.
fn backups(shares: &[String]) -> Option<Vec<String>> {
    let one = |(n, name): (usize, &String)| format!("dk{n}=adVN={name},adVF=0x82");
    let host = std::iter::once("sys=waMa=0,adVF=0x100".to_owned());
    (!shares.is_empty()).then(|| host.chain(shares.iter().enumerate().map(one)).collect())
}

fn services(offer: &Offer) -> Vec<Service> {
    let mut all = Vec::new();
    if let Some(port) = offer.smb {
        all.push(Service { kind: "_smb._tcp.local", port, strings: Vec::new() });
        // macOS chooses the icon by the model.
        all.push(Service {
            kind: "_device-info._tcp.local",
            port: 0,
            strings: vec![format!("model={}", offer.macos.model)],
        });
        if let Some(strings) = backups(offer.macos.backups()) {
            all.push(Service { kind: "_adisk._tcp.local", port: DISCARD, strings });
        }
    }
    if let Some(port) = offer.nfs {
        // The root that contains every share: names of shares are not told to the network.
        all.push(Service { kind: "_nfs._tcp.local", port, strings: vec!["path=/".into()] });
    }
    all
}

/// Returns the name of the host of this label.
pub(crate) fn host(label: &str) -> String {
    format!("{label}.local")
}

/// Returns the records of a host with this label.
pub(crate) fn all(label: &str, offer: &Offer) -> Vec<Record> {
    let host = host(label);
    let record = |name: &str, data, ttl| Record { name: name.to_owned(), data, ttl };
    let mut all = Record::of_host(&host, &host, offer);
    for Service { kind, port, strings } in services(offer) {
        let instance = format!("{label}.{kind}");
        all.push(record(kind, Data::Ptr(instance.clone()), TTL_OTHER));
        all.push(record(&instance, Data::Srv { port, target: host.clone() }, TTL_HOST));
        all.push(record(&instance, Data::Txt(strings), TTL_OTHER));
        all.push(record(TYPES, Data::Ptr(kind.into()), TTL_OTHER));
    }
    let types = [(IpAddr::is_ipv4 as fn(&IpAddr) -> bool, TYPE::A), (IpAddr::is_ipv6, TYPE::AAAA)];
    let types = types.into_iter().filter(|(is, _)| offer.addresses.iter().any(is));
    all.push(record(&host, Data::Nsec(types.map(|(_, kind)| kind).collect()), TTL_HOST));
    all
}

/// Returns the name with which hosts look up the name of an address.
fn reverse(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let digits = ip
                .octets()
                .into_iter()
                .rev()
                .map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Macos;

    fn offer() -> Offer {
        let addresses = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap()).into();
        Offer { addresses, smb: Some(445), nfs: Some(2049), ..Offer::default() }
    }

    #[test]
    fn addresses_are_looked_up_backwards() {
        assert_eq!(reverse("192.0.2.7".parse().unwrap()), "7.2.0.192.in-addr.arpa");
        let six = reverse("2001:db8::567:89ab".parse().unwrap());
        assert_eq!(six, "b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa");
    }

    #[test]
    fn services_follow_what_is_served() {
        let kinds = |offer: &Offer| -> Vec<String> {
            let ptr = |record: Record| (record.name == TYPES).then_some(record.data);
            all("gw", offer).into_iter().filter_map(ptr).map(|data| format!("{data:?}")).collect()
        };
        let of = |name: &str| format!("Ptr(\"{name}._tcp.local\")");
        assert_eq!(kinds(&offer()), ["_smb", "_device-info", "_nfs"].map(of));
        assert_eq!(kinds(&Offer { nfs: None, ..offer() }), ["_smb", "_device-info"].map(of));
        assert_eq!(kinds(&Offer { smb: None, ..offer() }), ["_nfs"].map(of));
    }

    fn with_backups() -> Offer {
        let names = ["Backups", "a,b", "More backups"].into_iter();
        Offer { macos: Macos::new("MacSamba", names), ..offer() }
    }

    #[test]
    fn shares_for_backups_are_announced_with_smb_alone() {
        let told = |offer: &Offer, kind: &str| -> Option<Vec<String>> {
            let is_it = |record: &Record| record.name == format!("gw.{kind}._tcp.local");
            let txt = |record: Record| match record.data {
                Data::Txt(strings) => Some(strings),
                _ => None,
            };
            all("gw", offer).into_iter().filter(is_it).find_map(txt)
        };
        let offer = with_backups();
        let disks = told(&offer, "_adisk").unwrap();
        let two = ["dk0=adVN=Backups,adVF=0x82", "dk1=adVN=More backups,adVF=0x82"];
        assert_eq!(disks, ["sys=waMa=0,adVF=0x100", two[0], two[1]]);
        assert_eq!(told(&offer, "_device-info").unwrap(), ["model=MacSamba"]);
        assert_eq!(told(&Offer { macos: Macos::default(), ..offer.clone() }, "_adisk"), None);
        assert_eq!(told(&Offer { smb: None, ..offer }, "_adisk"), None);
    }

    #[test]
    fn sizes_are_upper_bounds() {
        for record in all("a-longer-label", &with_backups()) {
            let mut packet = simple_dns::Packet::new_reply(0);
            packet.answers.push(record.wire(1, true));
            let bytes = packet.build_bytes_vec().unwrap();
            assert!(
                bytes.len() - 12 <= record.size(),
                "{record:?}: {} of {}",
                bytes.len() - 12,
                record.size()
            );
        }
    }

    #[test]
    fn questions_find_records_in_any_case() {
        let all = all("gw", &offer());
        let found =
            |asked: &str, kind| all.iter().filter(|r| r.answers(&name(asked), kind)).count();
        assert_eq!(found("GW.Local", QTYPE::TYPE(TYPE::A)), 1);
        assert_eq!(found("gw.local", QTYPE::ANY), 2);
        assert_eq!(found("other.local", QTYPE::ANY), 0);
        assert_eq!(found("gw._smb._tcp.local", QTYPE::ANY), 2);
        assert_eq!(found("_smb._tcp.local", QTYPE::TYPE(TYPE::PTR)), 1);
        assert_eq!(found("7.2.0.192.in-addr.arpa", QTYPE::TYPE(TYPE::PTR)), 1);
    }
}
