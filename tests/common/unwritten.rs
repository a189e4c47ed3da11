//! Memory that nobody has written yet, for the memory sanitizer: `.ci/instrument memory`.

/// Tells it that `items` have not been written, whatever they hold. Not for a KV cache: attention reads whole tiles, and
/// masks the positions that nobody has written.
pub fn unwritten<T: Copy>(items: &mut [T]) -> &mut [T] {
    #[cfg(memory_sanitizer)]
    // SAFETY: it changes what the sanitizer remembers of them, not what they are.
    unsafe {
        __msan_poison(items.as_ptr().cast(), size_of_val(items));
    }
    items
}

/// Has it look whether all of `items` have been written.
pub fn written<T>(items: &[T]) {
    #[cfg(memory_sanitizer)]
    // SAFETY: it looks at what it remembers of them.
    unsafe {
        __msan_check_mem_is_initialized(items.as_ptr().cast(), size_of_val(items));
    }
    let _ = items;
}

#[cfg(memory_sanitizer)]
unsafe extern "C" {
    fn __msan_poison(at: *const std::ffi::c_void, len: usize);
    fn __msan_check_mem_is_initialized(at: *const std::ffi::c_void, len: usize);
}
