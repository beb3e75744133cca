//! SPNEGO (RFC 4178, MS-SPNG): which mechanism, and a MIC over the list of them, so that nobody in between can take one away.
//!
//! *Operation.* The one mechanism is NTLM. A client that prefers another one, such as Kerberos, and has NTLM on its list is asked
//! to use that; its optimistic token is not looked at. Clients that send NTLM without SPNEGO are answered in kind.

use zeroize::Zeroizing;

use super::der::{self, Reader, element};
use super::ntlm::{self, Direction, Mic, wire::SIGNATURE};
use super::{Fresh, Identity, Policy, Refusal, Secrets, SessionKey, Step, Who};

/// 1.3.6.1.5.5.2
const SPNEGO: [u8; 6] = [0x2b, 6, 1, 5, 5, 2];
/// 1.3.6.1.4.1.311.2.2.10
const NTLMSSP: [u8; 10] = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a];

/// `negState`
const ACCEPT_COMPLETED: u8 = 0;
const ACCEPT_INCOMPLETE: u8 = 1;
const REJECT: u8 = 2;
const REQUEST_MIC: u8 = 3;

/// Mechanisms that a client may list; more are not worth the time.
const MAX_MECHS: usize = 32;

/// The list of mechanisms as it stands in a first token, which the MICs cover.
fn mech_list() -> Vec<u8> {
    element(der::SEQUENCE, &element(der::OID, &NTLMSSP))
}

/// `SecurityBuffer` of a NEGOTIATE response: a NegTokenInit2 with the mechanisms and the words that MS-SPNG section 2.2.1 has for
/// clients that look for a name there.
pub fn hint() -> Vec<u8> {
    let words = element(der::GENERAL_STRING, b"not_defined_in_RFC4178@please_ignore");
    let hints = element(der::SEQUENCE, &element(der::context(0), &words));
    let fields = [element(der::context(0), &mech_list()), element(der::context(3), &hints)];
    first_token(&fields.concat())
}

fn first_token(fields: &[u8]) -> Vec<u8> {
    let init = element(der::context(0), &element(der::SEQUENCE, fields));
    element(der::APPLICATION_0, &[element(der::OID, &SPNEGO), init].concat())
}

/// What a first token holds.
struct Init<'a> {
    /// The list with its head.
    list: &'a [u8],
    mechs: Vec<&'a [u8]>,
    token: Option<&'a [u8]>,
}

impl<'a> Init<'a> {
    fn parse(token: &'a [u8]) -> Result<Self, Refusal> {
        let mut frame = Reader(Reader(token).expect(der::APPLICATION_0, "InitialContextToken")?);
        if frame.expect(der::OID, "thisMech")? != SPNEGO {
            return Err(Refusal::NoMechanism);
        }
        let mut init = Reader(frame.expect(der::context(0), "NegTokenInit")?);
        let mut fields = Reader(init.expect(der::SEQUENCE, "NegTokenInit")?);
        let mut types = Reader(fields.expect(der::context(0), "mechTypes")?);
        let list = types.raw(der::SEQUENCE, "mechTypes")?;
        let mut each = Reader(Reader(list).expect(der::SEQUENCE, "mechTypes")?);
        let mut mechs = Vec::new();
        while each.peek().is_some() {
            if mechs.len() == MAX_MECHS {
                return Err(Refusal::Malformed("mechTypes"));
            }
            mechs.push(each.expect(der::OID, "mechTypes")?);
        }
        fields.optional(der::context(1), "reqFlags")?;
        let token = match fields.optional(der::context(2), "mechToken")? {
            Some(mut inner) => Some(inner.expect(der::OCTETS, "mechToken")?),
            None => None,
        };
        Ok(Self { list, mechs, token })
    }
}

/// What every further token holds.
#[derive(Default)]
struct Resp<'a> {
    state: Option<u8>,
    mech: Option<&'a [u8]>,
    token: Option<&'a [u8]>,
    mic: Option<&'a [u8]>,
}

impl<'a> Resp<'a> {
    fn parse(token: &'a [u8]) -> Result<Self, Refusal> {
        let mut resp = Reader(Reader(token).expect(der::context(1), "NegTokenResp")?);
        let mut fields = Reader(resp.expect(der::SEQUENCE, "NegTokenResp")?);
        let mut out = Self::default();
        if let Some(mut inner) = fields.optional(der::context(0), "negState")? {
            out.state = inner.expect(der::ENUMERATED, "negState")?.first().copied();
        }
        if let Some(mut inner) = fields.optional(der::context(1), "supportedMech")? {
            out.mech = Some(inner.expect(der::OID, "supportedMech")?);
        }
        if let Some(mut inner) = fields.optional(der::context(2), "responseToken")? {
            out.token = Some(inner.expect(der::OCTETS, "responseToken")?);
        }
        if let Some(mut inner) = fields.optional(der::context(3), "mechListMIC")? {
            out.mic = Some(inner.expect(der::OCTETS, "mechListMIC")?);
        }
        Ok(out)
    }

    fn emit(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        let mut put = |n, tag, value: Option<&[u8]>| {
            if let Some(value) = value {
                fields.extend(element(der::context(n), &element(tag, value)));
            }
        };
        put(0, der::ENUMERATED, self.state.as_ref().map(std::slice::from_ref));
        put(1, der::OID, self.mech);
        put(2, der::OCTETS, self.token);
        put(3, der::OCTETS, self.mic);
        element(der::context(1), &element(der::SEQUENCE, &fields))
    }
}

/// How the client wraps its tokens.
enum Frame {
    /// Nothing has come yet.
    Unknown,
    /// NTLM as it is.
    Raw,
    /// SPNEGO, with the client's list, and whether NTLM was not what it liked best: then a MIC must come.
    Spnego { list: Vec<u8>, mic_required: bool },
}

/// The server's end of one authentication.
pub struct Acceptor {
    ntlm: ntlm::Acceptor,
    frame: Frame,
    target_name: Option<String>,
}

impl Acceptor {
    /// Waits for a first token. `fresh` is used for this one authentication only.
    pub fn new(identity: Identity, fresh: Fresh, policy: Policy) -> Self {
        Self {
            ntlm: ntlm::Acceptor::new(identity, fresh, policy, None),
            frame: Frame::Unknown,
            target_name: None,
        }
    }

    /// The service that the client named, such as `cifs/server`, once it is done.
    pub fn target_name(&self) -> Option<&str> {
        self.target_name.as_deref()
    }

    /// What the client seems to be, once it has begun.
    pub fn client(&self) -> Option<String> {
        self.ntlm.client_version().and_then(super::client::guess)
    }

    /// The next token of the client.
    pub fn step(&mut self, token: &[u8], secrets: &dyn Secrets) -> Step {
        let result = if matches!(self.frame, Frame::Unknown) {
            self.first(token)
        } else {
            self.further(token, secrets)
        };
        result.unwrap_or_else(Step::Refused)
    }

    fn first(&mut self, token: &[u8]) -> Result<Step, Refusal> {
        if token.starts_with(&SIGNATURE) {
            self.frame = Frame::Raw;
            return self.ntlm.negotiate(token).map(Step::Continue);
        }
        let init = Init::parse(token)?;
        let preferred = init.mechs.first() == Some(&&NTLMSSP[..]);
        if !init.mechs.contains(&&NTLMSSP[..]) {
            return Err(Refusal::NoMechanism);
        }
        let answer = match init.token {
            Some(token) if preferred => Some(self.ntlm.negotiate(token)?),
            _ => None,
        };
        self.frame = Frame::Spnego { list: init.list.to_vec(), mic_required: !preferred };
        let state = if preferred { ACCEPT_INCOMPLETE } else { REQUEST_MIC };
        let resp =
            Resp { state: Some(state), mech: Some(&NTLMSSP), token: answer.as_deref(), mic: None };
        Ok(Step::Continue(resp.emit()))
    }

    fn further(&mut self, token: &[u8], secrets: &dyn Secrets) -> Result<Step, Refusal> {
        let Frame::Spnego { list, mic_required } = &self.frame else {
            let accepted = self.ntlm.authenticate(token, secrets)?;
            self.target_name = accepted.target_name;
            return Ok(done(Vec::new(), accepted.who, accepted.key.map(|(key, _)| key)));
        };
        let resp = Resp::parse(token)?;
        let inner = resp.token.ok_or(Refusal::Malformed("responseToken"))?;
        if !self.ntlm.begun() {
            let answer = self.ntlm.negotiate(inner)?;
            let resp =
                Resp { state: Some(ACCEPT_INCOMPLETE), token: Some(&answer), ..Resp::default() };
            return Ok(Step::Continue(resp.emit()));
        }
        let accepted = self.ntlm.authenticate(inner, secrets)?;
        self.target_name = accepted.target_name;
        let key = accepted.key.as_ref().map(|(_, signer)| signer);
        let ours = check_mic(key, list, resp.mic, *mic_required)?;
        let last = Resp {
            state: Some(ACCEPT_COMPLETED),
            mic: ours.as_ref().map(|m| &m[..]),
            ..Resp::default()
        };
        Ok(done(last.emit(), accepted.who, accepted.key.map(|(key, _)| key)))
    }
}

/// Compares the client's MIC over its list and gives ours. A guest shares no key, so there is nothing to compare.
fn check_mic(
    key: Option<&Mic>,
    list: &[u8],
    mic: Option<&[u8]>,
    required: bool,
) -> Result<Option<[u8; 16]>, Refusal> {
    match (key, mic) {
        (None, _) => Ok(None),
        (Some(_), None) if required => Err(Refusal::Tampered("mechListMIC is missing")),
        (Some(_), None) => Ok(None),
        (Some(key), Some(mic)) => {
            if !key.verify(Direction::ClientToServer, list, mic) {
                return Err(Refusal::Tampered("mechListMIC differs"));
            }
            Ok(Some(key.sign(Direction::ServerToClient, list)))
        }
    }
}

fn done(token: Vec<u8>, who: Who, key: Option<Zeroizing<[u8; 16]>>) -> Step {
    Step::Done { token, who, key: key.map(|k| Zeroizing::new(k.to_vec())) }
}

/// The client's end of one authentication.
pub struct Initiator {
    ntlm: ntlm::Initiator,
    finishing: Option<(SessionKey, Mic)>,
}

impl Initiator {
    /// Ready to speak first.
    pub fn new(credentials: ntlm::Credentials, fresh: Fresh) -> Self {
        Self { ntlm: ntlm::Initiator::new(credentials, fresh), finishing: None }
    }

    /// The first token.
    pub fn first(&self) -> Vec<u8> {
        let token = element(der::OCTETS, &self.ntlm.negotiate());
        let fields = [element(der::context(0), &mech_list()), element(der::context(2), &token)];
        first_token(&fields.concat())
    }

    /// The second token, to the server's answer with STATUS_MORE_PROCESSING_REQUIRED, and the session key, which is believed only
    /// after [`Initiator::finish`].
    pub fn second(&mut self, token: &[u8]) -> Result<(Vec<u8>, SessionKey), Refusal> {
        let resp = Resp::parse(token)?;
        if resp.state == Some(REJECT) {
            return Err(Refusal::Rejected);
        }
        if resp.mech.is_some_and(|m| m != NTLMSSP) {
            return Err(Refusal::NoMechanism);
        }
        let challenge = resp.token.ok_or(Refusal::Malformed("responseToken"))?;
        let (answer, key, signer) = self.ntlm.authenticate(challenge)?;
        let mic = signer.sign(Direction::ClientToServer, &mech_list());
        let key: SessionKey = Zeroizing::new(key.to_vec());
        self.finishing = Some((key.clone(), signer));
        let resp = Resp { token: Some(&answer), mic: Some(&mic), ..Resp::default() };
        Ok((resp.emit(), key))
    }

    /// Judges the token of the server's final answer.
    pub fn finish(&mut self, token: &[u8]) -> Result<SessionKey, Refusal> {
        let (key, signer) = self.finishing.take().ok_or(Refusal::OutOfTurn)?;
        let resp = if token.is_empty() { Resp::default() } else { Resp::parse(token)? };
        if resp.state.is_some_and(|s| s != ACCEPT_COMPLETED) {
            return Err(Refusal::Rejected);
        }
        match resp.mic {
            Some(mic) if !signer.verify(Direction::ServerToClient, &mech_list(), mic) => {
                Err(Refusal::Tampered("mechListMIC differs"))
            }
            _ => Ok(key),
        }
    }
}
