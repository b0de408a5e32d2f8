//! The HTTP API of a server: [`serve`] answers requests until the process ends.
//!
//! Every server answers. What only the leader can do, a follower passes on to it. `/livez` never depends on a quorum. Every
//! request passes the same `doors` first, whatever it asks for. The table of all routes is in `routes`; a file is named
//! after what its routes are about.
//!
//! The crate knows nothing of command lines and configuration files: a server's [`Settings`] are plain values.

mod bodies;
mod certs;
mod chaos;
mod context;
mod document;
mod doors;
mod elections;
mod events;
mod farms;
mod groups;
mod happenings;
mod headers;
mod health;
mod jobs;
mod kv;
mod leader;
mod limits;
mod loans;
mod metrics;
mod orders;
mod pages;
mod patience;
mod problem;
mod proxy;
mod room;
mod router;
mod routes;
mod serve;
mod sessions;
mod status;
mod table;
mod tasks;
mod tokens;
mod trusted;
mod values;
mod words;
mod workers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use context::Knowledge;
pub use context::Places;
pub use document::document;
use doors::Doors;
use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::loan::lending::Rules as LendingRules;
use primus_core::rank::RankBy;
use primus_node::handle::Handle;
use primus_shapes::token::Token;
use proxy::Proxy;
use tokio::net::TcpListener;

/// What an API must know of its server and of the farm.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The farm's name.
    pub farm: String,
    /// Where this API listens.
    pub listens: SocketAddr,
    /// Further names and addresses of this host that a request's `Host` may show.
    pub names: Vec<String>,
    /// The secret that requests must show; without one, every user of this host may ask.
    pub token: Option<Token>,
    /// All servers of the farm, this one included, and where they are reached.
    pub servers: BTreeMap<ServerId, Places>,
    /// How servers elect.
    pub algorithm: Algorithm,
    /// What servers compare when they elect.
    pub rank: RankBy,
    /// How many tasks may wait, if this server leads.
    pub queue_max: u64,
    /// How long a lease lasts that this server grants.
    pub lease_us: u64,
    /// When this farm borrows and lends.
    pub lending: LendingRules,
    /// True if links may be cut and loads be overridden.
    pub has_chaos: bool,
}

/// Answers what is asked on this listener, until the process ends.
pub async fn serve(settings: Settings, handle: Handle, listener: TcpListener) {
    let places = settings.servers.values().cloned();
    let doors = Arc::new(Doors::new(settings.listens, places, &settings.names, settings.token));
    let knowledge = Knowledge {
        farm: settings.farm,
        servers: settings.servers,
        handle: handle.clone(),
        proxy: Proxy::new(handle.request_links()),
        algorithm: settings.algorithm,
        rank: settings.rank,
        queue_max: settings.queue_max,
        lease_us: settings.lease_us,
        lending: settings.lending,
        started: SystemTime::now(),
        has_chaos: settings.has_chaos,
    };
    let router = router::router(Arc::new(knowledge), Arc::clone(&doors));
    serve::serve(listener, router, doors, handle.request_links()).await;
}
