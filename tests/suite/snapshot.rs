//! Snapshots: a restored session decodes the same bits as one that was prefilled, and only a complete snapshot of the
//! same session is accepted.

use crate::common::families::{DECODERS, RECURRENT, decoder};
use crate::common::gguf::Builder;
use crate::common::peers::{STATEFUL, peer_of};
use crate::common::run::Run;
use crate::common::variants::{FAMILIES, one_layer, quantized, tiny, wide, windowed, with_heads_of};
use arenite::{Error, Gguf, Kernels, KvType, Name, Options, Plan, Session};

const KV_TYPES: [KvType; 5] = KvType::ALL;
const HEADER: usize = 48;

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * i * 31 + 17 * i + 1) % 288).collect()
}

fn models() -> Vec<(String, Builder)> {
    let mut models: Vec<_> = FAMILIES.iter().map(|family| (String::from(*family), tiny(family))).collect();
    models.extend(DECODERS.iter().map(|family| (String::from(*family), decoder(family))));
    models.push(("Q8_0".into(), quantized(tiny("llama"), "Q8_0")));
    models.push(("a window of 17".into(), windowed(17)));
    models.push(("heads of 18".into(), with_heads_of(18)));
    models.push(("heads of 6, one layer".into(), one_layer(with_heads_of(6))));
    models
}

fn bits(session: &Session<'_, '_>) -> Vec<u32> {
    session.logits().iter().map(|x| x.to_bits()).collect()
}

fn save(session: &mut Session<'_, '_>) -> Vec<u8> {
    let mut out = vec![0xA5; session.snapshot_bytes()];
    assert_eq!(session.save(&mut out), Ok(out.len()));
    out
}

/// The logits now and after each of some more tokens.
fn go_on(session: &mut Session<'_, '_>) -> Vec<u32> {
    let mut all = bits(session);
    for token in [7, 250, 3, 99].into_iter().take(session.context() - session.position()) {
        session.decode(token).unwrap();
        all.extend(bits(session));
    }
    all
}

fn run(file: &[u8], kv: KvType, batch: usize) -> Run<'_> {
    Run::new(file, |options| *options = Options::new().context(64).batch(batch).kv(kv))
}

/// Restores a snapshot of `len` tokens into a session whose cache is full of other tokens.
fn arrives(run: &mut Run<'_>, snapshot: &[u8], len: usize, want: &[u32], name: &str) {
    let mut session = run.session();
    session.prefill(&[9; 61]).unwrap();
    session.restore(snapshot).unwrap();
    assert_eq!(session.position(), len);
    assert!(save(&mut session) == snapshot, "{name} {len}");
    assert!(go_on(&mut session) == want, "{name} {len}");
}

#[test]
fn the_same_bits_as_prefilled() {
    let ids = prompt(64);
    for (name, file) in models() {
        let file = file.build();
        for kv in KV_TYPES {
            let mut one = run(&file, kv, 7);
            let mut other = run(&file, kv, 7);
            other.kernels = Kernels::by_name("scalar").unwrap();
            for len in [1, 2, 15, 16, 17, 31, 33, 48, 50, 64] {
                let mut session = one.session();
                session.prefill(&ids[..len]).unwrap();
                let snapshot = save(&mut session);
                let want = go_on(&mut session);

                arrives(&mut other, &snapshot, len, &want, &format!("{name} {kv:?}"));
            }
        }
    }
}

/// The states of recurrent layers are saved as f32, whatever the type of the KV cache.
#[test]
fn states_of_fixed_size_go_along() {
    let ids = prompt(64);
    let decoders = RECURRENT.iter().map(|family| (*family, decoder(family)));
    for (family, file) in decoders.chain(STATEFUL.iter().map(|family| (*family, peer_of(family)))) {
        let file = file.build();
        let (mut one, mut other) = (run(&file, KvType::F16, 7), run(&file, KvType::F16, 7));
        for len in [1, 17, 48, 64] {
            let mut session = one.session();
            session.prefill(&ids[..len]).unwrap();
            let snapshot = save(&mut session);
            assert_eq!(snapshot.len(), one.plan.snapshot_bytes(len), "{family} {len}");
            let mut session = one.session();
            session.prefill(&ids[..len]).unwrap();
            let want = go_on(&mut session);
            arrives(&mut other, &snapshot, len, &want, family);
        }
    }
}

#[test]
fn any_batch_size_and_any_number_of_workers() {
    let ids = prompt(40);
    let file = wide().build();
    let mut one = run(&file, KvType::F16, 16);
    let mut session = one.session();
    session.prefill(&ids).unwrap();
    let snapshot = save(&mut session);
    let want = go_on(&mut session);
    for (batch, workers) in [(1, 1), (3, 2), (64, 4)] {
        let mut other = Run::new(&file, |options| *options = Options::new().context(64).batch(batch).workers(workers));
        let workers = crate::common::workers::Scoped(workers);
        let mut session = other.session().with_workers(&workers);
        session.restore(&snapshot).unwrap();
        assert!(go_on(&mut session) == want, "{batch}");
    }
}

#[test]
fn after_going_back() {
    let ids = prompt(64);
    for (file, batch) in [
        (tiny("llama"), 5),
        (windowed(17), 5),
        (windowed(10), 8),
        (windowed(1), 1),
        (decoder("gemma3"), 5),
        (decoder("gemma4"), 1),
    ] {
        let file = file.build();
        for kv in KV_TYPES {
            let mut one = run(&file, kv, batch);
            let mut other = run(&file, kv, batch);
            for reached in [10, 33, 48, 60] {
                for position in 0..=reached {
                    let mut session = one.session();
                    session.prefill(&ids[..reached]).unwrap();
                    if session.rewind(position).is_err() {
                        continue;
                    }
                    let snapshot = save(&mut session);
                    let mut restored = other.session();
                    restored.prefill(&[9; 64]).unwrap();
                    restored.restore(&snapshot).unwrap();
                    assert_eq!(restored.position(), position);
                    // The restored session can be rewound to the same positions as the saved one.
                    for back in (0..=position).rev() {
                        let result = session.rewind(back);
                        assert_eq!(restored.rewind(back), result, "{reached} to {position} to {back}");
                        if result.is_err() {
                            break;
                        }
                    }
                    restored.restore(&snapshot).unwrap();
                    session.restore(&snapshot).unwrap();
                    assert!(go_on(&mut restored) == go_on(&mut session), "{reached} to {position}");
                }
            }
        }
    }
}

#[test]
fn the_size_is_known_beforehand() {
    let ids = prompt(64);
    for (name, file) in models() {
        let file = file.build();
        for kv in KV_TYPES {
            let mut run = run(&file, kv, 7);
            let plan = run.plan;
            let mut session = run.session();
            for len in 1..=64 {
                session.prefill(&ids[len - 1..len]).unwrap();
                let needed = session.snapshot_bytes();
                assert_eq!(needed, plan.snapshot_bytes(len), "{name} {kv:?} {len}");
                let mut out = vec![0xA5; needed + 100];
                let short = |given| Err(Error::BufferTooSmall { what: "bytes of the snapshot", needed, given });
                for given in [0, 1, HEADER, needed - 1] {
                    assert_eq!(session.save(&mut out[..given]), short(given));
                }
                assert_eq!(session.save(&mut out), Ok(needed));
                assert!(out[needed..].iter().all(|byte| *byte == 0xA5));
            }
        }
    }
    // Two layers, one KV head of 16: 64 elements per position, in tiles without padding.
    let file = tiny("llama").build();
    let gguf = Gguf::parse(&file).unwrap();
    for (kv, position) in [(KvType::F32, 256), (KvType::F16, 128), (KvType::Q8_0, 64 + 8)] {
        let plan = Plan::new(&gguf, Options::new().context(64).kv(kv)).unwrap();
        assert_eq!(plan.snapshot_bytes(0), HEADER + 4 * 288);
        assert_eq!(plan.snapshot_bytes(23) - plan.snapshot_bytes(0), 23 * position);
        assert_eq!(plan.snapshot_bytes(usize::MAX), plan.snapshot_bytes(64));
    }
}

// --- refused snapshots ---------------------------------------------------------------------------

/// Checks that restoring `snapshot` gives `error` and does not change the session.
fn refused(session: &mut Session<'_, '_>, snapshot: &[u8], error: Error) {
    let (before, position) = (save(session), session.position());
    assert_eq!(session.restore(snapshot), Err(error));
    assert_eq!(session.position(), position);
    assert!(save(session) == before, "{error}");
}

#[test]
fn snapshots_of_other_sessions() {
    let ids = prompt(40);
    let file = windowed(20).build();
    let mut here = run(&file, KvType::F16, 8);
    let mut session = here.session();
    session.prefill(&ids[..35]).unwrap();
    let foreign = |what| Error::ForeignSnapshot { what };
    let of = |file: &[u8], context, kv, batch| {
        let mut run = Run::new(file, |options| *options = Options::new().context(context).batch(batch).kv(kv));
        let mut session = run.session();
        session.prefill(&ids).unwrap();
        save(&mut session)
    };
    session.restore(&of(&file, 64, KvType::F16, 8)).unwrap();
    let longer_context = of(&file, 65, KvType::F16, 8);
    refused(&mut session, &longer_context, foreign("context length"));
    refused(&mut session, &of(&file, 64, KvType::F32, 8), foreign("type of KV cache"));
    refused(&mut session, &of(&file, 64, KvType::Q8_0, 8), foreign("type of KV cache"));
    refused(&mut session, &of(&file, 64, KvType::F16, 16), foreign("batch size"));

    // Snapshots of other models: another architecture, other metadata, and the same metadata with another embedding or
    // with another matrix.
    refused(&mut session, &of(&tiny("qwen2").build(), 64, KvType::F16, 8), foreign("model or adapter"));
    let mut renamed = windowed(20);
    renamed.set("general.name", "tony");
    refused(&mut session, &of(&renamed.build(), 64, KvType::F16, 8), foreign("model or adapter"));
    for name in ["token_embd.weight", "blk.1.ffn_down.weight"] {
        let mut retrained = windowed(20);
        retrained.tensor_mut(name).data.iter_mut().for_each(|byte| *byte ^= 1);
        refused(&mut session, &of(&retrained.build(), 64, KvType::F16, 8), foreign("model or adapter"));
    }

    let mut version = of(&file, 64, KvType::F16, 8);
    version[4] = 1;
    refused(&mut session, &version, foreign("version of the format"));
}

#[test]
fn damaged_snapshots() {
    let damaged = |why| Error::DamagedSnapshot { why };
    for (file, kv, len) in [
        (one_layer(tiny("llama")), KvType::F16, 5),
        (one_layer(tiny("llama")), KvType::Q8_0, 19),
        (one_layer(windowed(5)), KvType::F32, 60),
    ] {
        let file = file.build();
        let ids = prompt(len);
        let (mut here, mut there) = (run(&file, kv, 1), run(&file, kv, 1));
        let mut session = there.session();
        session.prefill(&ids).unwrap();
        let good = save(&mut session);
        let mut session = here.session();
        session.prefill(&[9, 8, 7]).unwrap();
        let before = save(&mut session);
        for end in 0..good.len() {
            assert_eq!(session.restore(&good[..end]), Err(damaged("is cut short")), "{end}");
        }
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let error = session.restore(&bad).unwrap_err();
                match at {
                    0..4 => assert_eq!(error, damaged("does not start with a snapshot header")),
                    4..32 => assert!(matches!(error, Error::ForeignSnapshot { .. }), "{at} {error}"),
                    _ => assert!(matches!(error, Error::DamagedSnapshot { .. }), "{at} {error}"),
                }
            }
        }
        assert!(save(&mut session) == before);
        // Bytes after the snapshot are ignored, because a flash slot may be longer.
        session.restore(&[&good[..], &[0xff; 9]].concat()).unwrap();
        assert!(save(&mut session) == good);
        // Any alignment is accepted.
        let shifted = [&[0u8; 3], &good[..]].concat();
        session.restore(&shifted[3..]).unwrap();
    }
}

/// An independent implementation of the checksum.
fn sum(snapshot: &[u8]) -> [u8; 8] {
    let mut header = snapshot[..HEADER].to_vec();
    header[40..].fill(0);
    let mut hash = 0xcbf29ce484222325u64;
    for part in [&header, &snapshot[HEADER..]] {
        for word in part.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x100000001b3);
            hash ^= hash >> 32;
        }
    }
    hash.to_le_bytes()
}

#[test]
fn forged_positions() {
    for (file, batch) in [(tiny("llama"), 8), (windowed(17), 8)] {
        let file = file.build();
        let mut here = run(&file, KvType::F16, batch);
        let mut session = here.session();
        session.prefill(&prompt(40)).unwrap();
        let mut good = save(&mut session);
        assert_eq!(good[40..48], sum(&good));
        good.resize(1 << 16, 0);
        for (position, reached) in [(0, 65), (65, 65), (41, 40), (u32::MAX, u32::MAX), (64, u32::MAX), (1 << 31, 64)] {
            let mut bad = good.clone();
            bad[32..36].copy_from_slice(&u32::to_le_bytes(position));
            bad[36..40].copy_from_slice(&u32::to_le_bytes(reached));
            refused(&mut session, &bad, Error::DamagedSnapshot { why: "is at an impossible position" });
        }
        // With the right checksum any contents are accepted; the worst result is wrong logits.
        let plan = here.plan;
        let mut session = here.session();
        for position in [0, 1, 33, 64] {
            let mut forged = good[..plan.snapshot_bytes(position)].to_vec();
            forged[HEADER..].fill(0xff);
            forged[32..36].copy_from_slice(&u32::to_le_bytes(position as u32));
            forged[36..40].copy_from_slice(&u32::to_le_bytes(position as u32));
            let sum = sum(&forged);
            forged[40..48].copy_from_slice(&sum);
            session.restore(&forged).unwrap();
            go_on(&mut session);
        }
    }
}

/// Encoder states are not saved.
#[test]
fn models_with_an_encoder() {
    let Some(case) = crate::common::fixture::Case::find("t5_relu", "model.gguf") else { return };
    let file = case.file("model.gguf");
    let mut run = Run::new(&file, |options| options.context = 32);
    let mut session = run.session();
    session.encode(&[5, 6, 7]).unwrap();
    session.prefill(&[0, 3]).unwrap();
    let error = Error::Unsupported { what: "snapshot of a model with", name: Name::new(b"an encoder") };
    assert_eq!(session.save(&mut vec![0; 1 << 20]), Err(error));
    assert_eq!(session.restore(&[0; 100]), Err(error));
}
