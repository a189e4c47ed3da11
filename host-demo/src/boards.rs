//! Well-known boards and what fits on them.
//!
//! Sizes are those of the vendors' data sheets. RAM that is not one piece is listed piece by
//! piece: the workspace and the KV cache may lie in different ones, but neither is ever split.

/// A board that people have on their desk.
#[derive(Debug)]
pub struct Board {
    pub name: &'static str,
    pub chip: &'static str,
    /// Bytes of flash that can be read like memory; `None` where models are files that are
    /// mapped into RAM.
    pub flash: Option<usize>,
    /// The pieces of RAM.
    pub ram: &'static [usize],
}

const KB: usize = 1024;
const MB: usize = 1024 * KB;

/// Flash left to the program itself: the whole engine built for size (`opt-level = "s"`, LTO) is
/// 132 KB on a Cortex-M4F.
pub const CODE: usize = 160 * KB;
/// RAM left to the stack and the program's own statics.
pub const STACK: usize = 16 * KB;

pub static BOARDS: &[Board] = &[
    Board { name: "Raspberry Pi Pico 2", chip: "RP2350", flash: Some(4 * MB), ram: &[520 * KB] },
    Board { name: "nRF5340 DK", chip: "nRF5340", flash: Some(MB), ram: &[512 * KB] },
    Board { name: "NUCLEO-F746ZG", chip: "STM32F746", flash: Some(MB), ram: &[320 * KB] },
    // QSPI flash, mapped; SDRAM with half of its lines connected.
    Board { name: "STM32F746G-DISCO", chip: "STM32F746", flash: Some(16 * MB), ram: &[320 * KB, 8 * MB] },
    // AXI SRAM, SRAM1 to 3 in a row, DTCM, SRAM4.
    Board {
        name: "NUCLEO-H743ZI",
        chip: "STM32H743",
        flash: Some(2 * MB),
        ram: &[512 * KB, 288 * KB, 128 * KB, 64 * KB],
    },
    // Tightly coupled RAM1 and RAM2; the PSRAM is an extra part.
    Board { name: "Teensy 4.1", chip: "i.MX RT1062", flash: Some(7936 * KB), ram: &[512 * KB, 512 * KB] },
    // N16R8: internal RAM and octal PSRAM.
    Board { name: "ESP32-S3-DevKitC-1", chip: "ESP32-S3", flash: Some(16 * MB), ram: &[512 * KB, 8 * MB] },
    Board { name: "Raspberry Pi Zero 2 W", chip: "RP3A0", flash: None, ram: &[512 * MB] },
];

/// Bytes that a context of some length takes, each in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub workspace: usize,
    pub kv: usize,
    pub tokenizer: usize,
}

/// What comes out for a model on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    FlashTooSmall,
    RamTooSmall,
    /// The longest context, in positions.
    Context(usize),
}

impl Board {
    /// All RAM together.
    pub fn ram_bytes(&self) -> usize {
        self.ram.iter().sum()
    }

    /// The longest context, up to `longest`, for which a model of `flash` bytes runs here.
    ///
    /// `need` gives the memory for a context and grows with it; `None` is a context that cannot
    /// be planned at all.
    pub fn fit(&self, flash: usize, longest: usize, need: impl Fn(usize) -> Option<Need>) -> Fit {
        if self.flash.is_some_and(|room| room < flash.saturating_add(CODE)) {
            return Fit::FlashTooSmall;
        }
        let mapped = if self.flash.is_none() { flash } else { 0 };
        let fits = |context| {
            need(context)
                .is_some_and(|n| place(&[n.workspace, n.kv, n.tokenizer, mapped, STACK], &mut self.ram.to_vec()))
        };
        // `fits(low)` holds, `fits(high)` does not.
        let (mut low, mut high) = (0, longest.saturating_add(1));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        if low == 0 { Fit::RamTooSmall } else { Fit::Context(low) }
    }
}

/// Whether `pieces` of RAM can take all `blocks`, by trying every assignment: both are few.
fn place(blocks: &[usize], pieces: &mut Vec<usize>) -> bool {
    let Some((&block, rest)) = blocks.split_first() else { return true };
    (0..pieces.len()).any(|i| {
        let Some(left) = pieces[i].checked_sub(block) else { return false };
        let before = std::mem::replace(&mut pieces[i], left);
        let placed = place(rest, pieces);
        pieces[i] = before;
        placed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Board = Board { name: "", chip: "", flash: Some(MB), ram: &[64 * KB, 32 * KB] };

    fn need(workspace: usize, per_position: usize) -> impl Fn(usize) -> Option<Need> {
        move |context| Some(Need { workspace, kv: context * per_position, tokenizer: 0 })
    }

    #[test]
    fn blocks_go_where_they_fit_whole() {
        // 64 KB for the KV cache leave the 32 KB piece to workspace and stack.
        assert_eq!(TWO.fit(1000, 1000, need(16 * KB, KB)), Fit::Context(64));
        assert_eq!(TWO.fit(1000, 50, need(16 * KB, KB)), Fit::Context(50));
        // More than any single piece, though less than both together.
        assert_eq!(TWO.fit(1000, 50, need(65 * KB, KB)), Fit::RamTooSmall);
        assert_eq!(TWO.fit(MB - CODE + 1, 50, need(1, 1)), Fit::FlashTooSmall);
        assert_eq!(TWO.fit(MB - CODE, 50, need(1, 1)), Fit::Context(50));
    }

    #[test]
    fn a_mapped_model_lies_in_ram() {
        let board = Board { name: "", chip: "", flash: None, ram: &[64 * KB] };
        assert_eq!(board.fit(40 * KB, 100, need(KB, KB)), Fit::Context(7));
        assert_eq!(board.fit(60 * KB, 100, need(KB, KB)), Fit::RamTooSmall);
    }
}
