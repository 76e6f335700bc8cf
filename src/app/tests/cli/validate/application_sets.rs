//! ApplicationSets of Argo CD: what they generate from the repository is read, and what is not known from it alone is said.

use super::{class, errors, stderr, stdout, validate, write};
use std::process::Command;

const URL: &str = "repoURL: \"https://example.com/fleet\"";
const CLUSTERS: &str = "\n  - clusters: {}";

/// An ApplicationSet with these generators and this template of a source.
fn set(generators: &str, source: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {{name: a, namespace: argocd}}\nspec:\n  generators:{generators}\n  \
         template:\n    metadata: {{name: a}}\n    spec:\n      project: default\n      \
         destination: {{server: \"https://kubernetes.default.svc\"}}\n      {source}\n"
    )
}

/// An ApplicationSet whose applications have this path.
fn set_of(generators: &str, path: &str) -> String {
    set(generators, &format!("source: {{{URL}, path: \"{path}\"}}"))
}

fn list(elements: &str) -> String {
    format!("list: {{elements: [{elements}]}}")
}

fn matrix(generators: &[&str]) -> String {
    format!("\n  - matrix: {{generators: [{{{}}}]}}", generators.join("}, {"))
}

/// A clone of the repository of `URL`, with a faulty class in each of these folders.
struct Fleet {
    folder: tempfile::TempDir,
}

impl Fleet {
    fn new(folders: &[&str]) -> Self {
        let fleet = Self { folder: tempfile::tempdir().unwrap() };
        for folder in folders {
            fleet.write(&format!("{folder}/class.yaml"), &class(&folder.replace('/', "-"), 5));
        }
        fleet.git(&["init", "-q"]);
        fleet.git(&["remote", "add", "origin", "git@example.com:a/fleet.git"]);
        fleet
    }

    fn write(&self, name: &str, text: &str) {
        write(self.folder.path(), &[(name, text)]);
    }

    fn git(&self, args: &[&str]) {
        assert!(Command::new("git").args(args).current_dir(&self.folder).status().unwrap().success());
    }

    /// The folders that are read, and what is said about others.
    fn read(&self, args: &[&str]) -> (Vec<String>, String) {
        let args = [args, &["--allow-empty"]].concat();
        let found = errors(self.folder.path(), &args);
        let mut found: Vec<String> =
            found.iter().map(|line| line.split("/class.yaml:").next().unwrap().to_owned()).collect();
        found.sort();
        (found, stderr(&validate(self.folder.path(), &args)))
    }

    /// The same for one ApplicationSet; of what is said, the reasons.
    fn of(&self, set: &str) -> (Vec<String>, String) {
        self.write("sets/a.yaml", set);
        let (found, said) = self.read(&["sets"]);
        let reasons = said.strip_prefix(
            "warning: sets/a.yaml: folders of ApplicationSet a are not known from the repository alone (",
        );
        let reasons = reasons.and_then(|rest| rest.strip_suffix("): pass those that it syncs\n"));
        (found, reasons.unwrap_or(&said).to_owned())
    }
}

fn all(folders: &[&str], said: &str) -> (Vec<String>, String) {
    (folders.iter().map(|folder| (*folder).to_owned()).collect(), said.to_owned())
}

#[test]
fn what_an_application_set_generates_is_read() {
    let read = ["nodes/west", "of/east/b", "of/west/a", "prod/of-c1"];
    let fleet = Fleet::new(&[&read[..], &["of/west/b", "nodes/old", "prod/of-c2", "name"]].concat());
    let names = format!("\n  - {}", list("{cluster: west, of: {kind: a}}, {cluster: east, of: {kind: b}}"));
    let folders = format!("\n  - git: {{{URL}, directories: [{{path: nodes/*}}, {{path: nodes/old, exclude: true}}]}}");
    let files = format!("git: {{{URL}, files: [{{path: \"config/**/*.json\"}}]}}");
    let files = matrix(&[&files, &list("{what: \"of-{{.cluster.name}}\"}")]);
    let other = "\n  - clusters: {}\n  - list: {elements: [{cluster: a}], elementsYaml: \"[]\"}";
    fleet.write("config/prod/c1.json", "{\"cluster\": {\"name\": \"c1\"}}");
    fleet.write("sets/list.yaml", &set_of(&names, "of/{{cluster}}/{{of.kind}}"));
    fleet.write("sets/folders.yaml", &set_of(&folders, "{{ .path.path }}"));
    fleet.write("sets/files.yaml", &set_of(&files, "{{index .path.segments 1}}/{{.what}}"));
    fleet.write("sets/other.yaml", &set_of(other, "{{name}}"));
    fleet.write("sets/sprig.yaml", &set_of(&names, "{{ .cluster | lower }}"));
    let said = "warning: sets/other.yaml: folders of ApplicationSet a are not known from the repository alone (generator clusters, \
                generator list): pass those that it syncs\nwarning: sets/sprig.yaml: folders of ApplicationSet a are not known \
                from the repository alone (the path {{ .cluster | lower }}): pass those that it syncs\n";
    assert_eq!(fleet.read(&["sets"]), all(&read, said));
    assert_eq!(stderr(&validate(fleet.folder.path(), &["."])), "", "everything is read");
    assert_eq!(fleet.read(&["sets/other.yaml"]), all(&[], ""), "a file that is named is read alone");
    let json: serde_json::Value =
        serde_json::from_slice(&validate(fleet.folder.path(), &["sets", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["summary"]["notBuilt"].as_array().unwrap().len(), 0);
    assert_eq!(json["summary"]["notFollowed"].as_array().unwrap().len(), 2);
    fleet.git(&["add", "."]);
    fleet.git(&["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "a"]);
    assert_eq!(fleet.read(&["sets", "--rev", "HEAD"]), all(&read, said));
    fleet.git(&["remote", "set-url", "origin", "git@example.com:a/another.git"]);
    assert_eq!(fleet.read(&["sets"]), all(&[], ""), "nothing is of this repository");
}

/// What generators decide does not matter for a path that has no parameter.
#[test]
fn a_path_without_parameters_is_read_whatever_the_generator() {
    let fleet = Fleet::new(&["base", "name"]);
    assert_eq!(fleet.of(&set_of(CLUSTERS, "base")), all(&["base"], ""));
    assert_eq!(fleet.of(&set(CLUSTERS, "source: {repoURL: \"{{url}}\", path: base}")), all(&["base"], ""));
    let selector = "\n  - {clusters: {}, selector: {matchLabels: {a: b}}}";
    assert_eq!(fleet.of(&set_of(selector, "base")), all(&["base"], ""));
    assert_eq!(fleet.of(&set_of(selector, "{{name}}")), all(&[], "a selector"));
    let own = "\n  - clusters: {template: {metadata: {}, spec: {source: {path: name}}}}";
    assert_eq!(fleet.of(&set_of(own, "base")), all(&[], "the template of generator clusters"));
    let labels = "\n  - clusters: {template: {metadata: {labels: {a: b}}, spec: {}}}";
    assert_eq!(fleet.of(&set_of(labels, "base")), all(&["base"], ""));
    let patched = |patch: &str| set_of(CLUSTERS, "base") + &format!("  templatePatch: \"{patch}\"\n");
    assert_eq!(fleet.of(&patched("{spec: {syncPolicy: {automated: {}}}}")), all(&["base"], ""));
    assert_eq!(fleet.of(&patched("{spec: {source: {path: a}}}")), all(&["base"], "spec.templatePatch"));
}

#[test]
fn each_source_of_a_template_counts_for_itself() {
    let fleet = Fleet::new(&["base", "name"]);
    let chart = "{repoURL: \"https://example.com/charts\", chart: \"{{name}}\", targetRevision: 1.0.0}";
    assert_eq!(fleet.of(&set(CLUSTERS, &format!("source: {chart}"))), all(&[], ""), "a chart has no path");
    let foreign = "{repoURL: \"https://example.com/another\", path: \"{{name}}\"}";
    assert_eq!(fleet.of(&set(CLUSTERS, &format!("source: {foreign}"))), all(&[], ""), "of another repository");
    let sources = format!("sources: [{chart}, {foreign}, {{{URL}, path: \"{{{{name}}}}\"}}, {{{URL}, path: base}}]");
    assert_eq!(fleet.of(&set(CLUSTERS, &sources)), all(&["base"], "generator clusters"));
    let elements = format!("\n  - {}", list("{repo: fleet}, {repo: another}"));
    let sources = "sources: [{repoURL: \"https://example.com/{{repo}}\", path: \"{{of}}\"}, {repoURL: \"https://example.com/{{repo}}\", path: base}]";
    assert_eq!(fleet.of(&set(&elements, sources)), all(&["base"], "the path {{of}}"));
    let elements = format!("\n  - {}", list("{repo: another}"));
    assert_eq!(fleet.of(&set(&elements, sources)), all(&[], ""), "all are of another repository");
}

#[test]
fn patterns_of_the_git_generator_are_those_of_argo_cd() {
    let fleet = Fleet::new(&["nodes/c1", "nodes/c2", "nodes/c2/deep", "nodes/.c3"]);
    let git = |fields: &str| format!("git: {{{URL}, {fields}}}");
    let files = |fields: &str| fleet.of(&set_of(&format!("\n  - {}", git(fields)), "nodes/{{folder}}"));
    fleet.write("nodes/c1/.config.json", "{\"folder\": \"c1\"}");
    assert_eq!(files("files: [{path: nodes/*/.config.json}]"), all(&["nodes/c1"], ""), "a hidden file");
    fleet.write("config/c1.yaml", "folder: c1\n");
    fleet.write("config/.d/e/c2.yaml", "- folder: c2\n");
    let both = ["nodes/c1", "nodes/c2", "nodes/c2/deep"];
    assert_eq!(files("files: [{path: config/*.yaml}]"), all(&both, ""), "* is any text, as for git ls-files");
    assert_eq!(files("files: [{path: config/**/*.yaml}]"), all(&both[1..], ""));
    assert_eq!(files("files: [{path: config}]"), all(&both, ""), "a folder is all that is in it");
    let excluded = "files: [{path: config}, {path: \"config/.*\", exclude: true}]";
    assert_eq!(files(excluded), all(&both[..1], ""));
    let folders = format!("\n  - {}", git("directories: [{path: nodes/*}]"));
    assert_eq!(fleet.of(&set_of(&folders, "{{path}}")), all(&both, ""), "without hidden folders");
    let prefixed = git("pathParamPrefix: of, values: {a: \"{{of.path.basename}}\"}, directories: [{path: nodes/c1}]");
    let prefixed = format!("\n  - {prefixed}");
    assert_eq!(fleet.of(&set_of(&prefixed, "nodes/{{values.a}}")), all(&both[..1], ""));
    fleet.write("broken/a.json", "{");
    assert_eq!(files("files: [{path: broken/*}]"), all(&[], "the file broken/a.json"));
    assert_eq!(files("files: [{path: \"config/[\"}]").1.split(':').next().unwrap(), "the pattern config/[");
    // Each combination names a repository, which may be this one, and files.
    let named =
        list("{url: \"https://example.com/fleet\", name: C1}, {url: \"https://example.com/another\", name: c2}");
    let of_named = |path: &str| {
        let of_url = format!("git: {{repoURL: \"{{{{.url}}}}\", files: [{{path: \"{path}\"}}]}}");
        fleet.of(&set_of(&matrix(&[&named, &of_url]), "nodes/{{folder}}"))
    };
    assert_eq!(of_named("config/*.yaml"), all(&[], "generator git of https://example.com/another"));
    assert_eq!(of_named("config/{{ .name | lower }}.yaml"), all(&[], "the pattern config/{{ .name | lower }}.yaml"));
    let open = "\n  - git: {repoURL: \"{{.url}}\", files: [{path: config/c1.yaml}]}";
    assert_eq!(fleet.of(&set_of(open, "nodes/{{folder}}")), all(&both[..1], ""), "nothing says that it is another one");
}

#[test]
fn a_matrix_takes_two_generators_and_one_in_another() {
    let fleet = Fleet::new(&["a/c/d", "b/c/d"]);
    let (ab, c, d) = (list("{x: a}, {x: b}"), list("{x: no, w: c}"), list("{z: d}"));
    let bare = |generators: &[&str]| matrix(generators).trim_start_matches("\n  - ").to_owned();
    let path = "{{x}}/{{w}}/{{z}}";
    assert_eq!(
        fleet.of(&set_of(&matrix(&[&bare(&[&ab, &c]), &d]), path)),
        all(&["a/c/d", "b/c/d"], ""),
        "the first wins"
    );
    assert_eq!(fleet.of(&set_of(&matrix(&[&ab, &c, &d]), path)), all(&[], "a matrix of 3 generators"));
    let deep = matrix(&[&bare(&[&bare(&[&ab, &c]), &d]), &d]);
    assert_eq!(fleet.of(&set_of(&deep, path)), all(&[], "generator matrix"));
}

/// What is too much is not followed, and everything else is read.
#[test]
fn a_set_that_generates_too_much_is_not_followed() {
    let fleet = Fleet::new(&["nodes/a", "nodes/b"]);
    let many = |n: usize| list(&(0..n).map(|i| format!("{{x{n}: n{i}, folder: a}}")).collect::<Vec<_>>().join(", "));
    let bare = |generators: &[&str]| matrix(generators).trim_start_matches("\n  - ").to_owned();
    let path = "nodes/{{folder}}";
    let (twenty, forty) = (many(20), many(40));
    assert_eq!(fleet.of(&set_of(&matrix(&[&forty, &twenty]), path)), all(&["nodes/a"], ""));
    let too_many = "more than 1000 applications";
    assert_eq!(fleet.of(&set_of(&matrix(&[&forty, &forty]), path)), all(&[], too_many));
    assert_eq!(fleet.of(&set_of(&format!("\n  - {}", many(1001)), path)), all(&[], too_many));
    let twice = format!("\n  - {}\n  - {}", many(600), list("{folder: b}")) + &format!("\n  - {}", many(600));
    assert_eq!(fleet.of(&set_of(&twice, path)), all(&["nodes/a", "nodes/b"], too_many));
    let six: Vec<&str> = [twenty.as_str(); 6].to_vec();
    assert_eq!(fleet.of(&set_of(&matrix(&six), path)), all(&[], "a matrix of 6 generators"));
    let eight = bare(&[&bare(&[&twenty, &twenty]), &bare(&[&twenty, &twenty])]);
    assert_eq!(fleet.of(&set_of(&format!("\n  - {eight}"), path)), all(&[], too_many));
    // Many runs that generate nothing.
    let none = format!("git: {{{URL}, directories: [{{path: none/*}}]}}");
    let (thousand, nested) = (many(1000), bare(&[&many(1000), &none]));
    assert_eq!(fleet.of(&set_of(&matrix(&[&thousand, &nested]), path)), all(&[], "more than 2000 combinations"));
    // Values grow only as far as they are written.
    let doubled: Vec<String> =
        (1..30).map(|i| format!("v{i}: \"{{{{values.v{0}}}}}{{{{values.v{0}}}}}\"", i - 1)).collect();
    let fields = format!("values: {{v0: \"{{{{path}}}}\", {}}}", doubled.join(", "));
    let doubling = format!("\n  - git: {{{URL}, directories: [{{path: nodes/*}}], {fields}}}");
    assert_eq!(fleet.of(&set_of(&doubling, "{{values.v0}}")), all(&["nodes/a", "nodes/b"], ""));
    assert_eq!(fleet.of(&set_of(&doubling, "{{values.v29}}")), all(&[], "the path {{values.v29}}"));
    let long = list(&format!("{{long: {}}}", "a".repeat(100_000)));
    let copies = list(&vec!["{folder: \"{{long}}\"}"; 900].join(", "));
    assert_eq!(fleet.of(&set_of(&matrix(&[&long, &copies]), path)), all(&[], "more than 32 MiB of parameters"));
    let long = "a".repeat(100_000) + "/{{folder}}";
    assert_eq!(fleet.of(&set_of(&format!("\n  - {}", many(900)), &long)), all(&[], "more than 32 MiB of parameters"));
    let text = stdout(&validate(fleet.folder.path(), &["sets", "nodes/a"]));
    assert!(text.contains("nodes/a/class.yaml"), "{text}");
}
