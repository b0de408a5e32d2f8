//! What to say to people who type a command as it was before runs of whole servers got the names `farm` and `lending`.

/// A hint, if this flag belongs to the command that once had the name that was typed: `farm` or `lending`.
#[must_use]
pub fn moved(command: &str, flag: &str) -> Option<String> {
    let (now, what, flags): (_, _, &[&str]) = match command {
        "farm" => {
            let flags = &["--slots", "--tasks", "--task", "--load", "--heartbeat"];
            ("assignment", "compares the rules of assignment", flags)
        }
        "lending" => {
            let flags = &["--slots", "--load", "--turn", "--busy", "--task", "--day", "--config", "--set"];
            ("day", "plays a day with lending and without", flags)
        }
        _ => return None,
    };
    flags.contains(&flag).then(|| format!("primus simulate {now} {what}, and it has {flag}"))
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::args::SimulateArgs;

    #[test]
    fn what_moved_is_where_the_hint_says() {
        let all = SimulateArgs::augment_args(Command::new("simulate"));
        for (before, now) in [("farm", "assignment"), ("lending", "day")] {
            let has = |name: &str, flag: &str| {
                let command = all.find_subcommand(name).expect("there is such a command");
                command.get_arguments().any(|argument| argument.get_long() == Some(flag))
            };
            let command = all.find_subcommand(now).expect("there is such a command");
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                let hint = moved(before, &format!("--{flag}"));
                assert_eq!(hint.is_some(), !has(before, flag), "{before} --{flag}: {hint:?}");
                assert!(hint.is_none_or(|hint| hint.starts_with(&format!("primus simulate {now} "))));
            }
        }
        assert_eq!(moved("farm", "--nonsense"), None);
        assert_eq!(moved("ring", "--load"), None);
    }
}
