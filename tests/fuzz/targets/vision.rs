//! Every encoder of pictures that loads gives the same rows with all kernels, in any memory and for any batch.
#![no_main]

use arbitrary::Arbitrary;
use arenite::vision::{Encoder, Options, Picture, Plan, Vision};
use arenite::{Gguf, Kernels, Line};
use fuzz::list::List;
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    /// Bytes to overwrite in the metadata and the directory: each has a position and a new value.
    bytes: List<(u16, u8), 4>,
    /// Bytes to overwrite anywhere, by their position in 65536ths of the file.
    weights: List<(u16, u8), 2>,
    sides: (u8, u8),
    pixels: List<u8, 16>,
    batch: u8,
    fill: u8,
}

/// Largest workspace that is tried. Larger pictures take seconds with the address sanitizer.
const MOST: usize = 1 << 20;

impl Case {
    fn file(&self) -> Vec<u8> {
        let mut file = include_bytes!("../../fixtures/pixtral.gguf").to_vec();
        let data = 4000; // the directory ends before
        for (at, byte) in self.bytes.iter() {
            file[usize::from(*at) % data] = *byte;
        }
        let len = file.len();
        for (at, byte) in self.weights.iter() {
            file[usize::from(*at) * len >> 16] = *byte;
        }
        file
    }

    /// The rows as bits, with one pattern for all NaN.
    fn rows(&self, vision: &Vision<'_>, rgb: &[u8], plan: Plan, kernels: &'static Kernels) -> Vec<u32> {
        let mut memory = vec![Line::ZERO; plan.workspace.div_ceil(64)];
        Line::bytes_mut(&mut memory).fill(self.fill);
        let workspace = unwritten(Line::bytes_mut(&mut memory));
        let mut encoder = Encoder::new(vision, plan, workspace).expect("it was planned").with_kernels(kernels);
        let mut rows = vec![0.0; plan.rows];
        let picture = Picture::new(rgb, self.sides.0.into(), self.sides.1.into()).expect("a picture");
        encoder.see(&picture, &mut rows).expect("it was planned");
        rows.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
    }
}

fuzz_target!(|case: Case| {
    let file = case.file();
    let Ok(gguf) = Gguf::parse(&file) else { return };
    let (width, height) = (case.sides.0.into(), case.sides.1.into());
    let plan = |batch| Plan::new(&gguf, width, height, Options::new().batch(batch));
    let (Ok(vision), Ok(all), Ok(few)) = (Vision::new(&gguf), plan(1 << 10), plan(case.batch.into())) else { return };
    if all.workspace.max(few.workspace) > MOST {
        return;
    }
    let rgb: Vec<u8> = case.pixels.iter().copied().chain([128]).cycle().take(3 * width * height).collect();
    let want = case.rows(&vision, &rgb, all, &arenite::kernel::SCALAR);
    for kernels in Kernels::available() {
        assert!(case.rows(&vision, &rgb, few, kernels) == want, "other rows by {}", kernels.name);
    }
});
