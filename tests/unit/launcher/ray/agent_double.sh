#!/bin/sh
# A double of `pdjob agent`: it writes down how it was started, and lives as long as its stdin.
read -r secret
printf '%s\n' "$@" "secret=$secret" >"$PDJOB_AGENT_DOUBLE.new"
mv "$PDJOB_AGENT_DOUBLE.new" "$PDJOB_AGENT_DOUBLE"
cat >/dev/null
rm "$PDJOB_AGENT_DOUBLE"
