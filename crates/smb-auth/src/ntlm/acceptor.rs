//! The server side of NTLM (MS-NLMP section 3.2.5).

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::keys::{Direction, Key, Mic, hmac_md5, ntowf_v2, rc4};
use super::messages::{self, Authenticate, Challenge, ClientChallenge, av};
use super::{Protection, flags};
use crate::relay::{AccountHere, Answer, Question};
use crate::{Account, Fresh, Identity, Look, LookedUp, NtHash, Policy, Refusal, Secrets, Who};
use smb_proto::smb2::utf16;

/// The client's first message and the server's challenge as sent, which the MIC covers.
struct SentMessages {
    negotiate: Vec<u8>,
    challenge: Vec<u8>,
    flags: u32,
}

/// One NTLM exchange.
pub struct Acceptor {
    identity: Identity,
    fresh: Fresh,
    policy: Policy,
    bindings: Option<[u8; 16]>,
    sent: Option<SentMessages>,
    looks: Looks,
}

/// The look-ups of an exchange.
#[derive(Default)]
struct Looks {
    /// Each reason counts once, so that an exchange ends.
    for_unknown: bool,
    for_wrong: bool,
    /// The end of the last one.
    found: Option<LookedUp>,
}

/// The result of a finished exchange.
pub(crate) struct AcceptedLogon<U> {
    pub(crate) who: Who<U>,
    /// `ExportedSessionKey`, and the signing state for SPNEGO; `None` for a guest.
    pub(crate) key: Option<(Key, Mic)>,
    /// Service name that the client intended to contact, such as `cifs/server`.
    pub(crate) target_name: Option<String>,
}

/// Result of an AUTHENTICATE_MESSAGE.
pub(crate) enum Judged<U> {
    Accepted(AcceptedLogon<U>),
    /// Ask a controller, then pass the same message with the answer.
    Ask(Question),
    /// Look the account up, then pass the same message again.
    LookUp(Account, Look),
}

impl Acceptor {
    /// Creates an acceptor that expects a NEGOTIATE_MESSAGE. `bindings` is the hash of the channel bindings, if the channel has
    /// any; SMB over TCP and RDMA has none.
    pub fn new(
        identity: Identity,
        fresh: Fresh,
        policy: Policy,
        bindings: Option<[u8; 16]>,
    ) -> Self {
        Self { identity, fresh, policy, bindings, sent: None, looks: Looks::default() }
    }

    /// Checks whether the challenge was sent.
    pub(crate) fn begun(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns the client's version, available between its two messages.
    pub(crate) fn client_version(&self) -> Option<[u8; 8]> {
        self.sent.as_ref().and_then(|sent| messages::version(&sent.negotiate))
    }

    /// Processes a NEGOTIATE_MESSAGE and returns a CHALLENGE_MESSAGE.
    ///
    /// # Errors
    /// The client speaks another protocol.
    pub fn negotiate(&mut self, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let asked = messages::parse_negotiate(message)?;
        if asked & (flags::UNICODE | flags::OEM) == 0 || asked & flags::NTLM == 0 {
            return Err(Refusal::TooOld);
        }
        let mut granted = asked & flags::GRANTED | flags::TARGET_INFO | flags::TARGET_TYPE_SERVER;
        if granted & flags::UNICODE == 0 {
            granted |= flags::OEM;
        }
        // The flag is required for a target name, and every client expects one (section 3.2.5.1.1).
        granted |= flags::REQUEST_TARGET;
        let challenge = Challenge {
            flags: granted,
            challenge: self.fresh.challenge,
            target_name: self.identity.computer.clone(),
            target_info: messages::target_info(&self.identity, self.fresh.time),
        }
        .emit();
        self.sent = Some(SentMessages {
            negotiate: message.to_vec(),
            challenge: challenge.clone(),
            flags: granted,
        });
        Ok(challenge)
    }

    /// Verifies an AUTHENTICATE_MESSAGE. Each challenge is valid for one response. `answer`: what the controller said about it.
    pub(crate) fn authenticate<U>(
        &mut self,
        message: &[u8],
        secrets: &dyn Secrets,
        answer: Option<Answer<U>>,
    ) -> Result<Judged<U>, Refusal> {
        let sent = self.sent.take().ok_or(Refusal::OutOfTurn)?;
        let auth = Authenticate::parse(message, sent.flags)?;
        if auth.user.is_empty() && auth.nt.is_empty() && auth.lm.len() <= 1 {
            return self.anonymous(&auth).map(Judged::Accepted);
        }
        let account = Account {
            user: auth.user.clone(),
            domain: auth.domain.clone(),
            workstation: auth.workstation.clone(),
        };
        // A response of 24 bytes is LM or NTLM version 1, with or without session security.
        let parts = auth.nt.split_first_chunk::<16>().filter(|_| auth.nt.len() > 24);
        let may_be_local = self.may_be_local(&account, answer.as_ref());
        if may_be_local && parts.is_some() && self.must_look_up(secrets, &account, Look::Unknown) {
            self.sent = Some(sent);
            return Ok(Judged::LookUp(account, Look::Unknown));
        }
        if may_be_local && self.is_busy(secrets, &account) {
            return Err(Refusal::DirectoryBusy(account));
        }
        let known = secrets.nt_hash(&auth.domain, &auth.user);
        let is_of_domain = self.policy.domain && !self.is_local(&account, known.is_some());
        let (base, who, blob) = match (answer, parts) {
            (None, Some(parts)) if is_of_domain => {
                let account_here = match self.base_key(&auth, parts, known, &account) {
                    Ok(_) => AccountHere::Proved,
                    Err(Refusal::UnknownUser(_)) => AccountHere::Unknown,
                    Err(Refusal::WrongPassword(_)) => AccountHere::WrongPassword,
                    Err(malformed) => return Err(malformed),
                };
                let nt = auth.nt.to_vec();
                let challenge = self.fresh.challenge;
                self.sent = Some(sent);
                return Ok(Judged::Ask(Question { account, challenge, nt, account_here }));
            }
            (Some(Answer::Refused(why)), _) => return Err(Refusal::OfDomain(account, why)),
            (Some(Answer::Proved { user, key }), Some((_, blob))) => {
                (key, Who::OfDomain { account, user: Box::new(user) }, blob)
            }
            // If guests are allowed, an unknown user is accepted with any response. A user of a silent directory is no guest.
            _ if known.is_none() && self.policy.guest && !self.is_away() => {
                let (who, key, target_name) = (Who::Guest(account), None, None);
                return Ok(Judged::Accepted(AcceptedLogon { who, key, target_name }));
            }
            // The client names a user but sends no proof: `smbclient -N` or `mount -o guest` where guests are not allowed.
            _ if auth.nt.is_empty() && auth.lm.len() <= 1 => {
                return Err(Refusal::NoPassword(account));
            }
            (_, None) => return Err(Refusal::OldResponse(account)),
            (_, Some((proof, blob))) => {
                match self.base_key(&auth, (proof, blob), known, &account) {
                    Err(Refusal::WrongPassword(_))
                        if self.must_look_up(secrets, &account, Look::Wrong) =>
                    {
                        self.sent = Some(sent);
                        return Ok(Judged::LookUp(account, Look::Wrong));
                    }
                    Err(Refusal::UnknownUser(_)) if self.is_away() => {
                        return Err(Refusal::DirectoryAway(account));
                    }
                    base => (base?, Who::User(account), blob),
                }
            }
        };
        let client = ClientChallenge::parse(blob)?;
        let key = exported(&base, &auth, sent.flags)?;
        if client.has_mic() {
            verify_mic(&key, &sent, message)?;
        }
        self.check_bindings(&client)?;
        let target_name = client.get(av::TARGET_NAME).and_then(utf16);
        let mic = Mic::new(&key, sent.flags & auth.flags);
        Ok(Judged::Accepted(AcceptedLogon { who, key: Some((key, mic)), target_name }))
    }

    /// Returns whether an account of this server or of a directory may have the name.
    fn may_be_local<U>(&self, account: &Account, answer: Option<&Answer<U>>) -> bool {
        match answer {
            None => {
                !self.policy.domain || account.domain.is_empty() || self.is_local(account, false)
            }
            Some(answer) => matches!(answer, Answer::Local),
        }
    }

    /// Verifies an AUTHENTICATE_MESSAGE of a client whose further messages NTLM itself protects. Only users with a password on this
    /// server are accepted.
    ///
    /// # Errors
    /// The user has not proved the password, or the client wants less protection.
    pub fn authenticate_sealed(
        &mut self,
        message: &[u8],
        secrets: &dyn Secrets,
    ) -> Result<(Account, Protection), Refusal> {
        match self.authenticate::<std::convert::Infallible>(message, secrets, None)? {
            Judged::Accepted(AcceptedLogon {
                who: Who::User(account),
                key: Some((_, mic)),
                ..
            }) => {
                let protection = mic.protection(Direction::ServerToClient);
                protection.map(|protection| (account, protection)).ok_or(Refusal::TooOld)
            }
            _ => Err(Refusal::Anonymous),
        }
    }

    /// Notes the end of a look-up.
    pub(crate) fn looked_up(&mut self, found: LookedUp) {
        self.looks.found = Some(found);
    }

    /// Returns whether the directory lacked time for the last look-up, and no other look-up of the user has had an answer since.
    fn is_busy(&self, secrets: &dyn Secrets, account: &Account) -> bool {
        let is_busy = self.looks.found == Some(LookedUp::Busy);
        is_busy && secrets.must_look_up(&account.user, Look::Unknown)
    }

    /// Returns whether the directory did not answer the last look-up.
    fn is_away(&self) -> bool {
        self.looks.found == Some(LookedUp::Away)
    }

    /// Returns whether the exchange needs a look-up for this reason, once.
    fn must_look_up(&mut self, secrets: &dyn Secrets, account: &Account, why: Look) -> bool {
        let is_done = match why {
            Look::Unknown => &mut self.looks.for_unknown,
            Look::Wrong => &mut self.looks.for_wrong,
            Look::Proved => return false,
        };
        let is_first = !std::mem::replace(is_done, true);
        self.policy.look_up && is_first && secrets.must_look_up(&account.user, why)
    }

    /// Returns whether the accounts of this server decide: the client names this machine, or no domain and the name of an account.
    fn is_local(&self, account: &Account, is_known: bool) -> bool {
        let is = |name: &str| account.domain.eq_ignore_ascii_case(name);
        match account.domain.as_str() {
            "" => is_known,
            "." => true,
            _ => is(&self.identity.computer) || is(&self.identity.dns_computer),
        }
    }

    /// Verifies `NTProofStr` with the stored password; returns `SessionBaseKey`.
    fn base_key(
        &self,
        auth: &Authenticate<'_>,
        (proof, blob): (&[u8; 16], &[u8]),
        known: Option<NtHash>,
        account: &Account,
    ) -> Result<Key, Refusal> {
        ClientChallenge::parse(blob)?;
        // An unknown name must take as long as a wrong password.
        let is_unknown = known.is_none();
        let hash = known.unwrap_or_else(|| NtHash(Zeroizing::new([0; 16])));
        let ntowf = ntowf_v2(&hash, &auth.user, &auth.domain);
        let expected = hmac_md5(&ntowf, &[&self.fresh.challenge, blob]);
        let proven = bool::from(expected.ct_eq(&proof[..]));
        if is_unknown {
            return Err(Refusal::UnknownUser(account.clone()));
        }
        if !proven {
            return Err(Refusal::WrongPassword(account.clone()));
        }
        Ok(hmac_md5(&ntowf, &[proof]))
    }

    /// Accepts a session without a name, whose key is all zeros (section 3.2.5.1.2).
    fn anonymous<U>(&self, auth: &Authenticate<'_>) -> Result<AcceptedLogon<U>, Refusal> {
        if !self.policy.anonymous {
            return Err(Refusal::Anonymous);
        }
        let key = exported(&Zeroizing::new([0; 16]), auth, auth.flags)?;
        let mic = Mic::new(&key, auth.flags);
        Ok(AcceptedLogon { who: Who::Anonymous, key: Some((key, mic)), target_name: None })
    }

    fn check_bindings(&self, client: &ClientChallenge<'_>) -> Result<(), Refusal> {
        let Some(ours) = &self.bindings else { return Ok(()) };
        let theirs = client.get(av::CHANNEL_BINDINGS).unwrap_or_default();
        if bool::from(ours.ct_eq(theirs)) {
            Ok(())
        } else {
            Err(Refusal::Tampered("the bindings of the channel differ"))
        }
    }
}

/// Returns `ExportedSessionKey`: chosen by the client if both sides agreed to that, otherwise the key exchange key, which in
/// version 2 is the base key (sections 3.2.5.1.2 and 3.4.5.1).
fn exported(base: &Key, auth: &Authenticate<'_>, granted: u32) -> Result<Key, Refusal> {
    if auth.flags & granted & flags::KEY_EXCH == 0 {
        return Ok(base.clone());
    }
    let sent: &[u8; 16] =
        auth.key.try_into().map_err(|_| Refusal::Malformed("EncryptedRandomSessionKey"))?;
    let mut key = Zeroizing::new(*sent);
    rc4(base, &mut *key);
    Ok(key)
}

fn verify_mic(key: &Key, sent: &SentMessages, message: &[u8]) -> Result<(), Refusal> {
    let end = messages::MIC_AT + 16;
    let (Some(before), Some(mic), Some(after)) =
        (message.get(..messages::MIC_AT), message.get(messages::MIC_AT..end), message.get(end..))
    else {
        return Err(Refusal::Malformed("MIC"));
    };
    let expected = hmac_md5(key, &[&sent.negotiate, &sent.challenge, before, &[0_u8; 16], after]);
    if bool::from(expected.ct_eq(mic)) {
        Ok(())
    } else {
        Err(Refusal::Tampered("the MIC of the exchange differs"))
    }
}
