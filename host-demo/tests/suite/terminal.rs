//! Runs `arenite` on a pseudo-terminal.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::PATIENCE;

pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    /// Output that no test has waited for yet.
    seen: String,
    _pty: Box<dyn MasterPty + Send>,
}

impl Terminal {
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, 200, &[])
    }

    /// Starts `arenite` on a terminal of `cols` columns, with these environment variables.
    pub fn start_with(args: &[&str], cols: u16, variables: &[(&str, &str)]) -> Self {
        let size = PtySize { rows: 40, cols, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_arenite"));
        command.args(args);
        command.env("TERM", "xterm");
        command.env("ARENITE_HISTORY", "");
        command.env_remove("NO_COLOR");
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = pty.slave.spawn_command(command).expect("the binary starts");
        let mut reader = pty.master.try_clone_reader().expect("its output");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let keys = pty.master.take_writer().expect("its keys");
        Self { child, keys, output, seen: String::new(), _pty: pty.master }
    }

    pub fn types(&mut self, keys: &str) {
        self.types_bytes(keys.as_bytes());
    }

    pub fn types_bytes(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).expect("it reads");
        self.keys.flush().expect("it reads");
    }

    /// Waits until the line editor is ready. The editor enables bracketed paste at this moment.
    pub fn is_asked(&mut self) {
        self.wait_for("\x1b[?2004h");
    }

    /// Types a line when the editor is ready.
    pub fn says(&mut self, line: &str) {
        self.is_asked();
        self.types(&format!("{line}\r"));
    }

    /// Waits for `text`. Returns the output up to the end of `text`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes).replace("\r\n", "\n"),
                Err(_) => panic!("{text:?} never came, but {:?}", self.seen),
            }
        }
    }

    /// The rest of the current line.
    pub fn rest_of_line(&mut self) -> String {
        self.wait_for("\n")
    }

    /// Waits for the program to end. Returns true if it succeeded.
    pub fn ends(&mut self) -> bool {
        self.child.wait().expect("it ends").success()
    }

    /// All output until the program ends.
    pub fn remainder(&mut self) -> String {
        self.ends();
        let mut all = std::mem::take(&mut self.seen);
        // The channel closes once the thread that reads the output has seen the end of the program.
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            all += &String::from_utf8_lossy(&bytes);
        }
        all
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}
