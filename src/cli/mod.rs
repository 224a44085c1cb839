//! The command line: a shell in the manner of psql, scripts, `run`, `serve`, `check` and `demo`. A door: it uses the public API and
//! nothing behind it.
//!
//! ```text
//! args ─▶ shell ──▶ client ──▶ Session::run ──▶ render ──▶ output
//!    ├──▶ run ───▶ script ──▶ …   then the status line from the hw.* tables, until a signal
//!    └──▶ demo ──▶ a mock broker, a producer, the same SQL, a crash, a look at the truth
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `args` | what was asked for |
//! | `opening` | a database, read-only where another process holds it |
//! | `client`, `script`, `subscription` | statements one after another, and what they give |
//! | `link`, `remote` | where they run: here, or on a server |
//! | `render`, `output`, `pager`, `failure`, `paint` | how results and errors look |
//! | `shell` | the interactive shell and its backslash commands |
//! | `figures`, `status`, `rates` | what runs, as numbers |
//! | `live`, `logs` | the lines that are redrawn, and the log beside them |
//! | `run`, `serve`, `check`, `demo` | the subcommands |

mod args;
mod check;
mod client;
mod demo;
mod failure;
mod figures;
mod interrupt;
mod link;
mod live;
mod logs;
mod opening;
mod output;
mod pager;
mod paint;
mod progress;
mod rates;
mod remote;
mod render;
mod run;
mod script;
mod serve;
mod shell;
mod status;
mod subscription;

use std::io::Write as _;
use std::process::ExitCode;

use self::args::Action;
use self::failure::Failure;
use self::paint::Paint;

/// Reads the arguments of the process and does what they say. The exit status is 0 when all went well, 1 after an
/// error, 2 when the arguments make no sense.
pub fn main() -> ExitCode {
    let action = args::read();
    logs::start(match &action {
        Action::Run(options) => Some(&options.log),
        Action::Serve(options) => Some(&options.log),
        Action::Shell(_) | Action::Check(_) | Action::Demo(_) => None,
    });
    match perform(&action) {
        Ok(status) => status,
        Err(failure) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to be told when standard error is gone too.
            let _ = failure.write(&mut stderr, Paint::stderr());
            let _ = stderr.flush();
            ExitCode::FAILURE
        }
    }
}

fn perform(action: &Action) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("hw-cli")
        .build()?;
    let status = match action {
        Action::Shell(options) => shell::start(&runtime, options),
        Action::Run(options) => runtime.block_on(run::run(options)),
        Action::Serve(options) => runtime.block_on(serve::serve(options)),
        Action::Check(options) => runtime.block_on(check::check(options)),
        Action::Demo(options) => runtime.block_on(demo::show(options)),
    };
    runtime.shutdown_background();
    status
}
