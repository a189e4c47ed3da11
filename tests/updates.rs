//! Updates in two slots of flash (tests/boards/commands), while the power fails at random places: the program always runs the
//! new model or the one before it, and never the first one again.

#[path = "boards/commands/src/slots.rs"]
mod slots;

use std::cell::RefCell;
use std::rc::Rc;

use arenite::sampler::Pcg32;
use rand_core::Rng;
use slots::{Flash, Head, SIGNATURE, Slots, TRIALS, Update};

/// The power has failed.
#[derive(Debug)]
struct Cut;

/// Flash whose power fails after a number of bytes.
struct Simulated {
    bytes: Vec<u8>,
    left: usize,
    chance: Pcg32,
}

impl Simulated {
    /// Does a step of an operation; `Err` in the middle of the step in which the power fails.
    fn step(&mut self, at: usize, to: u8) -> Result<(), Cut> {
        let power = self.left > 0;
        self.left = self.left.saturating_sub(1);
        let byte = &mut self.bytes[at];
        assert!(to & !*byte == 0 || to == 0xff, "a bit at {at} would have to be set");
        // The byte in which the power fails has some of the new bits.
        let changed = if power { 0xff } else { self.chance.next_u32() as u8 };
        *byte = *byte & !changed | to & changed;
        if power { Ok(()) } else { Err(Cut) }
    }
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Simulated>>);

impl Flash for Shared {
    type Error = Cut;

    const SECTOR: usize = 128;
    const SLOT: usize = 6 * Self::SECTOR;

    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.borrow().bytes[at..at + bytes.len()]);
    }

    fn erase(&mut self, at: usize) -> Result<(), Cut> {
        assert_eq!(at % Self::SECTOR, 0);
        (at..at + Self::SECTOR).try_for_each(|at| self.0.borrow_mut().step(at, 0xff))
    }

    fn program(&mut self, at: usize, bytes: &[u8]) -> Result<(), Cut> {
        assert_eq!((at % 4, bytes.len() % 4), (0, 0));
        bytes.iter().enumerate().try_for_each(|(i, byte)| self.0.borrow_mut().step(at + i, *byte))
    }
}

/// A model: its version, what becomes of it, and bytes that depend on both, in place of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// The check refuses it.
    Damaged,
    /// It ends the program before it is confirmed.
    Crashes,
}

const BYTES: usize = 400;

fn model(version: u32, kind: Kind) -> Vec<u8> {
    let mut random = Pcg32::new(u64::from(version) * 4 + kind as u64);
    let mut bytes: Vec<u8> = (0..BYTES).map(|_| random.next_u32() as u8).collect();
    bytes[0] = kind as u8;
    bytes
}

struct Device {
    flash: Shared,
    /// Number of the last model that was confirmed; 0 is the one in the program.
    proven: u32,
}

impl Device {
    fn new(seed: u64) -> Self {
        let bytes = vec![0xff; 2 * Shared::SLOT];
        let flash = Simulated { bytes, left: usize::MAX, chance: Pcg32::new(seed) };
        Self { flash: Shared(Rc::new(RefCell::new(flash))), proven: 0 }
    }

    fn slots(&self) -> Slots<Shared> {
        Slots::new(self.flash.clone())
    }

    fn power(&self, steps: usize) {
        self.flash.0.borrow_mut().left = steps;
    }

    /// Starts the device: the first update that is complete and has trials left, or `None` for the model in the program.
    fn start(&self) -> Result<Option<(Update, Kind)>, Cut> {
        let mut slots = self.slots();
        for update in slots.updates().into_iter().flatten() {
            if !slots.start(&update)? {
                continue;
            }
            let mut stored = vec![0; update.head.bytes as usize];
            self.flash.read(Slots::<Shared>::model(update.slot), &mut stored);
            let kinds = [Kind::Good, Kind::Crashes];
            if let Some(kind) = kinds.into_iter().find(|kind| stored == model(update.head.version, *kind)) {
                return Ok(Some((update, kind)));
            }
        }
        Ok(None)
    }

    /// Starts and runs until the device stays with a model, and returns its version.
    fn run(&mut self) -> Result<u32, Cut> {
        for _ in 0..=2 * TRIALS {
            match self.start()? {
                None => return Ok(0),
                Some((_, Kind::Crashes)) => {}
                Some((mut update, _)) => {
                    self.slots().confirm(&mut update)?;
                    self.proven = update.head.version;
                    return Ok(update.head.version);
                }
            }
        }
        panic!("the device restarts for ever");
    }

    fn receive(&mut self, version: u32, kind: Kind) -> Result<(), Cut> {
        let running = self.start()?.map(|(update, _)| update.slot);
        let head = Head { version, bytes: BYTES as u32, signature: [version as u8; SIGNATURE] };
        let mut slots = self.slots();
        let slot = slots.begin(running, &head)?;
        for (at, bytes) in model(version, kind).chunks(64).enumerate() {
            slots.write(slot, 64 * at, bytes)?;
        }
        slots.finish(slot, &head)
    }
}

/// The power fails at random bytes and at the borders of sectors, during updates and during starts.
#[test]
fn a_good_model_stands_through_2000_cuts() {
    let mut random = Pcg32::new(7);
    let (mut cuts, mut seed, mut installed) = (0, 0, 0);
    while cuts < 2000 {
        seed += 1;
        let mut device = Device::new(seed);
        for version in 1..=8 {
            let kind = [Kind::Good, Kind::Good, Kind::Damaged, Kind::Crashes][random.next_u32() as usize % 4];
            let before = device.proven;
            let border = random.next_u32().is_multiple_of(3);
            let most = 2 * Shared::SLOT as u32;
            let steps = random.next_u32() % most;
            device.power(if border { steps as usize / Shared::SECTOR * Shared::SECTOR } else { steps as usize });
            let received = device.receive(version, kind).and_then(|()| device.run().map(drop));
            cuts += usize::from(received.is_err());
            // Then the power fails during a start, too.
            device.power(random.next_u32() as usize % 24);
            cuts += usize::from(device.run().is_err());
            device.power(usize::MAX);
            let runs = device.run().unwrap();
            let may_be_new = kind == Kind::Good;
            assert!(
                runs == before || may_be_new && runs == version,
                "{runs} runs after {before} and {version}, {kind:?}"
            );
            installed += usize::from(runs == version);
            // Without a cut, an update that is sent again arrives, even if it has the same version.
            if may_be_new && runs == before {
                device.receive(version, kind).unwrap();
                assert_eq!(device.run().unwrap(), version);
            }
        }
    }
    assert!(installed > 200, "{installed}");
}

/// A model that ends the program has three trials. Then the older one runs, without another trial.
#[test]
fn a_model_that_is_not_confirmed_has_three_trials() {
    let mut device = Device::new(1);
    device.receive(1, Kind::Good).unwrap();
    assert_eq!(device.run().unwrap(), 1);
    device.receive(2, Kind::Crashes).unwrap();
    let started: Vec<_> = (0..5).map(|_| device.start().unwrap().unwrap().0.head.version).collect();
    assert_eq!(started, [2, 2, 2, 1, 1]);
}
