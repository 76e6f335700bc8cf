#!/usr/bin/env bash
# Stands for napkeeper. Runs what needs neither a cluster nor Azure, in a folder as a reader has it, and takes exit code 2 for a
# mistake. Of all else the options are read: the first that is unknown is an error, and `--help` ends the program. Files of the
# repository that are named must be there. What is in brackets is no argument.
echo "napkeeper $*" >> "$CALLS"
arguments=()
for argument in "$@"; do
  case $argument in
    manifests/*|policies/*|src/*)
      [[ -e $argument ]] || echo "napkeeper $*: there is no $argument" >> "$FAILED" ;;
  esac
  [[ $argument == \[* ]] || arguments+=("$argument")
done
set -- "${arguments[@]}"
if [[ $* == *--write* && ($(pwd -P) != "$HOME"/* || $* == *src/*) ]]; then
  echo "napkeeper $*: would write into this repository" >> "$FAILED"
  exit
fi
case "$1 $2 $*" in
  completion\ *|man\ *|rules\ *|schema\ *|version\ *|policies\ export\ *) "$BINARY" "$@" 2> "$CALLS.$$" ;;
  validate\ *|migrate\ *|policies\ test\ *|audit*\ --from\ *|explain\ pod*\ clusters/*|explain\ pod*\ --from\ *|simulate*\ manifests/*)
    [[ /dev/stdin -ef /dev/null ]] && exec < nodepool.yaml
    echo "napkeeper $*" >> "$RUN"
    PATH=$PATH_OF_PROGRAMS "$BINARY" "$@" 2> "$CALLS.$$"
    (( $? < 2 )) ;;
  *) "$BINARY" "$@" --help > /dev/null 2> "$CALLS.$$" ;;
esac || echo "napkeeper $*: $(cat "$CALLS.$$")" >> "$FAILED"
