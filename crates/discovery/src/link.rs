//! The task of one link: its sockets, and the state machines behind them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::board::{Board, LinkStatus, Outcome};
use crate::dice::Dice;
use crate::links::{Link, Offer};
use crate::mdns::{Family, Out, Responder, To};
use crate::metadata::{self, Listeners};
use crate::socket::{Member, Protocol, receive, refused};
use crate::wsd::{Device, request};
use crate::{Identity, dns, llmnr, unread};

/// Pause before groups that could not be joined are tried again.
const JOIN_AGAIN: Duration = Duration::from_secs(60);
/// Delay of an answer by WS-Discovery, in milliseconds (WS-Discovery section 5.3).
const ANSWER_DELAY: (u64, u64) = (0, 500);
/// Delay of the repetition of an announcement, in milliseconds (SOAP over UDP, appendix I).
const REPEAT_DELAY: (u64, u64) = (50, 250);
/// Messages of WS-Discovery that wait on a link, and those for one host.
pub const LATER_MAX: usize = 32;
/// See [`LATER_MAX`].
pub const LATER_OF_ADDRESS_MAX: usize = 2;
/// Name of the limit for messages that wait.
pub const LATER: &str = "discovery-answers";
/// Name of the limit for messages that wait for one host.
pub const LATER_OF_ADDRESS: &str = "discovery-answers-of-address";

/// The announcement that a link's task must make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) link: Link,
    pub(crate) offer: Offer,
    /// Addresses of this host on all links.
    pub(crate) own: Vec<IpAddr>,
}

/// A message of WS-Discovery that is sent later.
struct Later {
    due: Instant,
    to: To,
    bytes: Vec<u8>,
}

/// The messages that wait.
#[derive(Default)]
struct Waiting(Vec<Later>);

impl Waiting {
    /// Adds a message.
    ///
    /// # Errors
    /// Returns the name of the limit that drops it.
    fn add(&mut self, later: Later) -> Result<(), &'static str> {
        if let To::Host(host) = later.to
            && self.0.iter().filter(|other| other.to.is_host(host.ip())).count()
                >= LATER_OF_ADDRESS_MAX
        {
            return Err(LATER_OF_ADDRESS);
        }
        if self.0.len() >= LATER_MAX {
            return Err(LATER);
        }
        self.0.push(later);
        Ok(())
    }

    fn take_due(&mut self, now: Instant) -> Vec<Out> {
        let due = self.0.extract_if(.., |later| later.due <= now);
        due.map(|Later { to, bytes, .. }| Out { to, bytes }).collect()
    }
}

struct LinkTask {
    wanted: Wanted,
    board: Arc<Board>,
    members: Vec<Member>,
    listeners: Listeners,
    troubles: Vec<String>,
    join_again: Option<Instant>,
    responder: Responder,
    device: Arc<Mutex<Device>>,
    /// The name and the offer for which the device was announced.
    hello: Option<(String, Offer)>,
    later: Waiting,
    dice: Dice,
    conflicts: u32,
    shown: Option<LinkStatus>,
}

/// Announces on one link until the sender of `wanted` is dropped, and then withdraws.
pub(crate) async fn run(
    identity: Identity,
    board: Arc<Board>,
    mut wanted: watch::Receiver<Wanted>,
) {
    let first = wanted.borrow_and_update().clone();
    let now = Instant::now();
    let (offer, own) = (first.offer.clone(), first.own.clone());
    let mut task = LinkTask {
        wanted: first,
        board,
        members: Vec::new(),
        listeners: Listeners::default(),
        troubles: Vec::new(),
        join_again: None,
        responder: Responder::new(identity.name.clone(), offer, own, now, Dice::new()),
        device: Arc::new(Mutex::new(Device::new(&identity))),
        hello: None,
        later: Waiting::default(),
        dice: Dice::new(),
        conflicts: 0,
        shown: None,
    };
    task.join(now).await;
    let mut room = vec![0; dns::MESSAGE_MAX + 1];
    let mut turn = 0_usize;
    loop {
        task.publish(Instant::now()).await;
        task.show();
        let wake = task.wake().unwrap_or_else(|| Instant::now() + JOIN_AGAIN);
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    break;
                }
                let next = wanted.borrow_and_update().clone();
                task.change(next).await;
            }
            (n, received) = receive(&task.members, &mut room, turn) => {
                turn = turn.wrapping_add(1);
                // An error is an ICMP message about an earlier reply.
                if let Ok((size, from)) = received {
                    task.take(n, &mut room[..size], from).await;
                }
            }
            () = sleep_until(wake.into()) => task.tick().await,
        }
    }
    let goodbye = task.responder.goodbye();
    task.send(Protocol::Mdns, goodbye).await;
    task.bye().await;
    task.board.set(task.wanted.link.index, None);
}

impl LinkTask {
    /// Returns the address at which hosts read the metadata over this version of IP, if WS-Discovery uses that version.
    fn metadata_at(&self, family: Family) -> Option<IpAddr> {
        self.wanted.offer.smb.and_then(|_| metadata::at(&self.wanted.offer.addresses, family))
    }

    /// Joins the groups of the versions of IP that the offer has, and leaves the others.
    async fn join(&mut self, now: Instant) {
        self.troubles.clear();
        let mut wanted = Vec::new();
        for family in Family::BOTH {
            if !self.wanted.offer.addresses.iter().any(|ip| family.has(*ip)) {
                self.listeners.close(family).await;
                continue;
            }
            wanted.extend([(Protocol::Mdns, family), (Protocol::Llmnr, family)]);
            let Some(at) = self.metadata_at(family) else {
                self.listeners.close(family).await;
                continue;
            };
            let (device, board) = (self.device.clone(), self.board.clone());
            match self.listeners.open(family, at, &self.wanted.link, (device, board)).await {
                Ok(()) => wanted.push((Protocol::Wsd, family)),
                Err(trouble) => self.troubles.push(trouble),
            }
        }
        self.members.retain(|member| wanted.contains(&(member.protocol, member.family)));
        for (protocol, family) in wanted {
            if self.members.iter().any(|m| (m.protocol, m.family) == (protocol, family)) {
                continue;
            }
            match Member::join(protocol, family, &self.wanted.link) {
                Ok(member) => self.members.push(member),
                Err(error) => self.troubles.push(refused(protocol, &error)),
            }
        }
        self.members.sort_by_key(|member| (member.protocol, member.family));
        self.troubles.sort();
        self.troubles.dedup();
        self.join_again = (!self.troubles.is_empty()).then(|| now + JOIN_AGAIN);
    }

    fn wake(&self) -> Option<Instant> {
        let later = self.later.0.iter().map(|later| later.due);
        later.chain(self.responder.wake()).chain(self.join_again).min()
    }

    async fn change(&mut self, next: Wanted) {
        let now = Instant::now();
        let withdrawn = self.responder.offer(next.offer.clone(), next.own.clone(), now);
        self.send(Protocol::Mdns, withdrawn).await;
        if next.offer.smb.is_none() {
            self.bye().await;
        }
        if next.link != self.wanted.link {
            // An address by which the groups were joined may be gone.
            self.members.clear();
        }
        self.wanted = next;
        self.join(now).await;
    }

    async fn tick(&mut self) {
        let now = Instant::now();
        if self.join_again.is_some_and(|at| at <= now) {
            self.join(now).await;
        }
        let out = self.responder.tick(now);
        self.send(Protocol::Mdns, out).await;
        let due = self.later.take_due(now);
        self.send(Protocol::Wsd, due).await;
    }

    async fn take(&mut self, n: usize, bytes: &mut [u8], from: SocketAddr) {
        let protocol = self.members[n].protocol;
        let now = Instant::now();
        let outcome = if !self.wanted.link.is_attached(from.ip()) {
            Outcome::Far
        } else if !self.board.admit(self.wanted.link.index, now, from) {
            Outcome::Limited
        } else {
            match protocol {
                Protocol::Wsd => self.asked_for_device(now, bytes, from),
                Protocol::Mdns | Protocol::Llmnr => {
                    self.asked_for_names(now, protocol, bytes, from).await
                }
            }
        };
        self.board.count(protocol, outcome);
    }

    async fn asked_for_names(
        &mut self,
        now: Instant,
        protocol: Protocol,
        bytes: &mut [u8],
        from: SocketAddr,
    ) -> Outcome {
        unread::hide(bytes);
        let packet = match dns::parse(bytes) {
            Ok(packet) => packet,
            Err(what) => {
                tracing::debug!(%from, protocol = protocol.name(), what, "a packet that is no message");
                return Outcome::Bad;
            }
        };
        let (out, waits) = if protocol == Protocol::Mdns {
            let out = self.responder.receive(now, &packet, bytes.len(), from);
            (out, self.responder.has_pending())
        } else {
            let label = self.responder.owned_label();
            let reply = label
                .and_then(|label| llmnr::answer(label, &self.wanted.offer, &packet, bytes.len()));
            (reply.into_iter().map(|bytes| Out { to: To::Host(from), bytes }).collect(), false)
        };
        let outcome = if out.is_empty() && !waits { Outcome::Ignored } else { Outcome::Answered };
        self.send(protocol, out).await;
        outcome
    }

    fn asked_for_device(&mut self, now: Instant, bytes: &[u8], from: SocketAddr) -> Outcome {
        let request = match request::parse(bytes) {
            Ok(request) => request,
            Err(what) => {
                tracing::debug!(%from, protocol = Protocol::Wsd.name(), what, "a packet that is no message");
                return Outcome::Bad;
            }
        };
        let at = self.metadata_at(Family::of(from));
        // Before the first announcement the name is not owned.
        let Some(at) = at.filter(|_| self.hello.is_some()) else { return Outcome::Ignored };
        let Some(answer) = locked(&self.device).answer(&request, bytes.len(), at) else {
            return Outcome::Ignored;
        };
        let due = now + self.dice.between(ANSWER_DELAY.0, ANSWER_DELAY.1);
        match self.later.add(Later { due, to: To::Host(from), bytes: answer.into_bytes() }) {
            Ok(()) => Outcome::Answered,
            Err(limit) => {
                self.board.limited(limit);
                Outcome::Limited
            }
        }
    }

    /// Announces the device once the name is owned, and again after each change.
    async fn publish(&mut self, now: Instant) {
        let can = self.members.iter().any(|member| member.protocol == Protocol::Wsd);
        let Some(label) = self.responder.owned_label().filter(|_| can) else { return };
        let current = (label.to_owned(), self.wanted.offer.clone());
        if self.hello.as_ref() == Some(&current) {
            return;
        }
        locked(&self.device).rename(label);
        self.hello = Some(current);
        for family in Family::BOTH {
            let Some(at) = self.metadata_at(family) else { continue };
            let bytes = locked(&self.device).hello(at).into_bytes();
            let due = now + self.dice.between(REPEAT_DELAY.0, REPEAT_DELAY.1);
            let to = To::Group(family);
            // A full queue drops the repetition; the first message goes out anyway.
            let _ = self.later.add(Later { due, to, bytes: bytes.clone() });
            self.send(Protocol::Wsd, vec![Out { to, bytes }]).await;
        }
    }

    /// Withdraws the device.
    async fn bye(&mut self) {
        if self.hello.take().is_some() {
            let bytes = locked(&self.device).bye().into_bytes();
            let out =
                Family::BOTH.map(|family| Out { to: To::Group(family), bytes: bytes.clone() });
            self.send(Protocol::Wsd, out.into()).await;
        }
        self.later.0.clear();
    }

    async fn send(&self, protocol: Protocol, messages: Vec<Out>) {
        for Out { to, bytes } in messages {
            let (family, host) = match to {
                To::Group(family) => (family, None),
                To::Host(host) => (Family::of(host), Some(host)),
            };
            let is_it = |member: &&Member| (member.protocol, member.family) == (protocol, family);
            let Some(member) = self.members.iter().find(is_it) else { continue };
            if let Err(error) = member.send(&bytes, host).await {
                tracing::debug!(link = self.wanted.link.name, %error, "a message could not be sent");
            }
        }
    }

    /// Notes what is announced, and logs changes.
    fn show(&mut self) {
        let Wanted { link, offer, .. } = &self.wanted;
        let conflicts = self.responder.conflicts();
        self.board.conflict(u64::from(conflicts - self.conflicts));
        self.conflicts = conflicts;
        let mut protocols: Vec<&'static str> =
            self.members.iter().map(|m| m.protocol.name()).collect();
        protocols.dedup();
        let status = LinkStatus {
            link: link.name.clone(),
            name: self.responder.owned_label().map(str::to_owned),
            addresses: offer.addresses.clone(),
            smb: offer.smb,
            nfs: offer.nfs,
            protocols,
            troubles: self.troubles.clone(),
        };
        if self.shown.as_ref() == Some(&status) {
            return;
        }
        let before = self.shown.take();
        let (name, troubles) =
            before.map_or((None, Vec::new()), |before| (before.name, before.troubles));
        if let Some(now) = status
            .name
            .as_ref()
            .filter(|now| Some(*now) != name.as_ref() && !status.protocols.is_empty())
        {
            let by = status.protocols.join(", ");
            tracing::info!(
                link = status.link,
                name = format!("{now}.local"),
                by,
                "announced on the network"
            );
        }
        for trouble in status.troubles.iter().filter(|trouble| !troubles.contains(trouble)) {
            tracing::warn!(link = status.link, "{trouble}");
        }
        self.board.set(link.index, Some(status.clone()));
        self.shown = Some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_answers_for_an_address_leave_room() {
        let now = Instant::now();
        let mut waiting = Waiting::default();
        let mut add = |n: u8| {
            let to = To::Host(SocketAddr::from(([192, 0, 2, n], 40_000)));
            waiting.add(Later { due: now, to, bytes: Vec::new() })
        };
        assert_eq!((0..100).filter(|_| add(1).is_ok()).count(), LATER_OF_ADDRESS_MAX);
        assert_eq!(add(1), Err(LATER_OF_ADDRESS));
        let others = (2..200).filter(|n| add(*n).is_ok()).count();
        assert_eq!(others + LATER_OF_ADDRESS_MAX, LATER_MAX);
        assert_eq!(add(201), Err(LATER));
        assert_eq!(waiting.take_due(now).len(), LATER_MAX);
        assert!(
            waiting.add(Later { due: now, to: To::Group(Family::V4), bytes: Vec::new() }).is_ok()
        );
    }
}
