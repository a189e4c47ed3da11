//! Sorting in place without recursion, allocation or panics: bottom-up heapsort.

/// Sorts `items`; `less` must be a strict order (any other gives some permutation).
///
/// O(n log n) comparisons in the worst case, about `n log2 n` of them: the way down picks the
/// larger child without looking at the item that sinks, and the way back up is short.
pub(crate) fn heapsort<T: Copy>(items: &mut [T], mut less: impl FnMut(&T, &T) -> bool) {
    let len = items.len();
    for root in (0..len / 2).rev() {
        sink(items, root, len, &mut less);
    }
    for end in (1..len).rev() {
        if let (Some(&first), Some(&last)) = (items.first(), items.get(end)) {
            set(items, end, first);
            set(items, 0, last);
        }
        sink(items, 0, end, &mut less);
    }
}

fn set<T: Copy>(items: &mut [T], at: usize, item: T) {
    if let Some(place) = items.get_mut(at) {
        *place = item;
    }
}

/// Moves the item at `root` down to its place in the heap `items[..len]`, whose first item is the
/// largest.
pub(crate) fn sink<T: Copy>(items: &mut [T], root: usize, len: usize, less: &mut impl FnMut(&T, &T) -> bool) {
    let Some(&sinking) = items.get(root) else { return };
    // Down along the larger children, pulling each one up, to a leaf.
    let mut hole = root;
    loop {
        let child = 2 * hole + 1;
        if child >= len {
            break;
        }
        let child = match (items.get(child), items.get(child + 1)) {
            (Some(left), Some(right)) if child + 1 < len && less(left, right) => child + 1,
            _ => child,
        };
        let Some(&larger) = items.get(child) else { break };
        set(items, hole, larger);
        hole = child;
    }
    // And back up to where the sinking item belongs.
    while hole > root {
        let parent = (hole - 1) / 2;
        let Some(&above) = items.get(parent) else { break };
        if !less(&above, &sinking) {
            break;
        }
        set(items, hole, above);
        hole = parent;
    }
    set(items, hole, sinking);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn sorts_everything() {
        let mut seed = 1u32;
        for len in 0..200 {
            for range in [1, 3, 1000] {
                let mut items: Vec<u32> = (0..len)
                    .map(|_| {
                        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                        (seed >> 8) % range
                    })
                    .collect();
                let mut expected = items.clone();
                expected.sort();
                heapsort(&mut items, |a, b| a < b);
                assert_eq!(items, expected);
            }
        }
    }
}
