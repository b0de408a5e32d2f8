//! Stores that must not be used, and half-made ones that must.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use primus_core::ServerId;
use primus_node::store::{Identity, OpenError, Origin, Store};
use redb::{Database, TableDefinition};
use rustix::process::geteuid;

use crate::PROGRAM;
use crate::scratch::{Scratch, entry, hard_state, identity, open, try_open};

#[test]
fn a_new_store_is_new_once_and_keeps_its_id() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("deep/down");
    let first = open(&dir);
    assert!(first.is_new && first.records.is_empty() && first.origin == Origin::default());
    let id = first.store_id;
    assert_eq!(id.to_string().len(), 32);
    drop(first);
    let second = open(&dir);
    assert!(!second.is_new);
    assert_eq!(second.store_id, id);
    assert_ne!(open(Scratch::new().path()).store_id, id);
}

#[test]
fn a_directory_has_one_user() {
    let scratch = Scratch::new();
    let opened = open(scratch.path());
    let error = try_open(scratch.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&*scratch.path().to_string_lossy()));
    drop(opened);
    open(scratch.path());
}

#[test]
fn a_store_serves_its_own_cluster_and_server_only() {
    let scratch = Scratch::new();
    open(scratch.path());
    let other_cluster = Identity { cluster: "mine".to_owned(), ..identity() };
    let error = Store::open(scratch.path(), &other_cluster).unwrap_err();
    assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");
    let other_server = Identity { server: ServerId(2), ..identity() };
    let error = Store::open(scratch.path(), &other_server).unwrap_err();
    assert!(matches!(error, OpenError::OtherServer { found: ServerId(1), expected: ServerId(2), .. }), "{error}");
    open(scratch.path());
}

#[test]
fn another_format_is_refused() {
    let scratch = Scratch::new();
    open(scratch.path());
    let database = Database::open(scratch.path().join("log.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let format = 1_u32.to_le_bytes();
    let mut value = crc32fast::hash(&[&[0; 8][..], &format].concat()).to_le_bytes().to_vec();
    value.extend(format);
    let about: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("about");
    transaction.open_table(about).unwrap().insert(0, &*value).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = try_open(scratch.path()).unwrap_err();
    assert!(matches!(error, OpenError::OtherFormat { found: 1, .. }), "{error}");
}

#[test]
fn a_copy_from_yesterday_is_refused() {
    let scratch = Scratch::new();
    let mut store = open(scratch.path()).store;
    store.write(&[hard_state(1, 0)]).unwrap();
    let yesterday = scratch.copy();
    store.write(&[hard_state(2, 0)]).unwrap();
    drop(store);
    fs::copy(yesterday.path().join("log.redb"), scratch.path().join("log.redb")).unwrap();
    let error = try_open(scratch.path()).unwrap_err();
    assert!(matches!(error, OpenError::OutOfDate { found: 1, promised: 2, .. }), "{error}");
}

#[test]
fn a_store_with_a_missing_or_foreign_part_is_refused() {
    let other = Scratch::new();
    open(other.path()).store.write(&[entry(1, 1)]).unwrap();
    let damages: [fn(&Scratch, &Scratch); 5] = [
        |scratch, _| fs::remove_file(scratch.path().join("log.redb")).unwrap(),
        |scratch, _| fs::remove_file(scratch.path().join("log.mark")).unwrap(),
        |scratch, _| fs::write(scratch.path().join("log.redb"), "").unwrap(),
        |scratch, _| fs::write(scratch.path().join("log.redb"), "not a database ".repeat(1000)).unwrap(),
        |scratch, other| {
            fs::copy(other.path().join("log.mark"), scratch.path().join("log.mark")).unwrap();
        },
    ];
    for damage in damages {
        let scratch = Scratch::new();
        open(scratch.path()).store.write(&[entry(1, 1)]).unwrap();
        damage(&scratch, &other);
        // Refusing changes nothing, so it happens again.
        for _ in 0..2 {
            let error = try_open(scratch.path()).unwrap_err();
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        }
    }
}

#[test]
fn a_half_made_store_is_completed() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("lock"), "").unwrap();
    fs::write(scratch.path().join("log.redb.new"), "redb, but not yet").unwrap();
    let first = open(scratch.path());
    assert!(first.is_new);
    let id = first.store_id;
    drop(first);
    fs::remove_file(scratch.path().join("log.mark")).unwrap();
    fs::write(scratch.path().join("log.mark.new"), "half").unwrap();
    let second = open(scratch.path());
    assert!(second.is_new && second.store_id == id);
    drop(second);
    assert!(!open(scratch.path()).is_new);
}

#[test]
fn a_directory_that_cannot_be_a_directory_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path().join("file");
    fs::write(&path, "").unwrap();
    let error = try_open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

/// The superuser can write anywhere, so a process without rights must try.
#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let scratch = Scratch::new();
    let mut refused = Command::new(PROGRAM);
    refused.arg("refused").arg(scratch.path());
    if geteuid().is_root() {
        refused.uid(65534).gid(65534);
    } else {
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o500)).unwrap();
    }
    assert!(refused.status().unwrap().success());
}

#[test]
fn a_directory_that_others_can_write_to_is_refused_and_nothing_is_made_there() {
    let scratch = Scratch::new();
    for mode in [0o777, 0o1777, 0o775] {
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = try_open(scratch.path()).unwrap_err();
        assert!(matches!(error, OpenError::Exposed(_)), "{error}");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_store_is_for_its_owner_alone_also_if_an_older_version_made_it() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("new");
    drop(open(&dir));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files = || fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
    files().for_each(|file| fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!open(&dir).is_new);
    files().for_each(|file| assert_eq!(mode(&file), 0o600, "{}", file.display()));
}

#[test]
fn planted_links_are_not_followed() {
    let scratch = Scratch::new();
    let victim = scratch.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for name in ["log.redb.new", "log.mark.new"] {
        let dir = scratch.path().join(name);
        fs::create_dir(&dir).unwrap();
        symlink(&victim, dir.join(name)).unwrap();
        assert!(open(&dir).is_new, "a new file has taken its place");
    }
    for name in ["lock", "log.redb", "log.mark"] {
        let dir = scratch.path().join(name);
        fs::create_dir(&dir).unwrap();
        symlink(&victim, dir.join(name)).unwrap();
        let error = try_open(&dir).unwrap_err();
        assert!(error.to_string().contains("is a link"), "{name}: {error}");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}
