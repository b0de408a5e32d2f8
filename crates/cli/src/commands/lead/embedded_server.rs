//! A server beside a guarded command, in the same process.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use primus_client::tokens;
use primus_node::handle::Handle;
use primus_terminal::failure::Failure;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::args::LogFormat;
use crate::commands::config;
use crate::commands::server;
use crate::settings::server::Configuration;

/// How long leadership may take to find another server.
const STEP_DOWN_TIME: Duration = Duration::from_secs(3);

/// A server that runs in this process.
pub(super) struct Server {
    /// `host:port` of its API.
    pub(super) api: String,
    handle: Handle,
}

/// Starts the server that the file describes, and watches it on a thread of its own. The process ends with it.
pub(super) fn start(file: PathBuf) -> Result<Server, Failure> {
    // The server's files are for its owner alone; the command gets what this process was started with.
    primus_node::umask::restrict();
    let settings = Configuration::read(&config::sources(Some(file), Vec::new()), false).settle()?;
    let mut api = settings.api_listen;
    if api.ip().is_unspecified() {
        api.set_ip(if api.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let api = api.to_string();
    if let Some(token) = &settings.token {
        tokens::know(&api, token);
    }
    let (ready, begun) = oneshot::channel();
    let serving = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        runtime.block_on(async {
            match server::start(settings, LogFormat::default()).await {
                Ok(mut server) => {
                    _ = ready.send(Ok(server.handle().clone()));
                    let failure = server::failed(server.ended().await);
                    failure.complain(primus_terminal::Format::Text);
                    std::process::exit(125);
                }
                Err(failure) => _ = ready.send(Err(failure)),
            }
        });
    };
    thread::Builder::new().name("beside".to_owned()).spawn(serving).expect("the system gives a thread");
    let handle = begun.blocking_recv().map_err(|_| Failure::server("the server did not start", "see above"))??;
    Ok(Server { api, handle })
}

impl Server {
    /// Lets another server lead before this one ends.
    pub(super) fn step_down(self) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        _ = runtime.block_on(async { timeout(STEP_DOWN_TIME, self.handle.step_down()).await });
    }
}
