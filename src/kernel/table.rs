//! Macros that build a table of [`Kernels`](super::Kernels).

/// Defines the matrix product of one table, which selects a function by weight type: `$floats` for float types,
/// `$blocks` for block formats. `formats_list!` calls this macro with the list of formats.
macro_rules! choose {
    (
        { $name:ident $floats:ident $blocks:ident }
        $($kind:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*
    ) => {
        unsafe fn $name(job: &mut $crate::kernel::Job<'_>) {
            use $crate::kernel::float::{Bf16, F16, F32};
            use $crate::quant::{TensorType, formats};
            #[allow(unused_unsafe)] // some tables have safe functions
            // SAFETY: the caller promises the table's instruction set and a valid job.
            unsafe {
                match job.kind {
                    TensorType::F32 => $floats::<F32>(job),
                    TensorType::F16 if const { TensorType::F16.is_built() } => $floats::<F16>(job),
                    TensorType::BF16 if const { TensorType::BF16.is_built() } => $floats::<Bf16>(job),
                    $(
                        TensorType::$kind if const { TensorType::$kind.is_built() } => {
                            $blocks::<formats::$module::$format>(job)
                        }
                    )*
                    _ => {}
                }
            }
        }
    };
}

/// Makes a function of a kernel table that is compiled with the table's target features. The expression `$body` can use
/// the instruction set through the value `$s`.
macro_rules! entry {
    ($name:ident, $isa:ty, [$($feature:literal)?], |$s:ident, $($arg:ident: $type:ty),*| $body:expr) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name($($arg: $type),*) {
            // SAFETY: the caller promises the instruction set, and this function is compiled for it.
            let $s = unsafe { <$isa as $crate::kernel::lanes::Isa>::new() };
            $body
        }
        $name
    }};
}

/// Builds a table: every float kernel, compiled for one instruction set with its target features. (Most tables are
/// constants, because a `static` would be compiled for the unit tests, which do not use it.)
macro_rules! table {
    ($name:literal, $isa:ty, $matmul:path $(, $feature:literal)?) => {{
        use $crate::built;
        use $crate::kernel::{Activation, Attention, CausalConvolution, Deviation, Form, Update, attention, float, recurrent};
        #[cfg(feature = "lora")]
        use $crate::{kernel::lanes::Isa, quant::TensorType};
        $crate::kernel::Kernels {
            name: $name,
            matmul: $matmul,
            quantize: entry!(quantize, $isa, [$($feature)?],
                |s, form: Form, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]| match form {
                    Form::F32 => {}
                    Form::Q8K if const { !Form::Q8K.is_built() } => {}
                    Form::Groups32 | Form::Groups64 if const { !Form::Groups64.is_built() } => {}
                    Form::Q8 => float::quantize_q8(s, x, q, d, sums),
                    Form::Q8K => float::quantize_q8k(s, x, q, d, sums),
                    Form::Groups32 => float::quantize_groups::<_, 32, 1, 2>(s, x, q, d, sums),
                    Form::Groups64 => float::quantize_groups::<_, 64, 2, 4>(s, x, q, d, sums),
                }),
            rms_norm: entry!(rms_norm, $isa, [$($feature)?],
                |s, x: &mut [f32], weight: &[u8], eps: f32| float::rms_norm(s, x, weight, eps)),
            layer_norm: entry!(layer_norm, $isa, [$($feature)?],
                |s, x: &mut [f32], weight: &[u8], bias: &[u8], deviation: Deviation| if built::LAYER_NORM {
                    float::layer_norm(s, x, weight, bias, deviation);
                }),
            activate: entry!(activate, $isa, [$($feature)?],
                |s, function: Activation, x: &mut [f32], up: Option<&[f32]>| float::activate(s, function, x, up)),
            soft_cap: entry!(soft_cap, $isa, [$($feature)?],
                |s, x: &mut [f32], cap: f32| if built::TANH {
                    float::soft_cap(s, x, cap);
                }),
            store_floats: $crate::kernel::cache::store_floats,
            #[cfg(feature = "lora")]
            add_product: entry!(add_product, $isa, [$($feature)?],
                |s, job: &mut $crate::kernel::Job<'_>| match job.kind {
                    TensorType::F16 if const { TensorType::F16.is_built() } => {
                        float::add_product::<_, float::F16>(s, job);
                    }
                    TensorType::BF16 if const { TensorType::BF16.is_built() } => {
                        float::add_product::<_, float::Bf16>(s, job);
                    }
                    _ => float::add_product::<_, float::F32>(s, job),
                }),
            #[cfg(feature = "lora")]
            prefetch: entry!(prefetch, $isa, [$($feature)?],
                |s, bytes: &[u8]| {
                    let prefetch = |line: &[u8]| s.prefetch(line.as_ptr());
                    // Divides the bytes into groups of eight cache lines, so that the compiler unrolls the inner loop.
                    let (groups, rest) = bytes.as_chunks::<512>();
                    groups.iter().for_each(|group| group.chunks(64).for_each(prefetch));
                    rest.chunks(64).for_each(prefetch);
                }),
            to_f16: entry!(to_f16, $isa, [$($feature)?], |s, x: &[f32], out: &mut [u8]| float::to_f16(s, x, out)),
            convolve: entry!(convolve, $isa, [$($feature)?],
                |s, job: &CausalConvolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]| if built::CONVOLUTION {
                    recurrent::convolve(s, job, x, stride, state);
                }),
            recur: entry!(recur, $isa, [$($feature)?],
                |s, job: &Update<'_>, state: &mut [f32], out: &mut [f32]| recurrent::update(s, job, state, out)),
            attend: entry!(attend, $isa, [$($feature)?],
                |s, job: &Attention<'_>, out: &mut [f32], stride: usize, scratch: &mut [f32]| {
                    attention::attend(s, job, out, stride, scratch);
                }),
        }
    }};
}
