//! This computer as a device: its announcements and answers.

use std::net::{IpAddr, SocketAddr};

use quick_xml::escape::escape;

use super::HTTP_PORT;
use super::namespace::{
    ADDRESSING, DISCOVERY, METADATA, PNPX, PROFILE, PUBLICATION, SOAP, TRANSFER,
};
use super::request::{Asked, Request};
use crate::Identity;
use crate::guard::reply_max;

/// Receiver of what is sent to all.
const ALL: &str = "urn:schemas-xmlsoap-org:ws:2005:04:discovery";
/// Category that Windows shows.
const CATEGORY: &str = "Computers";
/// Group in which Windows puts computers of no domain.
const WORKGROUP: &str = "WORKGROUP";

/// The device of one link.
#[derive(Clone, Debug)]
pub struct Device {
    /// Identifier that lasts, `urn:uuid:...`.
    id: String,
    /// Name that Windows shows, and looks up: a label in capitals.
    name: String,
    /// Greater after each start (WS-Discovery appendix I).
    instance: u64,
    /// Number of the last message.
    messages: u64,
    /// Greater after each change of the metadata.
    version: u64,
    /// Source of identifiers of messages.
    random: fn() -> [u8; 16],
}

/// Returns the identifier of these bytes as a random UUID (RFC 9562 section 5.4).
fn urn(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "urn:uuid:{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

impl Device {
    /// Makes the device of this host.
    pub fn new(identity: &Identity) -> Self {
        let random = || {
            let mut bytes = [0; 16];
            // If the kernel gives no random numbers, identifiers repeat, and receivers take later messages for repetitions.
            let _ = getrandom::fill(&mut bytes);
            bytes
        };
        let name = identity.name.to_string().to_ascii_uppercase();
        Self {
            id: urn(identity.id),
            name,
            instance: identity.instance,
            messages: 0,
            version: 0,
            random,
        }
    }

    /// Notes the name that the host owns, and that what is known of the device has changed.
    pub fn rename(&mut self, label: &str) {
        self.name = label.to_ascii_uppercase();
        self.version += 1;
    }

    /// Returns the path of the metadata.
    pub fn path(&self) -> String {
        format!("/{}", self.id.trim_start_matches("urn:uuid:"))
    }

    /// Returns the address of the metadata at an address of this host.
    fn transport(&self, at: IpAddr) -> String {
        format!("http://{}{}", SocketAddr::new(at, HTTP_PORT), self.path())
    }

    fn envelope(
        &mut self,
        (to, action): (&str, &str),
        relates: Option<&str>,
        body: &str,
    ) -> String {
        let id = urn((self.random)());
        self.messages += 1;
        let relates = relates
            .map_or(String::new(), |id| format!("<a:RelatesTo>{}</a:RelatesTo>", escape(id)));
        let sequence = match action.starts_with(DISCOVERY) {
            true => format!(
                r#"<d:AppSequence InstanceId="{}" MessageNumber="{}"/>"#,
                self.instance, self.messages
            ),
            false => String::new(),
        };
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
             <s:Envelope xmlns:s=\"{SOAP}\" xmlns:a=\"{ADDRESSING}\" xmlns:d=\"{DISCOVERY}\" xmlns:wsdp=\"{PROFILE}\" \
             xmlns:pub=\"{PUBLICATION}\"><s:Header><a:To>{to}</a:To><a:Action>{action}</a:Action>\
             <a:MessageID>{id}</a:MessageID>{relates}{sequence}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
        )
    }

    fn endpoint(&self) -> String {
        format!("<a:EndpointReference><a:Address>{}</a:Address></a:EndpointReference>", self.id)
    }

    /// Returns the types of the device, the place of its metadata, and their version.
    fn about(&self, at: Option<IpAddr>) -> String {
        let transport =
            at.map_or(String::new(), |at| format!("<d:XAddrs>{}</d:XAddrs>", self.transport(at)));
        format!(
            "{}<d:Types>wsdp:Device pub:Computer</d:Types>{transport}<d:MetadataVersion>{}</d:MetadataVersion>",
            self.endpoint(),
            self.version
        )
    }

    /// Returns the announcement, whose metadata is at this address.
    pub fn hello(&mut self, at: IpAddr) -> String {
        let body = format!("<d:Hello>{}</d:Hello>", self.about(Some(at)));
        self.envelope((ALL, &format!("{DISCOVERY}/Hello")), None, &body)
    }

    /// Returns the message that withdraws the announcement.
    pub fn bye(&mut self) -> String {
        let body = format!("<d:Bye>{}</d:Bye>", self.endpoint());
        self.envelope((ALL, &format!("{DISCOVERY}/Bye")), None, &body)
    }

    /// Returns the answer to a message of `size` bytes, if it concerns this device. The sender reaches the metadata at this
    /// address.
    pub fn answer(&mut self, request: &Request, size: usize, at: IpAddr) -> Option<String> {
        let (kind, inner) = match request.asked {
            Asked::Probe(true) => ("ProbeMatches", "ProbeMatch"),
            Asked::Resolve if request.device.eq_ignore_ascii_case(&self.id) => {
                ("ResolveMatches", "ResolveMatch")
            }
            _ => return None,
        };
        let anonymous = format!("{ADDRESSING}/role/anonymous");
        let body = format!("<d:{kind}><d:{inner}>{}</d:{inner}></d:{kind}>", self.about(Some(at)));
        let action = format!("{DISCOVERY}/{kind}");
        let answer = self.envelope((&anonymous, &action), Some(&request.id), &body);
        (answer.len() <= reply_max(size)).then_some(answer)
    }

    /// Returns the metadata for a request over HTTP, if the request names this device.
    pub fn metadata(&mut self, request: &Request) -> Option<String> {
        if request.asked != Asked::Get || !request.device.eq_ignore_ascii_case(&self.id) {
            return None;
        }
        let (id, name) = (&self.id, escape(&*self.name));
        let version = env!("CARGO_PKG_VERSION");
        let section = |dialect: &str, inner: String| {
            format!(
                r#"<m:MetadataSection Dialect="{PROFILE}/{dialect}">{inner}</m:MetadataSection>"#
            )
        };
        let device = format!(
            "<wsdp:ThisDevice><wsdp:FriendlyName>{name}</wsdp:FriendlyName><wsdp:FirmwareVersion>{version}</wsdp:FirmwareVersion>\
             <wsdp:SerialNumber>{}</wsdp:SerialNumber></wsdp:ThisDevice>",
            id.trim_start_matches("urn:uuid:")
        );
        let model = format!(
            "<wsdp:ThisModel><wsdp:Manufacturer>Headgate</wsdp:Manufacturer><wsdp:ModelName>Headgate</wsdp:ModelName>\
             <p:DeviceCategory xmlns:p=\"{PNPX}\">{CATEGORY}</p:DeviceCategory></wsdp:ThisModel>"
        );
        let host = format!(
            "<wsdp:Relationship Type=\"{PROFILE}/host\"><wsdp:Host>{}<wsdp:Types>pub:Computer</wsdp:Types>\
             <wsdp:ServiceId>{id}</wsdp:ServiceId><pub:Computer>{name}/Workgroup:{WORKGROUP}</pub:Computer></wsdp:Host>\
             </wsdp:Relationship>",
            self.endpoint()
        );
        let sections = [
            section("ThisDevice", device),
            section("ThisModel", model),
            section("Relationship", host),
        ]
        .concat();
        let body = format!(r#"<m:Metadata xmlns:m="{METADATA}">{sections}</m:Metadata>"#);
        let anonymous = format!("{ADDRESSING}/role/anonymous");
        Some(self.envelope(
            (&anonymous, &format!("{TRANSFER}/GetResponse")),
            Some(&request.id),
            &body,
        ))
    }
}

#[cfg(test)]
mod tests {
    use quick_xml::events::Event;

    use super::super::request;
    use super::*;
    use crate::name::HostName;

    fn device() -> Device {
        let mut device =
            Device::new(&Identity { name: HostName::of("gw"), id: [7; 16], instance: 1000 });
        device.rename("gw");
        device
    }

    const AT: [u8; 4] = [192, 0, 2, 7];

    fn asked(asked: Asked, device: &str) -> Request {
        Request { asked, id: "urn:uuid:<1>".into(), device: device.into() }
    }

    /// Checks that the text is well-formed, and returns it.
    fn sound(text: String) -> String {
        let mut reader = quick_xml::reader::NsReader::from_str(&text);
        while reader.read_event().unwrap() != Event::Eof {}
        text
    }

    #[test]
    fn identifiers_are_uuids() {
        assert_eq!(urn([0xff; 16]), "urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(device().path(), "/07070707-0707-4707-8707-070707070707");
        let six = device().transport("2001:db8::7".parse().unwrap());
        assert_eq!(six, "http://[2001:db8::7]:5357/07070707-0707-4707-8707-070707070707");
    }

    #[test]
    fn announcements_are_numbered() {
        let mut device = device();
        let (hello, bye) = (sound(device.hello(AT.into())), sound(device.bye()));
        assert!(hello.contains(r#"InstanceId="1000" MessageNumber="1""#), "{hello}");
        assert!(hello.contains("<d:XAddrs>http://192.0.2.7:5357/07070707-"), "{hello}");
        assert!(hello.contains("<d:MetadataVersion>1<"));
        assert!(bye.contains(r#"MessageNumber="2""#) && bye.contains("/discovery/Bye<"), "{bye}");
        device.rename("gw-2");
        assert!(device.hello(AT.into()).contains("<d:MetadataVersion>2<"));
        for text in [hello, bye] {
            assert_eq!(
                request::parse(text.as_bytes()).unwrap().asked,
                Asked::Other,
                "other devices ignore it"
            );
        }
    }

    #[test]
    fn only_what_is_for_this_device_is_answered() {
        let mut device = device();
        let id = device.id.clone();
        let mut answer = |of: Request| device.answer(&of, 1000, AT.into()).map(sound);
        let matches = answer(asked(Asked::Probe(true), "")).unwrap();
        assert!(matches.contains("<a:RelatesTo>urn:uuid:&lt;1&gt;</a:RelatesTo>"), "{matches}");
        assert!(matches.contains("<d:Types>wsdp:Device pub:Computer</d:Types>"));
        assert!(
            answer(asked(Asked::Resolve, &id.to_uppercase())).unwrap().contains("ResolveMatch>")
        );
        for other in [
            asked(Asked::Probe(false), ""),
            asked(Asked::Resolve, "urn:uuid:other"),
            asked(Asked::Get, &id),
            asked(Asked::Other, &id),
        ] {
            assert_eq!(answer(other.clone()), None, "{other:?}");
        }
        assert_eq!(
            device.answer(&asked(Asked::Probe(true), ""), 300, AT.into()),
            None,
            "large beside its request"
        );
    }

    #[test]
    fn metadata_has_what_explorer_shows() {
        let mut device = device();
        let id = device.id.clone();
        let text = sound(device.metadata(&asked(Asked::Get, &id)).unwrap());
        assert!(text.contains("<pub:Computer>GW/Workgroup:WORKGROUP</pub:Computer>"), "{text}");
        assert!(text.contains("<wsdp:Types>pub:Computer</wsdp:Types>"));
        assert!(text.contains("/transfer/GetResponse<"));
        assert!(!text.contains("AppSequence"), "only messages of discovery have it");
        assert_eq!(device.metadata(&asked(Asked::Get, "urn:uuid:other")), None);
        assert_eq!(device.metadata(&asked(Asked::Probe(true), &id)), None);
    }
}
