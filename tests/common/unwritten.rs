//! Marks memory as unwritten for the memory sanitizer (`.ci/instrument memory`).

/// Marks `items` as unwritten. Not for a KV cache: attention reads whole tiles and masks unwritten positions.
pub fn unwritten<T: Copy>(items: &mut [T]) -> &mut [T] {
    #[cfg(memory_sanitizer)]
    // SAFETY: changes only the sanitizer's records, not the items.
    unsafe {
        __msan_poison(items.as_ptr().cast(), size_of_val(items));
    }
    items
}

/// Checks that all of `items` have been written.
pub fn written<T>(items: &[T]) {
    #[cfg(memory_sanitizer)]
    // SAFETY: reads only the sanitizer's records.
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
