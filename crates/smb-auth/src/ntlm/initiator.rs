//! The client side of NTLM (MS-NLMP section 3.1.5).

use zeroize::Zeroizing;

use super::keys::{Direction, Key, Mic, hmac_md5, ntowf_v2, rc4};
use super::messages::{self, Authenticate, Challenge, ClientChallenge, av};
use super::{Protection, flags};
use crate::{Account, Fresh, NtHash, Refusal};
use smb_proto::smb2::put_utf16;

/// The account and the target of a logon. An empty user is anonymous.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// User, domain and name of this machine.
    pub account: Account,
    /// Hash of the password.
    pub hash: NtHash,
    /// Service name, such as `cifs/server`.
    pub target_name: String,
}

/// One NTLM exchange.
pub struct Initiator {
    credentials: Credentials,
    fresh: Fresh,
    negotiate: Vec<u8>,
}

const ASKED: u32 = flags::GRANTED | flags::TARGET_INFO;

impl Initiator {
    /// Creates an initiator, which sends the first message.
    pub fn new(credentials: Credentials, fresh: Fresh) -> Self {
        Self { credentials, fresh, negotiate: messages::emit_negotiate(ASKED) }
    }

    /// Returns the NEGOTIATE_MESSAGE.
    pub fn negotiate(&self) -> Vec<u8> {
        self.negotiate.clone()
    }

    /// Processes a CHALLENGE_MESSAGE; returns the AUTHENTICATE_MESSAGE, the `ExportedSessionKey`, and the signing state for SPNEGO.
    pub(crate) fn authenticate(&self, message: &[u8]) -> Result<(Vec<u8>, Key, Mic), Refusal> {
        let challenge = Challenge::parse(message)?;
        if challenge.flags & flags::UNICODE == 0 {
            return Err(Refusal::TooOld);
        }
        let granted = challenge.flags & ASKED;
        if self.credentials.account.user.is_empty() {
            return Ok(self.anonymous(granted));
        }
        let Account { user, domain, workstation } = &self.credentials.account;
        let theirs = messages::pairs(&challenge.target_info)?;
        let stamp = theirs.iter().find(|(id, _)| *id == av::TIMESTAMP).map(|(_, v)| *v);
        let time =
            stamp.and_then(|v| v.first_chunk()).map_or(self.fresh.time, |v| u64::from_le_bytes(*v));
        let info = self.target_info(&theirs);
        let blob = ClientChallenge::emit(time, self.fresh.challenge, &info);
        let ntowf = ntowf_v2(&self.credentials.hash, user, domain);
        let proof = hmac_md5(&ntowf, &[&challenge.challenge, &blob]);
        let base = hmac_md5(&ntowf, &[&proof[..]]);
        let (key, wrapped) = self.exchange(&base, granted);
        let mut out = Authenticate {
            // If the challenge has a time stamp, the LM response is zeros (section 3.1.5.1.2).
            lm: &[0; 24],
            nt: &[&proof[..], &blob].concat(),
            domain: domain.clone(),
            user: user.clone(),
            workstation: workstation.clone(),
            key: &wrapped,
            flags: granted,
        }
        .emit();
        let mic = hmac_md5(&key, &[&self.negotiate, message, &out]);
        out[messages::MIC_AT..messages::MIC_AT + 16].copy_from_slice(&mic[..]);
        let signer = Mic::new(&key, granted);
        Ok((out, key, signer))
    }

    /// Processes a CHALLENGE_MESSAGE of a server whose further messages NTLM itself protects; returns the AUTHENTICATE_MESSAGE.
    ///
    /// # Errors
    /// The server offers less protection.
    pub fn authenticate_sealed(&self, message: &[u8]) -> Result<(Vec<u8>, Protection), Refusal> {
        let (message, _, mic) = self.authenticate(message)?;
        let protection = mic.protection(Direction::ClientToServer);
        protection.map(|protection| (message, protection)).ok_or(Refusal::TooOld)
    }

    fn anonymous(&self, granted: u32) -> (Vec<u8>, Key, Mic) {
        let flags = granted | flags::ANONYMOUS;
        let (key, wrapped) = self.exchange(&Zeroizing::new([0; 16]), granted);
        let out = Authenticate {
            lm: &[0],
            nt: &[],
            domain: String::new(),
            user: String::new(),
            workstation: self.credentials.account.workstation.clone(),
            key: &wrapped,
            flags,
        }
        .emit();
        let signer = Mic::new(&key, granted);
        (out, key, signer)
    }

    /// Returns the session key, plain and encrypted.
    fn exchange(&self, base: &Key, granted: u32) -> (Key, Vec<u8>) {
        if granted & flags::KEY_EXCH == 0 {
            return (base.clone(), Vec::new());
        }
        let mut wrapped = self.fresh.key;
        rc4(base, &mut wrapped);
        (Zeroizing::new(self.fresh.key), wrapped.to_vec())
    }

    /// Builds the AV pairs: the server's pairs, and flags for a MIC, no channel bindings, and the service name.
    fn target_info(&self, theirs: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, value) in theirs {
            if ![av::FLAGS, av::CHANNEL_BINDINGS, av::TARGET_NAME].contains(id) {
                messages::put_pair(&mut out, *id, value);
            }
        }
        messages::put_pair(&mut out, av::FLAGS, &av::HAS_MIC.to_le_bytes());
        messages::put_pair(&mut out, av::CHANNEL_BINDINGS, &[0; 16]);
        let mut name = Vec::new();
        put_utf16(&mut name, &self.credentials.target_name);
        messages::put_pair(&mut out, av::TARGET_NAME, &name);
        messages::put_pair(&mut out, av::EOL, &[]);
        out
    }
}
