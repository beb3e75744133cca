//! SPNEGO (RFC 4178, MS-SPNG): negotiates the mechanism, and verifies a MIC over the mechanism list, so that an attacker cannot
//! remove entries.
//!
//! *Operation.* The mechanisms are Kerberos, if there is a keytab, and NTLM. The first enabled mechanism in the client's list is
//! selected. If that is not the client's first choice, its optimistic token is ignored and a MIC over the list is required (RFC
//! 4178 section 5). Clients that send NTLM or Kerberos without SPNEGO get replies without SPNEGO. A Kerberos token is returned to
//! the caller ([`Step::Prove`]), because verifying it may block; [`Acceptor::proved`] continues with the result.

use gss_krb5::Cause;
use smb_proto::spnego::mech::{KRB5, MS_KRB5, NTLMSSP, SPNEGO};
use smb_proto::spnego::state::{ACCEPT_COMPLETED, ACCEPT_INCOMPLETE, REJECT, REQUEST_MIC};
use smb_proto::spnego::{Init, InitialContext, Resp, emit_offer, mech_types};
use zeroize::Zeroizing;

use crate::ntlm::{self, Direction, Judged, Mic, messages::SIGNATURE};
use crate::relay::Answer;
use crate::ticket::{self, Proof};
use crate::version;
use crate::{Fresh, Identity, LookedUp, Policy, Refusal, Secrets, SessionKey, Step, Who};

/// The enabled mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechs {
    /// A keytab is configured.
    pub kerberos: bool,
    /// Passwords are accepted.
    pub ntlm: bool,
}

impl Mechs {
    /// Passwords only.
    pub const NTLM: Self = Self { kerberos: false, ntlm: true };

    /// Returns the offered mechanisms in order. Old Windows clients accept only their own identifier of Kerberos.
    fn offered(self) -> impl Iterator<Item = &'static [u8]> {
        let all = [(self.kerberos, &MS_KRB5[..]), (self.kerberos, &KRB5), (self.ntlm, &NTLMSSP)];
        all.into_iter().filter(|(served, _)| *served).map(|(_, mech)| mech)
    }

    /// Returns the list in the format of an initial token, which the MICs cover.
    fn list(self) -> Vec<u8> {
        mech_types(self.offered())
    }
}

/// Returns `SecurityBuffer` of a NEGOTIATE response: the offered mechanisms.
pub fn hint(mechs: Mechs) -> Vec<u8> {
    emit_offer(&mechs.list())
}

/// How the client wraps its tokens.
enum Frame {
    /// No token has been received.
    Unknown,
    /// Tokens of a mechanism without SPNEGO.
    Raw,
    /// SPNEGO, with the client's list. A MIC is required if the mechanism is not the client's first choice.
    Spnego { list: Vec<u8>, mic_required: bool },
}

/// The progress of a Kerberos exchange.
enum Kerberos<U> {
    /// Waits for the token.
    Chosen,
    /// Waits for the verification. Has the mechanism to report and the MIC that came with the token.
    Asked { mech: Option<&'static [u8]>, mic: Option<Vec<u8>> },
    /// Verified; waits for the client's MIC over the list.
    Proved(Proof<U>),
}

/// The server side of one authentication.
pub struct Acceptor<U> {
    mechs: Mechs,
    ntlm: ntlm::Acceptor,
    kerberos: Option<Kerberos<U>>,
    frame: Frame,
    target_name: Option<String>,
    /// The token of [`Step::Ask`] or [`Step::LookUp`].
    asked: Option<Vec<u8>>,
    /// No domain has the account of that token.
    is_local: bool,
}

impl<U> Acceptor<U> {
    /// Creates an acceptor that expects the first token. `fresh` must not be used for another authentication.
    pub fn new(identity: Identity, fresh: Fresh, policy: Policy, mechs: Mechs) -> Self {
        Self {
            mechs,
            ntlm: ntlm::Acceptor::new(identity, fresh, policy, None),
            kerberos: None,
            frame: Frame::Unknown,
            target_name: None,
            asked: None,
            is_local: false,
        }
    }

    /// Returns the service that the client named, such as `cifs/server`, once authentication is finished.
    pub fn target_name(&self) -> Option<&str> {
        self.target_name.as_deref()
    }

    /// Returns a guess of the client's system, once authentication has begun.
    pub fn client(&self) -> Option<String> {
        self.ntlm.client_version().and_then(version::guess)
    }

    /// Processes the client's next token.
    pub fn step(&mut self, token: &[u8], secrets: &dyn Secrets) -> Step<U> {
        let result = match (&self.frame, self.kerberos.is_some()) {
            (Frame::Unknown, _) => self.first(token),
            (_, true) => self.further_of_kerberos(token),
            (_, false) => self.further(token, secrets, None),
        };
        result.unwrap_or_else(Step::Refused)
    }

    /// Continues with what a controller said about the response of [`Step::Ask`].
    pub fn answered(&mut self, answer: Answer<U>, secrets: &dyn Secrets) -> Step<U> {
        let Some(token) = self.asked.take() else { return Step::Refused(Refusal::OutOfTurn) };
        self.is_local = matches!(answer, Answer::Local);
        self.further(&token, secrets, Some(answer)).unwrap_or_else(Step::Refused)
    }

    /// Continues after the look-up of [`Step::LookUp`].
    pub fn looked_up(&mut self, found: LookedUp, secrets: &dyn Secrets) -> Step<U> {
        let Some(token) = self.asked.take() else { return Step::Refused(Refusal::OutOfTurn) };
        self.ntlm.looked_up(found);
        let answer = self.is_local.then_some(Answer::Local);
        self.further(&token, secrets, answer).unwrap_or_else(Step::Refused)
    }

    /// Continues with the result of verifying the token of [`Step::Prove`].
    pub fn proved(&mut self, outcome: Result<Proof<U>, ticket::Refused>) -> Step<U> {
        self.go_on_with(outcome).unwrap_or_else(Step::Refused)
    }

    fn first(&mut self, token: &[u8]) -> Result<Step<U>, Refusal> {
        if token.starts_with(&SIGNATURE) {
            self.frame = Frame::Raw;
            self.takes_passwords()?;
            return self.ntlm.negotiate(token).map(Step::Continue);
        }
        if self.mechs.kerberos && is_of_kerberos(token) {
            self.frame = Frame::Raw;
            self.kerberos = Some(Kerberos::Asked { mech: None, mic: None });
            return Ok(Step::Prove(token.to_vec()));
        }
        let frame = InitialContext::parse(token)?;
        if frame.mech != SPNEGO {
            return Err(Refusal::NoMechanism);
        }
        let init = Init::parse(frame.inner)?;
        let served = |mech: &&[u8]| self.mechs.offered().find(|ours| ours == mech);
        let Some(mech) = init.mechs.iter().find_map(served) else {
            let passwords = init.mechs.contains(&&NTLMSSP[..]);
            return Err(if passwords { Refusal::NoPasswords } else { Refusal::NoMechanism });
        };
        let preferred = init.mechs.first() == Some(&mech);
        self.frame = Frame::Spnego { list: init.list.to_vec(), mic_required: !preferred };
        let optimistic = init.token.filter(|_| preferred);
        if mech != NTLMSSP {
            return Ok(self.begin_kerberos(mech, (optimistic, init.mic)));
        }
        let answer = optimistic.map(|token| self.ntlm.negotiate(token)).transpose()?;
        Ok(Step::Continue(chosen(mech, preferred, answer.as_deref())))
    }

    fn takes_passwords(&self) -> Result<(), Refusal> {
        if self.mechs.ntlm { Ok(()) } else { Err(Refusal::NoPasswords) }
    }

    fn begin_kerberos(
        &mut self,
        mech: &'static [u8],
        (token, mic): (Option<&[u8]>, Option<&[u8]>),
    ) -> Step<U> {
        let Some(token) = token else {
            self.kerberos = Some(Kerberos::Chosen);
            let preferred = matches!(self.frame, Frame::Spnego { mic_required: false, .. });
            return Step::Continue(chosen(mech, preferred, None));
        };
        let mic = mic.map(<[u8]>::to_vec);
        self.kerberos = Some(Kerberos::Asked { mech: Some(mech), mic });
        Step::Prove(token.to_vec())
    }

    fn further_of_kerberos(&mut self, token: &[u8]) -> Result<Step<U>, Refusal> {
        let resp = Resp::parse(token)?;
        match (self.kerberos.take(), &self.frame) {
            (Some(Kerberos::Chosen), _) => {
                let inner = resp.token.ok_or(Refusal::Malformed("responseToken"))?;
                let mic = resp.mic.map(<[u8]>::to_vec);
                self.kerberos = Some(Kerberos::Asked { mech: None, mic });
                Ok(Step::Prove(inner.to_vec()))
            }
            (Some(Kerberos::Proved(mut proof)), Frame::Spnego { list, .. }) => {
                let mic = resp.mic.ok_or(Refusal::Tampered("mechListMIC is missing"))?;
                if !proof.context.verify(list, mic) {
                    return Err(Refusal::Tampered("mechListMIC differs"));
                }
                let last = Resp { state: Some(ACCEPT_COMPLETED), ..Resp::default() };
                done_by_ticket(last.emit(), proof)
            }
            _ => Err(Refusal::OutOfTurn),
        }
    }

    fn go_on_with(
        &mut self,
        outcome: Result<Proof<U>, ticket::Refused>,
    ) -> Result<Step<U>, Refusal> {
        let Some(Kerberos::Asked { mech, mic }) = self.kerberos.take() else {
            return Err(Refusal::OutOfTurn);
        };
        let mut proof = outcome.map_err(|refused| Refusal::Ticket(Box::new(refused)))?;
        self.target_name = Some(proof.service.clone());
        let Frame::Spnego { list, mic_required } = &self.frame else {
            let token = std::mem::take(&mut proof.token);
            return done_by_ticket(token, proof);
        };
        if mic.as_ref().is_some_and(|mic| !proof.context.verify(list, mic)) {
            return Err(Refusal::Tampered("mechListMIC differs"));
        }
        let must_come = *mic_required && mic.is_none();
        let ours = match mic.is_some() || must_come {
            true => Some(proof.context.sign(list).ok_or(Refusal::Tampered("no MIC can be made"))?),
            false => None,
        };
        let answer = std::mem::take(&mut proof.token);
        let resp = Resp {
            state: Some(if must_come { ACCEPT_INCOMPLETE } else { ACCEPT_COMPLETED }),
            mech,
            token: (!answer.is_empty()).then_some(&answer),
            mic: ours.as_deref(),
        };
        let token = resp.emit();
        if must_come {
            self.kerberos = Some(Kerberos::Proved(proof));
            return Ok(Step::Continue(token));
        }
        done_by_ticket(token, proof)
    }

    fn further(
        &mut self,
        token: &[u8],
        secrets: &dyn Secrets,
        answer: Option<Answer<U>>,
    ) -> Result<Step<U>, Refusal> {
        let resp = match &self.frame {
            Frame::Spnego { .. } => Some(Resp::parse(token)?),
            _ => None,
        };
        let inner = match &resp {
            Some(resp) => resp.token.ok_or(Refusal::Malformed("responseToken"))?,
            None => token,
        };
        if resp.is_some() && !self.ntlm.begun() {
            let answer = self.ntlm.negotiate(inner)?;
            let resp =
                Resp { state: Some(ACCEPT_INCOMPLETE), token: Some(&answer), ..Resp::default() };
            return Ok(Step::Continue(resp.emit()));
        }
        let accepted = match self.ntlm.authenticate(inner, secrets, answer)? {
            Judged::Accepted(accepted) => accepted,
            Judged::Ask(question) => {
                self.asked = Some(token.to_vec());
                return Ok(Step::Ask(Box::new(question)));
            }
            Judged::LookUp(account, why) => {
                self.asked = Some(token.to_vec());
                return Ok(Step::LookUp(account, why));
            }
        };
        self.target_name = accepted.target_name;
        let (Frame::Spnego { list, mic_required }, Some(resp)) = (&self.frame, resp) else {
            return Ok(done(Vec::new(), accepted.who, accepted.key.map(|(key, _)| key)));
        };
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

/// Builds the response to an initial token: the selected mechanism, with the client's identifier for it.
fn chosen(mech: &[u8], preferred: bool, token: Option<&[u8]>) -> Vec<u8> {
    let state = if preferred { ACCEPT_INCOMPLETE } else { REQUEST_MIC };
    Resp { state: Some(state), mech: Some(mech), token, mic: None }.emit()
}

/// Checks for an initial Kerberos token without SPNEGO (RFC 2743 section 3.1).
fn is_of_kerberos(token: &[u8]) -> bool {
    InitialContext::parse(token).is_ok_and(|frame| frame.mech == KRB5)
}

fn done_by_ticket<U>(token: Vec<u8>, proof: Proof<U>) -> Result<Step<U>, Refusal> {
    let Proof { principal, user, key, context, .. } = proof;
    let Some(ends) = context.ends() else {
        let refused = ticket::Refused {
            why: ticket::Why::Kerberos(Cause::Other),
            principal,
            detail: "when the ticket runs out is not known".into(),
        };
        return Err(Refusal::Ticket(Box::new(refused)));
    };
    let ticket = ticket::Ticket { principal, user, ends };
    Ok(Step::Done { token, who: Who::Ticket(Box::new(ticket)), key: Some(key) })
}

/// Verifies the client's MIC over its list and returns the server's MIC. A guest has no key, so neither exists.
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

fn done<U>(token: Vec<u8>, who: Who<U>, key: Option<Zeroizing<[u8; 16]>>) -> Step<U> {
    Step::Done { token, who, key: key.map(|k| Zeroizing::new(k.to_vec())) }
}

/// The client side of one authentication.
pub struct Initiator {
    ntlm: ntlm::Initiator,
    finishing: Option<(SessionKey, Mic)>,
}

impl Initiator {
    /// Creates an initiator, which sends the first token.
    pub fn new(credentials: ntlm::Credentials, fresh: Fresh) -> Self {
        Self { ntlm: ntlm::Initiator::new(credentials, fresh), finishing: None }
    }

    /// Returns the first token.
    pub fn first(&self) -> Vec<u8> {
        let (list, token) = (Mechs::NTLM.list(), self.ntlm.negotiate());
        let init = Init { list: &list, mechs: vec![&NTLMSSP], token: Some(&token), mic: None };
        InitialContext { mech: &SPNEGO, inner: &init.emit() }.emit()
    }

    /// Processes the server's response STATUS_MORE_PROCESSING_REQUIRED; returns the second token and the session key, which is
    /// valid only after [`Initiator::finish`].
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
        let mic = signer.sign(Direction::ClientToServer, &Mechs::NTLM.list());
        let key: SessionKey = Zeroizing::new(key.to_vec());
        self.finishing = Some((key.clone(), signer));
        let resp = Resp { token: Some(&answer), mic: Some(&mic), ..Resp::default() };
        Ok((resp.emit(), key))
    }

    /// Verifies the token of the server's final response.
    pub fn finish(&mut self, token: &[u8]) -> Result<SessionKey, Refusal> {
        let (key, signer) = self.finishing.take().ok_or(Refusal::OutOfTurn)?;
        let resp = if token.is_empty() { Resp::default() } else { Resp::parse(token)? };
        if resp.state.is_some_and(|s| s != ACCEPT_COMPLETED) {
            return Err(Refusal::Rejected);
        }
        match resp.mic {
            Some(mic) if !signer.verify(Direction::ServerToClient, &Mechs::NTLM.list(), mic) => {
                Err(Refusal::Tampered("mechListMIC differs"))
            }
            _ => Ok(key),
        }
    }
}
