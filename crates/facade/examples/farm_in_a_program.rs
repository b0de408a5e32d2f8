//! A whole farm in one program: a server, two workers with kinds of their own, jobs, and an end in good order.
//!
//! ```text
//! cargo run -p primus-farm --example farm_in_a_program
//! ```

use std::error::Error;
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

use primus_farm::{Client, Job, Server, TaskState};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-farm-in-a-program-{}", std::process::id()));
    let address = TcpListener::bind("127.0.16.4:0")?.local_addr()?;
    let server = Server::builder("own", 1, [(1, address)], dir.join("server")).start().await?;

    // Handlers run on this program's runtime; one that blocks says so. Neither makes its worker late.
    let quick = server.worker("quick", dir.join("quick")).slots(4);
    let quick = quick.kind("square", async |task| square(&task.argument)).start().await?;
    count_squares(&server.client()).await?;

    // A worker that drains ends what it has and takes nothing new: what waits goes to the other worker.
    let slow = server.worker("slow", dir.join("slow")).slots(1);
    let slow = slow.blocking_kind("square", |task| {
        sleep(Duration::from_millis(20));
        square(&task.argument)
    });
    let mut slow = slow.start().await?;
    println!("slow {}", slow.events().next().await.ok_or("it has ended")?);
    quick.drain().await?;
    change_ones_mind(&server.client()).await?;

    slow.stop().await?;
    server.stop().await?;
    Ok(std::fs::remove_dir_all(&dir)?)
}

async fn count_squares(client: &Client) -> Result<(), Box<dyn Error>> {
    let job = client.submit(Job::kind("square", "").array(1..=5).name("squares")).await?;
    let report = job.wait().await?;
    println!("job {}: {} of {} tasks are done", report.job, report.done, report.tasks());
    let squares: Vec<String> = job.results().await?.into_iter().map(|task| task.stdout).collect();
    assert_eq!(squares, ["1", "4", "9", "16", "25"]);

    // A complaint makes a task fail.
    let job = client.submit(Job::kind("square", "").lines(["7", "many"])).await?;
    assert!(!job.wait().await?.is_success());
    for task in job.results().await? {
        println!("task {} is {}: {}{}", task.task, task.state, task.stdout, task.stderr);
        assert_eq!(task.state, if task.stdout == "49" { TaskState::Done } else { TaskState::Failed });
    }
    Ok(())
}

async fn change_ones_mind(client: &Client) -> Result<(), Box<dyn Error>> {
    let job = client.submit(Job::kind("square", "").array(1..=1000)).await?;
    while job.report().await?.done == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{} tasks were cancelled", job.cancel().await?);
    assert!(job.wait().await?.cancelled > 0);
    Ok(())
}

fn square(text: &str) -> Result<String, String> {
    let number: u64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    number.checked_mul(number).map(|square| square.to_string()).ok_or_else(|| format!("{number} is too large"))
}
