//! A program that is not a server: it finds a farm as the commands do, submits jobs, waits for them and reads what they printed.
//!
//! ```text
//! primus up                     # in another terminal
//! cargo run -p primus-farm --example submit_jobs
//! ```

use std::error::Error;
use std::time::Duration;

use primus_farm::{Client, Job};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let client = Client::find()?;

    // Under a key a job is taken once, however often this program is started.
    let hello = Job::command(["echo", "hello from task {}"]).array(1..=3).timeout(Duration::from_secs(60));
    let job = client.submit(hello.name("hello").key("submit_jobs hello")).await?;
    let report = job.wait().await?;
    println!("job {}: {} of {} tasks are done", report.job, report.done, report.tasks());
    for task in job.results().await? {
        print!("{}", task.stdout);
    }

    // The same number leads to the same job, in any program.
    assert_eq!(client.job(job.id()).report().await?, report);

    // Small values on which the servers agree.
    client.put("examples/last job", job.id().to_string()).await?;
    let value = client.get("examples/last job").await?.unwrap_or_default();
    assert_eq!(String::from_utf8(value)?, job.id().to_string());
    Ok(client.delete("examples/last job").await?)
}
