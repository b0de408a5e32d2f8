//! What commands get, and what comes back from them.

use std::fs;
use std::time::{Duration, Instant};

use primus_core::ledger::{CommandLine, Tail, Verdict, Work};
use primus_node::executor::{INPUT_LEN_MAX, Kinds, Settings};
use primus_node::outputs::{self, Stream};

use crate::common::eventually_async;
use crate::stage::{Stage, alive, assignment, command, held, marked, wait_until};

#[tokio::test]
async fn what_a_command_prints_is_in_its_result() {
    let mut stage = Stage::new();
    let outcome = stage.run(command(&["echo", "hello", "{}", "$HOME"])).await;
    assert_eq!(outcome.verdict, Verdict::Exited(0));
    assert_eq!(outcome.stdout.bytes, b"hello argument 1 $HOME\n");
    assert_eq!(outcome.stderr, Tail::default());
    assert_eq!((outcome.worker.as_str(), outcome.attempt), ("w1", held(1).attempt));
    assert!(outcome.started_us > 0 && outcome.took_us > 0);
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    let mut stage = Stage::new();
    assert_eq!(stage.verdict(&["true"]).await, Verdict::Exited(0));
    assert_eq!(stage.verdict(&["sh", "-c", "exit 41"]).await, Verdict::Exited(41));
    assert_eq!(stage.verdict(&["sh", "-c", "kill -SEGV $$"]).await, Verdict::Signalled(11));
    assert_eq!(stage.verdict(&["sh", "-c", "kill -KILL $$"]).await, Verdict::Signalled(9));
}

#[tokio::test]
async fn a_command_knows_which_task_it_is_and_where_it_runs() {
    let mut stage = Stage::new();
    // The fifth field of a process's entry is its group; a plain Debian has no ps.
    let script = "echo $PRIMUS_TASK $PRIMUS_INDEX $PRIMUS_ATTEMPT $PRIMUS_TERM $OWN; pwd; nice; \
                  cut -d' ' -f5 /proc/$$/stat | grep -cw $$; cat";
    let outcome = stage
        .run(CommandLine {
            environment: vec![("OWN".to_owned(), "mine".to_owned()), ("PRIMUS_TERM".to_owned(), "99".to_owned())],
            directory: Some("/usr".to_owned()),
            nice: 19,
            stdin: b"what it reads".to_vec(),
            ..command(&["sh", "-c", script])
        })
        .await;
    let printed = String::from_utf8(outcome.stdout.bytes).unwrap();
    assert_eq!(printed, "3.1 1 7-5 7 mine\n/usr\n19\n1\nwhat it reads", "{:?}", outcome.stderr);
}

#[tokio::test]
async fn a_mebibyte_of_input_arrives_whole_and_more_is_refused() {
    let mut stage = Stage::new();
    let with_input = |length: usize| CommandLine { stdin: vec![b'x'; length], ..command(&["wc", "-c"]) };
    assert_eq!(stage.run(with_input(INPUT_LEN_MAX)).await.stdout.bytes, b"1048576\n");
    let refused = stage.run(with_input(INPUT_LEN_MAX + 1)).await.verdict;
    assert!(matches!(&refused, Verdict::Refused(reason) if reason.contains("1048577")), "{refused:?}");
}

#[tokio::test]
async fn what_cannot_be_started_fails_with_a_reason() {
    let mut stage = Stage::new();
    let script = stage.directory.0.join("script");
    fs::write(&script, "#!/nowhere/shell\n").unwrap();
    let script = script.to_str().unwrap().to_owned();
    let in_folder = CommandLine { directory: Some("/nowhere".to_owned()), ..command(&["true"]) };
    let long = "x".repeat(200_000);
    let longer = "x".repeat(1 << 20);
    for (refused, part) in [
        (command(&["no-such-program"]), "program \"no-such-program\" was not found on this worker (its PATH is "),
        (command(&["/no/such/program"]), "program \"/no/such/program\" was not found on this worker"),
        (command(&["/etc/passwd"]), "permissions"),
        (command(&[&script]), "permissions"),
        (command(&[""]), "program \"\" was not found"),
        (command(&[]), "there is nothing to run"),
        (command(&["true", "zero\0byte"]), "zero byte"),
        (command(&["true", &long]), "too long"),
        (command(&["true", &longer]), "1048580 bytes"),
        (in_folder, "the folder \"/nowhere\" does not exist"),
    ] {
        let verdict = stage.run(refused).await.verdict;
        assert!(matches!(&verdict, Verdict::Refused(reason) if reason.contains(part)), "{verdict:?}: {part}");
    }
    assert_eq!(stage.verdict(&["true"]).await, Verdict::Exited(0));
}

#[tokio::test]
async fn only_allowed_programs_run() {
    let only_true = |settings: &mut Settings| {
        settings.allow = vec!["true".to_owned()];
        settings.allow_env = vec!["PATH".to_owned()];
    };
    let mut stage = Stage::with(only_true, Kinds::default());
    assert_eq!(stage.verdict(&["true"]).await, Verdict::Exited(0));
    let Verdict::Refused(reason) = stage.verdict(&["echo", "true"]).await else { panic!("echo ran") };
    assert!(reason.contains(r#"[worker] allow = ["echo"]"#), "{reason}");
    // Another program of the same name, in a place that the task chooses.
    let own = stage.directory.0.join("true");
    fs::copy("/bin/false", &own).unwrap();
    let path = vec![("PATH".to_owned(), stage.directory.0.display().to_string())];
    let elsewhere = CommandLine { environment: path, ..command(&["true"]) };
    assert_eq!(stage.run(elsewhere).await.verdict, Verdict::Exited(0));
    assert!(matches!(stage.verdict(&[own.to_str().unwrap()]).await, Verdict::Refused(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_takes_too_long_gets_term_and_then_kill() {
    let mut stage = Stage::with(|settings| settings.grace = Duration::from_millis(200), Kinds::default());
    let mark = stage.directory.0.display().to_string();
    let polite = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let stubborn = "trap '' TERM; sh -c 'while :; do sleep 1000; done' & while :; do sleep 1000; done";
    for (script, printed) in [(polite, &b"ready\nbye\n"[..]), (stubborn, b"")] {
        let begun = Instant::now();
        let mut work = assignment(1, Work::Command(marked(script, &mark)));
        work.timeout_ms = Some(300);
        stage.executor.run(work);
        let outcome = stage.outcome().await;
        assert_eq!(outcome.verdict, Verdict::TimedOut);
        assert_eq!(outcome.stdout.bytes, printed);
        assert!(begun.elapsed() >= Duration::from_millis(300) && outcome.took_us >= 300_000);
        wait_until("the end of its children", || alive(&mark).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_command_leaves_in_its_group_ends_with_it() {
    let mut stage = Stage::new();
    let mark = stage.directory.0.display().to_string();
    let outcome = stage.run(marked("sleep 1000 & sleep 1000 & echo done", &mark)).await;
    assert_eq!((outcome.verdict, &outcome.stdout.bytes[..]), (Verdict::Exited(0), &b"done\n"[..]));
    wait_until("the end of its children", || alive(&mark).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_killed_task_is_heard_of_no_more() {
    let mut stage = Stage::new();
    let mark = stage.directory.0.display().to_string();
    stage.executor.run(assignment(2, Work::Command(marked("sleep 1000 & sleep 1000", &mark))));
    wait_until("it to start", || alive(&mark).len() >= 2);
    stage.executor.kill(held(2));
    wait_until("its end", || alive(&mark).is_empty());
    assert_eq!(stage.verdict(&["true"]).await, Verdict::Exited(0));
}

#[tokio::test]
async fn much_output_is_counted_kept_in_part_and_dropped() {
    let kept = 100_000;
    let mut stage = Stage::with(|settings| settings.output_len_max = kept, Kinds::default());
    let lines = 2_000_000;
    let outcome = stage.run(command(&["seq", "-f", "%08.0f", &lines.to_string()])).await;
    assert_eq!(outcome.verdict, Verdict::Exited(0));
    assert_eq!(outcome.stdout.total, lines * 9);
    assert_eq!(outcome.stdout.bytes.len(), Tail::LEN_MAX);
    assert!(outcome.stdout.bytes.ends_with(b"\n01999999\n02000000\n"), "{:?}", outcome.stdout.bytes);
    let folder = stage.directory.0.join(Settings::OUTPUTS);
    let all = outputs::read(&folder, held(1), Stream::Stdout, 0, usize::MAX).unwrap().unwrap();
    assert_eq!(all.len() as u64, kept);
    assert!(all.starts_with(b"00000001\n00000002\n"));
    let part = outputs::read(&folder, held(1), Stream::Stdout, 9, 9).unwrap().unwrap();
    assert_eq!(part, b"00000002\n");
    assert_eq!(outputs::read(&folder, held(1), Stream::Stderr, 0, 9).unwrap(), None);
}

#[tokio::test]
async fn a_task_without_end_fills_neither_disk_nor_memory() {
    let mut stage = Stage::new();
    let mut work = assignment(1, Work::Command(command(&["sh", "-c", "yes & yes >&2"])));
    work.timeout_ms = Some(500);
    stage.executor.run(work);
    let outcome = stage.outcome().await;
    assert_eq!(outcome.verdict, Verdict::TimedOut);
    let folder = stage.directory.0.join(Settings::OUTPUTS);
    let lengths = fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(lengths.sum::<u64>() <= 10 << 20);
    assert!(outcome.stdout.total + outcome.stderr.total > 10 << 20, "{outcome:?}");
}

#[tokio::test]
async fn a_task_that_writes_gigabytes_ends_well() {
    // A night can afford more: 22 of them.
    let gigabytes: u64 = std::env::var("PRIMUS_GIGABYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let bytes = gigabytes * 1_000_000_000;
    let mut stage = Stage::new();
    stage.patience = Duration::from_secs(300);
    let outcome =
        stage.run(command(&["sh", "-c", &format!("echo $PPID >&2; exec head -c {bytes} /dev/zero")])).await;
    assert_eq!((outcome.verdict, outcome.stdout.total), (Verdict::Exited(0), bytes));
    let folder = stage.directory.0.join(Settings::OUTPUTS);
    let lengths = fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(lengths.sum::<u64>() <= 10 << 20);
    let companion = String::from_utf8(outcome.stderr.bytes).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", companion.trim())).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    println!("{} s, {memory} KiB in memory", outcome.took_us / 1_000_000);
    assert!(memory.parse::<u64>().unwrap() < 32 << 10, "{memory}");
}

#[tokio::test]
async fn a_short_output_needs_no_file_and_a_running_task_can_be_followed() {
    let mut stage = Stage::new();
    let folder = stage.directory.0.join(Settings::OUTPUTS);
    stage.run(command(&["echo", "short"])).await;
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    stage.executor.run(assignment(2, Work::Command(command(&["sh", "-c", "echo so far; sleep 1000"]))));
    let so_far = || outputs::read(&folder, held(2), Stream::Stdout, 0, 99).unwrap();
    // Time passes for the executor only while a test waits in turn with it.
    eventually_async("what it prints", async || (so_far()? == b"so far\n").then_some(())).await;
}

#[tokio::test]
async fn old_outputs_make_room_for_new_ones() {
    let mut stage = Stage::with(|settings| settings.outputs_len_max = 40_000, Kinds::default());
    for index in 1..=5 {
        stage.executor.run(assignment(index, Work::Command(command(&["seq", "3500"]))));
        stage.outcome().await;
    }
    let folder = stage.directory.0.join(Settings::OUTPUTS);
    let is_there = |index| outputs::read(&folder, held(index), Stream::Stdout, 0, 1).unwrap().is_some();
    assert_eq!([1, 2, 3, 4, 5].map(is_there), [false, false, false, true, true]);
}

#[tokio::test]
async fn many_tasks_run_at_once() {
    let mut stage = Stage::new();
    for index in 1..=50 {
        stage.executor.run(assignment(index, Work::Command(command(&["sh", "-c", "echo {}; exit 1"]))));
    }
    let mut printed = Vec::new();
    for _ in 1..=50 {
        let outcome = stage.outcome().await;
        assert_eq!(outcome.verdict, Verdict::Exited(1));
        printed.push(String::from_utf8(outcome.stdout.bytes).unwrap());
    }
    printed.sort();
    let mut wanted: Vec<String> = (1..=50).map(|index| format!("argument {index}\n")).collect();
    wanted.sort();
    assert_eq!(printed, wanted);
}
