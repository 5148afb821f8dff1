#!/bin/sh
# Makes what is missing in secrets/, which compose mounts at /run/secrets: random passwords and keys, and an empty
# file for production's key (empty: the caller's own goes through). Files that are there stay as they are.
# agent_key, admin_key and metrics_key are keys of the sidecar (docs/access.md), for those who use it; the sidecar gets
# access_keys, which has their hashes. Remove a key's file and access_keys to have it made anew.
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
hash() { if command -v sha256sum > /dev/null; then sha256sum; else shasum -a 256; fi < "secrets/$1" | cut -d ' ' -f 1; }
for name in agent_key admin_key metrics_key; do
    if missing "$name"; then printf 'slp_%s' "$(random)" > "secrets/$name"; fi
done
if missing access_keys; then
    {
        echo "- {name: agents, roles: [proxy, feedback], hash: \"sha256:$(hash agent_key)\"}"
        echo "- {name: admin, roles: [admin], hash: \"sha256:$(hash admin_key)\"}"
        echo "- {name: prometheus, roles: [metrics], hash: \"sha256:$(hash metrics_key)\"}"
    } > secrets/access_keys
fi
for name in production_api_key facade_api_key grafana_password postgres_password agent_key admin_key metrics_key access_keys; do
    chmod 0644 "secrets/$name"
done
if [ "$(id -u)" = 0 ]; then
    if [ -n "${SUDO_UID:-}" ]; then chown -R "$SUDO_UID" secrets; fi
    if missing postgres_passfile; then
        printf '*:*:slipstream:slipstream:%s\n' "$(cat secrets/postgres_password)" > secrets/postgres_passfile
    fi
    chown 10001:10001 secrets/postgres_passfile
    chmod 0400 secrets/postgres_passfile
fi
