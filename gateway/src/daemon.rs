//! `headgate serve`: the main loop, between the service manager, signals, the control socket and the gateway.
//!
//! *Operation.* One thing after the other: SIGHUP and `headgate reload` read the configuration again, which a task does beside
//! the loop ([`Reloads`]); SIGTERM, SIGINT and `headgate drain` end the gateway when what is under way is finished, a second
//! signal at once. A service manager is told of each state (`READY`, `RELOADING`, `STOPPING`), and, if it wants to know, that the
//! gateway is alive.
//!
//! *Errors.* What stops the start is one line for standard error. A reload that is refused changes nothing and is said in the log,
//! and to whoever asked for it.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use config::Settings;
use config::in_time::LOOK_MAX;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin;
use crate::control::{Control, Desk, Drained, Order};
use crate::load::{Load, one_line, warn};
use crate::logs;
use crate::manager::Manager;
use crate::reloads::{Cause, Reloads, Step};
use crate::serve::{self, Running};
use crate::trail::{self, By};

/// Who gave an order by a signal is not told.
const BY_SIGNAL: By = By { way: "signal", uid: None, pid: None };

/// Serves until it is told to end.
pub async fn run(settings: Settings, load: Load) -> Result<(), String> {
    logs::start(&settings.log, settings.log_format);
    warn(&settings);
    let on = |kind| signal(kind).map_err(|e: io::Error| format!("cannot wait for signals: {e}"));
    let mut ends = [on(SignalKind::terminate())?, on(SignalKind::interrupt())?];
    let mut hangup = on(SignalKind::hangup())?;
    let manager = Arc::new(Manager::start()?);
    let mut running = serve::start(settings).await?;
    let (_control, mut orders) = listen(&mut running)?;
    // A reader that has gone, or no room for it, is no reason not to serve.
    let _ = writeln!(io::stdout(), "headgate ready{}", running.endpoints());
    if io::stdout().is_terminal() {
        let _ = write!(io::stdout(), "{}", running.greeting());
    }
    manager.tell(vec![NotifyState::Ready]);
    let _heart = heart(&running, &manager);
    let mut reloads = Reloads::default();
    let asked = loop {
        tokio::select! {
            () = either(&mut ends) => {
                trail::act("drain", BY_SIGNAL, "", &Ok::<_, String>(()));
                break None;
            }
            _ = hangup.recv() => {
                trail::act("reload", BY_SIGNAL, "", &Ok::<_, String>(()));
                reloads.ask(Cause::Signal);
            }
            // The first user has come, or the last has gone: SMB may have to be served, or not.
            () = running.users_changed() => reloads.ask(Cause::Users),
            step = reloads.next(&running, &load, &manager) => {
                put_in_force(&mut running, step, &manager).await;
            }
            Some(order) = orders.recv() => match order {
                Order::Reload(answer) => reloads.ask(Cause::Order(answer)),
                Order::Log(filter, answer) => {
                    logs::set(&filter);
                    tracing::info!(%filter, "log levels changed until the next reload");
                    // Whoever asked may have gone.
                    let _ = answer.send(());
                }
                Order::AddShare(new, answer) => reloads.ask(Cause::Share(new, answer)),
                Order::Files(answer) => running.tell_held_files(answer),
                Order::Close(what, answer) => running.close_for(what, answer),
                Order::Disconnect(client, answer) => running.disconnect_for(client, answer),
                Order::Drain(answer) => break Some(answer),
            },
        }
    };
    tokio::select! {
        () = end(&mut running, asked, &manager) => {}
        () = either(&mut ends) => tracing::warn!("second signal: stopping without waiting for requests in progress"),
    }
    trail::stop();
    manager.last().await;
    Ok(())
}

async fn either([a, b]: &mut [Signal; 2]) {
    tokio::select! { _ = a.recv() => {}, _ = b.recv() => {} }
}

/// Puts in force what was read, and says so.
async fn put_in_force(running: &mut Running, step: Step, manager: &Manager) {
    let Step { cause, read, replaced } = step;
    let done = match read {
        Ok(sound) => running.take(sound).await,
        Err(refusal) => Err(refusal),
    };
    if let Cause::Users = cause {
        // Who came and went is told by whoever read it.
        if let Err(refusal) = done {
            tracing::error!("the new users cannot be served: {}", one_line(&refusal));
        }
        return;
    }
    admin::reloads::note(done.is_ok());
    trail::configuration(&done);
    if done.is_err() {
        // Its file may have been renamed, whatever else was to change.
        audit::reopen();
    }
    match &done {
        Ok(changes) => tracing::info!("{}", one_line(changes)),
        Err(refusal) => tracing::error!("the configuration stays as it was: {}", one_line(refusal)),
    }
    manager.tell(vec![NotifyState::Ready]);
    if let Some(replaced) = replaced.filter(|_| done.is_err()) {
        // Signals and orders wait for this. A panic of it is in the log.
        let put_back = tokio::task::spawn_blocking(move || replaced.put_back());
        if tokio::time::timeout(LOOK_MAX, put_back).await.is_err() {
            tracing::error!(
                "the folder of the configuration does not respond: a share that is not in force may stay in the file"
            );
        }
    }
    if let Cause::Order(answer) | Cause::Share(_, answer) = cause {
        // Whoever asked may have gone.
        let _ = answer.send(done);
    }
}

/// Opens the control socket, and takes the other end of the way that orders go.
fn listen(running: &mut Running) -> Result<(Control, mpsc::Receiver<Order>), String> {
    let orders = running.received.take().ok_or("another loop already takes its orders")?;
    let desk = Desk {
        source: running.source.clone(),
        orders: running.orders.clone(),
        logins: running.logins.clone(),
        page: running.admin,
    };
    Ok((Control::open(running.run.folder.as_deref(), desk), orders))
}

async fn end(running: &mut Running, asked: Option<oneshot::Sender<Drained>>, manager: &Manager) {
    let limit = running.settings.drain;
    let usec = u32::try_from((limit + Duration::from_secs(2)).as_micros()).unwrap_or(u32::MAX);
    manager.tell(vec![NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(usec)]);
    tracing::info!(?limit, "stopping: no new connections; requests in progress are answered");
    let connections = running.shared.connections.count();
    let in_time = running.drain().await;
    let cut = running.shared.connections.count();
    if !in_time {
        tracing::warn!(cut, "some requests took too long and were abandoned");
    }
    if let Some(asked) = asked {
        let _ = asked.send(Drained { connections, cut });
        // The answer is on its way through the socket when this process ends.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Tells the service manager that the gateway is alive, twice in the time that it gives. It is when every part that connections
/// share can be had: a lock that nobody gives back ends this, and the service manager starts the gateway anew.
fn heart(running: &Running, manager: &Arc<Manager>) -> JoinSet<()> {
    let mut heart = JoinSet::new();
    if let Some(limit) = sd_notify::watchdog_enabled() {
        let (shared, servers) = (running.shared.clone(), running.servers.clone());
        let manager = manager.clone();
        heart.spawn(async move {
            let mut ticks = tokio::time::interval(limit / 2);
            loop {
                ticks.tick().await;
                let (shared, servers) = (shared.clone(), servers.clone());
                // On another task, which has to be scheduled too.
                let pulse = tokio::spawn(async move { Running::pulse(&shared, &servers) });
                if pulse.await.is_ok() {
                    manager.is_alive();
                }
            }
        });
    }
    heart
}
