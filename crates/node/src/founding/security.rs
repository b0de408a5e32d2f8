//! Whether links are encrypted is a fact of a founding, and no accident of a command line.

use std::path::PathBuf;

use super::Order;
use crate::credentials::Security;
use crate::store::{Opened, WriteError};

/// Why a server does not start with such links.
#[derive(Debug, thiserror::Error)]
pub enum OtherSecurity {
    /// They were encrypted.
    #[error(
        "the links of the farm in {} are encrypted, and this start would not encrypt them: leave --insecure out, and \
         bring back the folder tls or name the founding file", dir.display()
    )]
    WasSecured {
        /// The server's directory.
        dir: PathBuf,
    },
    /// They were not.
    #[error(
        "the farm in {} was founded without encrypted links: start it with --insecure, or stop all its servers, say \
         primus init --secure for the directory of each, and start all with one founding file", dir.display()
    )]
    WasInsecure {
        /// The server's directory.
        dir: PathBuf,
    },
    /// That they are from now on cannot be kept.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Compares how links are to be secured with what was founded, or agreed on; an order may change it. To be called before a node gets
/// a certificate.
///
/// # Errors
/// If it is otherwise now.
pub(crate) fn check_security(opened: &Opened, is_secured: bool) -> Result<(), OtherSecurity> {
    let dir = opened.store.directory().to_owned();
    let phase = &opened.origin.phase;
    let is_bound = phase.founded().or(phase.agreed()).is_some();
    match (is_bound, opened.origin.authority.is_some(), is_secured) {
        (true, true, false) => Err(OtherSecurity::WasSecured { dir }),
        (true, false, true) if !Order::Secure.is_given(&dir) => Err(OtherSecurity::WasInsecure { dir }),
        _ => Ok(()),
    }
}

/// Keeps that the links of a farm are encrypted from now on that was founded without.
///
/// # Errors
/// If it cannot be kept.
pub(crate) fn keep_security(opened: &mut Opened, farm: &str, security: &Security) -> Result<(), OtherSecurity> {
    let Some(authority) = security.authority_of(farm).map(|authority| *authority.hash().bytes()) else {
        return Ok(());
    };
    let dir = opened.store.directory().to_owned();
    if Order::Secure.is_given(&dir) {
        opened.origin.authority = Some(authority);
        opened.store.keep_origin(&opened.origin)?;
        Order::Secure.is_over(&dir);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use primus_core::ServerId;
    use primus_core::founding::{ClusterId, Phase, Record};
    use primus_identity::UnixTime;
    use primus_identity::authority::Authority;
    use primus_identity::name::Name;

    use super::*;
    use crate::credentials::Tls;
    use crate::private;
    use crate::store::{Identity, Origin, Store};

    #[test]
    fn what_was_founded_stays_unless_an_order_says_otherwise() {
        let dir = std::env::temp_dir().join(format!("primus-security-{}", std::process::id()));
        private::folder(&dir).expect("there is room for a directory");
        let identity = Identity { cluster: "north".to_owned(), server: ServerId(1) };
        let authority = Authority::create("north", UnixTime::now()).expect("it is a good name");
        let secured = Tls::of(&authority, &Name::server("north", ServerId(1)).expect("it is one"));
        let mut opened = Store::open(&dir, &identity).expect("it can be made");
        // An empty disk takes it as it comes.
        for is_secured in [true, false] {
            check_security(&opened, is_secured).expect("nothing was founded");
        }
        let record = Record { cluster: ClusterId([7; 16]), members: [].into() };
        opened.origin = Origin { phase: Phase::Founded(record), ..Origin::default() };
        let refused = check_security(&opened, true).expect_err("it was founded without");
        assert!(matches!(refused, OtherSecurity::WasInsecure { .. }), "{refused}");
        Order::Secure.give(&dir).expect("it can be written");
        check_security(&opened, true).expect("it is ordered");
        keep_security(&mut opened, "north", &secured).expect("the disk works");
        drop(opened);
        let opened = Store::open(&dir, &identity).expect("it opens");
        assert_eq!(opened.origin.authority, Some(*authority.certificate().hash().bytes()));
        assert!(!Order::Secure.is_given(&dir));
        check_security(&opened, true).expect("it is so now");
        let refused = check_security(&opened, false).expect_err("it is encrypted");
        assert!(matches!(refused, OtherSecurity::WasSecured { .. }), "{refused}");
        fs::remove_dir_all(dir).expect("it can be removed");
    }
}
