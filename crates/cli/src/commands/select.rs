//! Which jobs and tasks people mean: `12`, `12.7`, ranges, lists, `last` and `all`.

use primus_client::tasks::{TaskClient, path_of};
use primus_client::{pages, strange_answer};
use primus_terminal::amounts::quoted;
use primus_terminal::failure::{Failure, on_one_line};
use serde_json::Value;

/// The job that was submitted last.
const LAST: &str = "last";
/// Jobs that have not ended.
const ALL: &str = "all";
/// How many tasks a range can name; beyond that a job is a better name.
const RANGE_MAX: u64 = 10_000;
/// How many jobs are looked at at once.
const PAGE: u64 = 1000;

/// May `all` be said?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum All {
    Unfinished,
    Refused,
}

/// The numbers of all jobs and tasks that these words name, in the order in which they were typed.
pub(super) fn ids(caller: &mut TaskClient, words: &[String], all: All) -> Result<Vec<String>, Failure> {
    // Nothing is asked before all words make sense.
    let parts = words.iter().flat_map(|word| word.split(',')).map(Part::parse).collect::<Result<Vec<_>, _>>()?;
    if all == All::Refused && parts.contains(&Part::All) {
        return Err(Failure::usage("'all' is too much here", "name jobs or tasks, such as 12, 3-5 or last"));
    }
    let mut ids = Vec::new();
    for part in parts {
        ids.extend(part.find(caller)?.into_iter().filter(|id| !ids.contains(id)).collect::<Vec<_>>());
    }
    Ok(ids)
}

/// The one job or task that this word names.
pub(super) fn id(caller: &mut TaskClient, word: &str) -> Result<String, Failure> {
    match Part::parse(word)? {
        Part::One(id) => Ok(id),
        Part::Last(index) => Ok(with_index(&newest(caller)?, index)),
        _ => Err(Failure::usage(format!("{} can be several", quoted(word)), "name one, such as 12, 12.7 or last")),
    }
}

/// Do these words name one thing, which then is not shown as a list?
pub(super) fn is_one(words: &[String]) -> bool {
    matches!(words, [word] if matches!(Part::parse(word), Ok(Part::One(_) | Part::Last(_))))
}

/// What stands between two commas.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(String),
    /// The newest job, or a task of it.
    Last(Option<u64>),
    All,
    Jobs(u64, u64),
    Tasks(u64, u64, u64),
}

impl Part {
    fn parse(text: &str) -> Result<Self, Failure> {
        if text == LAST {
            return Ok(Self::Last(None));
        }
        if text == ALL {
            return Ok(Self::All);
        }
        if let Some(index) = text.strip_prefix("last.").and_then(positive) {
            return Ok(Self::Last(Some(index)));
        }
        let Some((first, last)) = text.split_once('-').filter(|(first, _)| !first.is_empty()) else {
            return path_of(text).map(|_| Self::One(text.to_owned())).map_err(|error| strange(text, error.into()));
        };
        let range = match first.split_once('.') {
            Some((job, first)) => positive(job).zip(range(first, last)).map(|(job, (a, b))| Self::Tasks(job, a, b)),
            None => range(first, last).map(|(first, last)| Self::Jobs(first, last)),
        };
        let hint = "a range is 3-5 for jobs or 12.2-9 for tasks of job 12; the smaller number comes first";
        range.ok_or_else(|| Failure::usage(format!("{} is not a range", quoted(text)), hint))
    }

    fn find(self, caller: &mut TaskClient) -> Result<Vec<String>, Failure> {
        match self {
            Self::One(id) => Ok(vec![id]),
            Self::Last(index) => Ok(vec![with_index(&newest(caller)?, index)]),
            Self::All => unfinished(caller),
            Self::Jobs(first, last) => jobs_between(caller, first, last),
            Self::Tasks(job, first, last) => tasks_between(caller, job, first, last),
        }
    }
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

fn range(first: &str, last: &str) -> Option<(u64, u64)> {
    positive(first).zip(positive(last)).filter(|(first, last)| first <= last)
}

fn with_index(job: &str, index: Option<u64>) -> String {
    index.map_or_else(|| job.to_owned(), |index| format!("{job}.{index}"))
}

/// Words of other tools are answered with ours.
fn strange(text: &str, failure: Failure) -> Failure {
    let hint = match text {
        "list" | "ls" => "primus jobs, primus tasks and primus workers list what there is",
        "info" | "show" | "describe" | "status" => "leave it out: primus job 12, primus task 12.7",
        "submit" | "cancel" | "wait" | "logs" | "retry" => {
            return Failure::usage(failure.message(), format!("write it as primus {text}, without job or task"));
        }
        "cat" => "primus logs 12 shows what a job printed",
        "stdout" | "stderr" => "primus logs 12 shows stdout, primus logs 12 --stderr the other one",
        _ => return failure,
    };
    Failure::usage(failure.message(), hint)
}

fn newest(caller: &mut TaskClient) -> Result<String, Failure> {
    let page = caller.get("/v1/jobs?limit=1")?;
    let job = page["items"].as_array().ok_or_else(strange_answer)?.first().map(name);
    job.ok_or_else(|| Failure::failed("not_found", "the farm has no jobs", "submit one: primus submit -- ./job.sh"))
}

fn unfinished(caller: &mut TaskClient) -> Result<Vec<String>, Failure> {
    let answer = pages::all("/v1/jobs", |page| caller.get(page))?;
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    let is_open = |job: &&Value| job["queued"] != 0 || job["running"] != 0;
    Ok(items.iter().filter(is_open).rev().map(name).collect())
}

/// Those that the farm still knows.
fn jobs_between(caller: &mut TaskClient, first: u64, last: u64) -> Result<Vec<String>, Failure> {
    let (mut found, mut before) = (Vec::new(), last.saturating_add(1));
    loop {
        let page = caller.get(&format!("/v1/jobs?limit={PAGE}&after={before}"))?;
        let jobs: Vec<String> = page["items"].as_array().ok_or_else(strange_answer)?.iter().map(name).collect();
        let is_wanted = |job: &String| positive(job).is_some_and(|job| job >= first);
        let all = jobs.len();
        found.extend(jobs.into_iter().filter(is_wanted));
        let next = page["next"].as_str().and_then(positive).filter(|next| *next < before && *next > first);
        let Some(next) = next.filter(|_| all > 0) else { break };
        before = next;
    }
    if found.is_empty() {
        let message = format!("no job from {first} to {last} is known");
        return Err(Failure::failed("not_found", message, "primus jobs --all lists them"));
    }
    found.reverse();
    Ok(found)
}

fn tasks_between(caller: &mut TaskClient, job: u64, first: u64, last: u64) -> Result<Vec<String>, Failure> {
    let count = caller.get(&format!("/v1/jobs/{job}"))?["tasks"].as_u64().ok_or_else(strange_answer)?;
    let last = last.min(count);
    if first > last {
        let message = format!("job {job} has {count} tasks, so {job}.{first} is not among them");
        return Err(Failure::failed("not_found", message, format!("primus tasks {job} lists them")));
    }
    if last - first >= RANGE_MAX {
        let message = format!("{job}.{first}-{last} names more than {RANGE_MAX} tasks");
        return Err(Failure::usage(message, format!("name the job: {job}")));
    }
    Ok((first..=last).map(|index| format!("{job}.{index}")).collect())
}

fn name(job: &Value) -> String {
    on_one_line(job["job"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_one_several_or_the_last() {
        for (text, expected) in [
            ("12", Part::One("12".to_owned())),
            ("12.7", Part::One("12.7".to_owned())),
            ("last", Part::Last(None)),
            ("last.7", Part::Last(Some(7))),
            ("all", Part::All),
            ("3-5", Part::Jobs(3, 5)),
            ("12.2-9", Part::Tasks(12, 2, 9)),
        ] {
            assert_eq!(Part::parse(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "0", "5-3", "3-", "3-x", "0-2", "12.0-3", "last.0", "last-3", "1.2-1.4", "12."] {
            assert!(Part::parse(text).is_err_and(|failure| failure.is_usage()), "{text}");
        }
    }

    #[test]
    fn words_of_other_tools_are_answered_with_ours() {
        for (text, part) in [("list", "primus jobs"), ("cancel", "primus cancel"), ("stderr", "--stderr")] {
            let failure = Part::parse(text).expect_err("it is not a number");
            assert!(format!("{failure:?}").contains(part), "{text}");
        }
    }

    #[test]
    fn one_thing_is_not_a_list() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(is_one(&words("12")) && is_one(&words("last.3")));
        assert!(!is_one(&words("12 13")) && !is_one(&words("12-13")) && !is_one(&words("1,2")));
    }
}
