//! The main function of test programs that start themselves again in another role. It runs tests by name, as the harness of
//! cargo test does, and reports in its words, which `./x` counts.

use std::panic::catch_unwind;
use std::process::ExitCode;

/// What it is called, and what it does.
pub(crate) type Test = (&'static str, fn());

/// Runs those of the tests that the command line asks for.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let chosen: Vec<&Test> = tests.iter().filter(|(name, _)| is_chosen(name, &words)).collect();
    if words.iter().any(|word| word == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let passes = |(name, test): &&&Test| {
        let is_passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_passed { "ok" } else { "FAILED" });
        is_passed
    };
    let passed = chosen.iter().filter(passes).count();
    let (failed, others) = (chosen.len() - passed, tests.len() - chosen.len());
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {others} filtered out\n"
    );
    ExitCode::from(u8::from(failed > 0) * 101)
}

fn is_chosen(name: &str, words: &[String]) -> bool {
    let is_exact = words.iter().any(|word| word == "--exact");
    let fits = |filter: &String| if is_exact { name == filter } else { name.contains(filter.as_str()) };
    let (mut filters, mut is_skipped) = (Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--skip" => is_skipped |= words.next().is_some_and(fits),
            "--test-threads" | "--format" | "--color" | "--logfile" => _ = words.next(),
            flag if flag.starts_with('-') => {}
            _ => filters.push(word),
        }
    }
    !is_skipped && (filters.is_empty() || filters.into_iter().any(fits))
}
