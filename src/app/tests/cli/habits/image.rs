//! The image as the Containerfile describes it: its files are laid out, and the program runs among them as it does in a
//! pod. Needs user namespaces (`unshare` of util-linux). A release is a static program; that of the tests needs shared
//! libraries, which are added.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use super::{read, root};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the last stage of the Containerfile says.
struct Image {
    /// Text by path, and paths by what they are copied from.
    files: BTreeMap<String, String>,
    copied: BTreeMap<String, String>,
    user: String,
    entry: Vec<String>,
}

fn containerfile() -> String {
    fs::read_to_string(root().join("Containerfile")).unwrap().replace("\\\n", "")
}

impl Image {
    fn read() -> Self {
        let text = containerfile();
        let stage = text.rsplit_once("\nFROM ").unwrap().1;
        let mut lines = stage.lines();
        assert_eq!(lines.next(), Some("scratch"), "nothing but what is copied is in the image");
        let mut image =
            Self { files: BTreeMap::new(), copied: BTreeMap::new(), user: String::new(), entry: Vec::new() };
        while let Some(line) = lines.next() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] | ["ARG" | "LABEL", ..] => {}
                [comment, ..] if comment.starts_with('#') => {}
                ["COPY", "<<END", path] => {
                    let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "END").collect();
                    image.files.insert(path.to_owned(), text.join("\n") + "\n");
                }
                ["COPY", stage, from, path] if stage.starts_with("--from=") => {
                    image.copied.insert(from.to_owned(), path.to_owned());
                }
                ["USER", user] => user.clone_into(&mut image.user),
                ["ENTRYPOINT", ..] => {
                    image.entry = serde_json::from_str(line.trim_start_matches("ENTRYPOINT ")).unwrap();
                }
                _ => panic!("the test does not know what this makes of the image: {line}"),
            }
        }
        image
    }

    /// Lays the files out in a folder.
    fn lay_out(&self, folder: &Path) {
        let place = |path: &str| {
            let file = folder.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            file
        };
        for (path, text) in &self.files {
            fs::write(place(path), text).unwrap();
        }
        for (from, path) in &self.copied {
            match &**from {
                "/napkeeper" => drop(fs::copy(env!("CARGO_BIN_EXE_napkeeper"), place(path)).unwrap()),
                "/etc/ssl/certs/ca-certificates.crt" => fs::write(place(path), authority()).unwrap(),
                _ => panic!("the test does not know what {from} is"),
            }
        }
        let libraries = Command::new("ldd").arg(env!("CARGO_BIN_EXE_napkeeper")).output().unwrap();
        for library in
            String::from_utf8(libraries.stdout).unwrap().split_whitespace().filter(|word| word.starts_with('/'))
        {
            fs::copy(library, place(library)).unwrap();
        }
    }

    /// Runs the program with these files alone, which cannot be written to, without a network, and as the user of the
    /// image. Returns its exit code, and what it writes.
    fn run(&self, folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String) {
        let script = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd / &&
            exec unshare --user --map-user="$1" --map-group="$2" --root="$0" --wd=/ -- "$3" "${@:4}""#;
        let (user, group) = self.user.split_once(':').unwrap();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--net", "--", "bash", "-c", script]).arg(folder);
        command.args([user, group]).args(&self.entry).args(args);
        // The pod has no variables of whoever runs the tests, such as those that say where roots are.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap_or_else(|error| panic!("this test needs unshare in PATH: {error}"));
        // A program that does not read it has ended already.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("unshare:") && !text.contains("mount:"), "this test needs user namespaces: {text}");
        (output.status.code(), text)
    }
}

/// The certificate of an authority.
fn authority() -> String {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
}

const CLASS: &str =
    "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {maxPods: 40}\n";

/// No server listens there.
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "a",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "a", "user": {}}], "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}"#;

#[test]
fn the_program_needs_nothing_but_what_is_in_the_image() {
    let image = Image::read();
    let folder = tempfile::tempdir().unwrap();
    image.lay_out(folder.path());
    fs::write(folder.path().join("kubeconfig"), KUBECONFIG).unwrap();
    let run = |args: &[&str], input: &str| image.run(folder.path(), args, input);
    let (code, text) = run(&["version"], "");
    assert!(code == Some(0) && text.starts_with(concat!("napkeeper ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
    for command in ["audit", "certificates", "controller", "webhook"] {
        let (code, text) = run(&[command, "--help"], "");
        assert!(code == Some(0) && text.contains(&format!("Usage: napkeeper {command}")), "{text}");
    }
    let (code, text) = run(&["validate", "-"], CLASS);
    assert!(code == Some(0) && text.contains("1 object in 1 file checked"), "{text}");
    let (code, text) = run(&["validate", "-"], &CLASS.replace("40", "4"));
    assert!(code == Some(1) && text.contains("error[NK1015]"), "{text}");
    // Nothing listens, but the certificates that verify who does have been found.
    let (_, text) = run(&["history", "--kubeconfig", "/kubeconfig"], "");
    assert!(text.contains("cannot reach the API server"), "{text}");
    // The conditions of a pod are indeed met.
    let (code, text) = run(&["man", "--dir", "/man"], "");
    assert!(code == Some(2) && text.contains("Read-only file system"), "{text}");
    fs::remove_dir_all(folder.path().join("etc/ssl")).unwrap();
    let (_, text) = run(&["history", "--kubeconfig", "/kubeconfig"], "");
    assert!(text.contains("No CA certificates were loaded"), "{text}");
}

#[test]
fn pods_run_as_the_user_of_the_image() {
    let image = Image::read();
    let (user, group) = image.user.split_once(':').unwrap();
    assert!(user.parse::<u32>().is_ok_and(|id| id > 0), "the kubelet cannot tell that {user} is not root");
    assert!(image.files["/etc/passwd"].contains(&format!(":x:{user}:{group}:")), "{}", image.files["/etc/passwd"]);
    assert!(image.files["/etc/group"].contains(&format!(":x:{group}:")), "{}", image.files["/etc/group"]);
    for file in ["base/certificates.yaml", "base/controller.yaml", "base/webhook.yaml", "overlays/audit/cronjob.yaml"] {
        let text = fs::read_to_string(root().join("kustomize").join(file)).unwrap();
        for line in [format!("runAsUser: {user}\n"), format!("runAsGroup: {group}\n")] {
            assert!(text.contains(&line), "{file} lacks {line}");
        }
        // The entry point of the image is the program, whose arguments follow.
        assert!(text.contains("image: napkeeper\n") && !text.contains("command:"), "{file}");
    }
    assert_eq!(image.entry, ["/napkeeper"]);
}

#[test]
fn the_image_is_built_by_the_toolchain_and_profile_of_the_workspace() {
    let file = containerfile();
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let version = toolchain.split_once("channel = \"").unwrap().1.split_once('"').unwrap().0;
    for part in [format!("/rust:{version}-"), format!("RUSTUP_TOOLCHAIN={version}\n")] {
        assert!(file.contains(&part), "the Containerfile lacks {part}");
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(file.contains("--profile dist ") && workspace.contains("[profile.dist]\n"));
    // The rest of the repository is needed to build; what is generated would only spoil the cache.
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "target"), "{ignored}");
    // The workflow builds what the Containerfile names.
    let workflow = read(".github/workflows/release.yml").to_string();
    assert!(workflow.contains("--target program ") && file.contains(" AS program\n"));
}
