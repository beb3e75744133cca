//! `headgate top`: shows the activity of the running daemon, redrawn in place.
//!
//! *Operation.* Two snapshots of the daemon make a [`model::View`]: rates and latency of the time between them. On a
//! terminal, [`draw`] shows it, and keys sort it and open details; elsewhere each interval prints a few plain lines.
//!
//! *Errors.* If the daemon does not answer, the command restores the terminal and ends.

mod draw;
mod model;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::runtime::Runtime;

use crate::admin::show::{Asked, Way};
use crate::admin::snapshot::Snapshot;
use model::{Pane, Screen, View};

/// Options of `headgate top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    asked: Asked,
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: config::Span,
    /// Stop after this many updates
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print plain lines, even on a terminal
    #[arg(long)]
    plain: bool,
}

/// A snapshot and when it was taken.
struct Taken {
    snapshot: Snapshot,
    at: Instant,
}

/// Source, interval and number of snapshots.
struct Watch<'a> {
    runtime: &'a Runtime,
    way: Way,
    interval: Duration,
    left: Option<u64>,
}

impl Watch<'_> {
    fn take(&self) -> Result<Taken, String> {
        let snapshot = self.runtime.block_on(self.way.snapshot())?;
        Ok(Taken { snapshot, at: Instant::now() })
    }

    /// Counts one snapshot; returns false if no further one is wanted.
    fn goes_on(&mut self) -> bool {
        match &mut self.left {
            None => true,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left > 0
            }
        }
    }
}

/// Runs the command. The error is one line for standard error.
pub fn run(args: &TopArgs, runtime: &Runtime) -> Result<(), String> {
    let interval = args.interval.0.clamp(Duration::from_millis(100), Duration::from_secs(3600));
    let way = runtime.block_on(args.asked.way())?;
    let mut watch = Watch { runtime, way, interval, left: args.count };
    let first = watch.take()?;
    if args.plain || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return plain(&mut watch, first);
    }
    let mut terminal = ratatui::try_init().map_err(|e| format!("the terminal: {e}"))?;
    let end = live(&mut terminal, &mut watch, first);
    ratatui::restore();
    end
}

fn plain(watch: &mut Watch<'_>, mut before: Taken) -> Result<(), String> {
    loop {
        std::thread::sleep(watch.interval);
        let now = watch.take()?;
        let seconds = (now.at - before.at).as_secs_f64();
        let text = draw::plain(&View::new(&before.snapshot, &now.snapshot, seconds));
        match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
            Ok(()) if watch.goes_on() => before = now,
            // The reader of the output has ended, as `head` does.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.to_string()),
            _ => return Ok(()),
        }
    }
}

fn live(terminal: &mut DefaultTerminal, watch: &mut Watch<'_>, first: Taken) -> Result<(), String> {
    let broken = |e: io::Error| format!("the terminal: {e}");
    let mut screen = Screen::default();
    let mut view = View::new(&first.snapshot, &first.snapshot, 1.0);
    let mut before = first;
    loop {
        screen.settle(&view);
        terminal.draw(|frame| draw::draw(frame, &view, &mut screen)).map_err(broken)?;
        let wait = (before.at + watch.interval).saturating_duration_since(Instant::now());
        if event::poll(wait).map_err(broken)? {
            if let Event::Key(key) = event::read().map_err(broken)?
                && key.kind != KeyEventKind::Release
            {
                let ctrl_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if ctrl_c || !act(&mut screen, key.code) {
                    return Ok(());
                }
            }
            continue;
        }
        let now = watch.take()?;
        let seconds = (now.at - before.at).as_secs_f64();
        view = View::new(&before.snapshot, &now.snapshot, seconds);
        before = now;
        if !watch.goes_on() {
            return Ok(());
        }
    }
}

/// Executes a key. Returns false if it ends the program.
fn act(screen: &mut Screen, key: KeyCode) -> bool {
    match key {
        KeyCode::Char('q') => return false,
        KeyCode::Esc if !screen.inside => return false,
        KeyCode::Esc | KeyCode::Backspace => screen.inside = false,
        KeyCode::Tab | KeyCode::Right => screen.show(screen.pane.next()),
        KeyCode::Char('1') => screen.show(Pane::Clients),
        KeyCode::Char('2') => screen.show(Pane::Operations),
        KeyCode::Char('3') => screen.show(Pane::Shares),
        KeyCode::Char('s') => screen.sort_next(),
        KeyCode::Char('r') => screen.reverse = !screen.reverse,
        KeyCode::Char('h' | '?') => screen.help = !screen.help,
        KeyCode::Enter => screen.inside = screen.pane == Pane::Clients && !screen.inside,
        KeyCode::Down | KeyCode::Char('j') => screen.step(1),
        KeyCode::Up | KeyCode::Char('k') => screen.step(-1),
        KeyCode::PageDown => screen.step(20),
        KeyCode::PageUp => screen.step(-20),
        KeyCode::Home => screen.step(isize::MIN),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests;
