//! Suppression of findings, and reports of stale suppression.

use super::{class, found, stderr, stdout, validate, write};

fn ignored(comment: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let text = class("a", 5).replace("maxPods: 5", &format!("maxPods: 5 {comment}"));
    write(folder.path(), &[("a.yaml", &text)]);
    found(folder.path(), &[]).into_iter().map(|f| f.replace("a.yaml:", "")).collect()
}

#[test]
fn a_comment_suppresses_its_rule_only_at_its_position() {
    assert_eq!(ignored("# napkeeper:ignore NK1015 agreed"), [] as [&str; 0]);
    assert_eq!(ignored("# napkeeper:ignore NK1013,NK1015 agreed"), [] as [&str; 0]);
    assert_eq!(ignored("# napkeeper:ignore NK1013 agreed"), ["6 NK1015", "6 NK8001"]);
    assert_eq!(ignored("# napkeeper:ignore NK1015"), ["6 NK1015", "6 NK8002"]);
    assert_eq!(ignored("# napkeeper:ignore NK9999 agreed"), ["6 NK1015", "6 NK8002"]);
    assert_eq!(ignored("# napkeeper:ignore"), ["6 NK1015", "6 NK8002"]);
}

#[test]
fn a_comment_of_its_own_hides_in_the_value_below() {
    let folder = tempfile::tempdir().unwrap();
    let text = class("a", 5).replace("spec:", "# napkeeper:ignore NK1015 agreed\nspec:")
        + "  imageFamily: ubuntu\n---\n# napkeeper:ignore NK1015 of the first line alone\n"
        + &class("b", 5);
    write(folder.path(), &[("a.yaml", &text)]);
    assert_eq!(found(folder.path(), &[]), ["a.yaml:8 NK1013", "a.yaml:10 NK8001", "a.yaml:16 NK1015"]);
    let printed = stdout(&validate(folder.path(), &[]));
    assert!(printed.contains("; 1 ignored by comments"), "{printed}");
}

#[test]
fn text_that_looks_like_a_comment_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = class("a", 5)
        + "  tags: {note: '# napkeeper:ignore NK1015 no'}\n---\napiVersion: v1\nkind: ConfigMap\n\
        metadata: {name: a}\ndata:\n  a: |\n    # napkeeper:ignore NK1015 no\n";
    write(folder.path(), &[("a.yaml", &text)]);
    assert_eq!(found(folder.path(), &[]), ["a.yaml:6 NK1015"]);
}

#[test]
fn a_baseline_hides_known_findings_even_if_lines_move() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, &[("a.yaml", &class("a", 5)), ("b.yaml", &class("b", 5))]);
    let output = validate(root, &["--write-baseline", "known.json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("0 errors, 0 warnings; 2 in the baseline"), "{}", stdout(&output));
    let baseline: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(root.join("known.json")).unwrap()).unwrap();
    assert_eq!(baseline["findings"][0]["object"], "karpenter.azure.com/v1beta1/AKSNodeClass/a");
    let known = ["--baseline", "known.json"];
    assert_eq!(found(root, &[&known[..], &["a.yaml", "b.yaml"]].concat()), [] as [&str; 0]);
    // Lines move, a file is renamed, and there is a new finding.
    let moved = format!("# one\n\n{}  imageFamily: ubuntu\n", class("a", 5));
    write(root, &[("a.yaml", &moved)]);
    std::fs::rename(root.join("b.yaml"), root.join("c.yaml")).unwrap();
    assert_eq!(found(root, &[&known[..], &["a.yaml", "c.yaml"]].concat()), ["a.yaml:9 NK1013"]);
    // Another value is another finding, and the baseline entry is stale.
    write(root, &[("a.yaml", &class("a", 6))]);
    assert_eq!(found(root, &[&known[..], &["a.yaml", "c.yaml"]].concat()), ["a.yaml:6 NK1015", "known.json:4 NK8003"]);
    assert_eq!(found(root, &[&known[..], &["c.yaml"]].concat()), [] as [&str; 0], "a.yaml was not looked at");
    // A second object with the same fault is news.
    write(root, &[("a.yaml", &class("a", 5)), ("d.yaml", &class("a", 5))]);
    assert_eq!(found(root, &[&known[..], &["a.yaml", "c.yaml", "d.yaml"]].concat()), ["d.yaml:6 NK1015"]);
}

#[test]
fn a_baseline_of_a_cluster_hides_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings =
        "clusters:\n- name: prod\n  paths: [a.yaml]\n- name: test\n  paths: [a.yaml]\n  baseline: known.json\n";
    write(root, &[("a.yaml", &class("a", 5)), ("napkeeper.yaml", settings)]);
    let missing = validate(root, &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).contains("known.json") && stderr(&missing).contains("--write-baseline"),
        "{}",
        stderr(&missing)
    );
    assert_eq!(validate(root, &["--write-baseline", "known.json"]).status.code(), Some(0));
    let text = stdout(&validate(root, &["a.yaml"]));
    assert!(text.lines().next().unwrap().ends_with("[prod]"), "{text}");
    assert!(text.contains("\n2 objects in 2 files checked: 1 error, 0 warnings; "), "{text}");
    let whole = stdout(&validate(root, &[]));
    assert!(
        whole.contains("\n2 objects in 2 files checked: 1 error, 0 warnings; "),
        "a baseline is no manifest: {whole}"
    );
    assert_eq!(found(root, &["--cluster", "test"]), [] as [&str; 0]);
}

/// Each has an object of the same name with the same fault.
#[test]
fn clusters_may_share_a_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings = "clusters:\n- {name: prod, paths: [prod], baseline: known.json}\n\
                    - {name: test, paths: [test], baseline: known.json}\n";
    let faulty = class("a", 5);
    write(root, &[("prod/a.yaml", &faulty), ("test/a.yaml", &faulty), ("napkeeper.yaml", settings)]);
    assert_eq!(validate(root, &["--write-baseline", "known.json"]).status.code(), Some(0));
    for (from, args) in
        [("", &[][..]), ("", &["prod"]), ("", &["test"]), ("", &["--cluster", "test"]), ("prod", &[]), ("test", &["."])]
    {
        assert_eq!(found(&root.join(from), args), [] as [&str; 0], "{args:?} from {from:?}");
    }
    // What is mended in one is stale for that one.
    write(root, &[("test/a.yaml", &class("a", 40))]);
    assert_eq!(found(root, &["prod"]), [] as [&str; 0]);
    assert_eq!(found(root, &[]), ["known.json:5 NK8003"]);
    // A fault that another cluster has is news, whichever is read.
    assert_eq!(validate(root, &["--write-baseline", "known.json"]).status.code(), Some(0));
    write(root, &[("test/a.yaml", &faulty)]);
    assert_eq!(found(root, &["test"]), ["test/a.yaml:6 NK1015"]);
    assert_eq!(found(root, &[]), ["test/a.yaml:6 NK1015"]);
    write(root, &[("test/a.yaml", &class("a", 40))]);
    // What has moved is known where it is now.
    std::fs::rename(root.join("prod/a.yaml"), root.join("prod/b.yaml")).unwrap();
    assert_eq!(found(root, &["prod"]), [] as [&str; 0]);
}

#[test]
fn paths_of_a_cluster_exist() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "clusters:\n- name: prod\n  paths: [clusters/pord]\n";
    write(folder.path(), &[("clusters/prod/a.yaml", &class("a", 40)), ("napkeeper.yaml", settings)]);
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the path clusters/pord of cluster prod does not exist"), "{}", stderr(&output));
}

#[test]
fn an_invalid_baseline_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("{", "cannot read the baseline"),
        ("{\"version\": 2, \"findings\": []}", "has version 2"),
        ("[]", "cannot read the baseline"),
    ] {
        write(folder.path(), &[("a.yaml", &class("a", 40)), ("known.json", text)]);
        let output = validate(folder.path(), &["a.yaml", "--baseline", "known.json"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}
