#!/bin/bash
# The entrypoint of the RayJobs: runs Trinity with the given options, again and again.
#
# Trinity ends with 0 when no experience came for max_read_timeout, and after most errors too. To KubeRay that is a
# success, after which it starts nothing; so the loop is here. It keeps the Ray cluster, which takes minutes to come
# up. Exit code 2 is a mistake in the configuration, which no second try puts right: the RayJob fails and says so.
set -u
exec > >(tee --output-error=warn /proc/1/fd/1) 2>&1 # what Ray keeps as the job's log is the pod's log too
while true; do
  slipstream trinity "$@"
  code=$?
  if [ "$code" -eq 2 ]; then
    exit 2
  fi
  echo "trinity ended with $code; it is started again in ${RESTART_PAUSE:-15} s"
  sleep "${RESTART_PAUSE:-15}"
done
