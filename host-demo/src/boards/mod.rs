//! Describes well-known boards, and computes which models and contexts fit on them.
//!
//! Sizes are from the vendors' data sheets. RAM that is not contiguous is listed region by region: workspace and KV
//! cache may be in different regions, but neither of them is ever split.

pub mod program;
pub mod speed;

use std::borrow::Cow;

use serde::Serialize;

use crate::boards::program::Target::{self, Riscv32imac, Riscv32imafc, Riscv32imc, Thumbv6m, Thumbv8m, Xtensa};
use crate::boards::speed::{Core, Speed};

/// A development board.
#[derive(Clone, Debug)]
pub struct Board {
    pub name: &'static str,
    pub chip: &'static str,
    /// Size in bytes of flash that is mapped into memory; `None` if models are files that are mapped into RAM.
    pub flash: Option<usize>,
    /// Sizes of the RAM regions.
    pub ram: Cow<'static, [usize]>,
    /// Compilation target, which determines the program's size.
    pub target: Target,
    pub speed: Option<Speed>,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Number of bytes of RAM that are reserved for each worker's stack. `.ci/firmware` fails if a model uses more than
/// 10544 bytes of stack.
pub const STACK: usize = 16 * KIB;
/// RAM in bytes reserved for the program's own statics.
pub const STATICS: usize = KIB;
/// Number of bytes: if fewer bytes of RAM or flash are left, a board is reported as tight.
pub const TIGHT: usize = 8 * KIB;

const fn board(name: &'static str, chip: &'static str, flash: usize, ram: &'static [usize]) -> Board {
    Board { name, chip, flash: Some(flash), ram: Cow::Borrowed(ram), target: Target::Thumbv7em, speed: None }
}

impl Board {
    const fn runs(mut self, core: Core, clock: u32, memory: u32) -> Self {
        self.speed = Some(Speed { core: Some(core), clock, memory });
        self
    }

    /// Marks a board that runs Linux. The speed of such a board is limited by its memory.
    const fn reads(mut self, memory: u32) -> Self {
        self.speed = Some(Speed { core: None, clock: 1, memory });
        self
    }

    /// The core, for which kernels are chosen.
    pub fn core(&self) -> Option<Core> {
        self.flash?; // Linux has kernels for all types
        self.speed.map_or_else(|| Core::of(self.target), |speed| speed.core)
    }

    const fn builds_for(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Marks a board whose models are files.
    const fn with_files(mut self) -> Self {
        self.flash = None;
        self
    }

    /// Returns a user-defined board. If `flash` is `None`, models are files.
    pub fn own(flash: Option<usize>, ram: &[usize], target: Target) -> Self {
        Self { name: "yours", chip: "", flash, ram: Cow::Owned(ram.to_vec()), target, speed: None }
    }
}

pub static BOARDS: &[Board] = &[
    // RAM: four striped banks, and two small ones.
    board("Raspberry Pi Pico", "RP2040", 2 * MIB, &[256 * KIB, 4 * KIB, 4 * KIB])
        .runs(Core::CortexM0Plus, 133, 22)
        .builds_for(Thumbv6m),
    board("Raspberry Pi Pico 2", "RP2350", 4 * MIB, &[512 * KIB, 4 * KIB, 4 * KIB])
        .runs(Core::CortexM33, 150, 25)
        .builds_for(Thumbv8m),
    board("nRF5340 DK", "nRF5340", MIB, &[512 * KIB]).runs(Core::CortexM33, 128, 80).builds_for(Thumbv8m),
    board("nRF54L15 DK", "nRF54L15", 1524 * KIB, &[256 * KIB]).runs(Core::CortexM33, 128, 80).builds_for(Thumbv8m),
    // SRAM1 to 3 (contiguous), SRAM4.
    board("NUCLEO-U575ZI-Q", "STM32U575", 2 * MIB, &[768 * KIB, 16 * KIB])
        .runs(Core::CortexM33, 160, 300)
        .builds_for(Thumbv8m),
    board("NUCLEO-F746ZG", "STM32F746", MIB, &[320 * KIB]).runs(Core::CortexM7, 216, 400),
    // 16 MB of QSPI flash are mapped into memory. Of the 16 MB of SDRAM only half can be used, because only half of its
    // data lines are connected.
    board("STM32F746G-DISCO", "STM32F746", 16 * MIB, &[320 * KIB, 8 * MIB]).runs(Core::CortexM7, 216, 36),
    // AXI SRAM, SRAM1 to 3 (contiguous), DTCM, SRAM4.
    board("NUCLEO-H743ZI", "STM32H743", 2 * MIB, &[512 * KIB, 288 * KIB, 128 * KIB, 64 * KIB]).runs(
        Core::CortexM7,
        480,
        500,
    ),
    // The board's flash is an external octal chip that is mapped into memory. Its RAM consists of contiguous internal
    // banks and of an external PSRAM.
    board("STM32N6570-DK", "STM32N657", 128 * MIB, &[4200 * KIB, 32 * MIB])
        .runs(Core::CortexM55, 800, 260)
        .builds_for(Thumbv8m),
    // The sizes are those of the memories RAM1 (tightly coupled) and RAM2. This board can also have a PSRAM chip, which
    // is not counted.
    board("Teensy 4.1", "i.MX RT1062", 7936 * KIB, &[512 * KIB, 512 * KIB]).runs(Core::CortexM7, 600, 44),
    board("ESP32-C3-DevKitM-1", "ESP32-C3", 4 * MIB, &[384 * KIB]).runs(Core::Rv32imc, 160, 26).builds_for(Riscv32imc),
    board("ESP32-C6-DevKitC-1", "ESP32-C6", 8 * MIB, &[512 * KIB])
        .runs(Core::Rv32imac, 160, 26)
        .builds_for(Riscv32imac),
    // Variant N16R8: internal RAM and octal PSRAM.
    board("ESP32-S3-DevKitC-1", "ESP32-S3", 16 * MIB, &[512 * KIB, 8 * MIB]).builds_for(Xtensa),
    // Internal RAM, and PSRAM in the package.
    board("ESP32-P4-Function-EV", "ESP32-P4", 16 * MIB, &[768 * KIB, 32 * MIB])
        .runs(Core::Rv32imafc, 360, 26)
        .builds_for(Riscv32imafc),
    board("Raspberry Pi Zero 2 W", "RP3A0", 0, &[512 * MIB]).with_files(),
    board("Raspberry Pi 5", "BCM2712", 0, &[8192 * MIB]).with_files().reads(9000),
];

/// The blocks of memory that a context needs, by their sizes in bytes. Each of them must be contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub workspace: usize,
    pub kv: usize,
    pub tokenizer: usize,
}

/// Index of the RAM region that holds each block of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Regions {
    pub workspace: usize,
    pub kv: usize,
    pub tokenizer: usize,
    /// Regions of the stacks, one per worker.
    pub stacks: Vec<usize>,
    /// Region of the program's own statics.
    pub statics: usize,
}

/// Result of fitting a model on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    FlashTooSmall,
    RamTooSmall,
    /// The longest context in positions, and the numbers of bytes of RAM and flash that are left with this context.
    Context {
        longest: usize,
        ram: usize,
        flash: Option<usize>,
    },
}

impl Board {
    /// Total size of all RAM regions.
    pub fn ram_bytes(&self) -> usize {
        self.ram.iter().sum()
    }

    /// Returns the sizes of the RAM blocks that the program needs in addition to the model's memory: one block for
    /// statics, and one stack per worker.
    pub fn reserved(&self, workers: usize) -> Vec<usize> {
        // A board without flash has an operating system, which allocates the stacks of further threads. So only one
        // stack is counted.
        let stacks = if self.flash.is_some() { workers.max(1) } else { 1 };
        [vec![STATICS], vec![STACK; stacks]].concat()
    }

    /// Assigns each block of memory to a RAM region. Returns `None` if the blocks do not fit.
    fn assign(&self, blocks: &[usize]) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_unstable_by_key(|&i| std::cmp::Reverse(blocks[i]));
        let sorted: Vec<usize> = order.iter().map(|&i| blocks[i]).collect();
        let mut places = Vec::new();
        if !place(&sorted, &mut self.ram.to_vec(), 0, &mut places) {
            return None;
        }
        let mut regions = vec![0; blocks.len()];
        // `place` pushes the region of the last block first.
        order.iter().rev().zip(places).for_each(|(&block, region)| regions[block] = region);
        Some(regions)
    }

    /// Assigns the memory of a model and of its program to RAM regions. Returns `None` if the memory does not fit.
    pub fn regions(&self, need: Need, workers: usize) -> Option<Regions> {
        let regions = self.assign(&[vec![need.workspace, need.kv, need.tokenizer], self.reserved(workers)].concat())?;
        let [workspace, kv, tokenizer, statics, stacks @ ..] = &regions[..] else { return None };
        Some(Regions {
            workspace: *workspace,
            kv: *kv,
            tokenizer: *tokenizer,
            stacks: stacks.to_vec(),
            statics: *statics,
        })
    }

    /// Finds the longest context, up to `longest`, for a model of `file` bytes and a program of `program` bytes with
    /// `workers` workers.
    ///
    /// `need` returns the memory for a context, and must return more for a longer context; `None` means that this
    /// context cannot be planned.
    pub fn fit(
        &self,
        file: usize,
        program: usize,
        workers: usize,
        longest: usize,
        need: impl Fn(usize) -> Option<Need>,
    ) -> Fit {
        let flash = self.flash.map(|room| room.checked_sub(file.saturating_add(program)));
        if flash == Some(None) {
            return Fit::FlashTooSmall;
        }
        let mapped = if self.flash.is_none() { file } else { 0 };
        // Returns true if a context of this size fits together with a further block of `more` bytes.
        let fits = |context, more| {
            need(context).is_some_and(|n| {
                let blocks = [vec![n.workspace, n.kv, n.tokenizer, mapped, more], self.reserved(workers)].concat();
                self.assign(&blocks).is_some()
            })
        };
        let longest = last(longest, |context| fits(context, 0));
        if longest == 0 {
            return Fit::RamTooSmall;
        }
        Fit::Context { longest, ram: last(self.ram_bytes(), |more| fits(longest, more)), flash: flash.flatten() }
    }
}

/// Returns the largest number in `1..=most` for which `holds` is true, or 0 if there is none. If `holds` is true for a
/// number, it must be true for all smaller numbers.
fn last(most: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most.saturating_add(1));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// Returns true if all `blocks`, which are in descending order of size, fit into RAM regions; `left` has the number of
/// free bytes of each region. The first block may only use the region `first` or a later region, because blocks of the
/// same size are interchangeable. Tries every assignment. On success pushes the region of each block to `regions`,
/// starting with the last block.
fn place(blocks: &[usize], left: &mut Vec<usize>, first: usize, regions: &mut Vec<usize>) -> bool {
    let Some((&block, rest)) = blocks.split_first() else { return true };
    (first..left.len()).any(|i| {
        let Some(after) = left[i].checked_sub(block) else { return false };
        let before = std::mem::replace(&mut left[i], after);
        let placed = place(rest, left, if rest.first() == Some(&block) { i } else { 0 }, regions);
        left[i] = before;
        if placed {
            regions.push(i);
        }
        placed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: usize = 160 * KIB;

    fn need(workspace: usize, per_position: usize) -> impl Fn(usize) -> Option<Need> {
        move |context| Some(Need { workspace, kv: context * per_position, tokenizer: 0 })
    }

    fn own(flash: Option<usize>, ram: &[usize]) -> Board {
        Board::own(flash, ram, Target::Thumbv7em)
    }

    fn longest(fit: Fit) -> usize {
        if let Fit::Context { longest, .. } = fit { longest } else { panic!("{fit:?}") }
    }

    #[test]
    fn blocks_go_where_they_fit_whole() {
        let two = own(Some(MIB), &[64 * KIB, 33 * KIB]);
        // The KV cache takes the region of 64 KiB, and the other region has workspace, stack and statics.
        assert_eq!(longest(two.fit(1000, PROGRAM, 1, 1000, need(16 * KIB, KIB))), 64);
        assert_eq!(longest(two.fit(1000, PROGRAM, 1, 50, need(16 * KIB, KIB))), 50);
        // The workspace must be in one region. It is larger than each of the two regions, although they have enough
        // memory together.
        assert_eq!(two.fit(1000, PROGRAM, 1, 50, need(65 * KIB, KIB)), Fit::RamTooSmall);
        assert_eq!(two.fit(MIB - PROGRAM + 1, PROGRAM, 1, 50, need(1, 1)), Fit::FlashTooSmall);
        assert_eq!(longest(two.fit(MIB - PROGRAM, PROGRAM, 1, 50, need(1, 1))), 50);
    }

    #[test]
    fn blocks_have_regions() {
        let board = own(Some(MIB), &[33 * KIB, 64 * KIB, 4 * KIB]);
        let need = |kv| Need { workspace: 16 * KIB, kv: kv * KIB, tokenizer: 3 * KIB };
        let expected = Regions { workspace: 0, kv: 1, tokenizer: 2, stacks: vec![0], statics: 0 };
        assert_eq!(board.regions(need(64), 1), Some(expected));
        assert_eq!(board.regions(need(65), 1), None);
        let Some(two) = board.regions(need(30), 2) else { panic!("two stacks fit") };
        let mut left = [33, 64, 4];
        for (region, size) in [
            (two.workspace, 16),
            (two.kv, 30),
            (two.tokenizer, 3),
            (two.stacks[0], 16),
            (two.stacks[1], 16),
            (two.statics, 1),
        ] {
            left[region] -= size;
        }
        assert!(left.iter().all(|left: &i32| *left >= 0), "{two:?}");
    }

    #[test]
    fn every_worker_has_a_stack() {
        let board = own(Some(MIB), &[64 * KIB]);
        // The 64 KiB of RAM have room for a stack of 16 KiB, statics of 1 KiB, a workspace of 1 KiB and a cache of 46
        // KiB. Each further worker has a stack of its own, which leaves 16 KiB less for the cache.
        for (workers, context) in [(1, 46), (2, 30), (3, 14)] {
            let fit = board.fit(1000, PROGRAM, workers, 1000, need(KIB, KIB));
            assert_eq!(fit, Fit::Context { longest: context, ram: 0, flash: Some(MIB - PROGRAM - 1000) });
        }
        assert_eq!(board.fit(1000, PROGRAM, 4, 1000, need(KIB, KIB)), Fit::RamTooSmall);
        // The region of 4 KiB is too small for a stack, but the statics fit into it.
        let fit = own(Some(MIB), &[64 * KIB, 4 * KIB]).fit(1000, PROGRAM, 2, 20, need(KIB, KIB));
        assert!(matches!(fit, Fit::Context { longest: 20, ram, .. } if ram == 12 * KIB), "{fit:?}");
    }

    #[test]
    fn a_mapped_model_lies_in_ram() {
        let board = own(None, &[64 * KIB]);
        assert_eq!(longest(board.fit(39 * KIB, PROGRAM, 4, 100, need(KIB, KIB))), 7);
        assert_eq!(board.fit(60 * KIB, PROGRAM, 4, 100, need(KIB, KIB)), Fit::RamTooSmall);
    }
}
