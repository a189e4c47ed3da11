# arenite_cargo(TARGET [FLAG...]): makes the CMake target `arenite`: the C interface, built by cargo for the Rust
# TARGET with these RUSTFLAGS, and its header. Cargo runs in every build.
#
# Variables:
#   ARENITE_FEATURES  the crate's features that the model needs, as `arenite plan` prints them ("kv-f16, llama, q8_0");
#                     all features by default. Fewer features make a smaller program.
#   ARENITE_OPT       optimization level: 3 (the default) for speed, s or z for size
#   ARENITE_CARGO     the cargo to use instead of the first one found. Its compiler must have the library of TARGET
#                     (`rustup target add TARGET`).
function(arenite_cargo target)
  # Searches the host's paths, even if the toolchain file restricts programs to the target's.
  find_program(ARENITE_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin" NO_CMAKE_FIND_ROOT_PATH)
  if(NOT ARENITE_CARGO)
    message(FATAL_ERROR "arenite: there is no cargo: install Rust, or pass -DARENITE_CARGO=/path/to/cargo")
  endif()
  set(capi "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/cargo")
  if(DEFINED ENV{CARGO_TARGET_DIR})
    set(directory "$ENV{CARGO_TARGET_DIR}")
  endif()
  set(library "${directory}/${target}/release/libcapi.a")
  string(TOUPPER "${target}" variable)
  string(REGEX REPLACE "[-.]" "_" variable "${variable}")
  set(environment)
  if(ARGN)
    list(JOIN ARGN " " flags)
    set(environment "CARGO_TARGET_${variable}_RUSTFLAGS=${flags}")
  endif()
  if(ARENITE_OPT)
    list(APPEND environment "CARGO_PROFILE_RELEASE_OPT_LEVEL=${ARENITE_OPT}")
  endif()
  set(features)
  if(ARENITE_FEATURES)
    string(REGEX REPLACE "[, ;]+" ",arenite/" features "arenite/${ARENITE_FEATURES}")
    set(features --no-default-features --features "${features}")
  endif()

  add_custom_target(arenite_cargo
    COMMAND ${CMAKE_COMMAND} -E env ${environment} ${ARENITE_CARGO} rustc --lib --crate-type staticlib --release --target ${target}
      ${features} --manifest-path ${capi}/Cargo.toml --target-dir ${directory}
    BYPRODUCTS ${library}
    COMMENT "arenite for ${target}"
    USES_TERMINAL
    VERBATIM)
  add_library(arenite STATIC IMPORTED GLOBAL)
  set_target_properties(arenite PROPERTIES
    IMPORTED_LOCATION "${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${capi}/../../src")
  add_dependencies(arenite arenite_cargo)
endfunction()
