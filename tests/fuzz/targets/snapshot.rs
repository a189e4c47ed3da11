//! Damaged snapshots are refused without changing the session, or accepted with a session that still works.
#![no_main]

use arbitrary::Arbitrary;
use fuzz::change::opened;
use fuzz::list::List;
use fuzz::same::{Memory, Run, answer};
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    run: Run,
    /// Bytes to change: each has a position and a new value. Positions below 64 are exact, others are in 65536ths of
    /// the snapshot.
    changes: List<(u16, u8), 4>,
    /// Number of bytes to leave out at the end.
    cut: u16,
}

fuzz_target!(|case: Case| {
    let (gguf, model) = opened(case.family.into());
    let Some(plan) = case.run.plan(gguf) else { return };
    let mut memory = Memory::new(&plan, 0);
    let mut session = memory.session(model, plan);
    if answer(&mut session, model.spec().vocab, &case.run).iter().skip(1).all(Result::is_err) {
        return;
    }
    let mut snapshot = vec![0; session.snapshot_bytes()];
    if session.save(unwritten(&mut snapshot)).is_err() {
        return;
    }
    for (at, byte) in case.changes.iter() {
        let at = if *at < 64 { usize::from(*at) } else { (usize::from(*at) * snapshot.len()) >> 16 };
        if let Some(place) = snapshot.get_mut(at) {
            *place = *byte;
        }
    }
    snapshot.truncate(snapshot.len().saturating_sub(case.cut.into()));

    let (position, logits) = (session.position(), session.logits().to_vec());
    if session.restore(&snapshot).is_err() {
        assert_eq!(session.position(), position);
        assert!(session.logits().iter().zip(&logits).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    assert!(session.position() <= session.context());
    let _ = session.decode(1);
    let _ = session.rewind(session.position() / 2);
    let _ = session.prefill(&[1, 2, 3]);
});
