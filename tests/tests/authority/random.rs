//! Random mode bits and lists: each protocol's answer must match the kernel, or the model where the kernel does not know the
//! deciding rule. `HEADGATE_AUTHORITY_SEEDS` is the number of cases, each of which its seed reproduces.

use smbd_core::dtyp::mask;

use crate::shape::{By, OWNERS, Shape, Who};
use crate::{Acting, Caller, Cell, Clients, Op, Way, is_root, kernel, model, nfs, world};

const SEEDS: u64 = 300;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.roll(all.len() as u64)).unwrap()]
    }

    fn bits(&mut self, of: u32) -> u32 {
        u32::try_from(self.roll(1 << 30)).unwrap() & of
    }

    /// In one of three cases, adds a list that grants the owner everything.
    fn list(&mut self) -> Option<Vec<(Who, u32)>> {
        let rights = mask::FILE_ALL;
        let of = [(Who::Everyone, self.bits(rights)), (Who::Listed, self.bits(rights))];
        (self.roll(3) == 0).then(|| [&[OWNERS], &of[..]].concat())
    }
}

struct Case {
    shape: Shape,
    caller: Caller,
    op: Op,
    way: Way,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let (dir, file) = (dice.bits(0o3777), dice.bits(0o6777));
        let mut shape = Shape::modes("random", dir, file);
        (shape.dir_list, shape.file_list) = (dice.list(), dice.list());
        // A mode set after the list would limit the list.
        if shape.dir_list.is_some() {
            shape.dir &= 0o777;
        }
        if shape.file_list.is_some() {
            shape.file &= 0o777;
        }
        let caller = dice.of(&Caller::ALL);
        Self { shape, caller, op: dice.of(&Op::ALL).0, way: dice.of(&[Way::V3, Way::V4, Way::Smb]) }
    }

    /// The owner of a file may have it open and so continue to access its data, as NFS 3 requires, whatever the mode bits.
    fn is_of_nfs(&self) -> bool {
        self.way != Way::Smb && self.caller == Caller::Owner && self.shape.file_list.is_none()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_lists_at_random() {
    if !is_root() {
        return;
    }
    let seeds = std::env::var("HEADGATE_AUTHORITY_SEEDS").map_or(SEEDS, |n| n.parse().unwrap());
    let (world, _dir) = world().await;
    let top = world.folder();
    let setter = nfs::Nfs::connect(&world, Caller::Root, By::Open).await;
    let mut clients = Vec::new();
    for caller in Caller::ALL {
        clients.push(Clients::connect(&world, caller, By::Open).await);
    }
    let (mut faults, mut asked, mut by_kernel) = (Vec::new(), 0, 0);
    for seed in 0..seeds {
        let case = Case::of(seed);
        let Case { shape, caller, op, way } = &case;
        let acting = Acting::of(shape, *caller, *way);
        if case.is_of_nfs() {
            continue;
        }
        let cell = Cell::new(&top, &format!("cell-{seed}"), *caller, shape);
        setter.prepare(&cell, shape).await;
        let which = Caller::ALL.iter().position(|c| c == caller).unwrap();
        let Some(done) = clients[which].ask(&cell, *op, *caller, *way).await else { continue };
        let mut want = model::may(shape, *op, *caller, *way);
        if shape.is_kernels()
            && kernel::has(*op)
            && !model::is_of_protocol(shape, *op, *caller, *way)
        {
            let cell = Cell::new(&top, &format!("kernel-{seed}"), *caller, shape);
            want = kernel::may(&cell, *op, *caller, acting);
            by_kernel += 1;
        }
        asked += 1;
        let hidden = op.is_hidden() || shape.is_so(*op, *caller);
        if done != want || done && !hidden && !cell.shows(*op, *caller, acting) {
            let lists = (&shape.dir_list, &shape.file_list);
            let (dir, file) = (shape.dir, shape.file);
            faults.push(format!(
                "seed {seed}: {op:?} by {caller:?}, {way:?}, {dir:o} {file:o} {lists:x?}: {done}, wanted {want}"
            ));
        }
    }
    world.running.stop().await;
    println!("{asked} cases of {seeds}, {by_kernel} by the kernel");
    assert!(asked > seeds / 2 && by_kernel > seeds / 10, "{asked}, {by_kernel}");
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
