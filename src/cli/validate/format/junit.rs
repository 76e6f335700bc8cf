//! For test reports: JUnit XML. A file is a test suite, a finding a test that failed.

use super::super::super::output::one_line;
use super::super::judge::Shown;
use super::{Told, sentence};
use napkeeper_api::manifests::Problem;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::io::Write;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let mut report = Report::new("napkeeper validate");
    let mut rest = told.shown.iter().peekable();
    for (i, source) in told.input.sources.iter().enumerate() {
        let mut suite = TestSuite::new(one_line(&source.file));
        while let Some(shown) = rest.next_if(|shown| shown.source == i) {
            suite.add_test_case(case(shown, told));
        }
        if suite.test_cases.is_empty() {
            suite.add_test_case(named("has no findings", &source.file, TestCaseStatus::success()));
        }
        report.add_test_suite(suite);
    }
    for Problem { file, message, .. } in &told.input.unreadable {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(one_line(message)).set_type("unreadable");
        let mut suite = TestSuite::new(one_line(file));
        suite.add_test_case(named("can be read", file, status));
        report.add_test_suite(suite);
    }
    writeln!(out, "{}", report.to_string()?.trim_end())?;
    Ok(())
}

/// A finding that does not count is a test that was skipped.
fn case(shown: &Shown, told: &Told<'_>) -> TestCase {
    let finding = &shown.finding;
    let place = format!("{}:{}:{}", finding.file, finding.line, finding.column);
    let mut status = if told.fail_on.counts(finding.severity) {
        TestCaseStatus::non_success(NonSuccessKind::Failure)
    } else {
        TestCaseStatus::skipped()
    };
    status.set_message(one_line(&finding.message)).set_type(finding.severity.to_string());
    status.set_description(format!("{}: {}", one_line(&place), sentence(shown)));
    named(&format!("{} {}:{}", finding.rule, finding.line, finding.column), &finding.file, status)
}

fn named(name: &str, file: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(one_line(file));
    case
}
