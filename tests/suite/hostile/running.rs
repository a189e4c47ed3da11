//! Rewinds, saved sessions, and NaN and infinity in weights.

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::{Error, ErrorKind, Kernels, KvType, Line};

use crate::common::families::{DECODERS, decoder};
use crate::common::gguf::Builder;
use crate::common::run::Run;
use crate::common::variants::{FAMILIES, quantized, tiny, windowed};

const PROMPT: [u32; 20] = [1, 40, 7, 100, 30, 9, 77, 3, 259, 260, 261, 262, 5, 6, 8, 11, 12, 13, 14, 15];

/// The bits of numbers, with one pattern for all NaN.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

// --- rewinds ------------------------------------------------------------------------------------

#[test]
fn rewinds_beyond_what_is_cached() {
    for file in [tiny("llama"), windowed(5), decoder("gemma3")] {
        let bytes = file.build();
        let mut run = Run::new(&bytes, |options| (options.context, options.batch) = (64, 4));
        let mut session = run.session();
        session.prefill(&PROMPT).unwrap();
        let before = bits(session.logits());
        for position in [21, 64, 65, 1 << 31, usize::MAX / 2, usize::MAX] {
            let error = session.rewind(position).unwrap_err();
            assert!(matches!(error, Error::CannotRewind { position: p, latest: 20, .. } if p == position), "{error}");
            assert_eq!(error.kind(), ErrorKind::Input);
        }
        assert_eq!((session.position(), bits(session.logits())), (20, before));
        session.rewind(0).unwrap();
        session.prefill(&PROMPT[..7]).unwrap();
        let again = bits(session.logits());
        let mut fresh = Run::new(&bytes, |options| (options.context, options.batch) = (64, 4));
        let mut fresh = fresh.session();
        fresh.prefill(&PROMPT[..7]).unwrap();
        assert_eq!(bits(fresh.logits()), again);
    }
}

// --- saved sessions -----------------------------------------------------------------------------

fn saved(file: &[u8], context: usize, kv: KvType) -> Vec<u8> {
    let mut run = Run::new(file, |options| (options.context, options.batch, options.kv) = (context, 4, kv));
    let mut session = run.session();
    session.prefill(&PROMPT).unwrap();
    let mut snapshot = vec![0; session.snapshot_bytes()];
    session.save(&mut snapshot).unwrap();
    snapshot
}

#[test]
fn saved_sessions_that_are_cut_or_foreign() {
    let (file, other) = (tiny("llama").build(), tiny("qwen2").build());
    let snapshot = saved(&file, 64, KvType::F16);
    let mut run = Run::new(&file, |options| (options.context, options.batch) = (64, 4));
    let mut session = run.session();
    session.prefill(&PROMPT[..3]).unwrap();
    let before = bits(session.logits());
    let mut refused = |snapshot: &[u8], what: &str| {
        let error = session.restore(snapshot).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Snapshot, "{what}: {error}");
        assert_eq!((session.position(), bits(session.logits())), (3, before.clone()), "{what}");
    };
    for len in (0..snapshot.len()).step_by(7).chain([snapshot.len() - 1]) {
        refused(&snapshot[..len], "cut short");
    }
    refused(&saved(&other, 64, KvType::F16), "another model");
    refused(&saved(&file, 32, KvType::F16), "another context");
    // A snapshot with the same number of bytes as the right one: half the context with elements of twice the size.
    refused(&saved(&file, 32, KvType::F32), "another type of cache");
    refused(&[0xff; 4096], "no snapshot");
    session.restore(&snapshot).unwrap();
    assert_eq!(session.position(), PROMPT.len());
}

// --- NaN and infinity ---------------------------------------------------------------------------

/// Checks that a model runs whatever its weights are, with the same results in any memory, in any batches and on all
/// kernels, and that a sampler can choose a token from its logits.
#[track_caller]
fn runs(file: &Builder, what: &str) {
    let bytes = file.build();
    let mut want = None;
    for kernels in Kernels::available() {
        for (fill, batch) in [(0, 16), (0xff, 16), (0x3c, 3)] {
            let mut run = Run::new(&bytes, |options| (options.context, options.batch) = (32, batch));
            run.kernels = kernels;
            run.fill(fill);
            let mut session = run.session();
            session.prefill(&PROMPT).unwrap();
            session.decode(9).unwrap();
            let got = bits(session.logits());
            assert!(*want.get_or_insert_with(|| got.clone()) == got, "{what}: {} {fill:#x} {batch}", kernels.name);
            let params = Params { temperature: 0.8, top_k: 20, ..Params::DEFAULT };
            let mut scratch = vec![Line::ZERO; Sampler::scratch_bytes(&params, got.len()).div_ceil(64)];
            let mut sampler = Sampler::new(params, &[], got.len(), Line::bytes_mut(&mut scratch)).unwrap();
            if let Ok(token) = sampler.sample(session.logits_mut(), &mut Pcg32::new(1)) {
                assert!((token as usize) < got.len(), "{what}");
            }
        }
    }
}

#[test]
fn nan_and_infinity_in_weights() {
    let models = FAMILIES.map(|family| (family, tiny(family)));
    for (family, file) in models.into_iter().chain(DECODERS.map(|family| (family, decoder(family)))) {
        for (i, value) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX].into_iter().enumerate() {
            // Each of the four values goes into every fourth tensor.
            let mut file = file.clone();
            for tensor in file.tensors.iter_mut().skip(i).step_by(4).filter(|tensor| tensor.kind == 0) {
                let middle = tensor.data.len() / 8 * 4;
                tensor.data[middle..middle + 4].copy_from_slice(&value.to_le_bytes());
            }
            runs(&file, &format!("{family} {value}"));
        }
    }
}

#[test]
fn nan_scales_and_blocks_of_zeros() {
    for (kind, block) in [("Q8_0", 34), ("Q4_0", 18)] {
        for scale in [0x7e00u16, 0x7c00, 0xfc00, 0x7bff, 0x0001, 0] {
            let mut file = quantized(tiny("llama"), kind);
            for (i, tensor) in file.tensors.iter_mut().filter(|tensor| tensor.kind != 0).enumerate() {
                for block in tensor.data.chunks_exact_mut(block).skip(i % 5).step_by(11) {
                    if scale == 0 { block.fill(0) } else { block[..2].copy_from_slice(&scale.to_le_bytes()) }
                }
            }
            runs(&file, &format!("{kind} {scale:#x}"));
        }
    }
}
