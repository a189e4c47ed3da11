//! The tiles of the KV cache that query rows attend to.

use super::Attention;
use crate::memory::TILE;

/// Tiles per block of positions.
pub const TILES: usize = 4;
/// Positions per block.
pub const BLOCK: usize = TILES * TILE;

/// A tile of the cache, and the later tile that is prefetched while this one is used. `later` is several tiles ahead,
/// because with few rows, using one tile takes less time than fetching one from memory.
#[derive(Clone, Copy)]
pub struct Tile {
    pub at: *const u8,
    pub later: *const u8,
}

/// The tiles of a head, found through the context's table of pages.
pub struct Tiles<'a> {
    job: &'a Attention<'a>,
    tile_bytes: usize,
    /// Number of tiles of the head in the cache.
    pages: usize,
    /// The first tile that has a position to which any row attends, and the number of tiles from this tile to the last
    /// one of this kind.
    first: usize,
    count: usize,
    /// How many tiles ahead of the tile in use a tile is prefetched.
    distance: usize,
}

impl<'a> Tiles<'a> {
    /// The tiles of the cache that hold the positions `reach`; `None` if the cache has no tiles.
    #[inline(always)]
    pub fn new(job: &'a Attention<'a>, reach: Range, distance: usize) -> Option<Self> {
        let tile_bytes = job.layout.tile_bytes();
        let (pages, first) = (job.tiles.len() / tile_bytes.max(1), reach.lo / TILE);
        let count = reach.hi.div_ceil(TILE) - first;
        (pages > 0 && !job.pages.is_empty()).then_some(Self { job, tile_bytes, pages, first, count, distance })
    }

    #[inline(always)]
    fn at(&self, tile: usize) -> *const u8 {
        let entry = tile.checked_rem(self.job.pages.len()).and_then(|entry| self.job.pages.get(entry));
        // An entry of the page table may have no page. The address is then that of any page, because no row attends to
        // the entry's positions.
        let page = entry.map_or(0, |page| *page as usize).min(self.pages - 1);
        self.job.tiles.as_ptr().wrapping_add(page * self.tile_bytes)
    }

    /// The four tiles of a block of positions.
    #[inline(always)]
    pub fn block(&self, block: usize) -> [Tile; TILES] {
        // The four tiles are listed instead of using `from_fn`: it would compile to a call, and would also compute the
        // tiles to prefetch (`later`) where they are not used.
        let first = block * TILES;
        [self.tile(first), self.tile(first + 1), self.tile(first + 2), self.tile(first + 3)]
    }

    #[inline(always)]
    fn tile(&self, tile: usize) -> Tile {
        let at = self.at(tile);
        // Other targets do not prefetch.
        if !cfg!(target_arch = "x86_64") {
            return Tile { at, later: at };
        }
        // After the last tile of this head, the first tile of the next head is prefetched. The memory of that head
        // follows the memory of this one.
        let later = tile + self.distance;
        let heads = later.saturating_sub(self.first).checked_div(self.count).unwrap_or(0);
        let next = self.at(later.wrapping_sub(heads * self.count));
        Tile { at, later: next.wrapping_add(heads * self.job.tiles.len()) }
    }
}

/// The positions `lo..hi`.
#[derive(Clone, Copy)]
pub struct Range {
    pub lo: usize,
    pub hi: usize,
}

impl Range {
    /// Returns those positions of the range that are among the `len` positions from `start` on. They are counted from
    /// `start`.
    #[inline(always)]
    pub fn clip(self, start: usize, len: usize) -> Self {
        let cut = |position: usize| position.saturating_sub(start).min(len);
        Self { lo: cut(self.lo), hi: cut(self.hi) }
    }

    /// The tiles of a block that the range touches.
    #[inline(always)]
    pub fn tiles(self) -> core::ops::Range<usize> {
        self.lo / TILE..self.hi.div_ceil(TILE)
    }

    /// The part of this range that lies in tile `t` of the block of positions, relative to the start of the tile.
    #[inline(always)]
    pub fn lanes(self, t: usize) -> core::ops::Range<usize> {
        let lanes = self.clip(t * TILE, TILE);
        lanes.lo..lanes.hi
    }
}
