//! Attention, with every type of the KV cache.

use arenite::kernel::SCALAR;
use arenite::kernel::internals::{Attention, Bias, Functions, HeadLayout, MAX_ROWS, store};
use arenite::{Kernels, KvType};

use crate::edge::Edge;
use crate::{Data, Random, UNTOUCHED, same, tables};

/// Some tokens' attention over some KV heads.
#[derive(Clone, Copy, Debug)]
struct AttentionCase {
    kind: KvType,
    dim: usize,
    heads: usize,
    group: usize,
    tokens: usize,
    position: usize,
    window: usize,
    /// Every token attends to all positions, with a bias.
    across: bool,
    /// The tokens also attend to each other.
    together: bool,
    cap: Option<f32>,
    data: Data,
}

impl AttentionCase {
    /// The bytes of the cache and the output, both computed by `kernels`.
    fn run(&self, kernels: &Kernels, keys: &[f32], values: &[f32], queries: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let Self { kind, dim, heads, group, tokens, position, window, across, together, cap, .. } = *self;
        let layout = HeadLayout { kind, dim, shared: 0 };
        let tiles = window.min(position + tokens).saturating_add(tokens - 1).div_ceil(16);
        // The cache begins as NaN and the pages are in reverse order; neither may change the result.
        let head_bytes = (tiles + 2) * layout.tile_bytes();
        let mut cache = Edge::of(&vec![0xff; heads * head_bytes]);
        let pages: Vec<u32> = (1..=tiles as u32).rev().collect();
        for (p, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
            // The key of a head is the value of the head before.
            let pairs = [key, value, key, value];
            let (key, value) = (pairs[..heads].concat(), pairs[1..][..heads].concat());
            store(kernels, layout, (&mut cache, head_bytes), &pages, p, &key, &value);
        }
        let all = heads * group;
        let (q_stride, out_stride) = (all * dim + 5, all * dim + 3);
        let queries = Edge::of(&queries[1..1 + (tokens - 1) * q_stride + all * dim]);
        let reach = position + tokens;
        let biases: Vec<f32> = (0..all * 3 + reach).map(|i| (i * 37 % 19) as f32 / 7.0).collect();
        let job = Attention {
            heads,
            tiles: &cache,
            pages: &pages,
            layout,
            q: &queries,
            q_stride,
            group,
            tokens,
            position,
            window,
            reach: across.then_some(reach),
            span: together.then_some((position, reach)),
            scale: 0.3,
            cap,
            bias: if across { Bias { table: &biases, stride: 3, start: tokens } } else { Bias::NONE },
            sinks: &[],
        };
        let mut out = Edge::of(&vec![UNTOUCHED; tokens * out_stride]);
        let mut scratch = Edge::of(&vec![f32::NAN; MAX_ROWS.min(tokens * group) * layout.padded()]);
        kernels.attend(&job, &mut out, out_stride, &mut scratch);
        for out in out.chunks(out_stride) {
            assert!(out[all * dim..].iter().all(|&x| x == UNTOUCHED));
        }
        (cache.to_vec(), out.to_vec())
    }

    fn check(&self, random: &mut Random) {
        let positions = self.position + self.tokens;
        let keys = random.floats(self.data, positions * self.dim);
        let values = random.floats(self.data, positions * self.dim);
        let mut queries = random.floats(self.data, self.tokens * (self.heads * self.group * self.dim + 5) + 1);
        queries.iter_mut().for_each(|q| *q *= 8.0);
        let (ring, want) = self.run(&SCALAR, &keys, &values, &queries);
        assert!(self.data != Data::Plain || want.iter().all(|x| x.is_finite()));
        for kernels in tables() {
            let (got_ring, got) = self.run(kernels, &keys, &values, &queries);
            // The bits of a NaN in the cache may differ.
            assert!(self.data == Data::Wild || got_ring == ring, "{} cache of {self:?}", kernels.name);
            same(&got, &want, || format!("{} attention {self:?}", kernels.name));
        }
    }
}

/// Attention with a bias and a reach, compared with sums in f64.
#[test]
fn attention_across() {
    let (dim, tokens, reach) = (8, 3, 21);
    let layout = HeadLayout { kind: KvType::F32, dim, shared: 0 };
    let mut tiles = vec![0xff; 2 * layout.tile_bytes()];
    let mut random = Random(19);
    let (keys, values) = (random.floats(Data::Plain, reach * dim), random.floats(Data::Plain, reach * dim));
    for (p, (key, value)) in keys.chunks(dim).zip(values.chunks(dim)).enumerate() {
        let head_bytes = tiles.len();
        store(&SCALAR, layout, (&mut tiles, head_bytes), &[1, 0], p, key, value);
    }
    let q = random.floats(Data::Plain, tokens * dim);
    let table: Vec<f32> = (0..reach + tokens).map(|i| i as f32 / 10.0).collect();
    let job = Attention {
        heads: 1,
        tiles: &tiles,
        pages: &[1, 0],
        layout,
        q: &q,
        q_stride: dim,
        group: 1,
        tokens,
        position: 0,
        window: usize::MAX,
        reach: Some(reach),
        span: None,
        scale: 0.5,
        cap: None,
        bias: Bias { table: &table, stride: 0, start: tokens },
        sinks: &[],
    };
    let (mut out, mut scratch) = (vec![0.0; tokens * dim], vec![0.0; MAX_ROWS * layout.padded()]);
    SCALAR.attend(&job, &mut out, dim, &mut scratch);
    for t in 0..tokens {
        let weight = |p: usize| {
            let dot: f64 = (0..dim).map(|i| f64::from(q[t * dim + i]) * f64::from(keys[p * dim + i])).sum();
            (dot * 0.5 + f64::from(table[tokens - t + p])).exp()
        };
        let total: f64 = (0..reach).map(weight).sum();
        for i in 0..dim {
            let want = (0..reach).map(|p| weight(p) * f64::from(values[p * dim + i])).sum::<f64>() / total;
            assert!((f64::from(out[t * dim + i]) - want).abs() < 1e-5, "{t} {i}");
        }
    }
}

#[test]
fn attention() {
    let mut random = Random(17);
    for kind in KvType::ALL {
        for dim in [8, 12, 14, 24, 48, 64, 128] {
            for group in 1..=8 {
                for data in [Data::Plain, Data::Plain, Data::Extreme, Data::Wild] {
                    let (tokens, position) = (random.pick(&[1, 1, 2, 3, 5, 8, 9]), random.below(80));
                    let window = random.pick(&[usize::MAX, usize::MAX, 1, 5, 16, 37]);
                    let across = window == usize::MAX && random.below(2) == 0;
                    let together = !across && random.below(3) == 0;
                    let cap = random.pick(&[None, None, Some(5.0)]);
                    let heads = random.pick(&[1, 1, 2, 3]);
                    let case = AttentionCase {
                        kind,
                        dim,
                        heads,
                        group,
                        tokens,
                        position,
                        window,
                        across,
                        together,
                        cap,
                        data,
                    };
                    case.check(&mut random);
                }
            }
        }
    }
}

/// Values that are the first elements of keys give the same result as values that are stored separately, with equal
/// bits if elements are floats.
#[test]
fn values_in_keys() {
    let mut random = Random(47);
    for kind in KvType::ALL {
        for (dim, value) in [(8, 4), (40, 20), (72, 64), (24, 23)] {
            let (group, tokens, position, window) =
                (random.pick(&[1, 2, 5, 8]), random.pick(&[1, 3]), random.below(90), random.pick(&[usize::MAX, 20]));
            let reach = position + tokens;
            let keys = random.floats(Data::Plain, reach * dim);
            let q = random.floats(Data::Plain, tokens * group * dim);
            let run = |kernels: &Kernels, shared: usize| {
                let layout = HeadLayout { kind, dim, shared };
                let pages: Vec<u32> = (0..reach.div_ceil(16) as u32).rev().collect();
                let mut tiles = Edge::of(&vec![0xff; pages.len() * layout.tile_bytes()]);
                for (p, key) in keys.chunks(dim).enumerate() {
                    let head_bytes = tiles.len();
                    store(kernels, layout, (&mut tiles, head_bytes), &pages, p, key, key);
                }
                let job = Attention {
                    heads: 1,
                    tiles: &tiles,
                    pages: &pages,
                    layout,
                    q: &q,
                    q_stride: group * dim,
                    group,
                    tokens,
                    position,
                    window,
                    reach: None,
                    span: None,
                    scale: 0.3,
                    cap: None,
                    bias: Bias::NONE,
                    sinks: &[],
                };
                let mut out = Edge::of(&vec![0.0; tokens * group * layout.value()]);
                let mut scratch = Edge::of(&vec![f32::NAN; (MAX_ROWS.min(tokens * group) + 16) * layout.padded()]);
                kernels.attend(&job, &mut out, group * layout.value(), &mut scratch);
                out.to_vec()
            };
            let want = run(&SCALAR, value);
            let apart = run(&SCALAR, 0);
            let apart: Vec<f32> = apart.chunks(dim).flat_map(|head| head[..value].to_vec()).collect();
            match kind {
                KvType::F32 | KvType::F16 => same(&want, &apart, || format!("{kind:?} {dim} {value}")),
                // The scale is multiplied with the code, not with the weight.
                KvType::Q8_0 | KvType::Q4_0 => {
                    assert!(want.iter().zip(&apart).all(|(a, b)| (a - b).abs() < 2e-2), "{kind:?} {dim} {value}");
                }
                KvType::Q8_0Q4_0 => {} // separate values are in another type than keys
            }
            for kernels in tables() {
                same(&run(kernels, value), &want, || format!("{} {kind:?} {dim} {value}", kernels.name));
            }
        }
    }
}

/// A value that is longer than the key that it is part of would be read past the tile.
#[test]
fn values_longer_than_keys() {
    let layout = HeadLayout { kind: KvType::F32, dim: 8, shared: 64 };
    let (tiles, q) = (Edge::of(&vec![0; layout.tile_bytes()]), [1.0; 8]);
    for kernels in tables().into_iter().chain([&SCALAR]) {
        let job = Attention {
            heads: 1,
            tiles: &tiles,
            pages: &[0],
            layout,
            q: &q,
            q_stride: 8,
            group: 1,
            tokens: 1,
            position: 0,
            window: usize::MAX,
            reach: None,
            span: None,
            scale: 1.0,
            cap: None,
            bias: Bias::NONE,
            sinks: &[],
        };
        let mut out = [UNTOUCHED; 64];
        kernels.attend(&job, &mut out, 64, &mut [0.0; 17 * 64]);
        assert_eq!(out, [UNTOUCHED; 64], "{}", kernels.name);
    }
}
