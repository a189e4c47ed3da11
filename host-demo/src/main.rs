//! `arenite`: runs, inspects and plans transformer models from GGUF files.

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| name.into());
    host_demo::main(host_demo::Invocation { program, leading: Vec::new(), arguments: arguments.collect() })
}
