//! Writes `src/arenite.h` from `src/ffi.rs` and what is below it:
//!
//!     cargo run --manifest-path tests/capi/Cargo.toml --example header

use std::path::Path;

use cbindgen::{Builder, Config, EnumConfig, ExportConfig, Language, RenameRule};

const INTRODUCTION: &str = "\
/* Arenite's C interface. Made from src/ffi.rs and src/ffi/: do not change it here.
 *
 * Nothing is allocated. Whatever lives on (a model, a session, ...) is placed in memory that the caller hands
 * over, of the size that arenite_*_size() tells and on a boundary of arenite_align(), and borrows what it is
 * made from: keep both where they are as long as it is used. There is nothing to free, but a pool of threads.
 * Define ARENITE_STD for what needs an operating system, which is in the libraries for one.
 *
 * A pointer with a length is to as many elements, or NULL where the length is 0. No object may be used by two
 * threads at once. Functions that can fail return a status and fill the arenite_error, unless that is NULL.
 */";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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
