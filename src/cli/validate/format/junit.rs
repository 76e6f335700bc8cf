//! JUnit XML for test reports. A file is a test suite, a finding a failed test.

use super::super::report::Report;
use super::super::verdicts::ReportedFinding;
use super::sentence;
use crate::output::one_line;
use napkeeper_api::manifests::Problem;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::io::Write;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut junit = quick_junit::Report::new("napkeeper validate");
    let mut rest = report.findings.iter().peekable();
    for (i, source) in report.input.sources.iter().enumerate() {
        let mut suite = TestSuite::new(one_line(&source.file));
        while let Some(reported) = rest.next_if(|reported| reported.source == i) {
            suite.add_test_case(case(reported, report));
        }
        if suite.test_cases.is_empty() {
            suite.add_test_case(named("has no findings", &source.file, TestCaseStatus::success()));
        }
        junit.add_test_suite(suite);
    }
    for Problem { file, message, .. } in &report.input.unreadable {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(one_line(message)).set_type("unreadable");
        let mut suite = TestSuite::new(one_line(file));
        suite.add_test_case(named("can be read", file, status));
        junit.add_test_suite(suite);
    }
    writeln!(out, "{}", junit.to_string()?.trim_end())?;
    Ok(())
}

/// A finding below `--fail-on` is a skipped test.
fn case(reported: &ReportedFinding, report: &Report) -> TestCase {
    let finding = &reported.finding;
    let position = format!("{}:{}:{}", finding.file, finding.line, finding.column);
    let mut status = if report.fail_on.counts(finding.severity) {
        TestCaseStatus::non_success(NonSuccessKind::Failure)
    } else {
        TestCaseStatus::skipped()
    };
    status.set_message(one_line(&finding.message)).set_type(finding.severity.to_string());
    status.set_description(format!("{}: {}", one_line(&position), sentence(reported)));
    let object = reported.object.label();
    let object = if object.is_empty() { object } else { format!("{} ", one_line(&object)) };
    named(&format!("{} {object}{}:{}", finding.rule, finding.line, finding.column), &finding.file, status)
}

fn named(name: &str, file: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(one_line(file));
    case
}
