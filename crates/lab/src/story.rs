//! A story: a text file of commands and the trace that must follow.
//!
//! Blocks are separated by blank lines. A block is comments and commands, then `----`, then what they print:
//!
//! ```text
//! # Node 3 led and died. Node 1 notices first, yet node 2 must win: it is the greatest alive.
//! cluster bully 1 2 3 leader=3
//! crash 3
//! suspect 1 3
//! ----
//! 1: suspect 3 -> send 2 election r2, lose leader, set answers
//! ```
//!
//! With `PRIMUS_REWRITE=1` a story that goes differently is written anew, to be reviewed as a diff. The idea is
//! that of etcd's raft. What the commands do is told in [`stage`] and, for whole servers, for farms and for servers without a
//! cluster, in [`servers`], [`farms`] and [`founding`]; how a cluster is described in [`cluster`]. A machine that has no stage of its own plays on [`bare`].

pub mod bare;
pub mod cluster;
pub mod farms;
pub mod founding;
mod scenery;
pub mod servers;
pub mod stage;

use std::fmt;
use std::path::Path;

use self::cluster::Cluster;
use self::stage::Stage;

/// What stands between commands and what they print.
const RULE: &str = "----";

/// A story as it is written, or as it goes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    name: String,
    blocks: Vec<Block>,
}

/// Comments and commands, and what they print.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    /// Where in the file it begins, from 1.
    line: usize,
    said: Vec<String>,
    /// Absent where there is no rule, as after comments alone.
    heard: Option<Vec<String>>,
}

/// Why a story failed.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// The file cannot be read or written.
    #[error("{name}: {source}")]
    File {
        /// Which file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A command that makes no sense here: the story is wrong.
    #[error("{name}:{line}: {reason}\n    {command}")]
    Command {
        /// Which file.
        name: String,
        /// Which line, from 1.
        line: usize,
        /// The line itself.
        command: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The story goes differently: the machine is wrong, or the story is out of date.
    #[error("{name}:{line}: this block goes differently (- as written, + as it goes now)\n{diff}")]
    Differs {
        /// Which file.
        name: String,
        /// Where the block begins, from 1.
        line: usize,
        /// The lines of both.
        diff: String,
    },
}

/// Reads what follows the word `cluster` and sets the stage that it describes, or says in words for people what is wrong with it.
pub type Open = fn(&[&str]) -> Result<Box<dyn Stage>, String>;

/// Plays the story in this file and compares; with `PRIMUS_REWRITE=1` writes down how it goes instead.
///
/// # Errors
/// If the file cannot be read, a command is wrong, or the story goes differently.
pub fn check(path: &Path) -> Result<(), StoryError> {
    check_on(path, open)
}

/// The same on a stage of one's own.
///
/// # Errors
/// If the file cannot be read, a command is wrong, or the story goes differently.
pub fn check_on(path: &Path, open: Open) -> Result<(), StoryError> {
    let name = path.display().to_string();
    let failed = |source| StoryError::File { name: name.clone(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let story = Story::parse(&name, &text);
    let now = story.play_on(open)?;
    if !is_rewriting() {
        return story.compare(&now);
    }
    let rewritten = now.to_string();
    if rewritten == text { Ok(()) } else { std::fs::write(path, rewritten).map_err(failed) }
}

/// Plays commands that were found, not written, and compares with the story that this file keeps of them; with
/// `PRIMUS_REWRITE=1` writes it instead.
///
/// # Errors
/// If the file cannot be read or written, a command is wrong, or the story goes differently.
pub fn check_found(path: &Path, commands: &str) -> Result<(), StoryError> {
    let name = path.display().to_string();
    let failed = |source| StoryError::File { name: name.clone(), source };
    let now = Story::parse(&name, commands).play()?.to_string();
    if is_rewriting() {
        return std::fs::write(path, now).map_err(failed);
    }
    let written = std::fs::read_to_string(path).map_err(failed)?;
    if written == now {
        return Ok(());
    }
    Err(StoryError::Differs { name: name.clone(), line: 1, diff: diff(&written, &now) })
}

/// Does somebody want stories to be written anew?
#[must_use]
pub fn is_rewriting() -> bool {
    std::env::var_os("PRIMUS_REWRITE").is_some_and(|value| value == "1")
}

impl Story {
    /// Takes a text apart; commands are looked at only when they are played.
    #[must_use]
    pub fn parse(name: &str, text: &str) -> Self {
        let lines: Vec<_> = (1..).zip(text.lines().map(str::trim_end)).collect();
        let blocks = lines.split(|(_, line)| line.is_empty()).filter(|lines| !lines.is_empty());
        Self { name: name.to_owned(), blocks: blocks.map(Block::parse).collect() }
    }

    /// The same commands, with what they print now.
    ///
    /// # Errors
    /// At the first command that makes no sense.
    pub fn play(&self) -> Result<Self, StoryError> {
        self.play_on(open)
    }

    /// The same on a stage of one's own.
    ///
    /// # Errors
    /// At the first command that makes no sense.
    pub fn play_on(&self, open: Open) -> Result<Self, StoryError> {
        let mut stage = None;
        let blocks = self.blocks.iter().map(|block| block.play(&self.name, open, &mut stage));
        Ok(Self { name: self.name.clone(), blocks: blocks.collect::<Result<_, _>>()? })
    }

    /// Is this what happens now?
    ///
    /// # Errors
    /// At the first block that goes differently.
    pub fn compare(&self, now: &Self) -> Result<(), StoryError> {
        match self.blocks.iter().zip(&now.blocks).find(|(written, now)| written.heard != now.heard) {
            None => Ok(()),
            Some((written, now)) => Err(StoryError::Differs {
                name: self.name.clone(),
                line: written.line,
                diff: diff(&written.to_string(), &now.to_string()),
            }),
        }
    }
}

impl Block {
    fn parse(lines: &[(usize, &str)]) -> Self {
        let text = |lines: &[(usize, &str)]| lines.iter().map(|(_, line)| (*line).to_owned()).collect();
        let rule = lines.iter().position(|(_, line)| *line == RULE);
        let (said, heard) = lines.split_at(rule.unwrap_or(lines.len()));
        Self { line: lines[0].0, said: text(said), heard: rule.map(|_| text(&heard[1..])) }
    }

    fn play(&self, name: &str, open: Open, stage: &mut Option<Box<dyn Stage>>) -> Result<Self, StoryError> {
        let mut printed = Vec::new();
        for (line, command) in (self.line..).zip(&self.said).filter(|(_, command)| !is_comment(command)) {
            printed.extend(perform(command, open, stage).map_err(|reason| {
                let (name, command) = (name.to_owned(), command.clone());
                StoryError::Command { name, line, command, reason }
            })?);
        }
        let has_commands = self.said.iter().any(|line| !is_comment(line));
        let heard = (has_commands || self.heard.is_some()).then_some(printed);
        Ok(Self { heard, ..self.clone() })
    }
}

fn is_comment(line: &str) -> bool {
    line.starts_with('#')
}

/// The stages of everything that ships.
fn open(description: &[&str]) -> Result<Box<dyn Stage>, String> {
    stage::set(Cluster::parse(description)?)
}

/// A cluster sets the stage; everything else happens on it. Says what was printed.
fn perform(command: &str, open: Open, stage: &mut Option<Box<dyn Stage>>) -> Result<Vec<String>, String> {
    let words: Vec<_> = command.split_whitespace().collect();
    let (words, is_quiet) = words.strip_suffix(&["quietly"]).map_or((&words[..], false), |words| (words, true));
    match (words, &mut *stage) {
        (["cluster", description @ ..], stage) => *stage = Some(open(description)?),
        (words, Some(stage)) => stage.perform(words)?,
        (_, None) => return Err("a story begins with a cluster".to_owned()),
    }
    let printed = stage.iter_mut().flat_map(|stage| std::mem::take(stage.lines()));
    Ok(printed.filter(|_| !is_quiet).collect())
}

/// What both have at the beginning and at the end is shown once, what is between them twice.
fn diff(written: &str, now: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (written.lines().collect(), now.lines().collect());
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let mark = |mark: char, lines: &[&str]| lines.iter().map(|line| format!("{mark} {line}\n")).collect::<String>();
    let removed = mark('-', &old[before..old.len() - after]);
    let added = mark('+', &new[before..new.len() - after]);
    mark(' ', &old[..before]) + &removed + &added + &mark(' ', &old[old.len() - after..])
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, block) in self.blocks.iter().enumerate() {
            let gap = if position > 0 { "\n" } else { "" };
            write!(f, "{gap}{block}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.said.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let Some(heard) = &self.heard else { return Ok(()) };
        writeln!(f, "{RULE}")?;
        heard.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORY: &str = "\
# Comments alone need no rule.

cluster bully 1 2
start 2
----
2: start -> become leader, send 1 coordinator r1

table
----
1 undefined
2 defined 2
";

    fn play(text: &str) -> Result<Story, String> {
        Story::parse("a.txt", text).play().map_err(|error| error.to_string())
    }

    #[test]
    fn a_story_that_goes_as_written_stays_as_it_is() {
        let story = Story::parse("a.txt", STORY);
        let now = story.play().unwrap();
        assert!(story.compare(&now).is_ok());
        assert_eq!(now.to_string(), STORY);
    }

    #[test]
    fn a_story_that_goes_differently_shows_the_block_and_can_be_rewritten() {
        let story = Story::parse("a.txt", &STORY.replace("1 undefined", "1 defined 2"));
        let now = story.play().unwrap();
        let error = story.compare(&now).unwrap_err().to_string();
        let expected = "a.txt:8: this block goes differently (- as written, + as it goes now)\n  table\n  ----\n\
                        - 1 defined 2\n+ 1 undefined\n  2 defined 2\n";
        assert_eq!(error, expected);
        assert_eq!(now.to_string(), STORY);
    }

    #[test]
    fn a_block_without_a_rule_differs() {
        let story = Story::parse("a.txt", "cluster bully 1 2\n");
        assert!(story.compare(&story.play().unwrap()).is_err());
    }

    #[test]
    fn a_bad_command_is_named_with_file_and_line() {
        for (command, reason) in [
            ("fly 1", "no such command"),
            ("start", "no such command"),
            ("start 9", "there is no node 9"),
            ("restart 1", "node 1 is alive"),
            ("fire 1 answers", "node 1 has not set its timer answers"),
            ("fire 1 noon", "there is no timer noon"),
            ("deliver 1", "say from whom and to whom"),
            ("deliver 1 2 alive", "no such message is in flight from 1 to 2"),
            ("score 1 low", "low is no number"),
            ("partition 1,2", "a partition has two sides or more: 1,2|3"),
            ("foreign 1 2 hello", "a Bully has no foreign messages"),
            ("cluster", "say which: cluster bully, ring, control, farm, farms or founding"),
            ("cluster bully", "a cluster needs a node"),
            ("cluster bully 1 1", "node 1 is named twice"),
            ("cluster bully x", "x is no id"),
            ("cluster bully x rank=address", "x is no address"),
            ("cluster bully 1 2 leader=1", "node 1 does not win an election here"),
            ("cluster bully 1 2 scores=1", "2 nodes, but 1 scores"),
            ("cluster bully 1 colour=red", "there is no option colour=red here"),
            ("cluster ring 1 rank=load", "there is no option rank=load here"),
        ] {
            let error = play(&format!("# A comment.\ncluster bully 1 2\n{command}\n----\n")).unwrap_err();
            assert_eq!(error, format!("a.txt:3: {reason}\n    {command}"));
        }
    }

    #[test]
    fn a_story_without_a_cluster_is_refused() {
        assert_eq!(play("settle\n----\n").unwrap_err(), "a.txt:1: a story begins with a cluster\n    settle");
    }
}
