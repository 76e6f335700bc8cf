//! What a release consists of, how it is made, and how it is installed.

use super::{read, root};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));
const REPOSITORY: &str = "OWNER/napkeeper";
const SYSTEMS: [&str; 4] = ["darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"];

/// A folder with a release of programs that print their system, as the workflow makes it.
struct Release {
    folder: tempfile::TempDir,
    /// Address of the server that has it.
    server: String,
}

/// What the jobs before the last one have made, and the sources.
fn artifacts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for system in SYSTEMS {
        let program = built(at, system);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(program, format!("#!/bin/sh\necho {system}\n")).unwrap();
    }
    fs::create_dir(at.join("build/sbom")).unwrap();
    fs::write(at.join("build/sbom/napkeeper.cdx.json"), "{}").unwrap();
    fs::create_dir(at.join(".github")).unwrap();
    for file in ["LICENSE", ".github/krew.yaml"] {
        fs::copy(root().join(file), at.join(file)).unwrap();
    }
    let git = "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a";
    succeeds(Command::new("bash").args(["-c", git]).current_dir(at));
    folder
}

/// The program for a system among the artifacts.
fn built(at: &Path, system: &str) -> PathBuf {
    let artifact = if system.starts_with("linux") { "linux" } else { "macos" };
    at.join("build").join(artifact).join(system).join("napkeeper")
}

/// A step of the last job of the workflow.
fn step(at: &Path, id: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", &script_of("release", id)]);
    let server = ("GITHUB_SERVER_URL", "https://github.com");
    bash.current_dir(at).envs([("GITHUB_REF_NAME", TAG), ("GITHUB_REPOSITORY", REPOSITORY), server]);
    bash.env("GITHUB_WORKSPACE", at);
    bash
}

impl Release {
    fn make() -> Self {
        let folder = artifacts();
        let at = folder.path();
        for id in ["archives", "plugin"] {
            succeeds(&mut step(at, id));
        }
        let server = serve(at.join("dist"));
        Self { folder, server }
    }

    fn repository(&self) -> String {
        format!("{}/{REPOSITORY}", self.server)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("dist").join(name)
    }

    /// Runs the installer where a system calls itself so, with programs that stand for others, into a folder `bin`.
    fn install(&self, uname: (&str, &str), args: &[&str]) -> Output {
        let fakes = self.folder.path().join("fakes");
        let (kernel, machine) = uname;
        program(&fakes.join("uname"), &format!("case $1 in -s) echo {kernel} ;; -m) echo {machine} ;; esac"));
        let path = std::env::join_paths(std::iter::once(fakes).chain(paths())).unwrap();
        let mut sh = Command::new("sh");
        sh.arg(root().join("install.sh")).args(["--repository", &self.repository()]).args(args).env("PATH", path);
        sh.arg("--dir").arg(self.folder.path().join("bin")).output().unwrap()
    }

    /// What the installed program prints, if there is one.
    fn installed(&self) -> Option<String> {
        let program = self.folder.path().join("bin/napkeeper");
        program.exists().then(|| succeeds(&mut Command::new(program)).trim().to_owned())
    }

    fn refuses(&self, uname: (&str, &str), args: &[&str], because: &str) {
        let output = self.install(uname, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(because), "{args:?}: {error}");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(!self.folder.path().join("bin").exists(), "{args:?} has installed something");
    }
}

fn paths() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

fn program(file: &Path, script: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The script of a step of the release workflow.
fn script_of(job: &str, id: &str) -> String {
    let workflow = read(".github/workflows/release.yml");
    let steps = workflow["jobs"][job]["steps"].as_array().unwrap();
    steps.iter().find(|step| step["id"] == id).unwrap()["run"].as_str().unwrap().to_owned()
}

/// Serves the files of a folder as those of a release, until the tests end. Returns its own address.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let releases = [format!("download/{TAG}"), "latest/download".to_owned()];
            let releases = releases.map(|release| format!("/{REPOSITORY}/releases/{release}/"));
            let name = releases.iter().find_map(|release| path.strip_prefix(release));
            let file = name.and_then(|name| fs::read(folder.join(name)).ok());
            let status = if file.is_some() { "200 OK" } else { "404 Not Found" };
            let body = file.unwrap_or_default();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let mut stream = stream;
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    server
}

#[test]
fn a_release_is_installed_on_each_system_as_the_workflow_made_it() {
    let release = Release::make();
    for (uname, system) in [
        (("Linux", "x86_64"), "linux_amd64"),
        (("Linux", "aarch64"), "linux_arm64"),
        (("Darwin", "x86_64"), "darwin_amd64"),
        (("Darwin", "arm64"), "darwin_arm64"),
    ] {
        for version in [&["--version", TAG][..], &[]] {
            let output = release.install(uname, version);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(release.installed().as_deref(), Some(system), "an installed program is replaced");
        }
    }
    // Nothing else was left beside it.
    assert_eq!(fs::read_dir(release.folder.path().join("bin")).unwrap().count(), 1);
}

#[test]
fn what_differs_from_its_checksum_is_not_installed() {
    let release = Release::make();
    let linux = ("Linux", "x86_64");
    let archive = release.file("napkeeper-linux-amd64.tar.gz");
    fs::copy(release.file("napkeeper-linux-arm64.tar.gz"), &archive).unwrap();
    release.refuses(linux, &[], "the checksum of napkeeper-linux-amd64.tar.gz is ");
    let sums = release.file("SHA256SUMS");
    let others = fs::read_to_string(&sums).unwrap().replace("napkeeper-linux-amd64", "napkeeper-linux-amd64-old");
    fs::write(&sums, others).unwrap();
    release.refuses(linux, &[], "SHA256SUMS of latest has no checksum of napkeeper-linux-amd64.tar.gz");
    fs::remove_file(&sums).unwrap();
    release.refuses(linux, &[], "/releases/latest/download/SHA256SUMS: is there a release latest");
}

#[test]
fn an_unknown_system_release_or_option_is_refused_with_a_reason() {
    let release = Release::make();
    let linux = ("Linux", "x86_64");
    release.refuses(
        ("Linux", "riscv64"),
        &[],
        "no release for the architecture riscv64: releases are for amd64 and arm64",
    );
    release.refuses(("FreeBSD", "amd64"), &[], "no release for the operating system FreeBSD");
    release.refuses(
        linux,
        &["--version", "v9.9.9"],
        "SHA256SUMS: is there a release v9.9.9, and is the network available?",
    );
    release.refuses(linux, &["--version", ""], "--version needs a value");
    release.refuses(linux, &["--force"], "unknown option --force");
}

#[test]
fn a_signature_is_verified_before_anything_is_installed() {
    let release = Release::make();
    let linux = ("Linux", "x86_64");
    let cosign = release.folder.path().join("fakes/cosign");
    fs::write(release.file("SHA256SUMS.sigstore.json"), "{}").unwrap();
    program(&cosign, "exit 1");
    release.refuses(linux, &["--verify-signature"], "the signature of SHA256SUMS is not that of http://127.0.0.1:");
    let called = release.folder.path().join("called");
    program(&cosign, &format!("printf '%s\\n' \"$@\" > {}", called.display()));
    let identity = |version: &[&str]| {
        let output = release.install(linux, &[&["--verify-signature"], version].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let args = fs::read_to_string(&called).unwrap();
        assert!(args.starts_with("verify-blob\n") && args.ends_with("/SHA256SUMS\n"), "{args}");
        assert!(args.contains("--certificate-oidc-issuer\nhttps://token.actions.githubusercontent.com\n"), "{args}");
        let pattern = args.split_once("--certificate-identity-regexp\n").unwrap().1.lines().next().unwrap();
        regex::Regex::new(pattern).unwrap()
    };
    let signer = |tag: &str| format!("{}/.github/workflows/release.yml@refs/tags/{tag}", release.repository());
    let (one, latest) = (identity(&["--version", TAG]), identity(&[]));
    assert!(one.is_match(&signer(TAG)) && latest.is_match(&signer(TAG)) && latest.is_match(&signer("v1.2.3")));
    for other in [signer("v9.9.9"), signer(&TAG.replace('.', "x")), signer(&format!("{TAG}-rc"))] {
        assert!(!one.is_match(&other), "{other}");
    }
    for other in [signer("v1/x"), signer("main"), format!("https://example.com/{}", signer(TAG))] {
        assert!(!latest.is_match(&other), "{other}");
    }
    assert!(!latest.is_match(&signer(TAG).replace("release.yml", "release-yml")));
}

/// An image without a signature is never found by its tag.
#[test]
fn the_image_has_its_tag_once_all_is_signed() {
    assert!(script_of("linux", "image").contains("name=$image,push-by-digest=true"));
    let workflow = read(".github/workflows/release.yml");
    let names: Vec<_> = workflow["jobs"]["release"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|step| step["name"].as_str())
        .collect();
    assert_eq!(names[names.len() - 3..], ["Signatures", "Tag of the image", "Release"]);
}

#[test]
fn the_plugin_is_that_of_the_release() {
    let release = Release::make();
    let text = fs::read_to_string(release.file("napkeeper.yaml")).unwrap();
    let plugin = napkeeper_api::yaml::read("napkeeper.yaml", &text).documents[0].value.clone();
    assert_eq!(plugin["spec"]["version"], TAG);
    // krew shows no more.
    assert!(plugin["spec"]["shortDescription"].as_str().unwrap().len() <= 50);
    let sums = fs::read_to_string(release.file("SHA256SUMS")).unwrap();
    let mut systems = Vec::new();
    for platform in plugin["spec"]["platforms"].as_array().unwrap() {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (labels["os"].as_str().unwrap(), labels["arch"].as_str().unwrap());
        let archive = format!("napkeeper-{os}-{arch}.tar.gz");
        let uri = format!("https://github.com/OWNER/napkeeper/releases/download/{TAG}/{archive}");
        assert_eq!((&platform["uri"], &platform["bin"]), (&Value::from(uri), &Value::from("napkeeper")));
        let sum = platform["sha256"].as_str().unwrap();
        assert!(sums.lines().any(|line| line == format!("{sum}  {archive}")), "{archive}: {sum}");
        let listed = succeeds(Command::new("tar").arg("-tzf").arg(release.file(&archive)));
        assert_eq!(listed, "napkeeper\nLICENSE\n", "krew installs the licence, too");
        systems.push(format!("{os}_{arch}"));
    }
    systems.sort();
    assert_eq!(systems, SYSTEMS);
}

/// Runs the step of the action that installs.
fn action(release: &Release, version: &str) -> (Option<i32>, String) {
    let action = read("action.yml");
    let steps = action["runs"]["steps"].as_array().unwrap();
    let script = steps.iter().find(|step| step["id"] == "install").unwrap()["run"].as_str().unwrap();
    let at = release.folder.path();
    let outputs = at.join("outputs");
    fs::write(&outputs, "").unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]).current_dir(at);
    bash.env("VERSION", version).env("FOLDER", root()).env("REPOSITORY", REPOSITORY);
    bash.env("SERVER", &release.server).env("RUNNER_TEMP", at).env("GITHUB_OUTPUT", &outputs);
    let output = bash.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text + &fs::read_to_string(outputs).unwrap())
}

#[test]
fn the_action_downloads_its_own_release_and_verifies_it() {
    let release = Release::make();
    let program = release.folder.path().join("napkeeper/napkeeper");
    for version in ["", TAG] {
        let (code, text) = action(&release, version);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.ends_with(&format!("program={}\n", program.display())), "{text}");
        assert!(succeeds(&mut Command::new(&program)).contains('_'));
        fs::remove_file(&program).unwrap();
    }
    let (code, text) = action(&release, "v9.9.9");
    assert!(code == Some(1) && text.contains("is there a release v9.9.9"), "{text}");
    for system in SYSTEMS {
        fs::write(release.file(&format!("napkeeper-{}.tar.gz", system.replace('_', "-"))), "other").unwrap();
    }
    let (code, text) = action(&release, "");
    assert!(code == Some(1) && text.contains("nothing was installed") && !program.exists(), "{text}");
}

#[test]
fn a_linux_program_above_40_mib_is_not_released() {
    let folder = artifacts();
    let program = fs::File::options().write(true).open(built(folder.path(), "linux_arm64")).unwrap();
    program.set_len(40 << 20).unwrap();
    succeeds(&mut step(folder.path(), "archives"));
    fs::remove_dir_all(folder.path().join("dist")).unwrap();
    program.set_len((40 << 20) + 1).unwrap();
    let output = step(folder.path(), "archives").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("the program for linux_arm64 has 41943041 bytes"), "{said}");
}

#[test]
fn only_a_tag_with_the_version_of_the_sources_is_released() {
    let script = script_of("linux", "version");
    let run = |tag: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-e", "-c", &script]).current_dir(root()).env("GITHUB_REF_NAME", tag).output().unwrap().status.code()
    };
    assert_eq!((run(TAG), run("v9.9.9"), run(env!("CARGO_PKG_VERSION"))), (Some(0), Some(1), Some(1)));
}
