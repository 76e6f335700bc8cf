#!/bin/sh
# Installs napkeeper from a release: downloads the archive for this system, verifies its checksum, and its signature on
# request. Options are described by --help and in docs/install.md.
set -eu

repository=https://github.com/OWNER/napkeeper
version=latest
folder="${HOME:-}/.local/bin"
verify_signature=false

usage() {
  cat <<END
Usage: install.sh [--version TAG] [--dir FOLDER] [--verify-signature] [--repository URL]

  --version TAG        release to install, such as v0.1.0 (default: the latest one)
  --dir FOLDER         where to install the program (default: ~/.local/bin)
  --verify-signature   also verify that the release workflow has signed the checksums; needs cosign 3
  --repository URL     of a fork (default: $repository)
END
}

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

needs() {
  command -v "$1" >/dev/null 2>&1 || fail "$1 is not in PATH: install it$2"
}

# Prints the part of an archive's name that says for which system it is.
system() {
  kernel=$(uname -s)
  machine=$(uname -m)
  case $kernel in
    Linux) os=linux ;;
    Darwin) os=darwin ;;
    *) fail "there is no release for the operating system $kernel: releases are for Linux and macOS; elsewhere build from source" ;;
  esac
  case $machine in
    x86_64 | amd64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) fail "there is no release for the architecture $machine: releases are for amd64 and arm64; elsewhere build from source" ;;
  esac
  printf '%s-%s\n' "$os" "$arch"
}

# Downloads a file of the release. An answer over HTTPS is never redirected to HTTP.
download() {
  curl --fail --silent --show-error --location --proto-redir =https --retry 3 --output "$work/$1" "$files/$1" ||
    fail "cannot download $files/$1: is there a release $version, and is the network available?"
}

sha256_of() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1"
  else
    needs shasum " (or sha256sum)"
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

verify_checksum() {
  expected=$(awk -v name="$1" '$2 == name { print $1 }' "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "SHA256SUMS of $version has no checksum of $1: nothing was installed"
  actual=$(sha256_of "$work/$1")
  [ "$actual" = "$expected" ] ||
    fail "the checksum of $1 is $actual, but SHA256SUMS has $expected: nothing was installed; download it again, and if it still differs, report it"
}

# The certificate names the workflow and the tag for which it was issued.
verify_signature_of_checksums() {
  download SHA256SUMS.sigstore.json
  identity=$(printf '%s' "$repository/.github/workflows/release.yml@refs/tags/$version" | sed 's/\./\\./g')
  [ "$version" != latest ] || identity="${identity%latest}v[^/]*"
  cosign verify-blob --bundle "$work/SHA256SUMS.sigstore.json" \
    --certificate-oidc-issuer https://token.actions.githubusercontent.com \
    --certificate-identity-regexp "^$identity\$" \
    "$work/SHA256SUMS" >&2 ||
    fail "the signature of SHA256SUMS is not that of $repository for $version: nothing was installed"
}

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --verify-signature)
      verify_signature=true
      shift
      continue
      ;;
    --version | --dir | --repository) [ -n "${2:-}" ] || fail "$1 needs a value: see --help" ;;
    *) fail "unknown option $1: see --help" ;;
  esac
  case $1 in
    --version) version=$2 ;;
    --dir) folder=$2 ;;
    --repository) repository=${2%/} ;;
  esac
  shift 2
done

system=$(system)
archive="napkeeper-$system.tar.gz"
needs curl ""
needs tar ""
if $verify_signature; then needs cosign " (https://docs.sigstore.dev) or leave out --verify-signature"; fi

files="$repository/releases/download/$version"
[ "$version" != latest ] || files="$repository/releases/latest/download"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
download SHA256SUMS
if $verify_signature; then verify_signature_of_checksums; fi
download "$archive"
verify_checksum "$archive"
tar -xzf "$work/$archive" -C "$work" napkeeper || fail "$archive has no program napkeeper: report it"

mkdir -p "$folder" || fail "cannot create $folder: choose another one with --dir"
# Beside its final place first, so that a program that runs is replaced whole.
{ cp "$work/napkeeper" "$folder/.napkeeper.new" && chmod 755 "$folder/.napkeeper.new" &&
  mv -f "$folder/.napkeeper.new" "$folder/napkeeper"; } || fail "cannot write to $folder: choose another one with --dir"
printf 'installed %s\n' "$folder/napkeeper"
case :$PATH: in
  *":$folder:"*) ;;
  *) printf '%s is not in PATH: add it\n' "$folder" >&2 ;;
esac
