//! Jobs that wait for threads, in turns of clients.
//!
//! *Operation.* Jobs of one client keep their order. Clients take turns, and one has so many jobs in work at most: what it does
//! with
//! slow storage leaves threads to others.
//!
//! *Memory.* An entry for each client that has jobs.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// For which client a job is; `None`: for none.
pub(super) type Client = Option<IpAddr>;

/// Jobs of one client.
struct Own<J> {
    waiting: VecDeque<J>,
    in_work: usize,
}

/// All that wait.
pub(super) struct Jobs<J> {
    clients: HashMap<Client, Own<J>>,
    /// Clients with jobs that wait, the next one first.
    turns: VecDeque<Client>,
    waiting: usize,
    /// Jobs of one client that are in work at most.
    in_work_max: usize,
}

impl<J> Jobs<J> {
    pub(super) fn new(in_work_max: usize) -> Self {
        Self { clients: HashMap::new(), turns: VecDeque::new(), waiting: 0, in_work_max }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// How many of this client wait.
    pub(super) fn of(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, |own| own.waiting.len())
    }

    pub(super) fn push(&mut self, client: Client, job: J) {
        let new = || Own { waiting: VecDeque::new(), in_work: 0 };
        let own = self.clients.entry(client).or_insert_with(new);
        if own.waiting.is_empty() {
            self.turns.push_back(client);
        }
        own.waiting.push_back(job);
        self.waiting += 1;
    }

    /// The next job that may be in work, which [`Jobs::end`] ends. Jobs for no client have no part that bounds them.
    pub(super) fn begin(&mut self) -> Option<(Client, J)> {
        for _ in 0..self.turns.len() {
            let client = self.turns.pop_front()?;
            let Some(own) = self.clients.get_mut(&client) else { continue };
            if client.is_some() && own.in_work >= self.in_work_max {
                self.turns.push_back(client);
                continue;
            }
            let Some(job) = own.waiting.pop_front() else { continue };
            own.in_work += 1;
            self.waiting -= 1;
            if !own.waiting.is_empty() {
                self.turns.push_back(client);
            }
            return Some((client, job));
        }
        None
    }

    /// A job of this client is done.
    pub(super) fn end(&mut self, client: Client) {
        let Some(own) = self.clients.get_mut(&client) else { return };
        own.in_work -= 1;
        if own.in_work == 0 && own.waiting.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Takes all that wait.
    pub(super) fn take_waiting(&mut self) -> Vec<J> {
        (self.waiting, self.turns) = (0, VecDeque::new());
        let taken = self.clients.values_mut().flat_map(|own| std::mem::take(&mut own.waiting));
        let taken = taken.collect();
        self.clients.retain(|_, own| own.in_work > 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> Client {
        Some([192, 0, 2, n].into())
    }

    #[test]
    fn clients_take_turns_in_order() {
        let mut jobs = Jobs::new(10);
        for job in 0..3 {
            jobs.push(client(1), (1, job));
        }
        jobs.push(client(2), (2, 0));
        let order: Vec<_> = std::iter::from_fn(|| jobs.begin().map(|(_, job)| job)).collect();
        assert_eq!(order, [(1, 0), (2, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn client_has_its_part_of_work() {
        let mut jobs = Jobs::new(2);
        for job in 0..5 {
            jobs.push(client(1), job);
            jobs.push(None, 100 + job);
        }
        let begun: Vec<_> = std::iter::from_fn(|| jobs.begin()).collect();
        assert_eq!(begun.iter().filter(|(of, _)| of.is_some()).count(), 2);
        assert_eq!((begun.len(), jobs.len(), jobs.of(client(1))), (7, 3, 3));
        jobs.end(client(1));
        assert_eq!(jobs.begin(), Some((client(1), 2)));
        assert_eq!(jobs.begin(), None);
        jobs.push(client(2), 7);
        assert_eq!(jobs.begin(), Some((client(2), 7)), "another client");
    }

    #[test]
    fn nothing_is_kept_of_clients_without_jobs() {
        let mut jobs = Jobs::new(1);
        jobs.push(client(1), 1);
        jobs.push(client(1), 2);
        jobs.push(client(2), 3);
        let (first, _) = jobs.begin().unwrap();
        let mut left = jobs.take_waiting();
        left.sort_unstable();
        assert_eq!((left, jobs.len()), (vec![2, 3], 0));
        jobs.end(first);
        assert!(jobs.clients.is_empty() && jobs.turns.is_empty());
    }
}
