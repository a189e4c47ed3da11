//! The macros that build a table of [`Kernels`](super::Kernels).

/// Defines the choice among weight types for one table: `$floats` of weights that are floats, else `$blocks` of the
/// format. Called by the list.
macro_rules! choose {
    (
        { $name:ident $floats:ident $blocks:ident }
        $($kind:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*
    ) => {
        unsafe fn $name(job: &mut $crate::kernel::Job<'_>) {
            use $crate::kernel::float::{Bf16, F16, F32};
            use $crate::quant::{TensorType, formats};
            // SAFETY: the caller has the table's instruction set.
            unsafe {
                match job.kind {
                    TensorType::F32 => $floats::<F32>(job),
                    TensorType::F16 if const { TensorType::F16.is_built() } => $floats::<F16>(job),
                    TensorType::BF16 if const { TensorType::BF16.is_built() } => $floats::<Bf16>(job),
                    $(
                        #[cfg(feature = $feature)]
                        TensorType::$kind => $blocks::<formats::$module::$format>(job),
                    )*
                    _ => {}
                }
            }
        }
    };
}

/// Builds a table: every float kernel instantiated for one vector type, under one set of features.
macro_rules! table {
    ($name:literal, $lanes:ty, $matmul:path $(, $feature:literal)?) => {
        $crate::kernel::Kernels {
            name: $name,
            matmul: $matmul,
            quantize: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn quantize(form: $crate::kernel::Form, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe {
                        match form {
                            $crate::kernel::Form::F32 => {}
                            $crate::kernel::Form::Q8K if const { !$crate::kernel::Form::Q8K.is_built() } => {}
                            $crate::kernel::Form::Groups32 | $crate::kernel::Form::Groups64
                                if const { !$crate::kernel::Form::Groups64.is_built() } => {}
                            $crate::kernel::Form::Q8 => $crate::kernel::float::quantize_q8::<$lanes>(x, q, d, sums),
                            $crate::kernel::Form::Q8K => $crate::kernel::float::quantize_q8k::<$lanes>(x, q, d, sums),
                            $crate::kernel::Form::Groups32 => {
                                $crate::kernel::float::quantize_groups::<$lanes, 32, 1, 2>(x, q, d, sums);
                            }
                            $crate::kernel::Form::Groups64 => {
                                $crate::kernel::float::quantize_groups::<$lanes, 64, 2, 4>(x, q, d, sums);
                            }
                        }
                    }
                }
                quantize
            },
            rms_norm: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn rms_norm(x: &mut [f32], weight: &[u8], eps: f32) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe { $crate::kernel::float::rms_norm::<$lanes>(x, weight, eps) }
                }
                rms_norm
            },
            layer_norm: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn layer_norm(x: &mut [f32], weight: &[u8], bias: &[u8], deviation: $crate::kernel::Deviation) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe {
                        if $crate::built::LAYER_NORM {
                            $crate::kernel::float::layer_norm::<$lanes>(x, weight, bias, deviation);
                        }
                    }
                }
                layer_norm
            },
            activate: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn activate(function: $crate::kernel::Activation, x: &mut [f32], up: Option<&[f32]>) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe { $crate::kernel::float::activate::<$lanes>(function, x, up) }
                }
                activate
            },
            soft_cap: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn soft_cap(x: &mut [f32], cap: f32) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe {
                        if $crate::built::CAPS {
                            $crate::kernel::float::soft_cap::<$lanes>(x, cap);
                        }
                    }
                }
                soft_cap
            },
            to_f16: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn to_f16(x: &[f32], out: &mut [u8]) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe { $crate::kernel::float::to_f16::<$lanes>(x, out) }
                }
                to_f16
            },
            convolve: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn convolve(job: &$crate::kernel::Convolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe {
                        if $crate::built::CONVOLUTION {
                            $crate::kernel::recurrent::convolve::<$lanes>(job, x, stride, state);
                        }
                    }
                }
                convolve
            },
            recur: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn recur(job: &$crate::kernel::Recurrence<'_>, state: &mut [f32], out: &mut [f32]) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe {
                        if $crate::built::RECURRENCE {
                            $crate::kernel::recurrent::recur::<$lanes>(job, state, out);
                        }
                    }
                }
                recur
            },
            attend: {
                $(#[target_feature(enable = $feature)])?
                unsafe fn attend(job: &$crate::kernel::Attention<'_>, out: &mut [f32], stride: usize, scratch: &mut [f32]) {
                    // SAFETY: this function has the features of the vector type.
                    unsafe { $crate::kernel::attention::attend::<$lanes>(job, out, stride, scratch) }
                }
                attend
            },
        }
    };
}
