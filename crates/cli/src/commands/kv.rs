//! `primus kv`: small values that all servers agree on.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use primus_client::http::{Request, escaped};
use primus_client::{Client, Patience, pages, strange_answer};
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict, screen};
use serde::Deserialize;
use serde_json::Value;

use crate::args::{Kv, KvArgs};

/// How long a server may take until it reads on, or answers at the end.
const IMPORT_TIME: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Found {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    key: String,
    value: String,
}

/// Puts, gets, deletes or lists.
pub(super) fn run(args: &KvArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let patience = Patience::WhileNoLeader(length("--timeout", &args.timeout)?);
    let client = Client::find(args.api.as_deref(), args.farm.as_deref())?;
    let call = Call { client, patience, format };
    match &args.what {
        Kv::Put { key, value } => call.put(key, value)?,
        Kv::Get { key } => call.get(key)?,
        Kv::Delete { key } => call.delete(key)?,
        Kv::Import { file, batch } => call.import(file, batch.as_deref())?,
        Kv::List { prefix } => call.list(prefix.as_deref().unwrap_or_default())?,
    }
    Ok(Verdict::Held)
}

struct Call {
    client: Client,
    patience: Patience,
    format: Format,
}

impl Call {
    fn put(&self, key: &str, value: &str) -> Result<(), Failure> {
        let request = Request { method: "PUT", path: &path(key)?, body: value.as_bytes() };
        let answer = self.client.write(request, self.patience)?;
        let text = || format!("{} is written, at index {}\n", on_one_line(key), answer["index"]);
        self.format.show(text, &answer).map(|_| ())
    }

    fn get(&self, key: &str) -> Result<(), Failure> {
        let answer = self.client.read(&path(key)?, self.patience)?;
        match (self.format, &answer["value"]) {
            (Format::Text, Value::String(value)) => screen::print_raw(format!("{value}\n").as_bytes()),
            (Format::Text, _) => Err(strange_answer().into()),
            _ => self.format.show(String::new, &answer).map(|_| ()),
        }
    }

    fn delete(&self, key: &str) -> Result<(), Failure> {
        let request = Request { method: "DELETE", path: &path(key)?, body: b"" };
        let answer = self.client.write(request, self.patience)?;
        self.format.show(|| format!("{} is deleted\n", on_one_line(key)), &answer).map(|_| ())
    }

    fn import(&self, file: &str, batch: Option<&str>) -> Result<(), Failure> {
        let batch = batch.map_or(Ok(1), |text| number("--batch", text, 1, 10_000))?;
        let unreadable =
            |error| Failure::usage(format!("{} cannot be read: {error}", quoted(file)), "check the path");
        let mut body: Box<dyn Read> = match file {
            "-" => Box::new(std::io::stdin().lock()),
            _ => Box::new(File::open(file).map_err(unreadable)?),
        };
        let answer = self.client.import(&mut body, batch, IMPORT_TIME)?;
        let text = || format!("{} values are written, the last at index {}\n", answer["written"], answer["index"]);
        self.format.show(text, &answer).map(|_| ())
    }

    fn list(&self, prefix: &str) -> Result<(), Failure> {
        let path = format!("/v1/kv?prefix={}", escaped(prefix));
        let answer = pages::all(&path, |page| self.client.read(page, self.patience))?;
        let found = Found::deserialize(&answer).map_err(|_| strange_answer())?;
        self.format.show(|| table(&found.items), &answer).map(|_| ())
    }
}

fn path(key: &str) -> Result<String, Failure> {
    if key.is_empty() {
        return Err(Failure::usage("the key is empty", "give it a name, such as colour"));
    }
    Ok(format!("/v1/kv/{}", escaped(key)))
}

/// A line per key; what would break a line is made visible.
fn table(items: &[Item]) -> String {
    let keys: Vec<String> = items.iter().map(|item| on_one_line(&item.key)).collect();
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0);
    let line = |(key, item): (&String, &Item)| format!("{key:width$}  {}\n", on_one_line(&item.value));
    keys.iter().zip(items).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_stand_in_columns() {
        let item = |key: &str, value: &str| Item { key: key.to_string(), value: value.to_string() };
        assert_eq!(table(&[item("a", "1\n2"), item("long", "x")]), "a     1\\n2\nlong  x\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn a_key_needs_a_name() {
        assert!(path("").is_err());
        assert_eq!(path("a b").unwrap(), "/v1/kv/a%20b");
    }
}
