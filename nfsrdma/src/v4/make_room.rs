//! Evicts clients when the limit of clients or of cached replies is reached: those that were never confirmed or whose lease has
//! lapsed, the longest silent first. The limits are in [`super::room`].

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma_transport::channel::host_of;
use rdma_transport::count;
use state::LeaseState;

use super::channel_attrs::ChannelAttrs;
use super::client::Client;
use super::clients::Clients;
use super::release::Evicted;
use super::room::Full;

/// Order of eviction: the class of the client, and since when it is silent.
type Precedence = (u8, Option<u64>);

impl Clients {
    /// Makes room for one more client at this address. Evicts only clients that were never confirmed or are silent.
    pub(super) async fn make_room(&self, at: IpAddr) -> Result<(), Full> {
        let network = host_of(at);
        for _ in 0..4 {
            let Some((full, most)) = self.room.full(network) else { return Ok(()) };
            let Some(client) = self.to_go((full == Full::Address).then_some(network)) else {
                return Err(self.no_room(full, most, at));
            };
            if !client.is_confirmed() {
                self.dissolve(&client);
                return Ok(());
            }
            match self.evict(&client).await {
                Evicted::Gone => return Ok(()),
                // The loop selects another client.
                Evicted::CameBack => {}
                Evicted::Unstruck => return Err(self.no_room(full, most, at)),
            }
        }
        let Some((full, most)) = self.room.full(network) else { return Ok(()) };
        Err(self.no_room(full, most, at))
    }

    fn no_room(&self, full: Full, most: usize, at: IpAddr) -> Full {
        self.counters.limited.fetch_add(1, Ordering::Relaxed);
        let limit = match full {
            Full::All => "nfs-clients",
            Full::Address => "nfs-clients-of-address",
        };
        count::limited(limit, most, (at, 0).into());
        full
    }

    /// Selects the next client to evict, overall or of one network: first those never confirmed, then lapsed ones without state,
    /// then lapsed ones. In each class the longest silent comes first.
    fn to_go(&self, network: Option<IpAddr>) -> Option<Arc<Client>> {
        let now = self.now();
        let mut first: Option<(Precedence, Arc<Client>)> = None;
        for client in self.by_id.iter() {
            if network.is_some_and(|n| client.place.network() != n) {
                continue;
            }
            let rank = if !client.is_confirmed() {
                0
            } else {
                match client.lease.state(now) {
                    // An ended client is released separately, or cannot be released now.
                    LeaseState::Live | LeaseState::Ended => continue,
                    LeaseState::Courtesy => 1 + u8::from(!client.held().is_empty()),
                }
            };
            let key = (rank, client.lease.renewed());
            if first.as_ref().is_none_or(|(found, _)| key < *found) {
                first = Some((key, client.clone()));
            }
        }
        first.map(|(_, client)| client)
    }

    /// Makes room for the replies cached by one more session of this client, if memory is scarce: evicts clients with a lapsed
    /// lease, the longest silent first.
    pub(super) async fn make_room_for_replies(&self, client: &Client, wish: ChannelAttrs) {
        let network = client.place.network();
        while let Some(short) = self.replies.short(network, wish) {
            let of_address = short == Full::Address;
            let mut lapsed = self.lapsed(self.now());
            lapsed.retain(|c| {
                !c.sessions().is_empty() && (!of_address || c.place.network() == network)
            });
            let Some(oldest) = lapsed.into_iter().min_by_key(|c| c.lease.renewed()) else { return };
            if self.evict(&oldest).await == Evicted::Unstruck {
                return;
            }
        }
    }
}
