#!/bin/sh
# Makes what is missing in secrets/, which compose mounts at /run/secrets: random passwords and keys, and an empty
# file for production's key (empty: the caller's own goes through). Files that are there stay as they are.
#   sh deploy/compose/secrets.sh            for the profile cpu
#   sudo sh deploy/compose/secrets.sh       for the profile gpu as well
# The directory keeps others on this machine out; the files are readable, because a mount keeps their owner and mode
# and each container has another user. postgres_passfile alone must belong to its reader: PostgreSQL's drivers refuse it otherwise.
set -eu
umask 077
cd "$(dirname "$0")/../.."
mkdir -p secrets

missing() { [ ! -e "secrets/$1" ]; }
random() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

if missing production_api_key; then : > secrets/production_api_key; fi
for name in facade_api_key grafana_password postgres_password; do
    if missing "$name"; then random > "secrets/$name"; fi
done
chmod 0644 secrets/production_api_key secrets/facade_api_key secrets/grafana_password secrets/postgres_password
if [ "$(id -u)" = 0 ]; then
    if [ -n "${SUDO_UID:-}" ]; then chown -R "$SUDO_UID" secrets; fi
    if missing postgres_passfile; then
        printf '*:*:slipstream:slipstream:%s\n' "$(cat secrets/postgres_password)" > secrets/postgres_passfile
    fi
    chown 10001:10001 secrets/postgres_passfile
    chmod 0400 secrets/postgres_passfile
fi
