//! Memory that nobody has written yet.

/// Tells the memory sanitizer that `bytes` have not been written, whatever they hold: `.ci/sanitizers memory`. Not for a KV
/// cache: attention reads whole tiles, and masks the positions that nobody has written.
pub fn unwritten(bytes: &mut [u8]) -> &mut [u8] {
    #[cfg(memory_sanitizer)]
    {
        unsafe extern "C" {
            fn __msan_poison(at: *const u8, len: usize);
        }
        // SAFETY: it changes what the sanitizer remembers of these bytes, not the bytes.
        unsafe { __msan_poison(bytes.as_ptr(), bytes.len()) }
    }
    bytes
}
