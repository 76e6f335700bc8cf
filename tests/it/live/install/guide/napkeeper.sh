#!/usr/bin/env bash
# Stands for napkeeper. Runs what asks a cluster or Azure and changes neither; other commands are for other tests.
echo "napkeeper $*" >> "$CALLS"
azure=()
case $* in
  audit*--from*|*--azure-endpoint*) ;;
  audit*) azure=(--azure-endpoint "$AZURE" --azure-token-file "$TOKEN") ;;
esac
case $* in
  "explain pod" | "explain node") exit ;;
  "policies export"*) exec "$BINARY" "$@" ;;
  audit* | disruption* | "explain pod"* | "explain node"* | history* | "uninstall --dry-run"*) ;;
  *) exit ;;
esac
echo "napkeeper $*" >> "$RUN"
"$BINARY" "$@" "${azure[@]}" 2> "$CALLS.$$"
(( $? < 2 )) || echo "napkeeper $*: $(tr '\n' ' ' < "$CALLS.$$")" >> "$FAILED"
