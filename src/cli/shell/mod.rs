//! The shell: statements from `-c`, `-f`, standard input, or a person.

mod catalog;
pub(super) mod commands;
mod copy;
mod editor;
mod help;
mod highlight;
pub(super) mod variables;
mod words;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use tokio::runtime::Runtime;

use self::commands::Next;
use self::editor::{Editor, Entered};
use super::args::{Job, ShellOptions};
use super::client::Client;
use super::failure::Failure;
use super::interrupt::Interrupt;
use super::link::Link;
use super::opening;
use super::output::Output;
use super::pager::Paging;
use super::paint::Paint;
use super::remote::Remote;
use super::script::{Piped, Script};

/// Runs the shell until its jobs are done or the person leaves, then closes the database with a last checkpoint.
///
/// # Errors
/// What was not told yet.
pub(super) fn start(runtime: &Runtime, options: &ShellOptions) -> Result<ExitCode, Failure> {
    if let Some(address) = &options.url {
        let remote = runtime.block_on(Remote::connect(address.clone()))?;
        talk(runtime, Link::Remote(Box::new(remote)), options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let opened = runtime.block_on(opening::open(
        options.dir.as_deref(),
        options.read_only,
        options.memory_limit,
    ))?;
    if let Some(remark) = &opened.remark {
        writeln!(std::io::stderr(), "{remark}")?;
    }
    let ended = talk(runtime, Link::Own(Box::new(opened.database.session())), options);
    let closed = if opened.database.is_read_only() {
        Ok(())
    } else {
        runtime.block_on(opened.database.close())
    };
    ended?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the jobs, or what a person types.
fn talk(runtime: &Runtime, link: Link, options: &ShellOptions) -> Result<(), Failure> {
    let interrupt = Interrupt::default();
    let output = Output::stdout(options.format, options.quiet);
    let mut client = Client::new(link, output, interrupt.clone());
    if options.jobs.is_empty() && std::io::stdin().is_terminal() {
        runtime.block_on(async { interrupt.listen() })?;
        client.output.paging = Paging::On;
        return converse(runtime, &mut client, options.quiet);
    }
    runtime.block_on(run_jobs(&mut client, &options.jobs)).map(drop)
}

async fn run_jobs(client: &mut Client, jobs: &[Job]) -> Result<Next, Failure> {
    if jobs.is_empty() {
        return run_piped(client).await;
    }
    for job in jobs {
        let ended = match job {
            Job::Command(text) => client.run_script(&Script::command(text)).await?,
            Job::File(path) if path.as_os_str() == "-" => run_piped(client).await?,
            Job::File(path) => client.run_script(&Script::read(path)?).await?,
        };
        if ended == Next::Quit {
            break;
        }
    }
    Ok(Next::GoOn)
}

/// Runs the statements of standard input, each as soon as it is there.
async fn run_piped(client: &mut Client) -> Result<Next, Failure> {
    let mut piped = Piped::stdin();
    while let Some(part) = piped.next_part()? {
        if client.run_part(&piped.script, part).await? == Next::Quit {
            return Ok(Next::Quit);
        }
    }
    Ok(Next::GoOn)
}

/// Reads and runs statements until the person leaves. Errors end the statement, not the shell.
fn converse(runtime: &Runtime, client: &mut Client, quiet: bool) -> Result<(), Failure> {
    if !quiet {
        client.output.line(&banner(client))?;
    }
    let mut editor = Editor::new(Paint::stdout())?;
    loop {
        editor.set_names(runtime.block_on(catalog::names(client)));
        let entered = editor.read(&client.interrupt)?;
        client.interrupt.clear();
        let ended = match entered {
            Entered::Leave => break,
            Entered::Nothing => continue,
            Entered::Statements(sql) => {
                client.last_sql.clone_from(&sql);
                runtime.block_on(client.run_script(&Script::command(&sql)))
            }
            Entered::Command { line, open } => {
                if !open.trim().is_empty() {
                    client.last_sql = open;
                }
                runtime.block_on(commands::run(client, &line))
            }
        };
        match ended {
            Ok(Next::GoOn) => {}
            Ok(Next::Quit) => break,
            Err(Failure::Io(what, error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Err(Failure::Io(what, error));
            }
            Err(failure) => failure.write(&mut std::io::stderr().lock(), Paint::stderr())?,
        }
    }
    editor.save();
    Ok(())
}

fn banner(client: &Client) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let place = match &client.link {
        Link::Own(session) if session.database().dir().is_none() => {
            "Database in memory: it is gone when you leave. Name a directory to keep one.".to_owned()
        }
        link => {
            let place = link.place();
            format!("{}{}.", place[..1].to_uppercase(), &place[1..])
        }
    };
    format!("Highwater {version}. Type \\? for help, \\q to leave.\n{place}")
}
