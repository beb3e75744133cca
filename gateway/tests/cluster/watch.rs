//! Observes the packets that a node sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pnet_datalink::{Channel, Config};

/// Counts TCP packets with data from an address.
pub struct Watch {
    seen: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to count on this device of this host.
    pub fn start(device: &str, from: &str) -> Self {
        let is_it = |it: &pnet_datalink::NetworkInterface| it.name == device;
        let device = pnet_datalink::interfaces().into_iter().find(is_it).unwrap();
        let config = Config { read_timeout: Some(Duration::from_millis(50)), ..Config::default() };
        let Channel::Ethernet(_, mut frames) = pnet_datalink::channel(&device, config).unwrap()
        else {
            panic!("a veth is an Ethernet")
        };
        let from: std::net::Ipv4Addr = from.parse().unwrap();
        let (seen, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, stopped) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(frame) = frames.next()
                    && has_data(frame, from) == Some(true)
                {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    /// Returns the number of packets.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns true for an IPv4 TCP packet from this address with data.
fn has_data(frame: &[u8], from: std::net::Ipv4Addr) -> Option<bool> {
    const IPV4: [u8; 2] = [8, 0];
    const TCP: u8 = 6;
    let packet = frame.get(12..14)?.eq(&IPV4).then(|| &frame[14..])?;
    let head = usize::from(packet.first()? & 15) * 4;
    let len = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let is_it = *packet.get(9)? == TCP && packet.get(12..16)? == from.octets();
    let tcp_head = usize::from(packet.get(head + 12)? >> 4) * 4;
    Some(is_it && len > head + tcp_head)
}
