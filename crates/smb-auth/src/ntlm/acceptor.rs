//! The server's end (MS-NLMP section 3.2.5).

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::flags;
use super::keys::{Key, Mic, hmac_md5, ntowf_v2, rc4};
use super::messages::{self, Authenticate, Challenge, ClientChallenge, av};
use crate::{Account, Fresh, Identity, NtHash, Policy, Refusal, Secrets, Who};
use smb_proto::smb2::utf16;

/// A client's first message and our challenge, as they were sent: the MIC covers them.
struct Sent {
    negotiate: Vec<u8>,
    challenge: Vec<u8>,
    flags: u32,
}

/// One exchange.
pub struct Acceptor {
    identity: Identity,
    fresh: Fresh,
    policy: Policy,
    bindings: Option<[u8; 16]>,
    sent: Option<Sent>,
}

/// What a finished exchange gives.
pub(crate) struct Accepted<U> {
    pub(crate) who: Who<U>,
    /// `ExportedSessionKey` with what signs for SPNEGO; `None` for a guest.
    pub(crate) key: Option<(Key, Mic)>,
    /// The service that the client thinks it talks to, such as `cifs/server`.
    pub(crate) target_name: Option<String>,
}

impl Acceptor {
    /// Waits for a NEGOTIATE_MESSAGE. `bindings` is the hash of the channel's bindings where there is a channel that has them:
    /// SMB over TCP and RDMA has none.
    pub fn new(
        identity: Identity,
        fresh: Fresh,
        policy: Policy,
        bindings: Option<[u8; 16]>,
    ) -> Self {
        Self { identity, fresh, policy, bindings, sent: None }
    }

    /// The challenge has been sent.
    pub(crate) fn begun(&self) -> bool {
        self.sent.is_some()
    }

    /// What the client says it is, between its two messages.
    pub(crate) fn client_version(&self) -> Option<[u8; 8]> {
        self.sent.as_ref().and_then(|sent| messages::version(&sent.negotiate))
    }

    /// Answers a NEGOTIATE_MESSAGE with a CHALLENGE_MESSAGE.
    pub(crate) fn negotiate(&mut self, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let asked = messages::parse_negotiate(message)?;
        if asked & (flags::UNICODE | flags::OEM) == 0 || asked & flags::NTLM == 0 {
            return Err(Refusal::TooOld);
        }
        let mut granted = asked & flags::GRANTED | flags::TARGET_INFO | flags::TARGET_TYPE_SERVER;
        if granted & flags::UNICODE == 0 {
            granted |= flags::OEM;
        }
        // Without the flag there is no name to type, but every client wants one (section 3.2.5.1.1).
        granted |= flags::REQUEST_TARGET;
        let challenge = Challenge {
            flags: granted,
            challenge: self.fresh.challenge,
            target_name: self.identity.computer.clone(),
            target_info: messages::target_info(&self.identity, self.fresh.time),
        }
        .emit();
        self.sent = Some(Sent {
            negotiate: message.to_vec(),
            challenge: challenge.clone(),
            flags: granted,
        });
        Ok(challenge)
    }

    /// Judges an AUTHENTICATE_MESSAGE. A challenge is good for one answer.
    pub(crate) fn authenticate<U>(
        &mut self,
        message: &[u8],
        secrets: &dyn Secrets,
    ) -> Result<Accepted<U>, Refusal> {
        let sent = self.sent.take().ok_or(Refusal::OutOfTurn)?;
        let auth = Authenticate::parse(message, sent.flags)?;
        if auth.user.is_empty() && auth.nt.is_empty() && auth.lm.len() <= 1 {
            return self.anonymous(&auth);
        }
        let account = Account {
            user: auth.user.clone(),
            domain: auth.domain.clone(),
            workstation: auth.workstation.clone(),
        };
        let known = secrets.nt_hash(&auth.domain, &auth.user);
        // Whoever is not known has nothing to prove where guests may come, by whatever response.
        if known.is_none() && self.policy.guest {
            return Ok(Accepted { who: Who::Guest(account), key: None, target_name: None });
        }
        // The client names a user and proves nothing: `smbclient -N`, `mount -o guest` where guests may not come.
        if auth.nt.is_empty() && auth.lm.len() <= 1 {
            return Err(Refusal::NoPassword(account));
        }
        // 24 bytes are a response of LM or of NTLM version 1, with or without session security.
        let Some((proof, blob)) = auth.nt.split_first_chunk::<16>().filter(|_| auth.nt.len() > 24)
        else {
            return Err(Refusal::OldResponse(account));
        };
        let client = ClientChallenge::parse(blob)?;
        // A name that is not known costs the same time as a wrong password.
        let hash = known.clone().unwrap_or_else(|| NtHash(Zeroizing::new([0; 16])));
        let ntowf = ntowf_v2(&hash, &auth.user, &auth.domain);
        let expected = hmac_md5(&ntowf, &[&self.fresh.challenge, blob]);
        let proven = bool::from(expected.ct_eq(&proof[..]));
        if known.is_none() {
            return Err(Refusal::UnknownUser(account));
        }
        if !proven {
            return Err(Refusal::WrongPassword(account));
        }
        let key = exported(&hmac_md5(&ntowf, &[proof]), &auth, sent.flags)?;
        if client.has_mic() {
            verify_mic(&key, &sent, message)?;
        }
        self.check_bindings(&client)?;
        let target_name = client.get(av::TARGET_NAME).and_then(utf16);
        let mic = Mic::new(&key, sent.flags & auth.flags);
        Ok(Accepted { who: Who::User(account), key: Some((key, mic)), target_name })
    }

    /// Section 3.2.5.1.2: a session without a name has a key of zeros.
    fn anonymous<U>(&self, auth: &Authenticate<'_>) -> Result<Accepted<U>, Refusal> {
        if !self.policy.anonymous {
            return Err(Refusal::Anonymous);
        }
        let key = exported(&Zeroizing::new([0; 16]), auth, auth.flags)?;
        let mic = Mic::new(&key, auth.flags);
        Ok(Accepted { who: Who::Anonymous, key: Some((key, mic)), target_name: None })
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

/// `ExportedSessionKey`: chosen by the client when both agreed on that, else the key exchange key, which with version 2 is the
/// base key (sections 3.2.5.1.2 and 3.4.5.1).
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

fn verify_mic(key: &Key, sent: &Sent, message: &[u8]) -> Result<(), Refusal> {
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
