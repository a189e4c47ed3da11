//! `arenite`: run, inspect and plan transformer models from GGUF files.

fn main() -> std::process::ExitCode {
    host_demo::main()
}
