//! Asking over HTTP, with the client of the commands.

use std::path::Path;
use std::time::Duration;

use primus_client::http::{Request, escaped};
use primus_client::pages::Pages;
use primus_client::tasks::{TaskClient, nothing};
use primus_client::{Client, Patience, strange_answer, tokens};
use primus_core::Place;
use primus_core::ledger::JobId;
use primus_shapes::submission::Submission;
use primus_shapes::token::Token;
use serde::Deserialize;
use serde_json::Value;

use crate::handle::{JobReport, TaskReport, TaskState};
use crate::trouble::Trouble;

/// How long a value may wait for a leader.
const LEADERLESS_TIME: Duration = Duration::from_secs(5);
/// How long one round of waiting takes.
const WAIT_TIME: Duration = Duration::from_secs(5);

/// The servers of a farm, by the addresses of their API.
#[derive(Debug, Clone)]
pub(super) struct Http(Client);

impl Http {
    pub(super) fn find(api: Option<&str>) -> Result<Self, Trouble> {
        Ok(Self(Client::find(api, None)?))
    }

    pub(super) fn show_token(&self, file: &Path) -> Result<(), Trouble> {
        let token =
            Token::read(file).map_err(|(what, hint)| Trouble::Wrong(format!("the secret {what}; {hint}")))?;
        self.0.clone().into_addresses().iter().for_each(|address| tokens::know(address, &token));
        Ok(())
    }

    fn tasks(&self) -> TaskClient {
        TaskClient::new(self.0.clone())
    }

    pub(super) async fn submit(&self, submission: Submission, key: String) -> Result<JobId, Trouble> {
        let body = serde_json::to_vec(&submission).map_err(|error| Trouble::Wrong(error.to_string()))?;
        let answer = self.tasks().submit_async(&body, &key).await?;
        let id = answer["job"].as_str().and_then(|id| id.parse().ok());
        id.map(JobId).ok_or_else(|| strange_answer().into())
    }

    pub(super) async fn servers(&self) -> Result<(String, Vec<(u64, Place)>), Trouble> {
        let status = self.0.latest_async("/v1/status").await?;
        let server = |server: &Value| Some((server["id"].as_u64()?, server["address"].as_str()?.parse().ok()?));
        let servers = status["servers"].as_array().and_then(|servers| servers.iter().map(server).collect());
        let farm = status["farm"].as_str().map(str::to_owned);
        farm.zip(servers).ok_or_else(|| strange_answer().into())
    }

    pub(super) async fn report(&self, id: JobId) -> Result<JobReport, Trouble> {
        job_report(id, self.tasks().get_async(&format!("/v1/jobs/{id}")).await?)
    }

    pub(super) async fn wait(&self, id: JobId) -> Result<JobReport, Trouble> {
        job_report(id, self.tasks().wait_async(&format!("/v1/jobs/{id}"), WAIT_TIME).await?)
    }

    pub(super) async fn results(&self, id: JobId) -> Result<Vec<TaskReport>, Trouble> {
        let (mut tasks, mut pages) = (self.tasks(), Pages::new(&format!("/v1/tasks?job={id}"), usize::MAX));
        while let Some(path) = pages.wanted() {
            pages.take(tasks.get_async(&path).await?)?;
        }
        let Value::Array(items) = pages.list()["items"].take() else { return Err(strange_answer().into()) };
        // A farm says nothing of the tasks of a job that it does not know.
        if items.is_empty() {
            self.report(id).await?;
        }
        items.into_iter().map(task_report).collect()
    }

    pub(super) async fn cancel(&self, id: JobId) -> Result<u64, Trouble> {
        let cancelled = self.tasks().post_async(&format!("/v1/jobs/{id}/cancel"), &nothing()).await?;
        cancelled["cancelled"].as_u64().ok_or_else(|| strange_answer().into())
    }
}

/// Values.
impl Http {
    pub(super) async fn put(&self, key: &str, value: Vec<u8>) -> Result<(), Trouble> {
        self.change("PUT", key, value).await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Trouble> {
        self.change("DELETE", key, Vec::new()).await
    }

    async fn change(&self, method: &'static str, key: &str, body: Vec<u8>) -> Result<(), Trouble> {
        let request = Request { method, path: &path(key)?, body: &body };
        self.0.write_async(request, Patience::WhileNoLeader(LEADERLESS_TIME)).await?;
        Ok(())
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let read = self.0.read_async(&path(key)?, Patience::WhileNoLeader(LEADERLESS_TIME)).await;
        match read.map_err(Trouble::from) {
            Ok(answer) => {
                let value = answer["value"].as_str().ok_or_else(strange_answer)?;
                Ok(Some(value.as_bytes().to_vec()))
            }
            Err(Trouble::NotFound) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }
}

fn path(key: &str) -> Result<String, Trouble> {
    if key.is_empty() {
        return Err(Trouble::Wrong("the key is empty".to_owned()));
    }
    Ok(format!("/v1/kv/{}", escaped(key)))
}

/// A job as the API tells it.
#[derive(Deserialize)]
struct JobFacts {
    name: String,
    queued: u64,
    running: u64,
    done: u64,
    failed: u64,
    lost: u64,
    cancelled: u64,
}

fn job_report(job: JobId, facts: Value) -> Result<JobReport, Trouble> {
    let facts: JobFacts = serde_json::from_value(facts).map_err(|_| strange_answer())?;
    let JobFacts { name, queued, running, done, failed, lost, cancelled } = facts;
    Ok(JobReport { job, name, queued, running, done, failed, lost, cancelled })
}

/// A task as the API tells it.
#[derive(Deserialize)]
struct TaskFacts {
    task: String,
    state: String,
    worker: Option<String>,
    exit: Option<u8>,
    took_ms: Option<f64>,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    reason: Option<String>,
}

fn task_report(facts: Value) -> Result<TaskReport, Trouble> {
    let facts: TaskFacts = serde_json::from_value(facts).map_err(|_| strange_answer())?;
    let task = facts.task.parse().map_err(|_| strange_answer())?;
    let state = TaskState::named(&facts.state).ok_or_else(strange_answer)?;
    let TaskFacts { worker, exit, stdout, stderr, reason, .. } = facts;
    let took = facts.took_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    Ok(TaskReport { worker, exit, took, stdout, stderr, reason, ..TaskReport::new(task, state) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs ask from tasks of their own, on any thread.
    fn may_move_to_another_thread(_: &(impl Future + Send)) {}

    #[test]
    fn whatever_is_asked_can_be_asked_in_a_task() {
        let http = Http::find(Some("127.0.0.1:1")).unwrap();
        may_move_to_another_thread(&http.submit(Submission::default(), "key".to_owned()));
        may_move_to_another_thread(&http.servers());
        may_move_to_another_thread(&http.wait(JobId(1)));
        may_move_to_another_thread(&http.results(JobId(1)));
        may_move_to_another_thread(&http.cancel(JobId(1)));
        may_move_to_another_thread(&http.put("key", Vec::new()));
        may_move_to_another_thread(&http.get("key"));
    }
}
