use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::admin::testing;

/// Two snapshots two seconds apart: the second connection moved data in between.
fn view() -> View {
    let before = {
        let mut s = testing::snapshot();
        let mut other = s.connections[0].clone();
        (other.id, other.peer, other.transport) = (2, "192.0.2.9:800".into(), "iwarp".into());
        other.why_not = None;
        s.connections.push(other);
        s
    };
    let mut now = before.clone();
    now.connections[1].moved.rdma_write += 20 << 20;
    now.connections[1].moved.requests += 40;
    now.connections[1].credits_waiting = 3;
    now.moved.values_mut().for_each(|m| m.rdma_write += 20 << 20);
    now.operations[0].buckets[1].1 += 20;
    now.operations[0].bytes += 20 << 20;
    now.rates[0].passed += 20 << 20;
    View::new(&before, &now, 2.0)
}

fn drawn(screen: &mut Screen, view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(100, 14)).unwrap();
    screen.settle(view);
    terminal.draw(|frame| draw::draw(frame, view, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(buffer.area.width));
    let text = lines.map(|l| l.iter().map(|c| c.symbol()).collect::<String>());
    text.map(|l| l.trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_screen_is_as_it_was() {
    let view = view();
    let mut screen = Screen::default();
    let expected = "\
headgate 1.2.3 serving for 2 h: 2 connections, 2 refused
RDMA Write 10 MiB/s  RDMA Read 0 B/s  inline out 0 B/s  inline in 0 B/s
requests 0/s  errors 0/s  latency p50 3584 us  p95 3584 us  p99 3584 us
buffers 4.0 KiB 1/10  credits waiting 3
rates: share data, read 10 MiB/s of 8.0 MiB/s 3 wait
refused 192.0.2.8 logon user ann, 12 times, last 61 s ago: give the client the password of the user
 1 clients  2 operations  3 shares   by bytes
client         protocol   by     age   requests/s  by RDMA   inline  why not RDMA
192.0.2.9:800  smb 3.1.1  iwarp  61 s  20          10 MiB/s  0 B/s
192.0.2.7:700  smb 3.1.1  tcp    61 s  0           0 B/s     0 B/s   not-asked



h help   q quit
";
    assert_eq!(drawn(&mut screen, &view), expected);
}

#[test]
fn keys_sort_and_look_inside() {
    let view = view();
    let mut screen = Screen::default();
    drawn(&mut screen, &view);
    for key in [KeyCode::Down, KeyCode::Enter] {
        assert!(act(&mut screen, key));
        drawn(&mut screen, &view);
    }
    let story = drawn(&mut screen, &view);
    assert!(
        story.contains("no RDMA (not-asked): it signs") && story.contains("dialect: 3.1.1"),
        "{story}"
    );
    // The same connection stays selected when the order is reversed.
    act(&mut screen, KeyCode::Char('r'));
    assert!(drawn(&mut screen, &view).contains("192.0.2.7:700 to"));
    act(&mut screen, KeyCode::Esc);
    assert_eq!((screen.inside, screen.selected), (false, 0));
    act(&mut screen, KeyCode::Char('2'));
    let operations = drawn(&mut screen, &view);
    assert!(operations.contains("data   smb/tcp  READ       10"), "{operations}");
    assert!(operations.contains("by rate, ") || operations.contains("by rate"));
    for _ in Pane::Operations.sorts() {
        act(&mut screen, KeyCode::Char('s'));
        drawn(&mut screen, &view);
    }
    assert_eq!(screen.sort, 0, "all ways to sort have had their turn");
    act(&mut screen, KeyCode::Tab);
    assert_eq!(screen.pane, Pane::Shares);
    assert!(!act(&mut screen, KeyCode::Char('q')) && !act(&mut screen, KeyCode::Esc));
}

#[test]
fn a_connection_that_ended_is_no_longer_looked_into() {
    let mut view = view();
    let mut screen = Screen { inside: true, ..Screen::default() };
    drawn(&mut screen, &view);
    assert!(screen.inside);
    view.clients.retain(|c| c.status.id == 1);
    drawn(&mut screen, &view);
    assert!(!screen.inside);
    view.clients.clear();
    act(&mut screen, KeyCode::Enter);
    drawn(&mut screen, &view);
    assert!(!screen.inside, "there is nothing to look into");
}

#[test]
fn what_is_no_terminal_gets_lines() {
    let text = draw::plain(&view());
    assert!(text.contains("RDMA Write 10 MiB/s"), "{text}");
    assert!(
        text.contains("  data smb/tcp READ: 10/s, 0 with an error, 10 MiB/s, p50 3584 us"),
        "{text}"
    );
}
