//! The kernels, for tests/kernels, benches/kernels and tests/firmware. They are not part of the public interface,
//! because they trust that the shapes of their operands agree.

pub use super::attention::{Attention, Bias};
pub use super::cache::store;
pub use super::float::Deviation;
pub use super::form::{Form, SUM_SPAN};
pub use super::job::Acts;
pub use super::linear::{Batch, linear};
#[cfg(feature = "lora")]
pub use super::low_rank::{LowRank, add_low_rank};
pub use super::matrix::Matrix;
pub use super::panel::panel_bytes;
pub use super::recurrent::{CausalConvolution, Recurrence, Update};
pub use super::selective::Scan;
pub use super::wkv::Wkv;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(memory_sanitizer)))]
pub use super::x86::amx_table;
pub use crate::memory::kv::HeadLayout;

use super::{Activation, Kernels};
use crate::quant::{Format, TensorType, formats, formats_list};

/// Maximum number of query rows that attention processes at once. Its scratch memory has room for as many rows.
pub const MAX_ROWS: usize = super::MAX_ROWS;

macro_rules! functions {
    ($($name:ident($($x:ident: $type:ty),*);)*) => {
        /// The functions of a table.
        #[allow(missing_docs)] // see those of `Kernels`
        pub trait Functions {
            $(fn $name(&self, $($x: $type),*);)*
        }

        impl Functions for Kernels {
            $(fn $name(&self, $($x: $type),*) {
                Kernels::$name(self, $($x),*);
            })*
        }
    };
}
functions! {
    quantize(form: Form, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]);
    rms_norm(x: &mut [f32], weight: &[u8], eps: f32);
    layer_norm(x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation);
    activate(f: Activation, x: &mut [f32], up: Option<&[f32]>);
    soft_cap(x: &mut [f32], cap: f32);
    to_f16(x: &[f32], out: &mut [u8]);
    convolve(job: &CausalConvolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]);
    recur(job: &Update<'_>, state: &mut [f32], out: &mut [f32]);
    attend(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]);
}

macro_rules! halves {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// The offsets of the f16 fields in a block of this type.
        pub fn halves(kind: TensorType) -> impl Iterator<Item = usize> {
            let fields = match kind {
                $(TensorType::$name => {
                    type F = formats::$module::$format;
                    [F::D, F::M]
                })*
                _ => [None; 2],
            };
            fields.into_iter().flatten().map(|(offset, _)| offset)
        }
    };
}
formats_list!(halves);
