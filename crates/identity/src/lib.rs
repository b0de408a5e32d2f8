//! Who is who on a link: a farm's authority gives every server and worker a name, and a TLS 1.3 handshake proves it.
//!
//! - [`name`]: server 2 of farm north, worker w1 of farm south.
//! - [`keys`] and [`authority`]: the key pair of a node, and the key pair of a farm that signs certificates.
//! - [`certificate`]: what a certificate says. [`trust`]: the authorities that this node believes, and for which farm each.
//! - [`verify`]: these rules inside rustls. [`config`]: its settings for links. [`peer`]: who is at the other end, afterwards.
//! - [`token`]: what a joiner brings. [`refusal`]: why a node is turned away. [`hash`]: how keys and authorities are recognised.
//!
//! This crate opens no socket and no file, and it keeps no global state. The ledger decides who is still welcome: it
//! answers through [`peer::Roll`]. What a peer says after the handshake is the hello's business.

pub mod authority;
pub mod certificate;
pub mod config;
pub mod hash;
pub mod keys;
pub mod name;
pub mod peer;
pub mod refusal;
pub mod token;
pub mod trust;
pub mod verify;

pub use rustls;
pub use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
