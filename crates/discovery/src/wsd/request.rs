//! Reads a message: a SOAP envelope whose header names the action. The library `quick-xml` reads XML; limits apply to depth, number
//! and length of its elements and texts, and document types, which could define entities, are refused.

use quick_xml::events::Event;
use quick_xml::name::{QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::MESSAGE_MAX;
use super::namespace::{ADDRESSING, DISCOVERY, PROFILE, PUBLICATION, SOAP, TRANSFER};

/// Most elements inside of each other.
const DEPTH_MAX: usize = 12;
/// Most pieces of a message: tags, texts, comments.
const EVENTS_MAX: usize = 400;
/// Most bytes of a text that is used.
const TEXT_MAX: usize = 512;
/// Most types that a Probe asks for.
const TYPES_MAX: usize = 16;

/// The action that a message requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A search for devices. True if this device has all requested types, and the message names no scopes.
    Probe(bool),
    /// The addresses of a device.
    Resolve,
    /// The metadata of a device.
    Get,
    /// Something that a device does not answer, as the announcement of another one.
    Other,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested action.
    pub asked: Asked,
    /// Its identifier, which the answer repeats.
    pub id: String,
    /// The device that the message concerns: a Resolve names it in the body, a Get as the receiver.
    pub device: String,
}

/// The elements whose text is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Action,
    MessageId,
    To,
    Types,
    Scopes,
    Address,
}

const HEADER: [(&str, &str); 2] = [(SOAP, "Envelope"), (SOAP, "Header")];

/// Returns the field of the element at the end of a path.
fn field(path: &[(String, String)]) -> Option<Field> {
    let path: Vec<(&str, &str)> =
        path.iter().map(|(space, name)| (space.as_str(), name.as_str())).collect();
    let body = |inner: &[(&str, &str)]| {
        path.get(..2) == Some(&[(SOAP, "Envelope"), (SOAP, "Body")]) && path.get(2..) == Some(inner)
    };
    let header =
        |name| path.get(..2) == Some(&HEADER) && path.get(2..) == Some(&[(ADDRESSING, name)]);
    if header("Action") {
        Some(Field::Action)
    } else if header("MessageID") {
        Some(Field::MessageId)
    } else if header("To") {
        Some(Field::To)
    } else if body(&[(DISCOVERY, "Probe"), (DISCOVERY, "Types")]) {
        Some(Field::Types)
    } else if body(&[(DISCOVERY, "Probe"), (DISCOVERY, "Scopes")]) {
        Some(Field::Scopes)
    } else if body(&[
        (DISCOVERY, "Resolve"),
        (ADDRESSING, "EndpointReference"),
        (ADDRESSING, "Address"),
    ]) {
        Some(Field::Address)
    } else {
        None
    }
}

#[derive(Default)]
struct Reading {
    path: Vec<(String, String)>,
    action: String,
    id: String,
    to: String,
    address: String,
    scopes: String,
    types: String,
    /// False if a Probe names a type that this device lacks.
    is_of_types: Option<bool>,
}

impl Reading {
    fn text(&mut self, text: &str) -> Result<(), &'static str> {
        let target = match field(&self.path) {
            Some(Field::Action) => &mut self.action,
            Some(Field::MessageId) => &mut self.id,
            Some(Field::To) => &mut self.to,
            Some(Field::Types) => &mut self.types,
            Some(Field::Scopes) => &mut self.scopes,
            Some(Field::Address) => &mut self.address,
            None => return Ok(()),
        };
        if target.len() + text.len() > TEXT_MAX {
            return Err("text");
        }
        target.push_str(text);
        Ok(())
    }

    fn request(self) -> Result<Request, &'static str> {
        let id = self.id.trim().to_owned();
        let action = self.action.trim();
        let of = |space: &str| action.strip_prefix(space).and_then(|rest| rest.strip_prefix('/'));
        // This device has no scopes: a Probe for some is not for it (WS-Discovery section 5.1).
        let matches = self.is_of_types.unwrap_or(true) && self.scopes.trim().is_empty();
        let (asked, device) = match (of(DISCOVERY), of(TRANSFER)) {
            (Some("Probe"), _) => (Asked::Probe(matches), String::new()),
            (Some("Resolve"), _) => (Asked::Resolve, self.address.trim().to_owned()),
            (_, Some("Get")) => (Asked::Get, self.to.trim().to_owned()),
            _ => (Asked::Other, String::new()),
        };
        if id.is_empty() && asked != Asked::Other {
            return Err("identifier");
        }
        Ok(Request { asked, id, device })
    }
}

/// Reads a message.
///
/// # Errors
/// Names what is wrong, for a counter.
pub fn parse(bytes: &[u8]) -> Result<Request, &'static str> {
    if bytes.len() > MESSAGE_MAX {
        return Err("size");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "utf-8")?;
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    reader.config_mut().check_end_names = true;
    let mut reading = Reading::default();
    let mut has_root = false;
    for _ in 0..EVENTS_MAX {
        match reader.read_event().map_err(|_| "xml")? {
            Event::Start(start) => {
                if reading.path.len() >= DEPTH_MAX || reading.path.is_empty() && has_root {
                    return Err("depth");
                }
                has_root = true;
                let (space, name) = reader.resolver().resolve_element(start.name());
                let space = match space {
                    ResolveResult::Bound(space) => space.into_inner().to_owned(),
                    ResolveResult::Unbound => String::new(),
                    ResolveResult::Unknown(_) => return Err("prefix"),
                };
                reading.path.push((space, name.into_inner().to_owned()));
            }
            Event::End(_) => {
                if field(&reading.path) == Some(Field::Types) {
                    reading.is_of_types = Some(is_of_types(&reading.types, &reader)?);
                }
                reading.path.pop();
            }
            Event::Text(text) => reading.text(&text.xml10_content())?,
            Event::CData(text) => reading.text(&text.xml10_content())?,
            Event::GeneralRef(entity) => reading.text(&resolved(&entity)?)?,
            Event::Eof if has_root && reading.path.is_empty() => return reading.request(),
            Event::Eof => return Err("end"),
            Event::DocType(_) => return Err("doctype"),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::Empty(_) => {}
        }
    }
    Err("length")
}

/// Returns the character of a reference. Only those exist that XML itself defines.
fn resolved(entity: &quick_xml::events::BytesRef<'_>) -> Result<String, &'static str> {
    if let Some(character) = entity.resolve_char_ref().map_err(|_| "entity")? {
        return Ok(character.into());
    }
    let name = entity.xml10_content();
    quick_xml::escape::resolve_predefined_entity(&name).map(str::to_owned).ok_or("entity")
}

/// Returns true if this device has all types in the list, whose names have prefixes.
fn is_of_types(list: &str, reader: &NsReader<&[u8]>) -> Result<bool, &'static str> {
    let mut all = list.split_ascii_whitespace();
    let is_own = |kind: &str| {
        let (name, prefix) = QName(kind).decompose();
        match reader.resolver().resolve_prefix(prefix, true) {
            ResolveResult::Bound(space) => [(PROFILE, "Device"), (PUBLICATION, "Computer")]
                .contains(&(space.into_inner(), name.into_inner())),
            _ => false,
        }
    };
    let own = all.by_ref().take(TYPES_MAX).all(is_own);
    if all.next().is_some() && own { Err("types") } else { Ok(own) }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
