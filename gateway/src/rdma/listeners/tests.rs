//! Tests of the listeners on a host that changes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iobuf::Pool;
use rdma_transport::verbs::{BoxFuture, ConnectParams, Connected, Incoming, Listener};

use super::*;
use crate::admission::{Admission, ConnectionLimits};
use crate::descriptors::Descriptors;
use crate::rdma::host::{usable_since, with_kernel};
use crate::rdma::plan::Fabrics;
use crate::rdma::plan::tests::{card, host};
use crate::shutdown::Connections;

const WITH: &str = "198.51.100.1";

/// A provider whose listeners never receive a connection. It counts its listeners and refuses on request.
#[derive(Clone, Default)]
struct Deaf {
    open: Arc<Mutex<Vec<SocketAddr>>>,
    refuses: Arc<Mutex<Option<io::ErrorKind>>>,
    /// Refuses only this port.
    refuses_port: Arc<Mutex<Option<u16>>>,
    tries: Arc<AtomicUsize>,
}

struct DeafListener(SocketAddr, Arc<Mutex<Vec<SocketAddr>>>);

impl Listener for DeafListener {
    fn local_addr(&self) -> SocketAddr {
        self.0
    }
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(std::future::pending())
    }
}

impl Drop for DeafListener {
    fn drop(&mut self) {
        self.1.lock().unwrap().retain(|at| *at != self.0);
    }
}

impl Provider for Deaf {
    fn name(&self) -> &'static str {
        "deaf"
    }
    fn listen(&self, mut at: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let of_port = *self.refuses_port.lock().unwrap() == Some(at.port());
        let refusal = self.refuses.lock().unwrap().or(of_port.then_some(io::ErrorKind::AddrInUse));
        if at.port() == 0 {
            at.set_port(4711);
        }
        Box::pin(async move {
            if let Some(kind) = refusal {
                return Err(kind.into());
            }
            self.open.lock().unwrap().push(at);
            Ok(Box::new(DeafListener(at, self.open.clone())) as Box<dyn Listener>)
        })
    }
    fn connect(&self, _: SocketAddr, _: ConnectParams) -> BoxFuture<'_, io::Result<Connected>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

impl Deaf {
    fn at(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.open.lock().unwrap().iter().map(SocketAddr::to_string).collect();
        all.sort();
        all
    }
}

/// A gateway with one RDMA port on a host that the test changes.
struct Lab {
    listeners: Listeners,
    verbs: Deaf,
    iwarp: Deaf,
    host: Arc<Mutex<Host>>,
}

/// Returns the shared state that connections need, with memory for a few.
pub(crate) fn shared() -> Arc<Shared> {
    let pool = || Pool::new(iobuf::PoolLimits { buffers_max: [300, 8, 1] });
    Arc::new(Shared {
        lookup: Arc::new(crate::client_names::Lookup::new(Arc::default())),
        payload: pool(),
        recvs: pool(),
        rdma_recvs: pool(),
        rdma_receives: crate::pools::rdma_parts(&Settings::default()),
        rdma_first: crate::pools::rdma_first(&Settings::default()),
        connections: Arc::new(Connections::default()),
        admission: Admission::new(
            ConnectionLimits::of(
                &Settings::default(),
                Descriptors::of(&Settings::default(), u64::MAX),
            ),
            pool(),
            pool(),
        ),
        attempts: Arc::default(),
        meters: Arc::default(),
        tls: Arc::default(),
        class: TrafficClass::default(),
    })
}

fn lab(mode: Rdma, port: u16, first: Host) -> Lab {
    let settings = Settings { rdma: mode, ..Settings::default() };
    let shared = shared();
    let (verbs, iwarp, now) = (Deaf::default(), Deaf::default(), Arc::new(Mutex::new(first)));
    let source = now.clone();
    let front = ProtocolServer::Nfs(nfs());
    let look = Arc::new(move |_: &Settings| source.lock().unwrap().clone());
    let hardware = Some(Arc::new(verbs.clone()) as Arc<dyn Provider>);
    let fronts = vec![(nfs_port(port), front)];
    let mut listeners = Listeners::new(&settings, &shared, fronts, hardware, look);
    listeners.iwarp = Arc::new(iwarp.clone());
    Lab { listeners, verbs, iwarp, host: now }
}

fn nfs_port(number: u16) -> RdmaPort {
    RdmaPort { named: ("NFS over RDMA", "--nfs-rdma-port", number), fabrics: Fabrics::All }
}

/// Returns a port of SMB Direct for one kind of client.
fn direct(number: u16, fabrics: Fabrics) -> RdmaPort {
    RdmaPort { named: ("SMB Direct", "--smb-direct-port", number), fabrics }
}

/// A server without shares.
pub(crate) fn nfs() -> Arc<nfsrdma::server::Server> {
    use nfsrdma::clock::Clock;
    use nfsrdma::server_state::{Boot, ServerState};
    let share = config::Share::new("m", config::Source::Memory);
    let settings = Settings { shares: vec![share], ..Settings::default() };
    let shares = crate::shares::ShareSet::default().next(&settings, &|_| None).unwrap();
    let namespace = Arc::new(vfs::namespace::Namespace::new(Vec::new()));
    namespace.set_shares(shares.shares());
    let core =
        ServerState::new(namespace, nfsrdma::fh::Handles::new([0; 16]), Boot::now(), Clock::real());
    nfsrdma::server::Server::new(core, [0; 16])
}

impl Lab {
    fn change(&self, change: impl FnOnce(&mut Host)) {
        change(&mut self.host.lock().unwrap());
    }

    fn heard(&self) -> usize {
        self.listeners.bound.at("NFS over RDMA").len()
    }
}

#[tokio::test]
async fn a_device_that_comes_is_served_and_one_that_goes_is_left() {
    let mut lab = lab(Rdma::Auto, 20049, host(vec![]));
    lab.listeners.begin().await.unwrap();
    assert_eq!((lab.verbs.at(), lab.iwarp.at()), (vec![], vec!["[::]:20049".into()]));
    lab.change(|h| h.devices.list.push(card("rxe0", Fabric::Roce, "eth1", WITH)));
    lab.listeners.look_again().await;
    assert_eq!(lab.verbs.at(), ["198.51.100.1:20049"]);
    assert_eq!(lab.heard(), 2);
    // Another device with the same name needs a new listener.
    lab.change(|h| h.devices.list[0].incarnation += 1);
    lab.listeners.look_again().await;
    assert_eq!((lab.verbs.at().len(), lab.verbs.tries.load(Ordering::Relaxed)), (1, 2));
    lab.change(|h| h.devices.list.clear());
    lab.listeners.look_again().await;
    assert_eq!((lab.verbs.at(), lab.iwarp.at().len(), lab.heard()), (vec![], 1, 1));
}

#[tokio::test]
async fn rdma_that_the_kernel_loads_later_is_told_of_and_served_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("infiniband");
    let at_start = with_kernel(Ok(()), &class);
    let usable = usable_since(&at_start, Ok(()));
    let mut lab = lab(Rdma::Auto, 20049, Host { library: usable.clone(), ..host(vec![]) });
    lab.listeners.begin().await.unwrap();
    let ip: IpAddr = WITH.parse().unwrap();
    assert!(
        lab.listeners.told[&ip].is_empty(),
        "no device, nothing to tell: {:?}",
        lab.listeners.told
    );
    // The kernel loads its RDMA class, and a device appears.
    std::fs::create_dir(&class).unwrap();
    lab.change(|h| {
        h.devices.list.push(card("rxe0", Fabric::Roce, "eth1", WITH));
        h.library = usable_since(&at_start, Ok(()));
    });
    lab.listeners.look_again().await;
    let told = &lab.listeners.told[&ip];
    for words in
        ["RDMA over iWARP", "rxe0 cannot be used", &class.display().to_string(), "restart it"]
    {
        assert!(told.contains(words), "no {words} in {told}");
    }
    assert_eq!((lab.verbs.at(), lab.iwarp.at().len()), (vec![], 1));
    // A restart follows.
    let again = with_kernel(Ok(()), &class);
    lab.change(|h| h.library = usable_since(&again, Ok(())));
    lab.listeners.look_again().await;
    assert_eq!(lab.verbs.at(), ["198.51.100.1:20049"]);
    // Missing libraries are a different error.
    let missing = || Err("no libibverbs".to_owned());
    assert_eq!(with_kernel(missing(), &class), missing());
    assert_eq!(usable_since(&again, missing()), missing());
}

#[tokio::test]
async fn an_iwarp_card_takes_its_address_from_our_own_iwarp_and_gives_it_back() {
    let mut lab = lab(Rdma::Auto, 20049, host(vec![]));
    lab.listeners.begin().await.unwrap();
    lab.change(|h| h.devices.list.push(card("cxgb4_0", Fabric::Iwarp, "eth1", WITH)));
    lab.listeners.look_again().await;
    assert_eq!(lab.verbs.at(), ["198.51.100.1:20049"]);
    assert_eq!(lab.iwarp.at(), ["127.0.0.1:20049", "192.0.2.1:20049"]);
    lab.change(|h| h.devices.list.clear());
    lab.listeners.look_again().await;
    assert_eq!((lab.verbs.at(), lab.iwarp.at()), (vec![], vec!["[::]:20049".into()]));
}

#[tokio::test]
async fn a_device_that_refuses_is_replaced_by_iwarp_and_not_asked_at_every_look() {
    let card = card("cxgb4_0", Fabric::Iwarp, "eth1", WITH);
    let mut lab = lab(Rdma::Auto, 20049, host(vec![card]));
    *lab.verbs.refuses.lock().unwrap() = Some(io::ErrorKind::AddrInUse);
    lab.listeners.begin().await.unwrap();
    assert_eq!((lab.verbs.at(), lab.iwarp.at()), (vec![], vec!["[::]:20049".into()]));
    lab.listeners.look_again().await;
    assert_eq!(lab.verbs.tries.load(Ordering::Relaxed), 1);
    let (_, why) = lab.listeners.refused.first_key_value().unwrap();
    assert!(
        why.contains("cxgb4_0 refused") && why.contains("it shares its ports with TCP"),
        "{why}"
    );
    // After the waiting time the device is used.
    *lab.verbs.refuses.lock().unwrap() = None;
    lab.listeners.refused_at = Instant::now().checked_sub(REFUSED_FOR * 2).unwrap();
    lab.listeners.look_again().await;
    assert_eq!(lab.verbs.at(), ["198.51.100.1:20049"]);
}

#[tokio::test]
async fn a_demand_that_cannot_be_met_stops_the_start() {
    let mut none = lab(Rdma::Verbs, 20049, host(vec![]));
    let why = none.listeners.begin().await.unwrap_err();
    assert!(why.contains("--rdma verbs") && why.contains("eth1"), "{why}");
    let mut refusing =
        lab(Rdma::Verbs, 20049, host(vec![card("rxe0", Fabric::Roce, "eth1", WITH)]));
    *refusing.verbs.refuses.lock().unwrap() = Some(io::ErrorKind::OutOfMemory);
    let why = refusing.listeners.begin().await.unwrap_err();
    assert!(why.contains("198.51.100.1:20049"), "{why}");
    assert!(refusing.iwarp.at().is_empty());
}

#[tokio::test]
async fn any_port_is_one_port_for_all_listeners() {
    let mut lab = lab(Rdma::Auto, 0, host(vec![card("rxe0", Fabric::Roce, "eth1", WITH)]));
    lab.listeners.begin().await.unwrap();
    assert_eq!(lab.verbs.at(), ["198.51.100.1:4711"]);
    assert_eq!(lab.iwarp.at(), ["[::]:4711"]);
}

#[tokio::test]
async fn a_listener_whose_task_ended_is_opened_again() {
    let mut lab = lab(Rdma::Auto, 20049, host(vec![]));
    lab.listeners.begin().await.unwrap();
    for open in lab.listeners.listeners[0].open.values() {
        open.task.abort();
    }
    tokio::task::yield_now().await;
    lab.listeners.look_again().await;
    assert_eq!((lab.iwarp.at().len(), lab.iwarp.tries.load(Ordering::Relaxed)), (1, 2));
}

#[tokio::test]
async fn switched_off_nothing_listens() {
    let mut lab = lab(Rdma::Off, 20049, host(vec![]));
    lab.listeners.begin().await.unwrap();
    assert_eq!((lab.iwarp.at(), lab.heard()), (vec![], 0));
}

#[tokio::test]
async fn a_change_leaves_what_stays_and_comes_back_when_it_fails() {
    let mut lab = lab(Rdma::Auto, 20049, host(vec![]));
    lab.listeners.begin().await.unwrap();
    let settings = lab.listeners.settings.clone();
    let nfs = || ProtocolServer::Nfs(nfs());
    let first = nfs_port(20049);
    let second = direct(5445, Fabrics::Iwarp);
    lab.listeners.change(settings.clone(), vec![(first, nfs()), (second, nfs())]).await.unwrap();
    assert_eq!(lab.iwarp.at(), ["[::]:20049", "[::]:5445"]);
    assert_eq!(lab.iwarp.tries.load(Ordering::Relaxed), 2, "the first went on");
    // The change to a port that cannot be opened restores the earlier listener.
    *lab.iwarp.refuses.lock().unwrap() = Some(io::ErrorKind::AddrInUse);
    let other = direct(5446, Fabrics::Iwarp);
    let both = vec![(first, nfs()), (other, nfs())];
    let why = lab.listeners.change(settings.clone(), both.clone()).await.unwrap_err();
    assert!(why.contains("5446"), "{why}");
    assert_eq!(lab.iwarp.at(), ["[::]:20049"], "nothing could be opened at all");
    *lab.iwarp.refuses.lock().unwrap() = None;
    lab.listeners.look_again().await;
    assert_eq!(lab.iwarp.at(), ["[::]:20049", "[::]:5445"], "as it was");
    lab.listeners.change(settings.clone(), both).await.unwrap();
    assert_eq!(lab.iwarp.at(), ["[::]:20049", "[::]:5446"]);
    let off = Settings { rdma: Rdma::Off, ..settings };
    lab.listeners.change(off, vec![(first, nfs())]).await.unwrap();
    assert_eq!((lab.iwarp.at(), lab.heard()), (vec![], 0));
}

/// Only an iWARP card ties the class of its connections to the listener.
#[tokio::test]
async fn other_class_reopens_listeners_of_iwarp_cards_only() {
    for (fabric, again) in [(Fabric::Iwarp, 1), (Fabric::Roce, 0), (Fabric::InfiniBand, 0)] {
        let mut lab = lab(Rdma::Auto, 20049, host(vec![card("mlx5_0", fabric, "eth1", WITH)]));
        lab.listeners.begin().await.unwrap();
        let (verbs, iwarp) = (lab.verbs.at(), lab.iwarp.at());
        let tries = |lab: &Lab| [&lab.verbs, &lab.iwarp].map(|p| p.tries.load(Ordering::Relaxed));
        let [of_card, own] = tries(&lab);
        let class = lab.listeners.shared.class.clone();
        let fronts = || vec![(nfs_port(20049), ProtocolServer::Nfs(nfs()))];
        let marked =
            Settings { rdma_dscp: Some(config::Dscp(26)), ..lab.listeners.settings.clone() };
        lab.listeners.change(marked.clone(), fronts()).await.unwrap();
        assert_eq!(class.byte(), Some(26 << 2));
        // The listeners of one port are closed and opened together.
        let own = if again > 0 { own + lab.iwarp.at().len() } else { own };
        assert_eq!(tries(&lab), [of_card + again, own], "{fabric}");
        assert_eq!((lab.verbs.at(), lab.iwarp.at()), (verbs, iwarp), "{fabric}");
        // A change that fails leaves the class.
        let other = Settings { rdma_dscp: None, ..marked };
        *lab.iwarp.refuses.lock().unwrap() = Some(io::ErrorKind::AddrInUse);
        let moved = vec![(nfs_port(20050), ProtocolServer::Nfs(self::nfs()))];
        lab.listeners.change(other, moved).await.unwrap_err();
        assert_eq!(class.byte(), Some(26 << 2), "{fabric}");
    }
}

/// A gateway that serves only SMB Direct.
async fn lab_of_smb(mode: Rdma, host: Host, ports: (u16, u16)) -> Lab {
    let mut lab = lab(mode, 20049, host);
    lab.listeners.listeners.clear();
    for (number, fabrics) in plan::smb_direct_ports(ports.0, ports.1) {
        let front = (direct(number, fabrics), ProtocolServer::Nfs(nfs()));
        lab.listeners.listeners.push(Listening::new(front));
    }
    lab.listeners.begin().await.unwrap();
    lab
}

fn dialled(lab: &Lab) -> Vec<String> {
    lab.listeners.bound.dialled_at("SMB Direct").iter().map(SocketAddr::to_string).collect()
}

#[tokio::test]
async fn roce_listens_on_the_port_of_smb() {
    let roce = || card("rxe0", Fabric::Roce, "eth1", WITH);
    let mut lab = lab_of_smb(Rdma::Auto, host(vec![roce()]), (445, 5445)).await;
    assert_eq!(lab.verbs.at(), ["198.51.100.1:445", "198.51.100.1:5445"]);
    assert_eq!(lab.iwarp.at(), ["[::]:5445"]);
    // The second port of the device is only for old Linux clients.
    assert_eq!(dialled(&lab), ["198.51.100.1:445", "[::]:5445"]);
    assert_eq!(lab.listeners.bound.at("SMB Direct").len(), 3);
    // The device disappears and returns with an IPv6 address.
    lab.change(|h| h.devices.list.clear());
    lab.listeners.look_again().await;
    assert_eq!((lab.verbs.at().len(), dialled(&lab)), (0, vec!["[::]:5445".to_owned()]));
    lab.change(|h| {
        h.addresses[1].ip = "2001:db8::1".parse().unwrap();
        h.devices.list.push(card("rxe0", Fabric::Roce, "eth1", "2001:db8::1"));
    });
    lab.listeners.look_again().await;
    assert_eq!(dialled(&lab), ["[::]:5445", "[2001:db8::1]:445"]);
}

#[tokio::test]
async fn iwarp_card_listens_on_its_own_port() {
    let iwarp = card("cxgb4_0", Fabric::Iwarp, "eth1", WITH);
    let lab = lab_of_smb(Rdma::Verbs, host(vec![iwarp]), (1445, 6445)).await;
    assert_eq!((lab.verbs.at(), dialled(&lab)), (vec!["198.51.100.1:6445".into()], lab.verbs.at()));
}

#[tokio::test]
async fn device_that_refuses_a_port_keeps_others() {
    for (taken, left, counts) in [(445, 5445, false), (5445, 445, true)] {
        let roce = card("rxe0", Fabric::Roce, "eth1", WITH);
        let mut lab = lab_of_smb(Rdma::Auto, host(vec![]), (445, 5445)).await;
        *lab.verbs.refuses_port.lock().unwrap() = Some(taken);
        lab.change(|h| h.devices.list.push(roce));
        lab.listeners.look_again().await;
        lab.listeners.look_again().await;
        let left = format!("198.51.100.1:{left}");
        assert_eq!((lab.verbs.at(), lab.listeners.refused.len()), (vec![left.clone()], 0));
        assert_eq!(lab.verbs.tries.load(Ordering::Relaxed), 2, "not asked at every look");
        assert_eq!(dialled(&lab).contains(&left), counts, "RDMA is told of where clients dial");
        *lab.verbs.refuses_port.lock().unwrap() = None;
        lab.listeners.refused_at = Instant::now().checked_sub(REFUSED_FOR * 2).unwrap();
        lab.listeners.look_again().await;
        assert_eq!(lab.verbs.at(), ["198.51.100.1:445", "198.51.100.1:5445"]);
    }
}
