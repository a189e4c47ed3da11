//! Detects the features of the running machine. The operating system is asked, because user mode cannot read the
//! features from the processor. Without an operating system, the features of the build are used.

/// True if the processor has `sdot`.
pub(super) fn dotprod() -> bool {
    cfg!(target_feature = "dotprod") || system::dotprod()
}

/// True if the processor has `smmla`.
pub(super) fn i8mm() -> bool {
    cfg!(target_feature = "i8mm") || system::i8mm()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use libc::{AT_HWCAP, AT_HWCAP2, HWCAP_ASIMDDP, getauxval};

    /// From Linux' `asm/hwcap.h`.
    const HWCAP2_I8MM: libc::c_ulong = 1 << 13;

    pub fn dotprod() -> bool {
        // SAFETY: `getauxval` has no preconditions.
        unsafe { getauxval(AT_HWCAP) & HWCAP_ASIMDDP != 0 }
    }

    pub fn i8mm() -> bool {
        // SAFETY: `getauxval` has no preconditions.
        unsafe { getauxval(AT_HWCAP2) & HWCAP2_I8MM != 0 }
    }
}

#[cfg(target_vendor = "apple")]
mod system {
    use core::ffi::CStr;
    use core::ptr::{from_mut, null_mut};

    pub fn dotprod() -> bool {
        flag(c"hw.optional.arm.FEAT_DotProd")
    }

    pub fn i8mm() -> bool {
        flag(c"hw.optional.arm.FEAT_I8MM")
    }

    /// True if the system reports the feature; false if the system does not know the name.
    fn flag(name: &CStr) -> bool {
        let (mut value, mut size) = (0u32, size_of::<u32>());
        // SAFETY: the name ends in a zero byte, and `size` is the size of `value`.
        let status =
            unsafe { libc::sysctlbyname(name.as_ptr(), from_mut(&mut value).cast(), &raw mut size, null_mut(), 0) };
        status == 0 && value != 0
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod system {
    pub fn dotprod() -> bool {
        false
    }

    pub fn i8mm() -> bool {
        false
    }
}
