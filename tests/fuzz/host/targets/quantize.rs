//! Any model in any type is refused, or the new file has the same tensors with finite values, does not depend on the
//! number of threads, and opens if the old one did.
#![no_main]

use arbitrary::Arbitrary;
use arenite::quant::decode_row;
use arenite::{Gguf, Model};
use arenite_quantize::mix::{Mix, TypeOptions};
use arenite_quantize::{changes, header};
use fuzz::change::{File, Real};
use fuzz::gguf::Builder;
use fuzz::list::List;
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    model: What,
    mix: u8,
    requantize: bool,
}

#[derive(Arbitrary, Debug)]
enum What {
    Model(File),
    /// Tensors whose rows are whole blocks, filled with these values in turn.
    Tensors(List<(u8, u8, u8), 6>, List<Real, 40>),
}

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "output.weight", "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
    "blk.0.attn_output.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "blk.0.ffn_down_exps.weight",
    "blk.0.attn_norm.weight", "x", "blk.0.attn_qkv.weight",
];

const ROWS: &[u64] = &[256, 512, 32, 64, 96, 1, 33, 288];

impl Case {
    fn file(&self) -> Vec<u8> {
        let (tensors, numbers) = match &self.model {
            What::Model(file) => return file.build(),
            What::Tensors(tensors, numbers) => (tensors, numbers),
        };
        let mut file = Builder::new();
        file.set("general.architecture", "llama").set("llama.block_count", 1u32);
        let mut numbers = numbers.iter().map(|real| real.get()).chain([1.0]).collect::<Vec<_>>().into_iter().cycle();
        for (number, (name, row, rest)) in tensors.iter().enumerate() {
            let name = NAMES[usize::from(*name) % NAMES.len()].replace('0', &number.to_string());
            let dims = [ROWS[usize::from(*row) % ROWS.len()], 1 + u64::from(rest % 4), 1 + u64::from(rest / 4 % 2)];
            let data: Vec<f32> = numbers.by_ref().take(dims.iter().product::<u64>() as usize).collect();
            file.set_f32(&name, &dims[..1 + usize::from(rest / 8 % 3)], &data[..]);
        }
        file.build()
    }
}

#[rustfmt::skip]
const MIXES: &[&str] = &[
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L",
    "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M",
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4_MOE", "Q1_0", "Q2_0",
];

fuzz_target!(|case: Case| {
    let bytes = case.file();
    let Ok(old) = Gguf::parse(&bytes) else { return };
    let mix: Mix = MIXES[usize::from(case.mix) % MIXES.len()].parse().expect("a type that there is");
    let Ok(changes) = changes(&old, mix, &TypeOptions::default(), None, case.requantize) else { return };
    let Ok(header) = header(&old, mix, &changes, None) else { return };
    let write = |threads: usize| {
        let mut out = header.write(std::io::Cursor::new(vec![])).ok()?;
        for change in &changes {
            change.write(threads, &mut out, |_| Ok(())).ok()?;
        }
        Some(out.finish().expect("all bytes of all tensors").into_inner())
    };
    let Some(new) = write(1) else { return };
    assert!(write(3).as_ref() == Some(&new), "another file by three threads");
    let new = Gguf::parse(&new).expect("a correct file");
    assert_eq!(new.tensors().count(), old.tensors().count());
    for tensor in old.tensors() {
        let to = new.tensors().find(|to| to.name == tensor.name).expect("no tensor is lost");
        assert_eq!(to.dims, tensor.dims);
        if to.kind != tensor.kind {
            let mut row = vec![0.0; to.dims[0] as usize];
            for data in to.data.chunks(to.kind.row_bytes(row.len()).expect("whole blocks")) {
                assert!(decode_row(to.kind, data, unwritten(&mut row)), "what is written is read");
                assert!(row.iter().all(|x| x.is_finite()), "{} as {:?} has {row:?}", tensor.name, to.kind);
            }
        }
    }
    if Model::new(&old).is_ok() {
        let opened = Model::new(&new);
        assert!(opened.is_ok(), "what opened before: {:?}", opened.err());
    }
});
