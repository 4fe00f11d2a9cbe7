//! Tests that need a process of their own: an ignored test of this binary, run alone.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

/// A child that is killed when it is dropped, as on a machine that fails.
pub struct Process {
    child: Child,
    /// What it prints, read as it comes, so that it never waits for a reader.
    lines: Receiver<String>,
    name: String,
}

impl Process {
    /// Starts the ignored test `name`. The child sees the end of its standard input when this process ends.
    pub fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(send.send(line))));
        Self { child, lines, name: name.into() }
    }

    /// What follows `key` on the first line that starts with it.
    pub fn answer(&mut self, key: &str) -> String {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(60)) {
                Ok(line) => match line.strip_prefix(key) {
                    Some(answer) => return answer.trim().to_string(),
                    None => continue,
                },
                Err(reason) => panic!("{} did not say {key:?}: {reason}", self.name),
            }
        }
    }

    /// Waits for success; a child that takes longer than `limit` is killed, and has failed.
    #[track_caller]
    pub fn succeeds(mut self, limit: Duration) {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(start.elapsed() < limit, "{} hangs: it was killed after {limit:?}", self.name),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{}: {status}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says something to [`Process::answer`], on a line of its own.
pub fn say(key: &str, answer: impl std::fmt::Display) {
    println!("\n{key}{answer}");
}
