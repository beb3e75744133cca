//! The state machine of one link.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, ResourceRecord, TYPE,
};

use super::answer::{self, Chosen};
use super::records::{self, Data, Record};
use super::{Family, Out, PORT, To};
use crate::dice::Dice;
use crate::dns;
use crate::links::Offer;
use crate::name::HostName;

/// Probes for a name, and the pause after each (RFC 6762 section 8.1).
const PROBES: u32 = 3;
const PROBE_PAUSE: Duration = Duration::from_millis(250);
/// Longest delay of the first probe, in milliseconds.
const PROBE_DELAY_MAX: u64 = 250;
/// Announcements of records, and the pause between two (RFC 6762 section 8.3).
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a lost tie between probes (RFC 6762 section 8.2).
const TIE_PAUSE: Duration = Duration::from_secs(1);
/// Conflicts after which each further try waits (RFC 6762 section 8.1).
const CONFLICTS_MAX: u32 = 15;
const CONFLICT_PAUSE: Duration = Duration::from_secs(5);
/// Shortest time between two multicasts of one record (RFC 6762 section 6).
const RECORD_PAUSE: Duration = Duration::from_secs(1);
/// Time after a multicast in which all hosts are taken to know its records, so that a host that asks for a unicast reply gets one
/// (RFC 6762 section 5.4): a quarter of the shortest time to live.
const RECENT: Duration = Duration::from_secs(30);
/// Delay of answers that other hosts may give too, in milliseconds (RFC 6762 section 6).
const SHARED_DELAY: (u64, u64) = (20, 120);
/// Delay of answers to a packet that more known answers follow, in milliseconds (RFC 6762 section 7.2).
const MORE_DELAY: (u64, u64) = (400, 500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Has sent so many probes.
    Probing(u32),
    /// Has sent so many announcements.
    Announcing(u32),
    Settled,
}

/// Answers that wait, for one version of IP.
#[derive(Debug)]
struct Pending {
    due: Instant,
    answers: Chosen,
    /// The host whose further known answers are awaited.
    more_from: Option<IpAddr>,
}

/// Answers for this host on one link.
#[derive(Debug)]
pub struct Responder {
    name: HostName,
    /// Number of the name after conflicts.
    number: u32,
    label: String,
    offer: Offer,
    /// Addresses of this host on all links: their records, of other programs, are no conflict.
    own: Vec<IpAddr>,
    records: Vec<Record>,
    /// Last multicast of each record, by version of IP.
    sent: Vec<[Option<Instant>; 2]>,
    phase: Phase,
    next: Option<Instant>,
    pending: [Option<Pending>; 2],
    conflicts: u32,
    dice: Dice,
}

impl Responder {
    /// Begins to claim the name for what is offered.
    pub fn new(name: HostName, offer: Offer, own: Vec<IpAddr>, now: Instant, dice: Dice) -> Self {
        let mut this = Self {
            label: name.numbered(1),
            name,
            number: 1,
            offer,
            own,
            records: Vec::new(),
            sent: Vec::new(),
            phase: Phase::Settled,
            next: None,
            pending: [None, None],
            conflicts: 0,
            dice,
        };
        this.set_records();
        let delay = this.dice.between(0, PROBE_DELAY_MAX);
        this.probe(now + delay);
        this
    }

    /// Returns the label of the host if this host owns it.
    pub fn owned_label(&self) -> Option<&str> {
        (!matches!(self.phase, Phase::Probing(_))).then_some(&self.label)
    }

    /// Returns true if answers wait to be sent.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.iter().any(Option::is_some)
    }

    /// Returns how often another host had the name.
    pub fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Returns the time of the next [`Responder::tick`].
    pub fn wake(&self) -> Option<Instant> {
        let pending = self.pending.iter().flatten().map(|pending| pending.due);
        pending.chain(self.next).min()
    }

    fn set_records(&mut self) {
        self.records = records::all(&self.label, &self.offer);
        self.sent = vec![[None; 2]; self.records.len()];
        // Pending answers contain the numbers of replaced records, so they are dropped.
        self.pending = [None, None];
    }

    fn probe(&mut self, at: Instant) {
        self.phase = Phase::Probing(0);
        self.next = Some(at);
    }

    /// Changes what is offered. Returns the messages that withdraw what is gone.
    pub fn offer(&mut self, offer: Offer, own: Vec<IpAddr>, now: Instant) -> Vec<Out> {
        self.own = own;
        if offer == self.offer {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.records);
        self.offer = offer;
        self.set_records();
        let gone = (0..before.len()).filter(|n| !self.records.contains(&before[*n])).collect();
        let withdrawn = match self.phase {
            Phase::Probing(_) => Vec::new(),
            _ => to_both(answer::multicast(&before, &gone, &Chosen::new(), Some(0))),
        };
        let is_new = |r: &Record| unique(r) && before.iter().all(|old| old.name != r.name);
        if self.records.iter().any(is_new) || matches!(self.phase, Phase::Probing(_)) {
            self.probe(now);
        } else {
            (self.phase, self.next) = (Phase::Announcing(0), Some(now));
        }
        withdrawn
    }

    /// Returns the messages that withdraw all records (RFC 6762 section 10.1).
    pub fn goodbye(&self) -> Vec<Out> {
        match self.phase {
            Phase::Probing(_) => Vec::new(),
            _ => to_both(answer::multicast(
                &self.records,
                &self.announced(),
                &Chosen::new(),
                Some(0),
            )),
        }
    }

    /// Returns the records that are announced: all but what does not exist.
    fn announced(&self) -> Chosen {
        let exist = |n: &usize| !matches!(self.records[*n].data, Data::Nsec(_));
        (0..self.records.len()).filter(exist).collect()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant) -> Vec<Out> {
        let mut out = Vec::new();
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            match self.phase {
                Phase::Probing(PROBES..) => {
                    self.phase = Phase::Announcing(0);
                    out.extend(self.announce(now));
                }
                Phase::Probing(sent) => {
                    self.phase = Phase::Probing(sent + 1);
                    self.next = Some(now + PROBE_PAUSE);
                    out.extend(self.probes());
                }
                Phase::Announcing(_) => out.extend(self.announce(now)),
                Phase::Settled => {}
            }
        }
        for family in Family::BOTH {
            out.extend(self.flush(now, family));
        }
        out
    }

    fn announce(&mut self, now: Instant) -> Vec<Out> {
        let Phase::Announcing(sent) = self.phase else { return Vec::new() };
        (self.phase, self.next) = match sent + 1 {
            ANNOUNCEMENTS.. => (Phase::Settled, None),
            sent => (Phase::Announcing(sent), Some(now + ANNOUNCE_PAUSE)),
        };
        let all = self.announced();
        all.iter().for_each(|n| self.sent[*n] = [Some(now); 2]);
        to_both(answer::multicast(&self.records, &all, &Chosen::new(), None))
    }

    /// Returns the messages that ask for the names of this host, with its records for comparison.
    fn probes(&self) -> Vec<Out> {
        let mut names: Vec<&str> = Vec::new();
        let mut packet = Packet::new_query(0);
        for record in self.records.iter().filter(|record| unique(record)) {
            if !names.contains(&record.name.as_str()) {
                names.push(&record.name);
            }
            packet.name_servers.push(record.wire(record.ttl, false));
        }
        let class = QCLASS::CLASS(CLASS::IN);
        packet.questions = names
            .into_iter()
            // RFC 6762 section 8.1 would have the answers by unicast, which the sockets do not receive.
            .map(|asked| Question::new(dns::name(asked), QTYPE::ANY, class, false))
            .collect();
        // Some responders (python-zeroconf 0.47) answer questions for addresses, but not for all records of a host's name.
        let host = records::host(&self.label);
        let of_type = |kind| Question::new(dns::name(&host), QTYPE::TYPE(kind), class, false);
        packet.questions.extend([TYPE::A, TYPE::AAAA].map(of_type));
        to_both(packet.build_bytes_vec_compressed().into_iter().collect())
    }

    /// Takes a packet of `size` bytes.
    pub fn receive(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        size: usize,
        from: SocketAddr,
    ) -> Vec<Out> {
        // RFC 6762 section 18.3.
        if packet.opcode() != OPCODE::StandardQuery {
            return Vec::new();
        }
        if !packet.has_flags(PacketFlag::RESPONSE) {
            return self.asked(now, packet, size, from);
        }
        // RFC 6762 section 6: other responses are forged.
        if from.port() == PORT && self.conflicts_with(packet) {
            self.conflict(now);
        }
        Vec::new()
    }

    fn asked(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        size: usize,
        from: SocketAddr,
    ) -> Vec<Out> {
        let is_probe = !packet.name_servers.is_empty();
        if matches!(self.phase, Phase::Probing(_)) {
            if is_probe && self.loses_to(packet) {
                self.probe(now + TIE_PAUSE);
            }
            return Vec::new();
        }
        let family = Family::of(from);
        if packet.questions.is_empty() {
            self.strike_known(packet, family, from.ip());
            return Vec::new();
        }
        let is_legacy = from.port() != PORT;
        let answers = answer::of_packet(&self.records, packet, is_legacy);
        if answers.is_empty() {
            return Vec::new();
        }
        let is_recent =
            |n: &usize| self.sent[*n][family as usize].is_some_and(|at| now < at + RECENT);
        let wants_own = packet.questions.iter().all(|question| question.unicast_response);
        if is_legacy || wants_own && answers.iter().all(is_recent) {
            let more = answer::additional(&self.records, &answers);
            let asked = (packet, size);
            if let Some(bytes) = answer::unicast(&self.records, asked, (&answers, &more), is_legacy)
            {
                return vec![Out { to: To::Host(from), bytes }];
            }
            if is_legacy {
                return Vec::new();
            }
        }
        let has_more = packet.has_flags(PacketFlag::TRUNCATION);
        let is_shared = answers.iter().any(|n| self.records[*n].is_shared());
        let delay = match (is_probe, has_more, is_shared) {
            (true, ..) | (false, false, false) => Duration::ZERO,
            (false, true, _) => self.dice.between(MORE_DELAY.0, MORE_DELAY.1),
            (false, false, true) => self.dice.between(SHARED_DELAY.0, SHARED_DELAY.1),
        };
        self.wait(now + delay, answers, family, has_more.then(|| from.ip()));
        self.flush(now, family)
    }

    fn wait(&mut self, due: Instant, answers: Chosen, family: Family, more_from: Option<IpAddr>) {
        match &mut self.pending[family as usize] {
            Some(pending) => {
                pending.due = pending.due.min(due);
                pending.answers.extend(answers);
                pending.more_from = None;
            }
            none => *none = Some(Pending { due, answers, more_from }),
        }
    }

    /// Removes answers that the host, whose question came before, has (RFC 6762 section 7.2).
    fn strike_known(&mut self, packet: &Packet<'_>, family: Family, from: IpAddr) {
        if let Some(pending) = &mut self.pending[family as usize]
            && pending.more_from == Some(from)
        {
            pending.answers.retain(|n| !answer::is_known(&self.records[*n], packet));
        }
    }

    /// Sends the waiting answers that are due. Those that were multicast within a second wait further.
    fn flush(&mut self, now: Instant, family: Family) -> Vec<Out> {
        let at = family as usize;
        let Some(pending) = self.pending[at].take_if(|pending| pending.due <= now) else {
            return Vec::new();
        };
        let free_at = |n: &usize| {
            self.sent[*n][at].map(|sent| sent + RECORD_PAUSE).filter(|free| *free > now)
        };
        let (early, due): (Chosen, Chosen) =
            pending.answers.iter().partition(|n| free_at(n).is_some());
        if let Some(first) = early.iter().filter_map(free_at).min() {
            self.pending[at] = Some(Pending { due: first, answers: early, more_from: None });
        }
        let more = answer::additional(&self.records, &due);
        due.iter().for_each(|n| self.sent[*n][at] = Some(now));
        let messages = answer::multicast(&self.records, &due, &more, None);
        messages.into_iter().map(|bytes| Out { to: To::Group(family), bytes }).collect()
    }

    fn owns(&self, record: &ResourceRecord<'_>) -> bool {
        self.records.iter().any(|own| unique(own) && record.name == dns::name(&own.name))
    }

    /// Returns true if the record is one of this host, perhaps as another program of the host or another link has it.
    fn is_own(&self, record: &ResourceRecord<'_>) -> bool {
        match &record.rdata {
            RData::A(a) => self.own.contains(&IpAddr::V4(a.address.into())),
            RData::AAAA(a) => self.own.contains(&IpAddr::V6(a.address.into())),
            _ => self.records.iter().any(|own| own.is(record)),
        }
    }

    /// Returns true if another host has one of the names (RFC 6762 section 9).
    fn conflicts_with(&self, packet: &Packet<'_>) -> bool {
        let differs = |record: &ResourceRecord<'_>| {
            let counts = matches!(
                record.rdata,
                RData::A(_) | RData::AAAA(_) | RData::SRV(_) | RData::TXT(_)
            );
            counts && record.ttl > 0 && self.owns(record) && !self.is_own(record)
        };
        packet.answers.iter().chain(&packet.additional_records).any(differs)
    }

    fn conflict(&mut self, now: Instant) {
        self.conflicts = self.conflicts.saturating_add(1);
        if matches!(self.phase, Phase::Probing(_)) {
            self.number = self.number.saturating_add(1);
            self.label = self.name.numbered(self.number);
        }
        self.set_records();
        let pause = if self.conflicts > CONFLICTS_MAX { CONFLICT_PAUSE } else { PROBE_PAUSE };
        self.probe(now + pause);
    }

    /// Returns true if another host probes for one of the names and its records are later in order (RFC 6762 section 8.2).
    fn loses_to(&self, packet: &Packet<'_>) -> bool {
        let rank = |record: &ResourceRecord<'_>| {
            (u16::from(record.rdata.type_code()), dns::raw(&record.rdata))
        };
        let theirs = packet.name_servers.iter().filter(|record| self.owns(record));
        if theirs.clone().all(|record| self.is_own(record)) {
            return false;
        }
        let mut names: Vec<&str> =
            self.records.iter().filter(|r| unique(r)).map(|r| r.name.as_str()).collect();
        names.dedup();
        names.into_iter().any(|name| {
            let of_name = theirs.clone().filter(|record| record.name == dns::name(name));
            let mut theirs: Vec<_> = of_name.map(rank).collect();
            let own = self.records.iter().filter(|record| unique(record) && record.name == name);
            let mut ours: Vec<_> = own.map(|record| rank(&record.wire(0, false))).collect();
            theirs.sort();
            ours.sort();
            !theirs.is_empty() && ours < theirs
        })
    }
}

/// Returns true for records whose names belong to one host, which probes for them.
fn unique(record: &Record) -> bool {
    matches!(record.data, Data::A(_) | Data::Aaaa(_) | Data::Srv { .. } | Data::Txt(_))
}

fn to_both(messages: Vec<Vec<u8>>) -> Vec<Out> {
    let each = |bytes: Vec<u8>| {
        Family::BOTH.map(|family| Out { to: To::Group(family), bytes: bytes.clone() })
    };
    messages.into_iter().flat_map(each).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
