//! Pages of the KV cache: which are in use, and which page holds which tile of a context.
//!
//! A pool has as many pages of [`TILE`](super::TILE) positions as were planned. A context has a row of a table
//! with the page of each of its tiles; a table that is shorter than the context (a sliding window's) is a ring.
//! Contexts share a page until one of them writes to it: then that one takes another page, with a copy.
//!
//! Writing is announced in two steps, for all contexts of a run before any of it: [`claim`](Pool::claim) marks
//! the entries that need a page and counts them; [`provide`](Pool::provide) takes the pages, or
//! [`unclaim`](Pool::unclaim) removes the marks.

/// No page.
const NONE: u32 = u32::MAX;
/// A page is needed, with nothing in it.
const NEW: u32 = u32::MAX - 1;
/// With the number of a page: another page is needed, with a copy of this one.
const COPY: u32 = 1 << 31;

/// The most pages of a pool.
pub(crate) const MAX_PAGES: usize = 1 << 30;

/// The pages of one kind of layers, and the tables of all contexts.
#[derive(Default)]
pub(crate) struct Pool<'w> {
    /// References to each page; of a free one the number of the next.
    pages: &'w mut [u32],
    /// `[contexts][width]`.
    tables: &'w mut [u32],
    /// Entries of a context.
    width: usize,
    /// The first free page.
    first: u32,
    /// How many pages are free.
    free: usize,
}

impl<'w> Pool<'w> {
    /// All pages are free, and contexts have none.
    pub fn new(pages: &'w mut [u32], tables: &'w mut [u32], width: usize) -> Self {
        for (next, page) in (1..).zip(pages.iter_mut()) {
            *page = next;
        }
        tables.fill(NONE);
        Self { free: pages.len(), pages, tables, width, first: 0 }
    }

    /// Pages that are free.
    pub fn free(&self) -> usize {
        self.free
    }

    /// The pages of a context, one for each tile.
    pub fn table(&self, context: usize) -> &[u32] {
        self.tables.get(context * self.width..(context + 1) * self.width).unwrap_or(&[])
    }

    fn table_mut(&mut self, context: usize) -> (&mut [u32], &mut [u32]) {
        let table = self.tables.get_mut(context * self.width..(context + 1) * self.width);
        (table.unwrap_or_default(), self.pages)
    }

    /// Pages of a context that no other has.
    pub fn owned(&self, context: usize) -> usize {
        let is_owned = |page: &&u32| self.pages.get(**page as usize).is_some_and(|references| *references == 1);
        self.table(context).iter().filter(is_owned).count()
    }

    /// Marks what a context needs for writing to the tiles from `first` to `last`; how many pages that are.
    pub fn claim(&mut self, context: usize, first: usize, last: usize) -> usize {
        let width = self.width;
        let (table, pages) = self.table_mut(context);
        let mut needed = 0;
        for tile in first..(last + 1).min(first + width) {
            let Some(entry) = table.get_mut(tile.checked_rem(width).unwrap_or(0)) else { break };
            if *entry == NONE {
                *entry = NEW;
                needed += 1;
            } else if let Some(references) = pages.get_mut(*entry as usize).filter(|references| **references > 1) {
                *references -= 1;
                *entry |= COPY;
                needed += 1;
            }
        }
        needed
    }

    /// Takes the marks of [`claim`](Self::claim) back.
    pub fn unclaim(&mut self, context: usize) {
        let (table, pages) = self.table_mut(context);
        for entry in table {
            match *entry {
                NONE => {}
                NEW => *entry = NONE,
                page if page & COPY != 0 => {
                    *entry = page & !COPY;
                    if let Some(references) = pages.get_mut(*entry as usize) {
                        *references += 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives a context the pages that it claimed. `copy` is told from which page to which.
    pub fn provide(&mut self, context: usize, mut copy: impl FnMut(usize, usize)) {
        let (mut first, mut free) = (self.first, self.free);
        let (table, pages) = self.table_mut(context);
        for entry in table.iter_mut().filter(|entry| **entry & COPY != 0 && **entry != NONE) {
            let Some(page) = pages.get_mut(first as usize) else { break };
            let from = (*entry != NEW).then_some(*entry & !COPY);
            let taken = first;
            (first, *page, *entry) = (*page, 1, taken);
            free -= 1;
            if let Some(from) = from {
                copy(from as usize, taken as usize);
            }
        }
        (self.first, self.free) = (first, free);
    }

    /// Gives back the pages of a context's entries from `first` on.
    pub fn release(&mut self, context: usize, first: usize) {
        let (mut next, mut free) = (self.first, self.free);
        let (table, pages) = self.table_mut(context);
        // The last first, so that they are taken in order again.
        for entry in table.iter_mut().skip(first).rev() {
            let page = core::mem::replace(entry, NONE);
            let Some(references) = pages.get_mut(page as usize) else { continue };
            if *references > 1 {
                *references -= 1;
            } else {
                *references = next;
                next = page;
                free += 1;
            }
        }
        (self.first, self.free) = (next, free);
    }

    /// Lets an entry of a context, `to`, name the page of another, `from`, as well; the page that it named is given
    /// back.
    pub fn name(&mut self, from: (usize, usize), to: (usize, usize)) {
        let place = |(context, entry): (usize, usize)| context * self.width + entry.min(self.width);
        let (from, to) = (place(from), place(to));
        let Some(&page) = self.tables.get(from).filter(|_| from != to) else { return };
        let Some(entry) = self.tables.get_mut(to) else { return };
        let before = core::mem::replace(entry, page);
        if let Some(references) = self.pages.get_mut(page as usize) {
            *references += 1;
        }
        if let Some(references) = self.pages.get_mut(before as usize) {
            if *references > 1 {
                *references -= 1;
            } else {
                *references = self.first;
                (self.first, self.free) = (before, self.free + 1);
            }
        }
    }

    /// Lets context `to`, which has no pages, have the first `tiles` of `from` as well.
    pub fn share(&mut self, from: usize, to: usize, tiles: usize) {
        let width = self.width;
        for tile in 0..width.min(tiles) {
            let Some(&page) = self.tables.get(from * width + tile) else { return };
            let (Some(references), Some(entry)) =
                (self.pages.get_mut(page as usize), self.tables.get_mut(to * width + tile))
            else {
                continue;
            };
            *references += 1;
            *entry = page;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_shared_copied_and_given_back() {
        let (mut pages, mut tables) = ([0; 5], [0; 6]);
        let mut pool = Pool::new(&mut pages, &mut tables, 3);
        assert_eq!(pool.claim(0, 0, 2), 3);
        pool.provide(0, |_, _| panic!("there is nothing to copy"));
        assert_eq!((pool.table(0), pool.table(1), pool.free()), (&[0, 1, 2][..], &[NONE; 3][..], 2));
        pool.share(0, 1, 2);
        assert_eq!((pool.table(1), pool.free()), (&[0, 1, NONE][..], 2));
        // Both write to the second tile: one of them takes a copy.
        assert_eq!((pool.claim(0, 1, 1), pool.claim(1, 1, 1)), (1, 0));
        pool.unclaim(0);
        assert_eq!(pool.claim(1, 1, 2), 2);
        assert_eq!(pool.table(0), [0, 1, 2]);
        let mut copied = None;
        pool.provide(1, |from, to| copied = Some((from, to)));
        assert_eq!((pool.table(1), pool.free(), copied), (&[0, 3, 4][..], 0, Some((1, 3))));
        pool.release(0, 0);
        assert_eq!(pool.free(), 2); // the first tile's page has another reference
        pool.release(1, 1);
        assert_eq!((pool.table(1), pool.free()), (&[0, NONE, NONE][..], 4));
        pool.release(1, 0);
        assert_eq!(pool.free(), 5);
        assert_eq!((pool.claim(1, 0, 0), pool.free()), (1, 5));
    }

    #[test]
    fn an_entry_names_the_page_of_another() {
        let (mut pages, mut tables) = ([0; 3], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        pool.claim(0, 0, 0);
        pool.provide(0, |_, _| ());
        pool.name((0, 0), (0, 1)); // kept
        assert_eq!((pool.table(0), pool.free()), (&[0, 0][..], 2));
        pool.claim(0, 0, 0); // written to
        pool.provide(0, |from, to| assert_eq!((from, to), (0, 1)));
        assert_eq!((pool.table(0), pool.free()), (&[1, 0][..], 1));
        pool.name((0, 1), (0, 0)); // back
        assert_eq!((pool.table(0), pool.free()), (&[0, 0][..], 2));
        pool.name((0, 0), (1, 0)); // another context from there
        pool.release(0, 0);
        assert_eq!((pool.table(1), pool.free()), (&[0, NONE][..], 2));
        pool.release(1, 0);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn claims_are_taken_back() {
        let (mut pages, mut tables) = ([0; 4], [0; 6]);
        let mut pool = Pool::new(&mut pages, &mut tables, 3);
        pool.claim(0, 0, 0);
        pool.provide(0, |_, _| ());
        assert_eq!([pool.owned(0), pool.owned(1)], [1, 0]);
        pool.share(0, 1, 1);
        assert_eq!([pool.owned(0), pool.owned(1)], [0, 0]);
        // A copy and a new one; the third entry has nothing to take back.
        assert_eq!(pool.claim(0, 0, 1), 2);
        pool.unclaim(0);
        assert_eq!((pool.table(0), pool.table(1), pool.owned(1)), (&[0, NONE, NONE][..], &[0, NONE, NONE][..], 0));
        assert_eq!(pool.claim(0, 0, 1), 2);
        pool.provide(0, |from, to| assert_eq!((from, to), (0, 1)));
        assert_eq!((pool.table(0), pool.owned(0), pool.owned(1)), (&[1, 2, NONE][..], 2, 1));
    }

    #[test]
    fn an_entry_leaves_a_page_that_others_have() {
        let (mut pages, mut tables) = ([0; 3], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        pool.claim(0, 0, 1);
        pool.provide(0, |_, _| ());
        pool.share(0, 1, 1);
        pool.name((0, 1), (0, 0));
        assert_eq!((pool.table(0), pool.free()), (&[1, 1][..], 1));
        // What it left is the other's alone, and is free once that one gives it back.
        assert_eq!(pool.owned(1), 1);
        pool.release(1, 0);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_short_table_is_a_ring() {
        let (mut pages, mut tables) = ([0; 4], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        assert_eq!(pool.claim(1, 3, 3), 1);
        pool.provide(1, |_, _| ());
        assert_eq!(pool.table(1), [NONE, 0]);
        assert_eq!(pool.claim(1, 5, 9), 1);
        pool.provide(1, |_, _| ());
        assert_eq!(pool.table(1), [1, 0]);
        pool.share(1, 0, 2);
        assert_eq!(pool.claim(1, 7, 8), 2);
        pool.provide(1, |from, to| assert!((from, to) == (0, 3) || (from, to) == (1, 2)));
        assert_eq!((pool.table(0), pool.free()), (&[1, 0][..], 0));
    }
}
