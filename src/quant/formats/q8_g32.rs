/// Defines a group format of llama2.c's `runq.c`: an f32 scale, then a signed byte per weight.
macro_rules! group {
    ($name:ident, $elements:literal) => {
        #[doc = concat!(stringify!($elements), " weights: an f32 scale, then a signed byte each.")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl $crate::quant::Format for $name {
            type Block = [u8; 4 + $elements];
            const ELEMENTS: usize = $elements;
            const BIAS: u8 = 128;
            const MAX: u8 = 255;
            const D: Option<(usize, f32)> = None;
            const F32_SCALES: bool = true;

            #[inline(always)]
            fn d(block: &Self::Block, _at: usize, _f16: impl Fn([u8; 2]) -> f32) -> f32 {
                f32::from_le_bytes(*$crate::quant::format::bytes_at(block, 0))
            }

            #[inline(always)]
            fn unpack<S: $crate::quant::Bytes>(s: S, block: &Self::Block, chunk: usize) -> S::V {
                s.xor(s.load($crate::quant::format::bytes_at(block, 4 + 32 * chunk)), s.splat(128))
            }
        }
    };
}
pub(super) use group;
group!(Q8G32, 32);
