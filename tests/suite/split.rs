//! Checks that the bits are the same, however a prompt is split, rewound, divided among workers or limited by a window.

use crate::common::families::{DECODERS, RECURRENT, decoder, is_windowed};
use crate::common::gguf::Builder;
use crate::common::peers::{all_peers, forgets};
use crate::common::run::Run;
use crate::common::tiny::Random;
use crate::common::variants::{FAMILIES, one_layer, quantized, tiny, wide, windowed};
use crate::common::workers::Scoped;
use arenite::{Error, Kernels, KvType, Options};

const KV_TYPES: [KvType; 5] = KvType::ALL;

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * i * 31 + 17 * i + 1) % 288).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits of every token of a prompt, run one by one with the scalar kernels.
fn one_by_one(file: &[u8], kv: KvType, ids: &[u32]) -> Vec<Vec<u32>> {
    let mut run = Run::new(file, |options| *options = Options::new().context(64).batch(1).kv(kv).workers(1));
    run.kernels = Kernels::by_name("scalar").unwrap();
    let mut session = run.session();
    ids.iter()
        .map(|&id| {
            session.decode(id).unwrap();
            bits(session.logits())
        })
        .collect()
}

fn models() -> Vec<(String, Vec<u8>)> {
    let mut models: Vec<(String, Builder)> =
        FAMILIES.iter().map(|family| (String::from(*family), tiny(family))).collect();
    for kind in ["Q8_0", "Q4_0"] {
        models.push((kind.into(), quantized(tiny("llama"), kind)));
    }
    models.push(("window".into(), windowed(20)));
    models.extend(DECODERS.iter().chain(&RECURRENT).map(|family| (String::from(*family), decoder(family))));
    models.extend(all_peers().map(|(family, file)| (String::from(family), file)));
    models.push(("mixtral Q8_0".into(), quantized(decoder("mixtral"), "Q8_0")));
    models.into_iter().map(|(name, file)| (name, file.build())).collect()
}

#[test]
fn batches_of_any_size() {
    let ids = prompt(50);
    for (name, file) in models() {
        for kv in KV_TYPES {
            let want = one_by_one(&file, kv, &ids);
            for batch in [1, 3, 8, 16, 17, 50] {
                for kernels in Kernels::available() {
                    let mut run =
                        Run::new(&file, |options| *options = Options::new().context(64).batch(batch).kv(kv).workers(1));
                    run.kernels = kernels;
                    let got: Vec<_> = run.all(&ids).iter().map(|logits| bits(logits)).collect();
                    assert!(got == want, "{name} {kv:?}, batches of {batch}, {}", kernels.name);
                }
            }
        }
    }
}

#[test]
fn prompts_in_any_pieces() {
    let ids = prompt(50);
    let mut random = Random(3);
    for (name, file) in models() {
        let want = one_by_one(&file, KvType::F16, &ids);
        let mut run = Run::new(&file, |options| (options.context, options.batch) = (64, 9));
        for _ in 0..10 {
            let mut session = run.session();
            let mut at = 0;
            let mut cuts = vec![];
            while at < ids.len() {
                let len = (1 + (random.value().abs() * 24.0) as usize).min(ids.len() - at);
                session.prefill(&ids[at..at + len]).unwrap();
                at += len;
                cuts.push(at);
                assert_eq!(session.position(), at);
                assert!(bits(session.logits()) == want[at - 1], "{name}, cut at {cuts:?}");
            }
        }
    }
}

#[test]
fn any_number_of_workers() {
    // The prompt is so long, and the model so wide, that every operation is divided among workers, for one token and
    // for several.
    let ids = prompt(600);
    for file in [wide(), quantized(wide(), "Q8_0")] {
        let file = file.build();
        let run = |planned, there| {
            let workers = Scoped(there);
            let mut run = Run::new(&file, |options| {
                *options = Options::new().context(640).batch(64).kv(KvType::F16).workers(planned);
            });
            let mut session = run.session().with_workers(&workers);
            session.prefill(&ids).unwrap();
            let mut all = bits(session.logits());
            for token in [3, 4] {
                session.decode(token).unwrap();
                all.extend(bits(session.logits()));
            }
            all
        };
        let want = run(1, 1);
        for (planned, there) in [(1, 2), (2, 2), (3, 3), (4, 2), (2, 7)] {
            assert!(run(planned, there) == want, "{there} workers, {planned} planned");
        }
    }
}

/// True if a model can be rewound to any position.
fn goes_back_anywhere(name: &str) -> bool {
    name != "window" && !is_windowed(name) && !RECURRENT.contains(&name) && !forgets(name)
}

#[test]
fn going_back() {
    let ids = prompt(50);
    for (name, file) in models().into_iter().filter(|(name, _)| goes_back_anywhere(name)) {
        for kv in KV_TYPES {
            let want = one_by_one(&file, kv, &ids);
            let mut run = Run::new(&file, |options| *options = Options::new().context(64).batch(7).kv(kv).workers(1));
            let mut session = run.session();
            for (to, position) in [(50, 0), (20, 50), (20, 1), (50, 19), (50, 50), (3, 0)] {
                let position = position.min(session.position());
                session.rewind(position).unwrap();
                // Other tokens first, so that the memory holds something else.
                session.prefill(&[9; 10][..10.min(64 - position)]).unwrap();
                session.rewind(position).unwrap();
                if to > position {
                    session.prefill(&ids[position..to]).unwrap();
                    assert!(bits(session.logits()) == want[to - 1], "{name} {kv:?}, back to {position}");
                }
                let latest = session.position();
                let error = Error::CannotRewind { position: latest + 1, earliest: 0, latest };
                assert_eq!(session.rewind(latest + 1).unwrap_err(), error);
            }
        }
    }
}

// --- sliding windows -----------------------------------------------------------------------------

/// Number of positions that a window's ring holds.
fn kept(window: usize, batch: usize) -> usize {
    (window + batch - 1).min(64).div_ceil(16) * 16
}

#[test]
fn a_window_as_long_as_the_prompt_changes_nothing() {
    let ids = prompt(50);
    let all = tiny("llama").build();
    for kv in KV_TYPES {
        let want = one_by_one(&all, kv, &ids);
        for window in [50, 51, 64, 1000, i32::MAX as u32] {
            assert!(one_by_one(&windowed(window).build(), kv, &ids) == want, "{window}");
        }
        assert!(one_by_one(&windowed(49).build(), kv, &ids)[49] != want[49]);
        assert!(one_by_one(&windowed(49).build(), kv, &ids)[..49] == want[..49]);
    }
}

#[test]
fn a_ring_equals_a_cache_that_keeps_everything() {
    let ids = prompt(60);
    for window in [1, 15, 16, 17, 33] {
        let file = windowed(window).build();
        for kv in KV_TYPES {
            // With a batch as long as the context, the ring holds all positions.
            let mut run = Run::new(&file, |options| *options = Options::new().context(64).batch(64).kv(kv).workers(1));
            let want: Vec<_> = run.all(&ids).iter().map(|logits| bits(logits)).collect();
            for batch in [1, 5, 16, 31] {
                let mut run =
                    Run::new(&file, |options| *options = Options::new().context(64).batch(batch).kv(kv).workers(1));
                let got: Vec<_> = run.all(&ids).iter().map(|logits| bits(logits)).collect();
                assert!(got == want, "a window of {window}, batches of {batch}, {kv:?}");
            }
        }
    }
}

#[test]
fn a_window_is_as_if_there_were_nothing_before_it() {
    // Rotary positions are relative, so in one layer the last `window` tokens alone give the same result up to
    // rounding. (In two layers they do not: the second attends to outputs of the first for earlier tokens.)
    let ids = prompt(50);
    let file = one_layer(tiny("llama")).build();
    for window in [1, 7, 16, 21] {
        let through_window = one_layer(windowed(window)).build();
        let mut run = Run::new(&through_window, |options| (options.context, options.kv) = (64, KvType::F32));
        let all = run.all(&ids);
        for position in [20, 21, 40, 49] {
            let mut alone = Run::new(&file, |options| (options.context, options.kv) = (64, KvType::F32));
            let start = (position + 1usize).saturating_sub(window as usize);
            let want = alone.all(&ids[start..=position]);
            let error = crate::common::fixture::relative_error(&all[position], want.last().unwrap());
            assert!(error < 1e-5, "a window of {window} at {position}: {error:e}");
        }
    }
}

#[test]
fn a_ring_goes_back_as_far_as_it_reaches() {
    let ids = prompt(60);
    let other = [250, 3, 77, 5, 5];
    for (window, batch) in [(1, 1), (17, 1), (5, 8), (10, 30)] {
        let file = windowed(window as u32).build();
        let mut run = Run::new(&file, |options| (options.context, options.batch) = (64, batch));
        for reached in [10, 17, 48] {
            // A rewound session must give the same logits for `other` after `position` tokens as a session that was
            // never rewound.
            for position in 0..=reached + 1 {
                let mut session = run.session();
                session.prefill(&ids[..reached]).unwrap();
                let lost = reached.saturating_sub(kept(window, batch));
                let sees_from = (position + 1).saturating_sub(window);
                let can = position == 0 || position <= reached && sees_from >= lost;
                let result = session.rewind(position);
                assert_eq!(result.is_ok(), can, "a window of {window}, {batch}: {reached} back to {position}");
                if let Err(error) = result {
                    let earliest = if lost == 0 { 0 } else { lost + window - 1 };
                    assert_eq!(error, Error::CannotRewind { position, earliest, latest: reached });
                    assert_eq!(session.position(), reached);
                    continue;
                }
                let tail = &other[..other.len().min(64 - position)];
                session.prefill(tail).unwrap();
                let after_rewind = bits(session.logits());
                let mut fresh = run.session();
                fresh.prefill(&[&ids[..position], tail].concat()).unwrap();
                assert!(bits(fresh.logits()) == after_rewind, "{window} {batch}: {reached} back to {position}");
            }
        }
    }
}

#[test]
fn a_ring_goes_back_twice() {
    // Rewinding does not restore what the furthest position overwrote.
    let ids = prompt(60);
    let file = windowed(10).build();
    let mut run = Run::new(&file, |options| (options.context, options.batch) = (64, 8));
    let mut session = run.session();
    session.prefill(&ids[..50]).unwrap();
    let earliest = 50 - kept(10, 8) + 9;
    session.rewind(earliest).unwrap();
    session.prefill(&[1, 2, 3]).unwrap();
    let latest = earliest + 3;
    let error = Error::CannotRewind { position: earliest - 1, earliest, latest };
    assert_eq!(session.rewind(earliest - 1).unwrap_err(), error);
    session.rewind(earliest).unwrap();
    session.prefill(&ids[earliest..50]).unwrap();
    let got = bits(session.logits());
    // From position 0, everything can be repeated.
    session.rewind(0).unwrap();
    session.prefill(&ids[..50]).unwrap();
    assert!(bits(session.logits()) == got);
}
