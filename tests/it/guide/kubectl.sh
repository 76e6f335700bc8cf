#!/usr/bin/env bash
# Stands for kubectl. Reads the options, and looks for files, folders and objects of napkeeper that are named. The plugin krew is
# not there.
echo "kubectl $*" >> "$CALLS"
case $1 in
  napkeeper) exec "$@" ;;
  krew) exit ;;
esac
"$BINARY_KUBECTL" "$@" --help > /dev/null 2> "$CALLS.$$" || echo "kubectl $*: $(cat "$CALLS.$$")" >> "$FAILED"
case "$*" in
  *napkeeper-facts*" -o yaml"*) cat "$FACTS" ;;
  get\ *" -o json"*) for file in clusters/prod/{class,nodepool}.yaml; do cat $file; echo ---; done; echo "$POD" ;;
esac
before=$1
for argument in "${@:2}"; do
  case $before in
    -f|--filename|-k|--kustomize|--patch-file|kustomize)
      [[ $argument == - || $argument == https://* || -e $argument ]] || echo "kubectl $*: there is no $argument" >> "$FAILED" ;;
  esac
  name=${argument##*/}
  if [[ $name == napkeeper-* && ! -e $argument ]]; then
    grep -rqwF -- "$name" "$KUSTOMIZE" || echo "kubectl $*: there is no $name in kustomize/" >> "$FAILED"
  fi
  before=$argument
done
