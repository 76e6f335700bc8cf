//! Summaries of the shipped scenarios at seed 1: golden files, and the figures and excerpts in the docs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::output::{stderr, stdout};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Output of every shipped scenario by its folder below `manifests`: each runs once.
static RUNS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let folders = fs::read_dir(repository("manifests/scenarios")).unwrap();
    let names = folders.map(|entry| format!("scenarios/{}", entry.unwrap().file_name().to_str().unwrap()));
    let runs: Vec<_> = names.chain(["quickstart".to_owned()]).map(|name| (start(&name), name)).collect();
    let finish = |(run, name): (std::process::Child, String)| {
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        (name, stdout(&output))
    };
    runs.into_iter().map(finish).collect()
});

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn start(folder: &str) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.args(["simulate", "--seed", "1", "--color", "never"]);
    // Without a path, the quick start is the one that is built in.
    if folder != "quickstart" {
        command.arg(repository(&format!("manifests/{folder}")));
    }
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
}

/// The lines after the timeline, without the time that the run took.
fn summary(output: &str) -> &str {
    let start = output.find("\nnodes  ").unwrap() + 1;
    let end = output.rfind("\ntime  ").unwrap() + 1;
    &output[start..end]
}

/// The words after a label at the beginning of a line.
fn line<'s>(summary: &'s str, label: &str) -> &'s str {
    summary.lines().find_map(|line| line.strip_prefix(label)).unwrap().trim_start()
}

/// The text between two others.
fn between<'s>(text: &'s str, before: &str, after: &str) -> &'s str {
    text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).unwrap().0
}

/// The cells of the scenario's row in docs/simulate.md, by its summary.
fn row(summary: &str) -> [String; 5] {
    let (cost, baseline) = (line(summary, "cost "), line(summary, "baseline "));
    let evictions = [line(summary, "evictions "), baseline.rsplit(", ").next().unwrap()];
    let evictions = evictions.map(|text| text.split_once(" voluntary").unwrap().0);
    let pending = |text: &str| between(text, "pending ", " pod-minutes").to_owned();
    [
        cost.split_once(';').unwrap().0.to_owned(),
        between(cost, "on-demand: ", " (").to_owned(),
        between(baseline, "cluster-autoscaler ", " (").to_owned(),
        format!("{} / {}", pending(line(summary, "pods ")), pending(baseline)),
        evictions.join(" / "),
    ]
}

#[test]
fn each_shipped_scenario_has_the_committed_summary() {
    let folder = repository("src/app/tests/cases/simulate");
    let mut wrong = Vec::new();
    for (name, output) in &*RUNS {
        let file = folder.join(format!("{}.txt", name.trim_start_matches("scenarios/")));
        if std::env::var_os("NAPKEEPER_BLESS").is_some() {
            fs::write(&file, summary(output)).unwrap();
        }
        match fs::read_to_string(&file) {
            Err(error) => wrong.push(format!("{}: {error}", file.display())),
            Ok(expected) if expected == summary(output) => {}
            Ok(expected) => {
                wrong.push(format!("{}: expected\n{expected}\nbut was\n{}", file.display(), summary(output)));
            }
        }
    }
    let files = fs::read_dir(folder).unwrap().count();
    assert!(wrong.is_empty(), "{}\nNAPKEEPER_BLESS=1 rewrites the files", wrong.join("\n"));
    assert_eq!(files, RUNS.len(), "one file for each scenario");
}

#[test]
fn the_table_of_bills_in_the_docs_has_the_figures_of_the_summaries() {
    let page = fs::read_to_string(repository("docs/simulate.md")).unwrap();
    let table = between(&page, "## The bill compared with cluster-autoscaler", "\n## ");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `manifests/")).collect();
    assert!(rows.len() >= 4, "{rows:#?}");
    for text in rows {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        let folder = between(cells[0], "`manifests/", "`");
        assert_eq!(cells[1..], row(summary(&RUNS[folder])), "the row of {folder}");
    }
}

/// The lines of a block of code that begins with `first`, each cut at `…`.
fn excerpt<'p>(page: &'p str, first: &str) -> Vec<&'p str> {
    let block = page.split("```\n").find(|block| block.starts_with(first)).unwrap();
    block.lines().filter(|line| !line.trim().is_empty() && *line != "…").collect()
}

/// Asserts that the lines of an excerpt are in the output, in this order.
fn assert_excerpt(page: &str, excerpt: &[&str], output: &str) {
    assert!(excerpt.len() >= 10, "{page}: {excerpt:#?}");
    let mut lines = output.lines();
    for wanted in excerpt {
        let start = wanted.trim_end_matches('…');
        // The last line has the time that the run took.
        let start = start.split_once(" simulated in ").map_or(start, |(start, _)| start);
        let found = lines.any(|line| if start == *wanted { line == start } else { line.starts_with(start) });
        assert!(found, "{page}: `napkeeper simulate` does not print, at this place:\n{wanted}");
    }
}

#[test]
fn excerpts_in_the_docs_match_the_output_of_the_quick_start() {
    let output = &RUNS["quickstart"];
    for (page, first) in [("docs/simulate.md", "nodes  "), ("README.md", "$ napkeeper simulate\n")] {
        let text = fs::read_to_string(repository(page)).unwrap().replace("```text\n", "```\n");
        let lines: Vec<&str> = excerpt(&text, first).into_iter().filter(|line| !line.starts_with('$')).collect();
        assert_excerpt(page, &lines, output);
    }
}
