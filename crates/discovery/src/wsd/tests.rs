use proptest::prelude::*;

use super::*;

/// A Probe as Windows 10 sends it.
const PROBE: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <soap:Envelope xmlns:soap=\"http://www.w3.org/2003/05/soap-envelope\" \
    xmlns:wsa=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" \
    xmlns:wsd=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\" \
    xmlns:wsdp=\"http://schemas.xmlsoap.org/ws/2006/02/devprof\"><soap:Header>\
    <wsa:To>urn:schemas-xmlsoap-org:ws:2005:04:discovery</wsa:To>\
    <wsa:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</wsa:Action>\
    <wsa:MessageID>urn:uuid:1</wsa:MessageID></soap:Header>\
    <soap:Body><wsd:Probe><wsd:Types>wsdp:Device</wsd:Types></wsd:Probe></soap:Body></soap:Envelope>";

fn with(from: &str, to: &str) -> Result<Request, &'static str> {
    assert!(PROBE.contains(from), "{from}");
    parse(PROBE.replace(from, to).as_bytes())
}

fn asked(of: Result<Request, &'static str>) -> Result<Asked, &'static str> {
    of.map(|request| request.asked)
}

#[test]
fn a_probe_of_windows_is_read() {
    let request = parse(PROBE.as_bytes()).unwrap();
    assert_eq!(
        request,
        Request { asked: Asked::Probe(true), id: "urn:uuid:1".into(), device: String::new() }
    );
}

#[test]
fn types_are_compared_by_namespace() {
    let types = |list: &str| asked(with("<wsd:Types>wsdp:Device</wsd:Types>", list));
    let own = r#"<wsd:Types xmlns:x="http://schemas.microsoft.com/windows/pub/2005/07">wsdp:Device
        x:Computer</wsd:Types>"#;
    assert_eq!(types(own), Ok(Asked::Probe(true)));
    assert_eq!(types(""), Ok(Asked::Probe(true)), "any device");
    assert_eq!(types("<wsd:Types/>"), Ok(Asked::Probe(true)));
    assert_eq!(
        types(r#"<wsd:Types xmlns:wsdp="urn:other">wsdp:Device</wsd:Types>"#),
        Ok(Asked::Probe(false))
    );
    assert_eq!(types("<wsd:Types>wsdp:Device wsdp:Printer</wsd:Types>"), Ok(Asked::Probe(false)));
    assert_eq!(types("<wsd:Types>none:Device</wsd:Types>"), Ok(Asked::Probe(false)));
    let many = "wsdp:Device ".repeat(17);
    assert_eq!(types(&format!("<wsd:Types>{many}</wsd:Types>")), Err("types"));
    let scoped = "<wsd:Types>wsdp:Device</wsd:Types><wsd:Scopes>ldap:///ou=here</wsd:Scopes>";
    assert_eq!(types(scoped), Ok(Asked::Probe(false)));
}

#[test]
fn a_resolve_names_its_device() {
    let body = "<wsd:Probe><wsd:Types>wsdp:Device</wsd:Types></wsd:Probe>";
    let resolve = "<wsd:Resolve><wsa:EndpointReference><wsa:Address>urn:uuid:7</wsa:Address></wsa:EndpointReference></wsd:Resolve>";
    let text = PROBE.replace(body, resolve).replace("/Probe<", "/Resolve<");
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!((request.asked, &*request.device), (Asked::Resolve, "urn:uuid:7"));
    // A Probe whose body is a Resolve is a Probe.
    assert_eq!(asked(parse(PROBE.replace(body, resolve).as_bytes())), Ok(Asked::Probe(true)));
}

#[test]
fn a_get_names_its_receiver() {
    let text = PROBE.replace("urn:schemas-xmlsoap-org:ws:2005:04:discovery", "urn:uuid:7").replace(
        "http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe",
        "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get",
    );
    let request = parse(text.as_bytes()).unwrap();
    assert_eq!((request.asked, &*request.device), (Asked::Get, "urn:uuid:7"));
}

#[test]
fn what_is_no_message_is_refused() {
    assert_eq!(asked(with("discovery/Probe<", "discovery/Hello<")), Ok(Asked::Other));
    assert_eq!(asked(with("<wsa:MessageID>urn:uuid:1</wsa:MessageID>", "")), Err("identifier"));
    assert_eq!(asked(with("</soap:Envelope>", "")), Err("end"));
    assert_eq!(asked(with("</soap:Header>", "</soap:Heading>")), Err("xml"));
    assert_eq!(asked(with("<soap:Header>", "<unbound:Header>")), Err("prefix"));
    assert_eq!(asked(with("</soap:Envelope>", "</soap:Envelope><a/>")), Err("depth"));
    assert_eq!(
        asked(with("<soap:Envelope", "<!DOCTYPE a [<!ENTITY b 'c'>]><soap:Envelope")),
        Err("doctype")
    );
    assert_eq!(asked(with("urn:uuid:1<", "&b;<")), Err("entity"));
    let request = with("urn:uuid:1<", "&lt;&#x41;&amp;<").unwrap();
    assert_eq!(request.id, "<A&");
    assert_eq!(asked(parse(b"")), Err("end"));
    assert_eq!(asked(parse(&[0xff])), Err("utf-8"));
}

#[test]
fn size_depth_and_number_are_limited() {
    assert_eq!(parse(&vec![b' '; MESSAGE_MAX + 1]), Err("size"));
    let deep = format!("{}{}", "<a>".repeat(20), "</a>".repeat(20));
    assert_eq!(asked(with("<wsd:Probe>", &format!("{deep}<wsd:Probe>"))), Err("depth"));
    let many = "<a/>".repeat(EVENTS_MAX);
    assert_eq!(asked(with("<wsd:Probe>", &format!("{many}<wsd:Probe>"))), Err("length"));
    let long = "x".repeat(TEXT_MAX + 1);
    assert_eq!(asked(with("urn:uuid:1<", &format!("{long}<"))), Err("text"));
    let many = "&amp;".repeat(TEXT_MAX);
    assert_eq!(asked(with("urn:uuid:1<", &format!("{many}<"))), Err("length"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn damaged_messages_are_read_or_refused(at in 0_usize..800, to in "[<>/:a-z&;\"]{0,4}") {
        let at = at % PROBE.len();
        let text = format!("{}{to}{}", &PROBE[..at], &PROBE[at + 1..]);
        let _ = parse(text.as_bytes());
    }
}
