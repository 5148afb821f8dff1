// Who answers users, by GET /serving.

/** The part of the users that the version answers now: none while it is killed, or its lane is not ready. */
export function answering({ version, share, killed, ready }) {
  return version === null || killed || !ready ? 0 : share;
}

/** Whether a version was given users, and production answers them, because the lane is not ready. */
export const standsIn = (serving) => !serving.killed && serving.version !== null && serving.share > 0 && !serving.ready;
