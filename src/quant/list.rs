//! The one list of block formats. [`TensorType`](super::TensorType), the type numbers and sizes, the decoders, the
//! kernels and their tests are all generated from it.

/// Passes the list to the macro `$then`. Each row has the type's name, its number in the file, its module, the type in
/// that module that implements [`Format`](super::Format), and the crate feature that enables the type. Numbers from 200
/// on are Arenite's own.
macro_rules! formats {
    ($then:ident $($arguments:tt)*) => {
        $then! {
            { $($arguments)* }
            Q4_0 = 2, q4_0::Q4_0, "q4_0";
            Q4_1 = 3, q4_1::Q4_1, "q4_1";
            Q5_0 = 6, q5_0::Q5_0, "q5_0";
            Q5_1 = 7, q5_1::Q5_1, "q5_1";
            Q8_0 = 8, q8_0::Q8_0, "q8_0";
            Q2_K = 10, q2_k::Q2K, "q2_k";
            Q3_K = 11, q3_k::Q3K, "q3_k";
            Q4_K = 12, q4_k::Q4K, "q4_k";
            Q5_K = 13, q5_k::Q5K, "q5_k";
            Q6_K = 14, q6_k::Q6K, "q6_k";
            IQ2_XXS = 16, iq2_xxs::Iq2Xxs, "iq2_xxs";
            IQ2_XS = 17, iq2_xs::Iq2Xs, "iq2_xs";
            IQ3_XXS = 18, iq3_xxs::Iq3Xxs, "iq3_xxs";
            IQ1_S = 19, iq1_s::Iq1S, "iq1_s";
            IQ4_NL = 20, iq4_nl::Iq4Nl, "iq4_nl";
            IQ3_S = 21, iq3_s::Iq3S, "iq3_s";
            IQ2_S = 22, iq2_s::Iq2S, "iq2_s";
            IQ4_XS = 23, iq4_xs::Iq4Xs, "iq4_xs";
            IQ1_M = 29, iq1_m::Iq1M, "iq1_m";
            TQ1_0 = 34, tq1_0::Tq1_0, "tq1_0";
            TQ2_0 = 35, tq2_0::Tq2_0, "tq2_0";
            MXFP4 = 39, mxfp4::Mxfp4, "mxfp4";
            NVFP4 = 40, nvfp4::Nvfp4, "nvfp4";
            Q1_0 = 41, q1_0::Q1_0, "q1_0";
            Q2_0 = 42, q2_0::Q2_0, "q2_0";
            Q8_G32 = 200, q8_g32::Q8G32, "q8_groups";
            Q8_G64 = 201, q8_g64::Q8G64, "q8_groups";
        }
    };
}
pub(crate) use formats;
