//! Every LoRA adapter that loads gives the same logits with all kernels and in any memory. An adapter that is not used
//! does not change the logits.
#![no_main]

use arbitrary::Arbitrary;
use arenite::{Adapter, Gguf, Kernels};
use fuzz::change::{Changes, Real, builder, opened};
use fuzz::gguf::Builder;
use fuzz::list::List;
use fuzz::same::{Memory, Run, answer};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    /// For each pair of LoRA matrices: the number of a matrix of the model, the rank, and the type of the weights.
    pairs: List<(u8, u8, u8), 4>,
    alpha: Real,
    weights: List<Real, 8>,
    scale: Real,
    changes: Changes,
    run: Run,
}

impl Case {
    /// An adapter that is correct unless changes make it wrong.
    fn file(&self, architecture: &str) -> Vec<u8> {
        let mut file = Builder::new();
        file.set("general.type", "adapter").set("general.architecture", architecture);
        file.set("adapter.type", "lora").set("adapter.lora.alpha", self.alpha.get());
        let base = &builder(self.family.into()).tensors;
        let matrices: Vec<_> = base.iter().filter(|tensor| tensor.dims.len() > 1).collect();
        for (at, rank, kind) in self.pairs.iter().filter(|_| !matrices.is_empty()) {
            let tensor = matrices[usize::from(*at) % matrices.len()];
            let name = String::from_utf8_lossy(&tensor.name).into_owned();
            let rank = 1 + u64::from(rank % 9);
            let mut shapes = match name.as_str() {
                "token_embd.weight" => [vec![rank, tensor.dims[1]], vec![rank, tensor.dims[0]]],
                _ => [vec![tensor.dims[0], rank], vec![rank, tensor.dims[1]]],
            };
            shapes.iter_mut().for_each(|shape| shape.extend(&tensor.dims[2..]));
            let kind = u32::from(kind % 2);
            for (end, dims) in ["a", "b"].into_iter().zip(shapes) {
                let count = dims.iter().product::<u64>() as usize;
                let weights = self.weights.iter().map(|weight| weight.get()).chain([0.25]).cycle().take(count);
                let data = match kind {
                    0 => weights.flat_map(f32::to_le_bytes).collect(),
                    _ => weights.flat_map(|weight| ((weight.to_bits() >> 16) as u16).to_le_bytes()).collect(),
                };
                file.push_tensor(format!("{name}.lora_{end}"), &dims, kind, data);
            }
        }
        self.changes.build(file)
    }
}

fuzz_target!(|case: Case| {
    let (base, model) = opened(case.family.into());
    let bytes = case.file(base.architecture().expect("it has one"));
    let Ok(file) = Gguf::parse(&bytes) else { return };
    let Ok(adapter) = Adapter::new(&file, model) else { return };
    let options = |options: arenite::Options| options.adapters(1).rank(adapter.rank());
    let Some(plan) = case.run.plan_with(base, options) else { return };
    let vocab = model.spec().vocab;
    let adapters = [adapter];
    let answer = |fill: u8, kernels: Option<&'static Kernels>, chosen: &[(usize, f32)]| {
        let mut memory = Memory::new(&plan, fill);
        let session = memory.session(model, plan).with_adapters(&adapters).expect("it was planned");
        let mut session = match kernels {
            Some(kernels) => session.with_kernels(kernels),
            None => session,
        };
        session.adapt(chosen).map(|()| answer(&mut session, vocab, &case.run))
    };
    let chosen = [(0, case.scale.get())];
    let want = answer(0, None, &chosen);
    let (kernels, fill) = case.run.other();
    assert!(answer(fill, Some(kernels), &chosen) == want, "other logits by {} in memory of {fill:#x}", kernels.name);
    let plain = fuzz::same::answer(&mut Memory::new(&plan, 0).session(model, plan), vocab, &case.run);
    assert!(answer(0, None, &[]) == Ok(plain), "an adapter that is not used shows");
});
