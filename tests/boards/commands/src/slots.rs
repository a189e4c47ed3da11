//! Two slots of flash for updates. An update overwrites the slot that does not run, and then runs on trial until the program
//! confirms it. Whenever the power fails, the older update stands until the new one is complete and has proven itself.
//!
//! The first sector of a slot is its record, and the model follows. The record is erased before the slot changes and written
//! when all of the model is there, so that a slot with a record is complete. Marks on the record are bits that are cleared
//! without erasing: one for each trial, one for the confirmation. A mark counts even if the power failed while it was made.
//!
//! `tests/updates.rs` cuts the power 2000 times.

/// Flash that can be read like memory.
pub trait Flash {
    type Error;

    /// Size in bytes of the smallest part that can be erased. A record fits into it.
    const SECTOR: usize;
    /// Size in bytes of a slot, a multiple of a sector.
    const SLOT: usize;

    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Sets all bits of the sector at `at`.
    fn erase(&mut self, at: usize) -> Result<(), Self::Error>;

    /// Clears bits: the flash then has `bytes` at `at`. Both are multiples of four.
    fn program(&mut self, at: usize, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// Number of times that an update is started without being confirmed.
pub const TRIALS: usize = 3;
/// Size in bytes of a signature (ed25519).
pub const SIGNATURE: usize = 64;

const MAGIC: [u8; 4] = *b"UPD1";
const ERASED: [u8; 4] = [0xff; 4];
const MARKED: [u8; 4] = [0; 4];
/// Places in a record.
const SIGNED: usize = 16;
const CONFIRMED: usize = SIGNED + SIGNATURE;
const TRIED: usize = CONFIRMED + 4;

/// What is known of an update before its model arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Increases from update to update. An update that is not newer is refused, so that nobody can bring back old faults.
    pub version: u32,
    /// Size of the model in bytes.
    pub bytes: u32,
    /// Signature of the version and the model; anything if the program has no key.
    pub signature: [u8; SIGNATURE],
}

/// A complete update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Slot 0 or 1.
    pub slot: usize,
    pub head: Head,
    pub is_confirmed: bool,
    /// Number of times that the update was started without being confirmed.
    pub tried: usize,
}

/// The two slots of a flash.
pub struct Slots<F> {
    flash: F,
}

impl<F: Flash> Slots<F> {
    /// Maximum size in bytes of a model.
    pub const MOST: usize = F::SLOT - F::SECTOR;

    pub fn new(flash: F) -> Self {
        Self { flash }
    }

    /// Position in the flash of the model in a slot.
    pub fn model(slot: usize) -> usize {
        slot * F::SLOT + F::SECTOR
    }

    /// The complete updates, the newest first.
    pub fn updates(&self) -> [Option<Update>; 2] {
        let [first, second] = [self.update(0), self.update(1)];
        let version = |update: &Option<Update>| update.map(|update| update.head.version);
        if version(&second) > version(&first) { [second, first] } else { [first, second] }
    }

    fn update(&self, slot: usize) -> Option<Update> {
        let word = |place: usize| {
            let mut word = [0; 4];
            self.flash.read(slot * F::SLOT + place, &mut word);
            word
        };
        let [magic, version, bytes, check] = [0, 4, 8, 12].map(word);
        let bytes_count = u32::from_le_bytes(bytes);
        if magic != MAGIC || check != crc32([version, bytes]) || bytes_count as usize > Self::MOST {
            return None;
        }
        let mut signature = [0; SIGNATURE];
        self.flash.read(slot * F::SLOT + SIGNED, &mut signature);
        Some(Update {
            slot,
            head: Head { version: u32::from_le_bytes(version), bytes: bytes_count, signature },
            is_confirmed: word(CONFIRMED) != ERASED,
            tried: (0..TRIALS).filter(|trial| word(TRIED + 4 * trial) != ERASED).count(),
        })
    }

    /// Call this before an update is checked and started. Returns false if the update had its trials. A program that fails
    /// before it confirms the update (a watchdog restarts the board) thus comes back to the older one.
    pub fn start(&mut self, update: &Update) -> Result<bool, F::Error> {
        if update.is_confirmed {
            return Ok(true);
        }
        if update.tried == TRIALS {
            return Ok(false);
        }
        self.flash.program(update.slot * F::SLOT + TRIED + 4 * update.tried, &MARKED)?;
        Ok(true)
    }

    /// Ends the trial of an update: it has done what it is for.
    pub fn confirm(&mut self, update: &mut Update) -> Result<(), F::Error> {
        if !update.is_confirmed {
            self.flash.program(update.slot * F::SLOT + CONFIRMED, &MARKED)?;
            update.is_confirmed = true;
        }
        Ok(())
    }

    /// Erases the slot that does not run, for a model that [`write`](Self::write) stores. Returns the slot.
    pub fn begin(&mut self, running: Option<usize>, head: &Head) -> Result<usize, F::Error> {
        // If neither update runs, the newer one is kept: it may be better than the model in the program some day.
        let kept = running.or(self.updates()[0].map(|update| update.slot));
        let slot = usize::from(kept == Some(0));
        // The record first: without it the slot is empty.
        let len = F::SECTOR + head.bytes as usize;
        for at in (0..len).step_by(F::SECTOR) {
            self.flash.erase(slot * F::SLOT + at)?;
        }
        Ok(slot)
    }

    /// Stores a part of the model in a slot that [`begin`](Self::begin) has erased.
    pub fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> Result<(), F::Error> {
        self.flash.program(Self::model(slot) + at, bytes)
    }

    /// Writes the record of a slot whose model is complete. The update runs from the next start on.
    pub fn finish(&mut self, slot: usize, head: &Head) -> Result<(), F::Error> {
        let (version, bytes) = (head.version.to_le_bytes(), head.bytes.to_le_bytes());
        self.flash.program(slot * F::SLOT + SIGNED, &head.signature)?;
        let words = [MAGIC, version, bytes, crc32([version, bytes])];
        self.flash.program(slot * F::SLOT, words.as_flattened())
    }
}

/// CRC-32 as in zlib.
fn crc32(words: [[u8; 4]; 2]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in words.into_iter().flatten() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}
