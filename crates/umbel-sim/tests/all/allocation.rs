//! A link crossing allocates nothing. Once a run is warm, packets cross links, wait in queues, are
//! lost, branch and are delivered without a single allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::units::Rate;
use umbel_sim::{
    App, Context, Destination, GroupId, Instant, Kind, LinkSpec, Loss, Network, NodeId, Packet,
    Queue, RedConfig, Simulation,
};

struct Counting;

thread_local! {
    /// Allocations of this thread, since other tests run beside this one.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator that counts and passes on")]
// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends a multicast packet and a unicast one every millisecond. The payload is shared.
struct Sender {
    group: GroupId,
    to: NodeId,
    payload: Bytes,
}

impl App for Sender {
    fn start(&mut self, context: &mut Context<'_>) {
        self.wake(context);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}

    fn wake(&mut self, context: &mut Context<'_>) {
        for destination in [Destination::Group(self.group), Destination::Unicast(self.to)] {
            let payload = self.payload.clone();
            context.send(Packet::new(context.node(), destination, Kind::Data, payload));
        }
        context.wake_at(Some(context.now() + Duration::from_millis(1)));
    }
}

struct Receiver {
    group: GroupId,
    packets: u64,
}

impl App for Receiver {
    fn start(&mut self, context: &mut Context<'_>) {
        context.join(self.group);
    }

    fn packet(&mut self, _context: &mut Context<'_>, packet: &Packet) {
        assert_eq!(packet.payload.len(), 972);
        self.packets += 1;
    }
}

#[test]
fn a_link_crossing_allocates_nothing() {
    let mut network = Network::new();
    let rate = Rate::from_bits_per_s(17_000_000).unwrap();
    let delay = Duration::from_millis(3);
    let slow = LinkSpec::default().rate(rate).delay(delay);
    let tail = slow.clone().queue(Queue::DropTailPackets(5));
    let red = slow.queue(Queue::Red(RedConfig { weight: 0.1, ..RedConfig::new(1.0, 3.0) }));
    let lossy = LinkSpec::default().delay(delay).loss(Loss::bursts(0.1, 3.0));
    let source = network.host("source");
    let top = network.router("top");
    network.link(source, top, tail.clone(), tail.clone()).unwrap();
    let mut leaves = Vec::new();
    for n in 0..4 {
        let router = network.router(format!("r{n}"));
        network.link(top, router, red.clone(), tail.clone()).unwrap();
        for m in 0..5 {
            let leaf = network.host(format!("{n}.{m}"));
            network.link(router, leaf, lossy.clone(), tail.clone()).unwrap();
            leaves.push(leaf);
        }
    }
    let mut simulation = Simulation::new(network, 1);
    let group = simulation.group(Some(source), 1);
    for &leaf in &leaves {
        simulation.set_app(leaf, Receiver { group, packets: 0 }, Instant::EPOCH).unwrap();
    }
    let sender = Sender { group, to: leaves[7], payload: Bytes::from(vec![1; 972]) };
    simulation.set_app(source, sender, Instant::EPOCH).unwrap();

    let second = Duration::from_secs(1);
    simulation.run_until(Instant::EPOCH + 5 * second);
    let (before, warm) = (*simulation.counters(), ALLOCATIONS.get());
    simulation.run_until(Instant::EPOCH + 25 * second);
    let allocations = ALLOCATIONS.get() - warm;
    let after = simulation.counters();
    assert!(after.hops - before.hops > 400_000, "{after:?}");
    assert!(after.lost > before.lost && after.delivered > before.delivered, "{after:?}");
    assert_eq!(allocations, 0);
}
