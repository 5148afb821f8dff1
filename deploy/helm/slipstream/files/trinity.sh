#!/bin/bash
# The entrypoint of the RayJobs: runs Trinity with the given options, and starts it again where work is left.
#
# After a quiet night, and after most of its own errors, Trinity ends as if all were well; `slipstream trinity` then ends
# with 3. To KubeRay only a failure is a reason for a second try, and it would build a new Ray cluster for it, which
# takes minutes. So that loop is here. Anything else is handed to KubeRay: 0, training has finished; another code, Trinity
# failed or was refused, and the job is tried again in a new cluster until its backoffLimit.
set -u
exec > >(tee --output-error=warn "${POD_LOG:-/proc/1/fd/1}") 2>&1 # what Ray keeps as the job's log is the pod's log too
while true; do
  slipstream trinity "$@"
  code=$?
  if [ "$code" -ne 3 ]; then
    exit "$code"
  fi
  echo "Trinity is started again in ${RESTART_PAUSE:-15} s"
  sleep "${RESTART_PAUSE:-15}"
done
