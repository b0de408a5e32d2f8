//! What tasks are kept from: the worker's secrets, other programs by way of variables, more rights, and more than their share.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Stdio;

use primus_core::ledger::{CommandLine, Verdict, Work};
use primus_node::executor::{Kinds, Limits, Settings, User};

use crate::program;
use crate::stage::{Stage, assignment, command};

const MIB: u64 = 1 << 20;
/// What may be in a task's environment.
const EXPECTED: [&str; 10] = [
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "COLOUR",
    "PRIMUS_TASK",
    "PRIMUS_INDEX",
    "PRIMUS_ATTEMPT",
    "PRIMUS_TERM",
];

fn limited(limits: Limits) -> impl FnOnce(&mut Settings) {
    move |settings| {
        settings.limits = limits;
        settings.exec = Some((program(), vec!["limit".into()]));
    }
}

fn with_variable(name: &str, value: &str, arguments: &[&str]) -> CommandLine {
    CommandLine { environment: vec![(name.to_owned(), value.to_owned())], ..command(arguments) }
}

/// What it printed, if it went well.
async fn printed(stage: &mut Stage, command: CommandLine) -> String {
    let outcome = stage.run(command).await;
    assert_eq!(outcome.verdict, Verdict::Exited(0), "{outcome:?}");
    String::from_utf8(outcome.stdout.bytes).expect("it is text")
}

/// A variable that tasks do not get by themselves.
fn secret() -> String {
    let is_secret = |name: &String| !EXPECTED.contains(&name.as_str()) && !name.starts_with("PRIMUS_");
    std::env::vars().map(|(name, _)| name).find(is_secret).expect("there is something to hide")
}

#[tokio::test]
async fn a_task_sees_nothing_of_the_worker_but_what_every_program_needs() {
    let mut stage = Stage::new();
    let printed = printed(&mut stage, with_variable("COLOUR", "blue", &["env"])).await;
    let names = printed.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let strange: Vec<&str> = names.filter(|name| !EXPECTED.contains(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(!printed.contains(&format!("{}=", secret())), "{printed}");
}

#[tokio::test]
async fn the_parent_of_a_task_has_no_more_to_show_than_the_task() {
    let mut stage = Stage::new();
    let script = format!("tr '\\0' '\\n' < /proc/$PPID/environ | grep -c '^{}=' || true", secret());
    let parent = printed(&mut stage, command(&["sh", "-c", &script])).await;
    assert_eq!(parent, "0\n");
}

#[tokio::test]
async fn variables_are_passed_on_by_name() {
    let mut stage = Stage::with(|settings| settings.pass = vec![secret()], Kinds::default());
    let names = printed(&mut stage, command(&["env"])).await;
    assert!(names.lines().any(|line| line.starts_with(&format!("{}=", secret()))), "{names}");
}

#[tokio::test]
async fn with_an_allow_list_variables_that_load_code_are_refused() {
    let only_true = |settings: &mut Settings| settings.allow = vec!["true".to_owned()];
    let mut stage = Stage::with(only_true, Kinds::default());
    for name in ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "PATH"] {
        let verdict = stage.run(with_variable(name, "/shared/evil.so", &["true"])).await.verdict;
        let Verdict::Refused(reason) = verdict else { panic!("{name}: {verdict:?}") };
        assert!(reason.contains(&format!("allow_env = [{name:?}]")), "{reason}");
    }
    assert_eq!(stage.run(with_variable("COLOUR", "blue", &["true"])).await.verdict, Verdict::Exited(0));
    let with_exception = |settings: &mut Settings| {
        only_true(settings);
        settings.allow_env = vec!["GIT_*".to_owned()];
    };
    let mut stage = Stage::with(with_exception, Kinds::default());
    assert_eq!(stage.run(with_variable("GIT_DIR", "/", &["true"])).await.verdict, Verdict::Exited(0));
    let mut stage = Stage::new();
    let outcome = stage.run(with_variable("LD_PRELOAD", "", &["true"])).await;
    assert_eq!(outcome.verdict, Verdict::Exited(0), "where everything may run, this may, too");
}

#[tokio::test]
async fn no_program_gives_a_task_more_rights() {
    let mut stage = Stage::new();
    assert_eq!(
        printed(&mut stage, command(&["grep", "NoNewPrivs", "/proc/self/status"])).await,
        "NoNewPrivs:\t1\n"
    );
}

#[tokio::test]
async fn a_task_has_no_open_files_of_the_worker() {
    let script = "exec ls /proc/self/fd";
    // What this test was started with, and does not close by itself, is not the worker's either.
    let own = std::process::Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    let own = String::from_utf8(own.stdout).unwrap();
    let mut plain = Stage::new();
    assert_eq!(printed(&mut plain, command(&["sh", "-c", script])).await, own);
    let mut limited = Stage::with(limited(Limits { file: Some(MIB), ..Limits::default() }), Kinds::default());
    assert_eq!(printed(&mut limited, command(&["sh", "-c", script])).await, own);
}

#[tokio::test]
async fn limits_hold_and_the_rest_is_as_without_them() {
    let limits = Limits { memory: Some(64 * MIB), processes: Some(1_000_000), file: Some(MIB) };
    let mut stage = Stage::with(limited(limits), Kinds::default());
    let shown = printed(&mut stage, command(&["sh", "-c", "cat /proc/$$/limits; echo $0 {}"])).await;
    assert!(shown.ends_with("\nsh argument 1\n"), "{shown}");
    for (name, limit) in [("Max data size", 64 * MIB), ("Max processes", 1_000_000), ("Max file size", MIB)] {
        let words = shown.lines().find_map(|line| line.strip_prefix(name)).expect(name).split_whitespace();
        let limits: Vec<u64> = words.take(2).map(|word| word.parse().expect(word)).collect();
        // One that the host has set lower stays.
        assert!(
            limits[0] == limits[1] && (limits[0] == limit || name == "Max processes" && limits[0] < limit),
            "{shown}"
        );
    }
    let greedy = stage.verdict(&["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"]).await;
    assert_eq!(greedy, Verdict::Exited(1), "it finds no memory");
    let long = stage.directory.0.join("long").display().to_string();
    let writes = stage.verdict(&["dd", "if=/dev/zero", &format!("of={long}"), "bs=64K", "count=32"]).await;
    assert!(matches!(writes, Verdict::Signalled(25) | Verdict::Exited(1)), "{writes:?}");
    assert_eq!(fs::metadata(&long).unwrap().len(), MIB);
    assert_eq!(stage.verdict(&["sh", "-c", "exit 41"]).await, Verdict::Exited(41));
    assert!(matches!(stage.verdict(&["no-such-program"]).await, Verdict::Refused(_)));
    let script = stage.directory.0.join("script");
    fs::write(&script, "#!/nowhere/shell\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = stage.run(command(&[script.to_str().unwrap()])).await;
    assert_eq!(outcome.verdict, Verdict::Exited(127));
    assert!(String::from_utf8_lossy(&outcome.stderr.bytes).contains("names an interpreter"), "{outcome:?}");
}

/// Only the superuser can start processes of others.
#[tokio::test]
#[ignore = "needs root"]
async fn tasks_run_as_another_user_with_a_folder_and_outputs() {
    let user = User { uid: 65534, gid: 65534, home: PathBuf::from("/nonexistent") };
    let mut stage = Stage::with(
        |settings| {
            settings.home = settings.directory.join("home");
            fs::create_dir(&settings.home).unwrap();
            chown(&settings.home, Some(user.uid), Some(user.gid)).unwrap();
            settings.user = Some(user);
        },
        Kinds::default(),
    );
    let secret = stage.directory.0.join("secret");
    fs::write(&secret, "hunter2").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script =
        format!("id -u; id -G; echo $HOME; touch made; ls; cat {} 2>/dev/null || echo closed", secret.display());
    assert_eq!(
        printed(&mut stage, command(&["sh", "-c", &script])).await,
        "65534\n65534\n/nonexistent\nmade\nclosed\n"
    );
    let made = fs::metadata(stage.directory.0.join("home/made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (65534, 65534));
    let mut long = assignment(2, Work::Command(command(&["seq", "20000"])));
    long.timeout_ms = Some(u64::MAX);
    stage.executor.run(long);
    let outcome = stage.outcome().await;
    assert_eq!((outcome.verdict, outcome.stdout.total), (Verdict::Exited(0), 108_894));
    let outputs = fs::read_dir(stage.directory.0.join(Settings::OUTPUTS)).unwrap();
    for file in outputs {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
    stage.executor.run(assignment(3, Work::Command(command(&["sleep", "1000"]))));
    stage.close().await;
}

#[tokio::test]
async fn a_timeout_without_end_is_none() {
    let mut stage = Stage::new();
    for timeout_ms in [u64::MAX, 18_446_744_073_709_551, 18_000_000_000_000_000] {
        let mut work = assignment(1, Work::Command(command(&["sleep", "0.1"])));
        work.timeout_ms = Some(timeout_ms);
        stage.executor.run(work);
        assert_eq!(stage.outcome().await.verdict, Verdict::Exited(0), "{timeout_ms}");
    }
}
