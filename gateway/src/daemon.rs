//! `headgate serve`: the main loop, which connects the service manager, signals and the control socket with the gateway.
//!
//! *Operation.* The loop handles one event at a time. SIGHUP and `headgate reload` start a task that reads the configuration
//! again while the loop continues ([`Reloads`]). SIGTERM, SIGINT and `headgate drain` end the gateway when running operations
//! are finished; a second signal ends it at once. The service manager receives each state (`READY`, `RELOADING`, `STOPPING`)
//! and, if it has a watchdog, a sign of life.
//!
//! *Errors.* An error at the start is one line for standard error. A rejected reload changes nothing; the reason goes to the
//! log and to the process that ordered the reload.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use config::Settings;
use config::in_time::LOOK_MAX;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::admin;
use crate::control::{Control, Desk, Drained, Order};
use crate::load::{Load, one_line, warn};
use crate::logs;
use crate::manager::Manager;
use crate::reloads::{Cause, Reloads, Step};
use crate::serve::{self, Running};
use crate::trail::{self, By};

/// Time between look-ups of users and groups that could not be resolved.
const NAMES_RETRY: Duration = Duration::from_secs(15);
/// A signal does not identify its sender.
const BY_SIGNAL: By = By { way: "signal", uid: None, pid: None };

/// Serves until a signal or an order ends it.
pub async fn run(settings: Settings, load: Load) -> Result<(), String> {
    logs::start(&settings.log, settings.log_format);
    warn(&settings);
    let on = |kind| signal(kind).map_err(|e: io::Error| format!("cannot wait for signals: {e}"));
    let mut ends = [on(SignalKind::terminate())?, on(SignalKind::interrupt())?];
    let mut hangup = on(SignalKind::hangup())?;
    let manager = Arc::new(Manager::start()?);
    let mut running = serve::start(settings).await?;
    let (_control, mut orders) = listen(&mut running)?;
    // Serve even if no reader of standard output is left, or the pipe is full.
    let _ = writeln!(io::stdout(), "headgate ready{}", running.endpoints());
    if io::stdout().is_terminal() {
        let _ = write!(io::stdout(), "{}", running.greeting());
    }
    manager.tell(vec![NotifyState::Ready]);
    let _heart = heart(&running, &manager);
    let mut reloads = Reloads::default();
    let mut retry = tokio::time::interval(NAMES_RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            // If the first user was added or the last one removed, SMB must start or stop.
            () = running.users_changed() => reloads.ask(Cause::Users),
            _ = retry.tick(), if running.is_waiting() => reloads.ask(Cause::Users),
            step = reloads.next(&running, &load, &manager) => {
                put_in_force(&mut running, step, &manager).await;
            }
            Some(order) = orders.recv() => match order {
                Order::Reload(answer) => reloads.ask(Cause::Order(answer)),
                Order::Log(filter, answer) => {
                    logs::set(&filter);
                    tracing::info!(%filter, "log levels changed until the next reload");
                    // The client that sent the order may have disconnected.
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

/// Applies the configuration that was read, and logs the result.
async fn put_in_force(running: &mut Running, step: Step, manager: &Manager) {
    let Step { cause, read, replaced } = step;
    let done = match read {
        Ok(sound) => running.take(sound).await,
        Err(refusal) => Err(refusal),
    };
    if let Cause::Users = cause {
        // The code that read the list has already logged the users that were added or removed.
        if let Err(refusal) = done {
            tracing::error!("the new users cannot be served: {}", one_line(&refusal));
        }
        return;
    }
    admin::reloads::note(done.is_ok());
    trail::configuration(&done);
    if done.is_err() {
        // Reopen the audit file, which may have been renamed, even if the reload was rejected.
        audit::reopen();
    }
    match &done {
        Ok(changes) => tracing::info!("{}", one_line(changes)),
        Err(refusal) => tracing::error!("the configuration stays as it was: {}", one_line(refusal)),
    }
    manager.tell(vec![NotifyState::Ready]);
    if let Some(replaced) = replaced.filter(|_| done.is_err()) {
        // Signals and orders wait for this task. If it panics, the panic is in the log.
        let put_back = tokio::task::spawn_blocking(move || replaced.put_back());
        if tokio::time::timeout(LOOK_MAX, put_back).await.is_err() {
            tracing::error!(
                "the folder of the configuration does not respond: a share that is not in force may stay in the file"
            );
        }
    }
    if let Cause::Order(answer) | Cause::Share(_, answer) = cause {
        // The client that sent the order may have disconnected.
        let _ = answer.send(done);
    }
}

/// Opens the control socket and takes the receiver of its orders.
fn listen(running: &mut Running) -> Result<(Control, mpsc::Receiver<Order>), String> {
    let orders = running.received.take().ok_or("another loop already takes its orders")?;
    let desk = Desk {
        source: running.source.clone(),
        servers: running.servers.clone(),
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
        // Gives the socket time to send the answer before this process ends.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Notifies the watchdog of the service manager twice in each of its intervals, after every part that connections share could
/// be locked. A lock that is never released ends the notifications, and the service manager restarts the gateway.
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
                // A separate task shows that the runtime still schedules tasks.
                let pulse = tokio::spawn(async move { Running::pulse(&shared, &servers) });
                if pulse.await.is_ok() {
                    manager.is_alive();
                }
            }
        });
    }
    heart
}
