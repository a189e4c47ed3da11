//! Generates `src/arenite.h` from `src/ffi.rs` and `src/ffi/`:
//!
//!     cargo run --manifest-path tests/capi/header/Cargo.toml

use std::path::Path;

use cbindgen::{Builder, Config, EnumConfig, ExportConfig, Language, RenameRule};

const INTRODUCTION: &str = "\
/* Arenite's C interface. Generated from src/ffi.rs and src/ffi/: do not edit.
 *
 * Nothing is allocated. An object (a model, a session, ...) is created in memory that the caller provides, with
 * the size returned by arenite_*_size() and the alignment arenite_align(). It borrows what it is created from:
 * keep both unmoved while the object is in use. Only a pool of threads must be freed. Define ARENITE_STD for the
 * functions that need an operating system; libraries built for one have them.
 *
 * A pointer with a length points to that many elements, or is NULL if the length is 0. An object must not be used
 * by two threads at once. Functions that can fail return a status and fill the arenite_error, unless it is NULL.
 */";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let config = Config {
        language: Language::C,
        header: Some(INTRODUCTION.into()),
        include_guard: Some("ARENITE_H".into()),
        cpp_compat: true,
        usize_is_size_t: true,
        documentation: true,
        line_length: 120,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).to_vec(),
        no_includes: true,
        defines: [("feature = std".into(), "ARENITE_STD".into())].into(),
        enumeration: EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() },
        export: ExportConfig { exclude: vec!["FILLED".into()], ..ExportConfig::default() },
        ..Config::default()
    };
    let source = |file: &str| root.join("src").join(file);
    let builder = Builder::new().with_config(config).with_src(source("ffi.rs"));
    let builder = builder.with_src(source("ffi/session.rs")).with_src(source("ffi/text.rs"));
    let builder = builder.with_src(source("ffi/workers.rs")).with_src(source("ffi/contexts.rs"));
    let header = builder.with_src(source("ffi/encoder.rs")).with_src(source("ffi/prompt.rs")).generate();
    header.expect("the sources can be read").write_to_file(root.join("src/arenite.h"));
}
