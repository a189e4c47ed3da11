//! The tiles of the KV cache that query rows see something of.

use super::Attention;
use crate::memory::TILE;

/// Tiles in a block, and positions.
pub const TILES: usize = 4;
pub const BLOCK: usize = TILES * TILE;

/// A tile of the cache, and the one whose lines are asked for while this one's are used: few rows are done with a
/// tile before the next one could arrive.
#[derive(Clone, Copy)]
pub struct Tile {
    pub at: *const u8,
    pub later: *const u8,
}

/// The head's tiles, by the context's table of pages.
pub struct Tiles<'a> {
    job: &'a Attention<'a>,
    tile_bytes: usize,
    /// Tiles in the cache.
    pages: usize,
    /// The first that a row sees something of, and their number.
    first: usize,
    count: usize,
    /// From a tile to the one that is asked for meanwhile.
    distance: usize,
}

impl<'a> Tiles<'a> {
    /// `None` if there are none.
    #[inline(always)]
    pub fn new(job: &'a Attention<'a>, reach: Range, distance: usize) -> Option<Self> {
        let tile_bytes = job.layout.tile_bytes();
        let (pages, first) = (job.tiles.len() / tile_bytes.max(1), reach.lo / TILE);
        let count = reach.hi.div_ceil(TILE) - first;
        (pages > 0 && !job.pages.is_empty()).then_some(Self { job, tile_bytes, pages, first, count, distance })
    }

    /// Where a tile is.
    #[inline(always)]
    fn at(&self, tile: usize) -> *const u8 {
        let entry = tile.checked_rem(self.job.pages.len()).and_then(|entry| self.job.pages.get(entry));
        // An entry without a page has nothing that a row sees.
        let page = entry.map_or(0, |page| *page as usize).min(self.pages - 1);
        self.job.tiles.as_ptr().wrapping_add(page * self.tile_bytes)
    }

    /// The tiles of a block.
    #[inline(always)]
    pub fn block(&self, block: usize) -> [Tile; TILES] {
        // (Not `from_fn`: it is a call where `later` is not needed, and computes it.)
        let first = block * TILES;
        [self.tile(first), self.tile(first + 1), self.tile(first + 2), self.tile(first + 3)]
    }

    #[inline(always)]
    fn tile(&self, tile: usize) -> Tile {
        let at = self.at(tile);
        // Elsewhere nothing is asked for.
        if !cfg!(target_arch = "x86_64") {
            return Tile { at, later: at };
        }
        // After the last tile of this head comes the first of the next, whose tiles follow.
        let later = tile + self.distance;
        let heads = later.saturating_sub(self.first).checked_div(self.count).unwrap_or(0);
        let next = self.at(later.wrapping_sub(heads * self.count));
        Tile { at, later: next.wrapping_add(heads * self.job.tiles.len()) }
    }
}

/// Positions `lo..hi`.
#[derive(Clone, Copy)]
pub struct Range {
    pub lo: usize,
    pub hi: usize,
}

impl Range {
    /// The part among the `len` positions from `start`, counted from there.
    #[inline(always)]
    pub fn part(self, start: usize, len: usize) -> Self {
        let cut = |position: usize| position.saturating_sub(start).min(len);
        Self { lo: cut(self.lo), hi: cut(self.hi) }
    }

    /// The tiles of the block that it has something of.
    #[inline(always)]
    pub fn tiles(self) -> core::ops::Range<usize> {
        self.lo / TILE..self.hi.div_ceil(TILE)
    }

    /// The part in tile `t` of the block, counted from there.
    #[inline(always)]
    pub fn lanes(self, t: usize) -> core::ops::Range<usize> {
        let part = self.part(t * TILE, TILE);
        part.lo..part.hi
    }
}
