//! NEON's intrinsics as safe functions. Every target of this module has NEON, but the compiler requires `unsafe` in
//! callers that do not declare the feature.

pub(super) use core::arch::aarch64::{
    float32x2_t, float32x4_t, float64x2_t, float64x2x4_t, int8x8_t, int8x16_t, int16x4_t, int16x8_t, int32x2_t,
    int32x4_t, int32x4x4_t, int64x2_t, int64x2x4_t, uint8x8_t, uint8x16_t, uint16x4_t, uint16x8_t, uint32x4_t,
    uint64x1_t, uint64x2_t, vld1q_s8, vst1q_f32,
};

macro_rules! safe {
    ($($name:ident $(<$n:ident>)? ($($x:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[inline(always)]
        pub(super) fn $name $(<const $n: i32>)? ($($x: $type),*) -> $result {
            // SAFETY: every target of this module has NEON, and the instruction uses registers only.
            unsafe { core::arch::aarch64::$name $(::<$n>)? ($($x),*) }
        }
    )* };
}

/// Loads and stores of bytes, of any alignment.
macro_rules! memory {
    ($($name:ident($at:ident.$pointer:ident: $bytes:ty $(, $x:ident: $type:ty)*) $(-> $result:ty)?;)*) => { $(
        #[inline(always)]
        pub(super) fn $name($at: $bytes $(, $x: $type)*) $(-> $result)? {
            // SAFETY: every target of this module has NEON, and the instruction accesses as many bytes as the reference has.
            unsafe { core::arch::aarch64::$name($at.$pointer().cast() $(, $x)*) }
        }
    )* };
}
memory! {
    vld4q_dup_f64(from.as_ptr: &[u8; 32]) -> float64x2x4_t;
    vld4q_dup_s64(from.as_ptr: &[u8; 32]) -> int64x2x4_t;
    vld4q_dup_s32(from.as_ptr: &[u8; 16]) -> int32x4x4_t;
    vst4q_s32(to.as_mut_ptr: &mut [u8; 64], x: int32x4x4_t);
    vst4q_s64(to.as_mut_ptr: &mut [u8; 64], x: int64x2x4_t);
}
safe! {
    vabsq_f32(a: float32x4_t) -> float32x4_t;
    vadd_f32(a: float32x2_t, b: float32x2_t) -> float32x2_t;
    vaddq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vaddq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vaddq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vandq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vbslq_f32(a: uint32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t;
    vcgeq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vcombine_f32(a: float32x2_t, b: float32x2_t) -> float32x4_t;
    vcombine_s32(a: int32x2_t, b: int32x2_t) -> int32x4_t;
    vcombine_u64(a: uint64x1_t, b: uint64x1_t) -> uint64x2_t;
    vcombine_u8(a: uint8x8_t, b: uint8x8_t) -> uint8x16_t;
    vcreate_u64(a: u64) -> uint64x1_t;
    vcvtq_f32_s32(a: int32x4_t) -> float32x4_t;
    vcvtq_s32_f32(a: float32x4_t) -> int32x4_t;
    vdivq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vdup_n_s32(value: i32) -> int32x2_t;
    vdup_n_u8(value: u8) -> uint8x8_t;
    vdupq_laneq_s64<N>(a: int64x2_t) -> int64x2_t;
    vdupq_n_f32(value: f32) -> float32x4_t;
    vdupq_n_s32(value: i32) -> int32x4_t;
    vdupq_n_s8(value: i8) -> int8x16_t;
    vdupq_n_u16(value: u16) -> uint16x8_t;
    vdupq_n_u32(value: u32) -> uint32x4_t;
    vdupq_n_u64(value: u64) -> uint64x2_t;
    vdupq_n_u8(value: u8) -> uint8x16_t;
    veorq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vfmaq_f32(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t;
    vget_high_f32(a: float32x4_t) -> float32x2_t;
    vget_low_f32(a: float32x4_t) -> float32x2_t;
    vget_low_s16(a: int16x8_t) -> int16x4_t;
    vget_low_s8(a: int8x16_t) -> int8x8_t;
    vget_low_u16(a: uint16x8_t) -> uint16x4_t;
    vmaxq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmaxvq_f32(a: float32x4_t) -> f32;
    vminq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmlal_high_laneq_s16<LANE>(a: int32x4_t, b: int16x8_t, c: int16x8_t) -> int32x4_t;
    vmlal_high_s16(a: int32x4_t, b: int16x8_t, c: int16x8_t) -> int32x4_t;
    vmlal_high_s8(a: int16x8_t, b: int8x16_t, c: int8x16_t) -> int16x8_t;
    vmlal_laneq_s16<LANE>(a: int32x4_t, b: int16x4_t, c: int16x8_t) -> int32x4_t;
    vmlal_s16(a: int32x4_t, b: int16x4_t, c: int16x4_t) -> int32x4_t;
    vmlaq_s32(a: int32x4_t, b: int32x4_t, c: int32x4_t) -> int32x4_t;
    vmovl_high_s16(a: int16x8_t) -> int32x4_t;
    vmovl_high_s8(a: int8x16_t) -> int16x8_t;
    vmovl_s16(a: int16x4_t) -> int32x4_t;
    vmovl_s8(a: int8x8_t) -> int16x8_t;
    vmovn_u32(a: uint32x4_t) -> uint16x4_t;
    vmull_s8(a: int8x8_t, b: int8x8_t) -> int16x8_t;
    vmulq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vmulq_n_f32(a: float32x4_t, b: f32) -> float32x4_t;
    vmulq_n_s32(a: int32x4_t, b: i32) -> int32x4_t;
    vorrq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vpadalq_s16(a: int32x4_t, b: int16x8_t) -> int32x4_t;
    vpaddq_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vpaddq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vpadds_f32(a: float32x2_t) -> f32;
    vqmovn_high_s16(a: int8x8_t, b: int16x8_t) -> int8x16_t;
    vqmovn_high_s32(a: int16x4_t, b: int32x4_t) -> int16x8_t;
    vqmovn_s16(a: int16x8_t) -> int8x8_t;
    vqmovn_s32(a: int32x4_t) -> int16x4_t;
    vqtbl1q_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vreinterpretq_f32_f64(a: float64x2_t) -> float32x4_t;
    vreinterpretq_f32_s32(a: int32x4_t) -> float32x4_t;
    vreinterpretq_f32_u32(a: uint32x4_t) -> float32x4_t;
    vreinterpretq_f64_f32(a: float32x4_t) -> float64x2_t;
    vreinterpretq_s16_s32(a: int32x4_t) -> int16x8_t;
    vreinterpretq_s16_s64(a: int64x2_t) -> int16x8_t;
    vreinterpretq_s32_s64(a: int64x2_t) -> int32x4_t;
    vreinterpretq_s32_s8(a: int8x16_t) -> int32x4_t;
    vreinterpretq_s32_u64(a: uint64x2_t) -> int32x4_t;
    vreinterpretq_s32_u8(a: uint8x16_t) -> int32x4_t;
    vreinterpretq_s64_s16(a: int16x8_t) -> int64x2_t;
    vreinterpretq_s64_s8(a: int8x16_t) -> int64x2_t;
    vreinterpretq_s8_s32(a: int32x4_t) -> int8x16_t;
    vreinterpretq_s8_s64(a: int64x2_t) -> int8x16_t;
    vreinterpretq_s8_u8(a: uint8x16_t) -> int8x16_t;
    vreinterpretq_u32_u64(a: uint64x2_t) -> uint32x4_t;
    vreinterpretq_u64_u32(a: uint32x4_t) -> uint64x2_t;
    vreinterpretq_u8_u32(a: uint32x4_t) -> uint8x16_t;
    vreinterpretq_u8_u64(a: uint64x2_t) -> uint8x16_t;
    vrndnq_f32(a: float32x4_t) -> float32x4_t;
    vshll_high_n_u16<N>(a: uint16x8_t) -> uint32x4_t;
    vshll_n_u16<N>(a: uint16x4_t) -> uint32x4_t;
    vshlq_n_s32<N>(a: int32x4_t) -> int32x4_t;
    vshlq_n_u8<N>(a: uint8x16_t) -> uint8x16_t;
    vshrn_n_u32<N>(a: uint32x4_t) -> uint16x4_t;
    vshrq_n_s32<N>(a: int32x4_t) -> int32x4_t;
    vshrq_n_u8<N>(a: uint8x16_t) -> uint8x16_t;
    vsliq_n_u8<N>(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vsubq_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t;
    vsubq_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vsubq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vtrn1q_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vtrn1q_u64(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t;
    vtrn2q_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vtrn2q_u64(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t;
    vtstq_u32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t;
    vtstq_u8(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    vuzp1q_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vuzp2q_s32(a: int32x4_t, b: int32x4_t) -> int32x4_t;
    vzip1q_f64(a: float64x2_t, b: float64x2_t) -> float64x2_t;
    vzip1q_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
    vzip2q_f64(a: float64x2_t, b: float64x2_t) -> float64x2_t;
    vzip2q_s16(a: int16x8_t, b: int16x8_t) -> int16x8_t;
}
