//! `arenite`: runs, inspects and plans transformer models from GGUF files.

fn main() -> std::process::ExitCode {
    host_demo::main()
}
