//! `headgate`: see [`gateway::cli`].

fn main() -> std::process::ExitCode {
    gateway::cli::main()
}
